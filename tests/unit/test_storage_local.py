"""The local store: what a full disk, a failed fsync, a kill or a planted link do to it."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from headway.base.errors import InvalidPath, StoreConflict, StoreFull, StoreUnavailable
from headway.storage.local import LocalStore
from headway.testing.faults import DiskFault, disk_faults, run_in_child, start_child

OLD, NEW = b"old" * 1000, b"new" * 1000


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def leftovers(store: LocalStore) -> list[str]:
    return [path.name for path in store.root.rglob(".*")]


def test_the_recipe_in_its_order(store: LocalStore) -> None:
    store.write("a/p", OLD)
    with disk_faults() as calls:
        store.write("a/p", NEW)
    steps = [call for call in calls if call not in ("open", "close")]
    assert steps == ["write"] * 4 + ["fsync", "replace", "fsync", "unlink"]
    with disk_faults() as calls:
        store.write("b/p", NEW, if_absent=True)
    steps = [call for call in calls if call not in ("open", "close", "write")]
    assert steps == ["mkdir", "fsync", "fsync", "link", "fsync", "unlink"]


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (errno.ENOSPC, StoreFull),
        (errno.EDQUOT, StoreFull),
        (errno.EFBIG, StoreFull),
        (errno.EROFS, StoreUnavailable),
        (errno.EACCES, StoreUnavailable),
        (errno.EIO, StoreUnavailable),
    ],
)
@pytest.mark.parametrize("if_absent", [False, True])
def test_a_failure_at_any_step_leaves_old_or_new(
    store: LocalStore, error: int, named: type[Exception], if_absent: bool
) -> None:
    store.write("a/p", OLD)
    with disk_faults() as calls:
        store.write("a/q" if if_absent else "a/p", OLD, if_absent=if_absent)
    steps = [(call, calls[: i + 1].count(call)) for i, call in enumerate(calls)]
    for number, (call, nth) in enumerate(steps):
        if call in ("close", "unlink"):
            continue  # their failure is no failure of the write
        path = f"a/new{number}" if if_absent else "a/p"
        fault = DiskFault(call, nth, error)  # type: ignore[arg-type]
        with disk_faults(fault), pytest.raises(named) as caught:
            store.write(path, NEW, if_absent=if_absent)
        assert path in str(caught.value) and str(store.root) in str(caught.value)
        assert caught.value.hint  # type: ignore[attr-defined]
        named_already = (call, nth) == ("fsync", 2)  # that of the folder
        assert store.exists(path) == (named_already or not if_absent)
        if store.exists(path):
            assert store.read(path) == (NEW if named_already else OLD)
        store.write("a/p", OLD)
        assert leftovers(store) == []


def test_after_a_failed_write_the_file_is_lost(store: LocalStore) -> None:
    with (
        disk_faults(DiskFault("write", 2)),
        pytest.raises(StoreUnavailable, match="an earlier write"),
        store.writer("p") as writer,
        pytest.raises(StoreFull),
    ):
        writer.write(b"x" * (1 << 21))
        # a caller that swallows the error does not get its file all the same
    assert not store.exists("p")


def test_a_real_limit_of_the_system_reads_as_full(store: LocalStore) -> None:
    def write_too_much() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        with pytest.raises(StoreFull):
            store.write("p", b"x" * 200_000)
        store.write("q", b"small")

    assert run_in_child(write_too_much) == 0
    assert store.list() == ["q"] and leftovers(store) == []


@pytest.mark.parametrize("if_absent", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_a_kill_at_every_step_leaves_old_or_new(
    store: LocalStore, if_absent: bool, after: bool
) -> None:
    def write(number: int) -> None:
        store.write(f"deep{number}/p" if if_absent else "a/p", NEW, if_absent=if_absent)

    store.write("a/p", OLD)
    with disk_faults() as calls:
        write(0)
    steps = [(call, calls[: i + 1].count(call)) for i, call in enumerate(calls)]
    for number, (call, nth) in enumerate(steps, start=1):
        store.write("a/p", OLD)
        fault = DiskFault(call, nth, error=None, after=after)  # type: ignore[arg-type]

        def write_and_die(number: int = number, fault: DiskFault = fault) -> None:
            with disk_faults(fault):
                write(number)

        assert run_in_child(write_and_die) == -signal.SIGKILL
        if not if_absent:
            assert store.read("a/p") in (OLD, NEW)
        elif store.exists(f"deep{number}/p"):
            assert store.read(f"deep{number}/p") == NEW
        else:
            write(number)
    store.sweep(older_than_seconds=0)
    assert leftovers(store) == []


def test_kills_at_random_moments_never_show_half_a_file(store: LocalStore) -> None:
    versions = [bytes([i]) * 2_000_000 for i in range(2)]
    store.write("a/p", versions[0])

    def write_forever() -> None:
        while True:
            for version in versions:
                store.write("a/p", version)

    chance = random.Random(7)
    for _ in range(15):
        pid = start_child(write_forever)
        time.sleep(chance.uniform(0.005, 0.06))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert store.read("a/p") in versions
        assert store.list() == ["a/p"]
    store.sweep(older_than_seconds=0)
    assert leftovers(store) == []
    assert store.read("a/p") in versions


def test_exactly_one_of_several_processes_wins(store: LocalStore) -> None:
    for attempt in range(5):
        start = time.monotonic() + 0.05

        def contend(me: int, attempt: int = attempt, start: float = start) -> None:
            while time.monotonic() < start:
                pass
            store.write(f"a/{attempt}", bytes([me]) * 10_000, if_absent=True)

        children = [start_child(lambda me=me: contend(me)) for me in range(4)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert sorted(codes) == [0, 1, 1, 1]
        assert store.read(f"a/{attempt}") == bytes([codes.index(0)]) * 10_000


def test_without_hard_links_the_first_still_wins(store: LocalStore) -> None:
    with disk_faults(DiskFault("link", 1, errno.EPERM), DiskFault("link", 2, errno.EPERM)):
        store.write("p", OLD, if_absent=True)
        with pytest.raises(StoreConflict):
            store.write("p", NEW, if_absent=True)
    assert store.read("p") == OLD
    assert store.list() == ["p"]


def test_sweep_spares_a_living_writer(store: LocalStore) -> None:
    with store.writer("p") as writer:
        writer.write(OLD)
        assert store.sweep(older_than_seconds=0) == 0
    assert store.read("p") == OLD


def test_sweep_waits_before_it_judges(store: LocalStore) -> None:
    (store.root / ".tmp-0123").write_bytes(b"half")
    assert store.list() == [] and store.sweep() == 0
    assert store.sweep(older_than_seconds=0) == 1
    assert leftovers(store) == []


def test_a_link_out_of_the_store_is_refused(store: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    LocalStore(outside).write("secret", b"data")
    (store.root / "door").symlink_to(outside)
    (store.root / "window").symlink_to(outside / "secret")
    for use in (
        lambda: store.write("door/new", b"x"),
        lambda: store.read("door/secret"),
        lambda: store.read("window"),
        lambda: store.list("door"),
        lambda: store.delete_tree("door/secret"),
    ):
        with pytest.raises(InvalidPath, match="symbolic link"):
            use()
    assert store.list() == [] and store.folders() == []
    store.delete_tree("door")  # takes the link, not what it leads to
    store.write("window", b"inside now")
    assert sorted(path.name for path in outside.iterdir()) == ["secret"]
    assert LocalStore(outside).read("secret") == b"data"


def test_a_pipe_does_not_hang_a_reader(store: LocalStore) -> None:
    os.mkfifo(store.root / "pipe")
    with pytest.raises(InvalidPath, match="regular file"):
        store.read("pipe")


def test_a_vanished_or_replaced_root_is_named_and_not_made_anew(store: LocalStore) -> None:
    store.write("p", OLD)
    moved = store.root.with_name("moved")
    store.root.rename(moved)
    for use in (lambda: store.write("q", NEW), lambda: store.read("p"), store.list):
        with pytest.raises(StoreUnavailable, match="gone"):
            use()
    assert not store.root.exists()
    store.root.mkdir()
    with pytest.raises(StoreUnavailable, match="replaced"):
        store.write("q", NEW)
    shutil.rmtree(store.root)
    moved.rename(store.root)
    assert store.read("p") == OLD


def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises((StoreUnavailable, StoreConflict)):
            LocalStore(path)


def test_a_piece_cannot_be_a_folder(store: LocalStore) -> None:
    store.write("a/p", OLD)
    with pytest.raises(StoreConflict, match="a file stands where a folder should"):
        store.write("a/p/q", NEW)
    with pytest.raises(StoreConflict):
        store.write("a", NEW)
    assert store.read("a/p") == OLD and leftovers(store) == []
