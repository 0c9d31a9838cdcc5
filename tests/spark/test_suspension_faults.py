"""Faults in the middle of suspending and resuming: the image is there, or the earlier one is."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headway.storage.runs
from headway.base.errors import (
    HeadwayError,
    StoreConflict,
    StoreCorrupt,
    StoreFull,
    WrongUsage,
)
from headway.bench.peers import same_rows
from headway.session import RunHandle, Session, spark_keeper
from headway.session import session as headway_session
from headway.session.pipelined_keeper import PipelinedKeeper
from headway.session.resuming import _ImageRecord
from headway.session.spark_keeper import SparkKeeper
from headway.session.workers import Workers
from headway.storage import Run, list_runs, open_store
from headway.testing.suspensions import (
    ATTEMPTS,
    NOW,
    QUERY,
    await_sides,
    await_stages,
    goes_on,
    images_of,
    running_of,
    suspended,
    watched,
)
from headway.workloads import WORKLOADS

SCENARIO = Path(__file__).with_name("kill_scenario.py")
PASSING = shutil.ignore_patterns(".tmp-*")
Opened = Callable[[Path], AbstractContextManager[Session]]


@pytest.fixture
def opened(spark: SparkSession, workload_data: Callable[[str], Path]) -> Opened:
    """Sessions on the spark engine over stores."""

    @contextmanager
    def open_one(store: Path) -> Iterator[Session]:
        given = {"store_url": str(store), "engine_name": "spark"}
        with headway_session(spark.newSession(), **given) as session:
            session.tables(workload_data("tpch"))
            yield session

    return open_one


def test_a_driver_that_is_lost_at_any_step(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before every change that a suspension makes, the store is what a kill would leave: the run
    goes on from there, each time."""
    left: list[Path] = []

    def copy(path: str) -> None:
        left.append(tmp_path / f"left-{secrets.token_hex(4)}")
        shutil.copytree(tmp_path / "store", left[-1], ignore=PASSING)

    with opened(tmp_path / "store") as session:
        store = watched(session)
        expected = session.spark.sql(QUERY).toArrow()
        for _ in range(ATTEMPTS):
            handle = session.run(QUERY)
            if await_stages(handle, 2):
                store.before = copy
                handle.suspend(NOW)
                store.before = lambda path: None
                if Run.open(session.store, handle.id).summary().status == "suspended":
                    break
                left.clear()
        else:
            raise AssertionError("the query was always quicker")
    left.append(tmp_path / "store")
    assert len(left) >= 4, left
    monkeypatch.setattr(headway.storage.runs, "is_gone", lambda record: True)
    kept = []
    for folder in left:
        with opened(folder) as session:
            kept.append(len(images_of(session, handle.id)))
            assert same_rows(goes_on(session, handle.id), expected), folder
    assert kept[0] == 0 and kept[-1] == 1, "the copies are of before and after"


@pytest.mark.nightly
def test_a_resumer_that_is_lost_at_any_step(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[Path] = []

    def copy(path: str) -> None:
        left.append(tmp_path / f"left-{secrets.token_hex(4)}")
        shutil.copytree(tmp_path / "store", left[-1], ignore=PASSING)

    with opened(tmp_path / "store") as session:
        expected = session.spark.sql(QUERY).toArrow()
        handle = suspended(session, QUERY, 2)
        store = watched(session)
        store.before = copy
        assert same_rows(goes_on(session, handle.id), expected)
    assert len(left) >= 4, left
    monkeypatch.setattr(headway.storage.runs, "is_gone", lambda record: True)
    for folder in left:
        with opened(folder) as session:
            if Run.open(session.store, handle.id).summary().status == "done":
                continue
            assert same_rows(goes_on(session, handle.id), expected), folder


def test_a_store_that_fails_loses_nothing(opened: Opened, tmp_path: Path) -> None:
    """From each step of a suspension on: the query goes on, and ends with its rows, or the image is
    there for whoever takes the run over."""
    ends: list[str] = []
    with opened(tmp_path / "store") as session:
        expected = session.spark.sql(QUERY).toArrow()
        step, tries = 0, 0
        while True:
            handle = suspended_unless_full(session, after=step)
            status = Run.open(session.store, handle.id).summary().status
            if status == "suspended":
                if "kept" in ends or tries == 5:
                    break
                step, tries = step - 3, tries + 1  # this one had fewer states than those before
                continue
            assert status == "running"
            if handle._suspending:  # only the last word is missing
                assert images_of(session, handle.id)
                assert same_rows(taken_over(session, handle.id), expected), f"step {step}"
            else:
                handle.wait()
                assert same_rows(handle.arrow(), expected), f"step {step}"
            ends.append("kept" if handle._suspending else "went on")
            step += 1
    # Not at the same steps each time: one run has more states to write than the next.
    assert ends.count("went on") >= 4 and "kept" in ends, ends


def test_a_query_that_there_is_no_room_for_goes_on(
    opened: Opened, tmp_path: Path, slow: str, slow_rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not from what was kept before: it is not stopped."""
    with opened(tmp_path / "store") as session:
        monkeypatch.setattr(session.store, "room", lambda: 0.0)
        handle = session.run(slow)
        assert await_stages(handle, 2)
        with pytest.raises(StoreFull, match="0 MB left"):
            handle.suspend(NOW)
        handle.wait()
        kinds = [event.kind for event in Run.open(session.store, handle.id).events()]
        assert kinds.count("query_started") == 1 and "suspended" not in kinds
        assert same_rows(handle.arrow(), slow_rows)


def test_a_query_of_the_workers_goes_on_when_nothing_can_be_kept(
    spark: SparkSession,
    workers: Workers,
    workload_data: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what its channels have."""
    text = WORKLOADS["tpch"].queries()["q21"]
    failed: list[str] = []

    def full(keeper: PipelinedKeeper, *arguments: object, **named: object) -> None:
        failed.append("x")
        raise StoreFull("no room for its states")

    monkeypatch.setattr(PipelinedKeeper, "image", full)
    store = str(tmp_path / "store")
    with headway_session(spark.newSession(), workers=workers, store_url=store) as session:
        session.tables(workload_data("tpch"))
        for _ in range(ATTEMPTS):
            handle = session.run(text)
            if await_sides(handle, 2):
                with suppress(WrongUsage, StoreFull):
                    handle.suspend(NOW)
            handle.wait()
            if failed:
                break
        else:
            raise AssertionError("the query was always quicker")
        kinds = [event.kind for event in Run.open(session.store, handle.id).events()]
        assert kinds.count("query_started") == 1
        assert same_rows(handle.arrow(), session.spark.sql(text).toArrow())


def suspended_unless_full(session: Session, after: int) -> RunHandle:
    """A run that is asked to suspend while the store takes so many changes, and no more."""
    store = watched(session)
    for _ in range(ATTEMPTS):
        handle = session.run(QUERY)
        if not await_stages(handle, 2):
            continue
        changes = count()

        def fail(path: str) -> None:
            if next(changes) >= after:  # noqa: B023 - of this attempt
                raise StoreFull(f"no room for {path}")

        store.before = fail
        try:
            handle.suspend(NOW)
        except WrongUsage:
            continue  # it was quicker
        except HeadwayError as error:
            assert isinstance(error, StoreFull | StoreConflict)
        finally:
            store.before = lambda path: None
        return handle
    raise AssertionError("the query was always quicker")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, which only root can have."""
    place = tmp_path / "disk"
    place.mkdir()
    mount("-t", "tmpfs", "-o", "size=16m", "headway-test", place)
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[None]:
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    yield
    ballast.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    mount("-o", "remount,ro", disk)
    yield
    mount("-o", "remount,rw", disk)


@contextmanager
def vanished(disk: Path) -> Iterator[None]:
    """Another, empty file system lies over it."""
    mount("-t", "tmpfs", "-o", "ro", "headway-test", disk)
    yield
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.nightly
@pytest.mark.parametrize("by", ["driver", "executors"])
@pytest.mark.parametrize("fault", [full, read_only, vanished])
def test_a_disk_that_fails_for_a_while(
    opened: Opened, disk: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, by: str
) -> None:
    """Whoever writes the states: the suspension fails with a name, and the query goes on."""
    if by == "executors":
        monkeypatch.setattr(spark_keeper, "_COLLECTED_BYTES", 0)
    write = SparkKeeper._write
    faults = ExitStack()
    failing = False

    def failing_write(keeper: SparkKeeper, *arguments: Any) -> set[str]:
        if failing:
            faults.enter_context(fault(disk))
        return write(keeper, *arguments)

    monkeypatch.setattr(SparkKeeper, "_write", failing_write)
    with opened(disk / "store") as session:
        expected = session.spark.sql(QUERY).toArrow()
        for _ in range(ATTEMPTS):
            handle = session.run(QUERY)
            if not await_stages(handle, 1):
                continue
            with faults:
                failing = True
                try:
                    handle.suspend(NOW)
                except HeadwayError as error:
                    failure = error
                    break
                finally:
                    failing = False
            with suppress(HeadwayError):
                handle.wait()
        else:
            raise AssertionError("the query was always quicker")
        assert failure.name == ("STORE_FULL" if fault is full else "STORE_UNAVAILABLE"), failure
        print(failure.describe())
        handle.wait()
        assert same_rows(handle.arrow(), expected)


@pytest.mark.nightly
def test_a_worker_that_is_killed_while_it_is_asked(
    session_of_workers: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had is lost with it; the image is without that, and the run goes on elsewhere."""
    session = session_of_workers
    text = WORKLOADS["tpch"].queries()["q21"]
    expected = session.spark.sql(text).toArrow()
    extract = PipelinedKeeper._extract
    killed: list[int] = []

    def kill_and_extract(keeper: PipelinedKeeper, *arguments: Any) -> Any:
        if not killed:
            killed.extend(session.workers.processes.values())
            os.kill(killed[0], signal.SIGKILL)
        return extract(keeper, *arguments)

    monkeypatch.setattr(PipelinedKeeper, "_extract", kill_and_extract)
    for _ in range(ATTEMPTS):
        handle = session.run(text)
        while not handle.finished and not killed:
            for running in running_of(handle):
                if running.watch.report.sides_done >= 2:  # type: ignore[union-attr]
                    with suppress(HeadwayError):
                        handle.suspend(NOW)
        if killed:
            break
    assert killed, "the query was always quicker"
    summary = Run.open(session.store, handle.id).summary()
    if summary.resumable:
        assert same_rows(goes_on(session, handle.id), expected)
    else:
        handle.wait()
        assert same_rows(handle.arrow(), expected)


@pytest.fixture
def session_of_workers(
    spark: SparkSession, workload_data: Callable[[str], Path], tmp_path: Path
) -> Iterator[Session]:
    with headway_session(spark.newSession(), store_url=str(tmp_path / "store")) as session:
        session.tables(workload_data("tpch"))
        yield session


def taken_over(session: Session, run_id: str) -> pa.Table:
    handle = session.resume(run_id, take_over=True)
    handle.wait()
    return handle.arrow()


def image_piece(session: Session, run_id: str) -> tuple[Run, str]:
    run = Run.open(session.store, run_id)
    return run, images_of(session, run_id)[-1]["piece"]


@pytest.mark.parametrize(
    ("what", "damage"),
    [
        ("image", "flipped"),
        ("state", "truncated"),
        *(
            pytest.param(what, damage, marks=pytest.mark.nightly)
            for what, damage in (
                ("image", "truncated"),
                ("image", "missing"),
                ("state", "flipped"),
                ("state", "missing"),
            )
        ),
    ],
)
def test_damage_is_noticed(opened: Opened, tmp_path: Path, what: str, damage: str) -> None:
    with opened(tmp_path / "store") as session:
        handle = suspended(session, QUERY, 2)
        run, piece = image_piece(session, handle.id)
        if what == "state":
            piece = run.pieces("states")[0]
        file = tmp_path / "store" / "runs" / handle.id / "pieces" / piece
        data = bytearray(file.read_bytes())
        if damage == "truncated":
            file.write_bytes(data[: len(data) // 2])
        elif damage == "flipped":
            data[len(data) // 2] ^= 0x40
            file.write_bytes(data)
        else:
            file.unlink()
        with pytest.raises(HeadwayError, match=r"pieces/(images|states)"):
            goes_on(session, handle.id)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 99}, "format 99"),
        ({"run": "20260101-000000-aaaaaa"}, "is an image of run 20260101-000000-aaaaaa"),
        ({"plans": "other"}, "of another query"),
    ],
)
def test_a_foreign_image_is_refused(
    opened: Opened, tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with opened(tmp_path / "store") as session:
        handle = suspended(session, QUERY, 2)
        run, piece = image_piece(session, handle.id)
        record = msgspec.json.decode(run.read_piece(piece), type=_ImageRecord)
        if "plans" in change:
            other = suspended(session, QUERY.replace("revenue", "income"), 2)
            foreign, name = image_piece(session, other.id)
            plans = msgspec.json.decode(foreign.read_piece(name), type=_ImageRecord).plans
            change = {"plans": plans}
        run.write_piece(piece, msgspec.json.encode(msgspec.structs.replace(record, **change)))
        with pytest.raises(HeadwayError, match=told) as caught:
            session.resume(handle.id)
        assert caught.value.name in ("STORE_CORRUPT", "FORMAT_NOT_READABLE")
        assert Run.open(session.store, handle.id).summary().status == "suspended"


def test_a_store_that_vanished(opened: Opened, tmp_path: Path) -> None:
    with opened(tmp_path / "store") as session:
        handle = suspended(session, QUERY, 2)
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with opened(tmp_path / "store") as session, pytest.raises(HeadwayError, match="no run"):
        session.resume(handle.id)
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "elsewhere").rename(tmp_path / "store")
    assert open_store(str(tmp_path / "store")).exists(f"runs/{handle.id}/manifest")
    with opened(tmp_path / "store") as session:
        expected = session.spark.sql(QUERY).toArrow()
        assert same_rows(goes_on(session, handle.id), expected)


def test_an_image_that_is_no_image(opened: Opened, tmp_path: Path) -> None:
    with opened(tmp_path / "store") as session:
        handle = suspended(session, QUERY, 2)
        run, piece = image_piece(session, handle.id)
        run.write_piece(piece, b"[1, 2")
        with pytest.raises(StoreCorrupt, match="is no image"):
            session.resume(handle.id)


def killed_at(step: int, *arguments: str | Path) -> bool:
    """Whether the step was reached: the process that comes to it kills itself."""
    done = subprocess.run(
        [sys.executable, str(SCENARIO), str(step), *map(str, arguments)],
        capture_output=True,
        timeout=200,
    )
    if done.returncode == 0:
        return False
    assert done.returncode == -signal.SIGKILL, done.stderr.decode(errors="replace")[-4000:]
    return True


@pytest.mark.nightly
@pytest.mark.parametrize("by", ["driver", "executors", "workers"])
def test_a_driver_that_is_killed_at_every_step(
    opened: Opened, workload_data: Callable[[str], Path], tmp_path: Path, by: str
) -> None:
    """Whoever writes the states."""
    expected = None
    kept = []
    for step in count():
        store = tmp_path / f"store-{step}"
        if not killed_at(step, "suspend", by, store, workload_data("tpch")):
            break
        with opened(store) as session:
            (summary,) = list_runs(session.store)
            assert summary.status == "lost"
            kept.append(len(images_of(session, summary.run_id)))
            expected = expected or session.spark.sql(QUERY).toArrow()
            assert same_rows(goes_on(session, summary.run_id), expected), f"step {step}"
    print("images at every step:", kept)
    assert len(kept) >= 4 and kept[0] == 0 and kept[-1] == 1


@pytest.mark.nightly
def test_a_resumer_that_is_killed_at_every_step(
    opened: Opened, workload_data: Callable[[str], Path], tmp_path: Path
) -> None:
    with opened(tmp_path / "store") as session:
        expected = session.spark.sql(QUERY).toArrow()
        run_id = suspended(session, QUERY, 2).id
    found = []
    for step in count():
        store = tmp_path / f"store-{step}"
        shutil.copytree(tmp_path / "store", store)
        if not killed_at(step, "resume", "driver", store, workload_data("tpch")):
            break
        with opened(store) as session:
            found.append(Run.open(session.store, run_id).summary().status)
            if found[-1] != "done":
                assert same_rows(goes_on(session, run_id), expected), f"step {step}"
    print("status at every step:", found)
    assert len(found) >= 4 and found[0] == "suspended" and "lost" in found
