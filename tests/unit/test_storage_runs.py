"""Runs: created, opened, listed, found, removed; damaged ones are named and break nothing."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from headway.base.errors import (
    FormatNotReadable,
    InvalidIdentifier,
    InvalidPath,
    PieceMissing,
    RunNotFound,
    StoreConflict,
    StoreCorrupt,
    WrongUsage,
)
from headway.storage import (
    LOST_SECONDS,
    FileFingerprint,
    ProcessRecord,
    QueryRecord,
    ReliableStore,
    Run,
    TableRecord,
    is_gone,
    list_runs,
    new_manifest,
    remove_run,
    resolve_run,
    sweep_runs,
    this_process,
)
from headway.storage.local import LocalStore
from headway.testing.faults import DiskFault, disk_faults, run_in_child

QUERIES = (
    QueryRecord("q1", "SELECT 1", plan={"node": "Scan", "columns": ["a", {"b": 1.5}]}),
    QueryRecord("q2", "SELECT 'ä\u2028'", not_imported="PythonUDF has no place in our plan"),
    QueryRecord("q3", "SELECT 3"),
)
TABLES = (TableRecord("sales", "parquet", (FileFingerprint("s3://b/1.parquet", 10, "ab"),)),)


class HandClock:
    def __init__(self) -> None:
        self.time = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def make_run(store: ReliableStore, run_id: str, clock: HandClock | None = None) -> Run:
    return Run.create(store, new_manifest(QUERIES, run_id=run_id, clock=clock), clock=clock)


def test_a_manifest_comes_back_as_it_was(store: ReliableStore) -> None:
    manifest = new_manifest(QUERIES, TABLES, {"spark.headway.x": "1"})
    Run.create(store, manifest)
    found = Run.open(store, manifest.run_id)
    assert found.manifest == manifest
    assert found.manifest.driver == this_process()
    assert found.url == f"{store.url}/runs/{manifest.run_id}"


def test_pieces(store: ReliableStore) -> None:
    run = make_run(store, "r")
    run.write_piece("results/q1/rows", b"one")
    run.write_piece("results/q2", [b"t", b"wo"])
    with run.piece_writer("state/w1") as writer:
        writer.write(b"state")
    with pytest.raises(StoreConflict):
        run.write_piece("results/q2", b"", if_absent=True)
    assert run.pieces() == ["results/q1/rows", "results/q2", "state/w1"]
    assert run.pieces("results") == ["results/q1/rows", "results/q2"]
    assert run.read_piece("results/q2") == b"two"
    assert b"".join(run.piece_reader("state/w1")) == b"state"
    with pytest.raises(PieceMissing, match="runs/r/pieces/none"):
        run.read_piece("none")
    run.end("done")
    run.verify()
    store.delete_tree("runs/r/pieces/state/w1")
    for use in (run.pieces, run.verify, run.summary):
        with pytest.raises(PieceMissing, match="runs/r/pieces/state/w1"):
            use()


def test_a_piece_that_came_after_the_end_is_not_the_runs(local: LocalStore) -> None:
    run = make_run(local, "r")
    run.write_piece("one", b"1")
    run.end("done")
    local.write("runs/r/pieces/late", b"by a worker that was declared dead")
    assert Run.open(local, "r").pieces() == ["one"]


@pytest.mark.parametrize("name", ["../x", "/x", "a/../b", ".x", "", "a b"])
def test_piece_names_are_checked(local: LocalStore, name: str) -> None:
    run = make_run(local, "r")
    for use in (run.read_piece, lambda n: run.write_piece(n, b""), run.piece_writer):
        with pytest.raises(InvalidPath):
            use(name)


@pytest.mark.parametrize("run_id", ["../r", "a/b", "", ".", "a.b", "x" * 65, "last"])
def test_run_ids_are_checked(local: LocalStore, run_id: str) -> None:
    manifest = msgspec.structs.replace(new_manifest([]), run_id=run_id)
    with pytest.raises(InvalidIdentifier):
        Run.create(local, manifest)
    if run_id != "last":
        for use in (Run.open, resolve_run, remove_run):
            with pytest.raises(InvalidIdentifier):
                use(local, run_id)
    assert local.list() == []


def test_an_id_is_taken_once(store: ReliableStore) -> None:
    make_run(store, "r")
    with pytest.raises(StoreConflict):
        make_run(store, "r")


def test_summaries_follow_the_log(local: LocalStore) -> None:
    clock = HandClock()
    run = make_run(local, "r", clock)
    clock.sleep(5)
    summary = run.summary()
    assert (summary.status, summary.seconds, summary.queries_total) == ("running", 5.0, 3)
    run.append("query_failed", query="q1")
    run.append("query_failed", query="q2")
    run.append("query_done", query="q1")  # it went well the second time
    summary = run.summary()
    assert (summary.queries_done, summary.queries_failed) == (1, 1)
    clock.sleep(5)
    run.end("failed", reason="q2")
    clock.sleep(100)
    summary = Run.open(local, "r", clock=clock).summary()
    assert (summary.status, summary.seconds) == ("failed", 10.0)
    assert summary.started_at == "2026-03-01T12:00:00.000000+00:00"
    with pytest.raises(WrongUsage):
        make_run(local, "s").end("finished")  # type: ignore[arg-type]


def test_a_run_whose_driver_died_is_lost(local: LocalStore) -> None:
    def start_and_die() -> None:
        make_run(local, "r").append("query_done", query="q1")
        os.kill(os.getpid(), 9)

    assert run_in_child(start_and_die) == -9
    summary = Run.open(local, "r").summary()
    assert (summary.status, summary.queries_done) == ("lost", 1)
    assert summary.seconds is not None and summary.seconds < 10


def test_a_suspended_run_is_taken_over_once(store: ReliableStore) -> None:
    run = make_run(store, "r")
    run.append("image")
    run.suspend()
    found = [Run.open(store, "r") for _ in range(2)]
    assert {each.summary().status for each in found} == {"suspended"}
    seen = [len(each.events()) for each in found]
    found[0].take_over(seen[0])
    assert found[0].summary().status == "running"
    with pytest.raises(StoreConflict, match="another process"):
        found[1].take_over(seen[1])
    found[0].append("query_done", query="q1")
    found[0].suspend()
    assert Run.open(store, "r").summary().status == "suspended"


def test_only_what_is_certain_is_called_gone() -> None:
    me = this_process()
    assert me.started is not None
    boot, namespace, ticks = me.started.split(":")
    replace = msgspec.structs.replace
    assert not is_gone(me)
    assert not is_gone(replace(me, host="elsewhere", pid=2**30))
    assert not is_gone(replace(me, started=None))
    assert not is_gone(replace(me, started=f"{boot}:1{namespace}:1"))
    assert is_gone(replace(me, started=f"another-boot:{namespace}:{ticks}"))
    assert is_gone(replace(me, started=f"{boot}:{namespace}:1"))  # the number was used again
    assert is_gone(replace(me, pid=2**30))


def test_a_driver_elsewhere_is_lost_without_a_sign_of_life(local: LocalStore) -> None:
    clock = HandClock()
    elsewhere = msgspec.structs.replace(this_process(), host="elsewhere")
    manifest = msgspec.structs.replace(new_manifest([], clock=clock), driver=elsewhere)
    run = Run.create(local, manifest, clock=clock)
    assert run.summary().status == "running"
    clock.sleep(LOST_SECONDS - 1)
    run.append("query_started")
    clock.sleep(LOST_SECONDS - 1)
    assert not run.summary().resumable, "its last word is not so long ago"
    clock.sleep(2)
    assert (run.summary().status, run.summary().resumable) == ("lost", True)
    alive = {"driver": msgspec.to_builtins(elsewhere), "at": clock.now().isoformat()}
    run.write_piece("alive", msgspec.json.encode(alive))
    assert run.summary().status == "running"
    clock.sleep(LOST_SECONDS + 1)
    run.beat()  # of another process
    assert run.summary().status == "lost"


def test_a_run_that_was_given_up_can_be_resumed(local: LocalStore) -> None:
    run = Run.create(local, new_manifest([]))
    run.beat()
    run.stop("failed")
    assert (run.summary().status, run.summary().resumable) == ("failed", True)
    run.take_over(len(run.events()))
    assert (run.summary().status, run.summary().resumable) == ("running", False)
    run.end("done")
    assert (run.summary().status, run.summary().resumable) == ("done", False)
    assert not local.sizes(f"runs/{run.run_id}/pieces"), "signs of life of nobody are left"


def test_a_zombie_is_gone() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, msgspec.json.encode(this_process()))
        finally:
            os._exit(0)
    record = msgspec.json.decode(os.read(read, 1000), type=ProcessRecord)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet waited for
    assert is_gone(record)
    os.waitpid(pid, 0)


def test_the_list_is_newest_first_and_survives_damage(store: ReliableStore) -> None:
    clock = HandClock()
    for run_id in ("b", "20260301-115900-zzz", "a", "damaged-1"):
        clock.sleep(60)
        run = make_run(store, run_id, clock)
        run.append("query_done", query="q1")
    run.end("done")
    store.delete_tree("runs/damaged-1/events/00000001.event")
    store.delete_tree("runs/20260301-115900-zzz/manifest")
    store.write("runs/not.an.id/x", b"")
    store.write("runs/half/head", store.read("runs/a/head"))
    found = list_runs(store, clock=clock)
    assert [(run.run_id, run.status) for run in found] == [
        ("damaged-1", "damaged"),
        ("a", "running"),
        ("b", "running"),
        ("20260301-115900-zzz", "damaged"),
    ]
    assert found[0].reason is not None and "00000001.event is missing" in found[0].reason
    assert found[3].reason is not None and "zzz/manifest is missing" in found[3].reason


def test_a_run_killed_while_created_is_ignored_and_swept(local: LocalStore) -> None:
    def create_and_die(nth: int) -> None:
        with disk_faults(DiskFault("link", nth, error=None)):
            make_run(local, f"dead{nth}")

    for nth in (1, 2):
        assert run_in_child(lambda nth=nth: create_and_die(nth)) == -9
    make_run(local, "alive").end("done")
    assert [run.run_id for run in list_runs(local)] == ["alive"]
    assert resolve_run(local, "last") == "alive"
    with pytest.raises(RunNotFound):
        Run.open(local, "dead2")
    assert sweep_runs(local) == ["dead2"]
    assert {path.split("/")[1] for path in local.list()} == {"alive"}


def test_a_sweep_spares_a_run_that_is_being_created(local: LocalStore) -> None:
    make_run(local, "r")
    local.delete_tree("runs/r/manifest")  # as if this process were between its two writes
    assert list_runs(local) == [] and sweep_runs(local) == []
    clock = HandClock()
    clock.time = datetime.now(UTC) + timedelta(days=2)
    assert sweep_runs(local, clock=clock) == ["r"]


def test_a_sweep_spares_a_damaged_run(local: LocalStore) -> None:
    make_run(local, "r").end("done")
    local.delete_tree("runs/r/manifest")
    clock = HandClock()
    clock.time = datetime.now(UTC) + timedelta(days=20)
    assert sweep_runs(local, clock=clock) == []
    with pytest.raises(PieceMissing, match="runs/r/manifest"):
        Run.open(local, "r")


def test_finding_a_run_by_what_a_user_types(store: ReliableStore) -> None:
    with pytest.raises(RunNotFound, match="there are no runs"):
        resolve_run(store, "last")
    clock = HandClock()
    for run_id in ("20260302-100000-abc", "20260301-090000-def", "20260301-090000-dff"):
        clock.sleep(1)
        make_run(store, run_id, clock)
    assert resolve_run(store, "last") == "20260301-090000-dff"
    assert resolve_run(store, "20260302") == "20260302-100000-abc"
    assert resolve_run(store, "20260301-090000-def") == "20260301-090000-def"
    with pytest.raises(RunNotFound, match="2 runs: 20260301-090000-def, 20260301-090000-dff"):
        resolve_run(store, "20260301")
    with pytest.raises(RunNotFound) as caught:
        resolve_run(store, "20260302-100000-abd")
    assert str(caught.value.hint).startswith("nearest: 20260302-100000-abc")
    with pytest.raises(RunNotFound) as caught:
        resolve_run(store, "zzz")
    assert caught.value.hint is not None and "existing runs: 2026" in caught.value.hint


def test_an_exact_id_wins_over_longer_ones(local: LocalStore) -> None:
    make_run(local, "abc")
    make_run(local, "abcd")
    assert resolve_run(local, "abc") == "abc"


def test_removing_a_run(store: ReliableStore) -> None:
    run = make_run(store, "r")
    run.write_piece("p", b"data")
    make_run(store, "other")
    with pytest.raises(StoreConflict, match="still running"):
        remove_run(store, "r")
    run.end("interrupted")
    remove_run(store, "r")
    assert [summary.run_id for summary in list_runs(store)] == ["other"]
    remove_run(store, "other", force=True)
    assert store.list() == []
    with pytest.raises(RunNotFound):
        remove_run(store, "r")
    make_run(store, "r")


def test_a_damaged_run_can_be_removed(local: LocalStore) -> None:
    make_run(local, "r").end("done")
    (local.root / "runs/r/head").write_bytes(b"")
    remove_run(local, "r")
    assert local.list() == []


def test_a_removal_cut_short_is_finished_by_a_sweep(local: LocalStore) -> None:
    run = make_run(local, "r")
    run.write_piece("p", b"data")
    run.end("done")

    def remove_and_die() -> None:
        local_delete = local.delete_tree

        def delete_then_die(prefix: str) -> None:
            local_delete(prefix)
            os.kill(os.getpid(), 9)

        local.delete_tree = delete_then_die  # type: ignore[method-assign]
        remove_run(local, "r")

    assert run_in_child(remove_and_die) == -9
    assert list_runs(local) == []
    with pytest.raises(RunNotFound):
        Run.open(local, "r")
    assert sweep_runs(local) == ["r"]
    assert local.list() == []


@pytest.mark.parametrize("version", [0, 2, 99])
def test_another_format_is_refused_by_name_and_listed(local: LocalStore, version: int) -> None:
    manifest = msgspec.to_builtins(new_manifest([], run_id="r"))
    make_run(local, "r")
    manifest["format_version"] = version
    manifest["shape"] = "unknown"
    local.write("runs/r/manifest", msgspec.json.encode(manifest))
    with pytest.raises(FormatNotReadable, match=f"run format {version}"):
        Run.open(local, "r")
    (summary,) = list_runs(local)
    assert summary.status == "damaged" and f"format {version}" in str(summary.reason)


def test_a_manifest_that_is_none(local: LocalStore) -> None:
    make_run(local, "r")
    for text in (b"[]", b'{"format_version": 1}', b"not json"):
        local.write("runs/r/manifest", text)
        with pytest.raises(StoreCorrupt, match="runs/r/manifest is not a manifest"):
            Run.open(local, "r")


def test_an_ended_head_alone_is_damage_and_not_remains(local: LocalStore) -> None:
    make_run(local, "r").end("done")
    local.delete_tree("runs/r/manifest")
    local.delete_tree("runs/r/events")
    (summary,) = list_runs(local)
    assert summary.status == "damaged" and sweep_runs(local) == []
