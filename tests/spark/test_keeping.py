"""What is kept of queries that go on: snapshots, pauses, states for later queries."""

from __future__ import annotations

import gc
import re
import shutil
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import headway.storage.runs
from headway.base.errors import HeadwayError, StoreFull, TableChanged
from headway.bench.peers import same_rows
from headway.session import RunHandle, Session, attending
from headway.session import session as headway_session
from headway.session.keeping import Keeping
from headway.session.resuming import FALLBACK, IMAGE
from headway.session.suspending import Suspension
from headway.session.workers import Workers
from headway.storage import Run
from headway.testing.suspensions import (
    ATTEMPTS,
    NOW,
    QUERY,
    await_stages,
    goes_on,
    images_of,
    running_of,
    suspend_after,
    suspended,
    watched,
)
from headway.workloads import WORKLOADS

MIB = 1 << 20
PASSING = shutil.ignore_patterns(".tmp-*")


@pytest.fixture
def make_session(
    spark: SparkSession, workload_data: Callable[[str], Path], tmp_path: Path
) -> Iterator[Callable[..., Session]]:
    """A session on the spark engine with tables of TPC-H; all use one store, if no other is
    given."""
    opened: list[Session] = []

    def make(**settings: Any) -> Session:
        given = {"store_url": str(tmp_path / "store"), "engine_name": "spark", **settings}
        session = headway_session(spark.newSession(), **given)
        session.tables(workload_data("tpch"))
        opened.append(session)
        return session

    yield make
    for session in opened:
        session.close()


def failing(slow: str) -> str:
    """With a row that fails, the last one."""
    (rows,) = re.findall(r"range\(0, (\d+), 1, 8\)", slow)
    return slow.replace("sum(c) as c", f"sum(c div if(id + 1 = {rows}, 0, 1)) as c")


def kept_pieces(session: Session, run_id: str) -> list[str]:
    return Run.open(session.store, run_id).pieces("states")


def test_a_snapshot_is_what_is_left_of_a_lost_driver(
    make_session: Callable[..., Session],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    slow: str,
    slow_rows: pa.Table,
) -> None:
    session = make_session()
    handle = session.run(slow)
    assert await_stages(handle, 1)
    images = handle.snapshot()
    # What a machine that is lost now would leave in the store.
    shutil.copytree(tmp_path / "store", tmp_path / "left", ignore=PASSING)
    assert not handle.finished, "the query was quicker"
    handle.wait()
    expected = slow_rows
    assert same_rows(handle.arrow(), expected), "the query was disturbed"
    assert not kept_pieces(session, handle.id), "snapshots of a run that has ended are left"
    (image,) = images.values()
    assert image.states
    monkeypatch.setattr(headway.storage.runs, "is_gone", lambda record: True)
    other = make_session(store_url=str(tmp_path / "left"))
    resumed = other.resume(handle.id)
    resumed.wait()
    assert resumed._queries["query"].states, "it began anew"
    assert same_rows(resumed.arrow(), expected)


def test_what_is_kept_is_not_written_again(make_session: Callable[..., Session], slow: str) -> None:
    session = make_session()
    for _ in range(ATTEMPTS):
        handle = session.run(slow)
        assert await_stages(handle, 2)
        (first,) = handle.snapshot().values()
        (second,) = handle.snapshot().values()
        handle.cancel()
        if first.finished == second.finished:  # else it came to its last stage between the two
            break
    both = first.states.keys() & second.states.keys()
    assert both, "no state is in both"
    assert all(first.states[name] == second.states[name] for name in both)


def test_what_was_only_read_again_is_not_written_again(
    make_session: Callable[..., Session], slow: str, slow_rows: pa.Table
) -> None:
    """Spark broadcasts a state once more: it is still the state that there is."""
    session = make_session()
    for _ in range(ATTEMPTS):
        first = suspended(session, slow, 2)
        (before,) = images_of(session, first.id)
        resumed = session.resume(first.id)
        if await_stages(resumed, 1):
            (image,) = resumed.snapshot().values()
            break
    assert image.finished >= 1, "Spark has made nothing of it yet"
    assert before["states"] and image.states.keys() == before["states"].keys()
    pieces = [piece for kept in before["states"].values() for piece in kept["pieces"]]
    assert sorted(kept_pieces(session, first.id)) == sorted(pieces)
    resumed.wait()
    assert same_rows(resumed.arrow(), slow_rows)


@pytest.mark.parametrize("every", [pytest.param("500ms", marks=pytest.mark.nightly), "auto"])
def test_snapshots_from_time_to_time(
    make_session: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
    every: str,
    slow: str,
    slow_rows: pa.Table,
) -> None:
    """Where failures are frequent, snapshots pay at once."""
    monkeypatch.setattr(attending, "LOOK_SECONDS", 0.05)  # some machines are quick
    session = make_session(suspension_snapshot_every=every)
    monkeypatch.setattr(session._around.lost_drivers, "per_hour", lambda *_: 3600.0)
    handle = session.run(slow)
    handle.wait()
    events = Run.open(session.store, handle.id).events()
    assert [event.kind for event in events].count(IMAGE) >= 1
    assert not [event for event in events if event.kind == "snapshot_failed"]
    assert same_rows(handle.arrow(), slow_rows)


def test_the_pipelined_engine_is_kept_while_it_goes_on(
    spark: SparkSession,
    workers: Workers,
    workload_data: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = WORKLOADS["tpch"].queries()["q21"]
    store = tmp_path / "store"
    with headway_session(spark.newSession(), workers=workers, store_url=str(store)) as session:
        session.tables(workload_data("tpch"))
        expected = session.spark.sql(text).toArrow()
        for _ in range(ATTEMPTS):
            handle = session.run(text)
            images: Any = {}
            while not handle.finished and not any(each.states for each in images.values()):
                try:
                    images = handle.snapshot() if running_of(handle) else {}
                except HeadwayError:
                    break
            if any(each.states for each in images.values()):
                shutil.copytree(store, tmp_path / "left", ignore=PASSING)
                break
            handle.wait()
        else:
            raise AssertionError("the query was always quicker")
        handle.wait()
        assert same_rows(handle.arrow(), expected), "the query was disturbed"
    monkeypatch.setattr(headway.storage.runs, "is_gone", lambda record: True)
    left = str(tmp_path / "left")
    with headway_session(spark.newSession(), workers=workers, store_url=left) as other:
        other.tables(workload_data("tpch"))
        assert same_rows(goes_on(other, handle.id), expected)


def test_a_pause(make_session: Callable[..., Session], slow: str, slow_rows: pa.Table) -> None:
    session = make_session()
    handle = session.run(slow)
    assert await_stages(handle, 1)
    known = weakref.ref(handle._queries["query"].frame)
    handle.pause()
    assert handle.paused and Run.open(session.store, handle.id).summary().status == "paused"
    gc.collect()
    assert known() is None, "Spark keeps what it made for a query as long as anybody knows it"
    assert not running_of(handle)
    assert not handle.wait(0.5), "it went on"
    assert images_of(session, handle.id)[-1]["states"], "nothing was kept"
    handle.go_on()
    handle.wait()
    assert handle._queries["query"].states, "it began anew"
    assert same_rows(handle.arrow(), slow_rows)
    assert Run.open(session.store, handle.id).summary().status == "done"


def test_broadcast_tables_go_with_their_query(make_session: Callable[..., Session]) -> None:
    """Also while somebody knows what Spark made of it: Python forgets that when its collector comes
    to it."""
    text = """
    select /*+ broadcast(b) */ count(*) as n, sum(b.x) as x
    from range(0, 1000, 1, 2) as a
    join (select id, id * 3 as x from range(500000)) as b on a.id = b.id
    """

    def held() -> int:
        """Bytes in the driver, once what nobody knows any more is removed."""
        gc.collect()
        session.spark._jvm.java.lang.System.gc()
        known: Any = session.spark.sparkContext._jsc
        most_and_left = known.sc().getExecutorMemoryStatus().values().head()
        return int(most_and_left._1()) - int(most_and_left._2())

    def settles(below: int, seconds: float) -> bool:
        return eventually(lambda: held() < below, seconds)

    session = make_session()
    before = held()
    frame = session.spark.sql(text)
    frame.toArrow()
    assert not settles(before + 4 * MIB, 3), "Spark forgets it by itself: this shows nothing"
    del frame
    assert settles(before + 4 * MIB, 30)
    handle = session.run(text)
    frame = handle._queries["query"].frame
    handle.wait()
    assert settles(before + 4 * MIB, 30), "the tables are still there"
    assert frame is not None and handle.arrow().to_pylist() == [{"n": 1000, "x": 1498500}]


def test_what_ended_holds_nothing_of_spark(make_session: Callable[..., Session]) -> None:
    session = make_session()
    handle = session.run(QUERY)
    known = weakref.ref(handle._queries["query"].frame)
    assert known() is not None
    handle.wait()
    assert eventually(lambda: gc.collect() >= 0 and known() is None, 10), (
        "as long as the handle is there, Spark has all that the query made"
    )
    assert handle.arrow().num_rows and "Query query" in handle.explain()


def eventually(is_so: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not (found := is_so()) and time.monotonic() < until:
        time.sleep(0.1)
    return found


def test_a_pause_of_a_run_that_was_resumed(
    make_session: Callable[..., Session], slow: str, slow_rows: pa.Table
) -> None:
    """What the image before had is still there for what goes on, or the new one has it."""
    session = make_session()
    first = suspended(session, slow, 1)
    before = images_of(session, first.id)[-1]
    assert before["states"]
    handle = session.resume(first.id)
    while not (found := handle.standings()) and not handle.finished:
        time.sleep(0.001)
    (stand,) = found.values()
    behind = before["progress"]["query"][2]
    assert stand.prospect.done > behind, "the work of the former driver counts as well"
    handle.pause()
    handle.go_on()
    handle.wait()
    assert handle._queries["query"].states, "it began anew"
    assert same_rows(handle.arrow(), slow_rows)


def test_what_is_kept_outlives_a_query_that_fails(
    make_session: Callable[..., Session], slow: str
) -> None:
    """A failure may be that of the cluster: whoever resumes the run goes on from there."""
    session = make_session()
    handle = session.run(failing(slow))
    assert await_stages(handle, 2)
    assert any(image.states for image in handle.snapshot().values())
    handle.wait()
    assert handle.progress()[0].status == "failed"
    summary = Run.open(session.store, handle.id).summary()
    assert (summary.status, summary.resumable) == ("failed", True)
    again = session.resume(handle.id)
    again.wait()
    assert again._queries["query"].states, "it began anew"
    assert again.progress()[0].status == "failed"


def test_what_a_query_did_that_fails_while_it_is_waited_for_is_kept(
    make_session: Callable[..., Session], slow: str
) -> None:
    session = make_session()
    handle = session.run(failing(slow))
    assert await_stages(handle, 2)
    handle.suspend(Suspension(cheaper=False))
    run = Run.open(session.store, handle.id)
    assert run.summary().status == "suspended"
    assert images_of(session, handle.id)[-1]["states"], "nothing was kept"
    assert any(e.kind == FALLBACK and "by zero" in e.data["error"] for e in run.events()), (
        "nobody is told that it failed"
    )
    again = session.resume(handle.id)
    again.wait()
    assert again._queries["query"].states, "it began anew"
    assert again.progress()[0].status == "failed"


def test_what_is_kept_outlives_a_suspension_that_fails(
    make_session: Callable[..., Session], slow: str, slow_rows: pa.Table
) -> None:
    session = make_session()
    store = watched(session)
    handle = session.run(slow)
    assert await_stages(handle, 1)
    (kept,) = handle.snapshot().values()
    assert kept.states
    assert await_stages(handle, 2)

    def fail(path: str) -> None:
        raise StoreFull(f"no room for {path}")

    store.before = fail
    with pytest.raises(HeadwayError):
        handle.suspend(NOW)
    store.before = lambda path: None
    assert not any(each.paused for each in running_of(handle)), "nothing was stopped"
    handle.cancel()
    handle.join(20)
    summary = Run.open(session.store, handle.id).summary()
    assert (summary.status, summary.resumable) == ("interrupted", True)
    assert kept.states.keys() <= images_of(session, handle.id)[-1]["states"].keys()
    assert same_rows(goes_on(session, handle.id), slow_rows)


def test_a_step_of_the_users_own_is_not_lost(
    make_session: Callable[..., Session], slow: str, slow_rows: pa.Table
) -> None:
    """Executors write large results down by a step that looks like this one."""

    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            yield batch

    session = make_session()
    frame = session.spark.sql(slow).mapInArrow(doubled, "d bigint, c bigint, s bigint")
    handle = session.run(frame)
    assert await_stages(handle, 1)
    handle.pause()
    handle.go_on()
    handle.wait()
    assert handle.arrow().num_rows == 2 * slow_rows.num_rows


@pytest.mark.nightly
def test_damaged_states_of_other_runs_are_not_needed(
    make_session: Callable[..., Session], tmp_path: Path
) -> None:
    session = make_session(suspension_reuse="true")
    expected = session.spark.sql(SPREAD).toArrow()
    first = suspended(session, SPREAD, 1)
    goes_on(session, first.id)
    for piece in kept_pieces(session, first.id):
        file = tmp_path / "store" / "runs" / first.id / "pieces" / piece
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0x40
        file.write_bytes(data)
    again = session.run(SPREAD)
    assert again._queries["query"].states
    again.wait()
    assert same_rows(again.arrow(), expected)
    kinds = [event.kind for event in Run.open(session.store, again.id).events()]
    assert "reuse_failed" in kinds


def test_a_pause_before_anything_is_done(
    make_session: Callable[..., Session], slow: str, slow_rows: pa.Table
) -> None:
    session = make_session()
    handle = session.run(slow)
    while not running_of(handle):
        time.sleep(0.001)
    handle.pause()
    handle.go_on()
    handle.wait()
    assert same_rows(handle.arrow(), slow_rows)


def paused_over(session: Session, tables: Path, holder: str | None = None) -> RunHandle:
    """A run over tables in that folder, which has something to go on with."""
    session.tables(tables)
    for _ in range(ATTEMPTS):
        handle = session.run(QUERY)
        with suppress(HeadwayError):  # it was quicker
            if await_stages(handle, 1):
                handle.pause(holder)
        if handle.paused:
            return handle
    raise AssertionError("the query was always quicker")


def test_tables_that_change_during_a_pause_are_refused(
    make_session: Callable[..., Session], workload_data: Callable[[str], Path], tmp_path: Path
) -> None:
    """What is kept of a query is not put together with other rows."""
    shutil.copytree(workload_data("tpch"), tmp_path / "tables")
    session = make_session()
    handle = paused_over(session, tmp_path / "tables")
    (file,) = (tmp_path / "tables" / "nation").glob("*.parquet")
    data = file.read_bytes()
    pq.write_table(pq.read_table(file).slice(1), file)
    with pytest.raises(TableChanged, match="nation"):
        handle.go_on()
    assert handle.paused
    file.write_bytes(data)
    handle.go_on()
    handle.wait()
    assert same_rows(handle.arrow(), session.spark.sql(QUERY).toArrow())


def test_a_run_that_is_released_over_other_tables_ends(
    make_session: Callable[..., Session], workload_data: Callable[[str], Path], tmp_path: Path
) -> None:
    """There is nobody to put the tables right; whoever waits for it is told."""
    shutil.copytree(workload_data("tpch"), tmp_path / "tables")
    session = make_session()
    handle = paused_over(session, tmp_path / "tables", "somebody")
    (file,) = (tmp_path / "tables" / "nation").glob("*.parquet")
    pq.write_table(pq.read_table(file).slice(1), file)
    handle.let_go("somebody")
    with pytest.raises(TableChanged, match="nation"):
        handle.wait(60)
    assert handle.finished
    assert Run.open(session.store, handle.id).summary().status == "interrupted"


def test_a_paused_run_is_suspended(
    make_session: Callable[..., Session], slow: str, slow_rows: pa.Table
) -> None:
    session = make_session()
    handle = session.run(slow)
    assert await_stages(handle, 1)
    handle.pause()
    handle.suspend(NOW)
    assert Run.open(session.store, handle.id).summary().status == "suspended"
    assert same_rows(goes_on(session, handle.id), slow_rows)


def test_a_paused_run_is_cancelled(make_session: Callable[..., Session], slow: str) -> None:
    session = make_session()
    handle = session.run(slow)
    assert await_stages(handle, 1)
    handle.pause()
    handle.cancel()
    handle.join(20)
    assert handle.finished
    assert Run.open(session.store, handle.id).summary().status == "interrupted"


def test_nobody_begins_anew_for_an_urgent_query(
    make_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is in its first pipeline goes on beside."""
    monkeypatch.setattr(sys.modules[Keeping.__module__], "_HARDLY_SECONDS", 0.5)
    session = make_session()
    slow = session.run("select sum(crc32(cast(id as string))) from range(0, 300000000, 1, 2)")
    while not any(running.seconds > 1.0 for running in running_of(slow)):
        assert not slow.finished, "the query was quicker"
        time.sleep(0.01)
    urgent = session.run("select count(*) as n from nation", urgent=True)
    assert not slow.paused
    urgent.wait()
    slow.cancel()
    slow.join()
    kinds = [event.kind for event in Run.open(session.store, slow.id).events()]
    assert "paused" not in kinds and kinds.count("query_started") == 1


def test_urgent_queries_come_first(
    make_session: Callable[..., Session], slow: str, slow_rows: pa.Table
) -> None:
    """The others go on after them, also where the store does not take that at once."""
    session = make_session()
    store = watched(session)
    handle = session.run(slow)
    assert await_stages(handle, 1)
    urgent = session.run("select count(*) as n from nation", urgent=True)
    assert handle.paused
    failed: list[str] = []

    def fail_once(path: str) -> None:
        if f"{handle.id}/events" in path and not failed:
            failed.append(path)
            raise StoreFull(f"no room for {path}")

    store.before = fail_once
    urgent.wait()
    assert urgent.arrow().to_pylist() == [{"n": 25}]
    handle.wait()
    assert failed
    assert handle._queries["query"].states, "it began anew"
    assert same_rows(handle.arrow(), slow_rows)
    kinds = [event.kind for event in Run.open(session.store, handle.id).events()]
    assert "paused" in kinds and "continued" in kinds


@pytest.mark.nightly
def test_all_runs_of_a_session_are_suspended(
    make_session: Callable[..., Session], slow: str, slow_rows: pa.Table
) -> None:
    session = make_session()
    handles = [session.run(session.sql(slow, name=f"slow{n}")) for n in range(2)]
    assert all(await_stages(handle, 1) for handle in handles)
    assert set(session.vacate()) == {handle.id for handle in handles}
    for handle in handles:
        assert same_rows(goes_on(session, handle.id), slow_rows)


def test_where_a_query_stands(make_session: Callable[..., Session], slow: str) -> None:
    session = make_session()
    handle = session.run(slow)
    assert await_stages(handle, 1)
    found = handle.standings()
    handle.cancel()
    from headway.session.standings import stand_to_builtins

    (stand,) = found.values()
    assert 0.0 < stand.share_done <= 1.0
    assert stand.prospect.moving > 0.0
    told = stand_to_builtins(stand)
    notes = [line.rpartition("[")[2] for line in told["plan"].splitlines()[1:]]
    assert any(note.startswith("held") for note in notes)
    assert any(note.startswith("done") for note in notes), told["plan"]
    assert any(note.startswith("left") for note in notes)


GROUPED = """select l_suppkey % 100 as k, count(*) as c, sum(l_extendedprice) as s
from lineitem group by 1"""
SPREAD = f"""with few as ({GROUPED})
select k % 10 as d, sum(c) as c, sum(s) as s, sum(crc32(cast(id as string))) as x
from few join range(0, 12000000, 1, 4) on k = id % 100 group by 1 order by 1"""
OTHER = f"""with few as ({GROUPED})
select max(c) as c, sum(s) as s from few join range(0, 300000, 1, 4) on k = id % 100"""


@pytest.mark.nightly
def test_later_queries_find_what_was_kept(make_session: Callable[..., Session]) -> None:
    session = make_session(suspension_reuse="true")
    expected = session.spark.sql(SPREAD).toArrow()
    first = suspended(session, SPREAD, 1)
    assert same_rows(goes_on(session, first.id), expected)
    assert kept_pieces(session, first.id), "nothing is left for others"
    for text in (SPREAD, OTHER):
        again = session.run(text)
        again.wait()
        assert again._queries["query"].states, "it did not find what was kept"
        assert same_rows(again.arrow(), session.spark.sql(text).toArrow())
    session.store.delete_tree(f"runs/{first.id}")
    gone = session.run(SPREAD)
    gone.wait()
    assert not gone._queries["query"].states
    assert same_rows(gone.arrow(), expected)


def test_other_data_is_not_taken_for_the_same(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    numbers = pa.table({"k": list(range(60_000)), "v": [n % 97 for n in range(60_000)]})
    pq.write_table(numbers, folder / "numbers.parquet")
    text = """with few as (select v, count(*) as c, sum(k) as s from numbers group by v)
              select v % 10 as d, sum(c) as c, max(s) as s, sum(crc32(cast(id as string))) as x
              from few join range(0, 12000000, 1, 4) on v = id % 97 group by 1 order by 1"""
    given = {"store_url": str(tmp_path / "store"), "engine_name": "spark"}
    with headway_session(spark.newSession(), suspension_reuse="true", **given) as session:
        session.tables(folder)
        first = suspended(session, text, 1)
        goes_on(session, first.id)
        same = session.run(text)
        same.wait()
        assert same._queries["query"].states
        pq.write_table(numbers.slice(1), folder / "numbers.parquet")
        session.tables(folder)
        changed = session.run(text)
        changed.wait()
        assert not changed._queries["query"].states
        assert same_rows(changed.arrow(), session.spark.sql(text).toArrow())


def test_what_a_limit_keeps_away_is_not_taken_for_all(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    numbers = pa.table({"k": list(range(60_000)), "v": [n % 97 for n in range(60_000)]})
    pq.write_table(numbers, folder / "numbers.parquet")
    groups = "select v, count(*) as c, sum(k) as s from numbers group by v"
    limited = f"""select sum(c) as c, sum(s) as s, sum(crc32(cast(id as string))) as x
                  from ({groups} limit 10) cross join range(0, 4000000, 1, 4)"""
    whole = f"select count(*) as n, sum(c) as c, sum(s) as s from ({groups})"
    given = {"store_url": str(tmp_path / "store"), "engine_name": "spark"}
    with headway_session(spark.newSession(), suspension_reuse="true", **given) as session:
        session.tables(folder)
        for stages in (1, 2):
            suspended(session, limited, stages)
        later = session.run(whole)
        later.wait()
        assert same_rows(later.arrow(), session.spark.sql(whole).toArrow())


def test_the_same_tables_elsewhere(
    spark: SparkSession, workload_data: Callable[[str], Path], tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(workload_data("tpch"), here)
    given = {"store_url": str(tmp_path / "store"), "engine_name": "spark"}
    with headway_session(spark.newSession(), **given) as session:
        session.tables(here)
        expected = session.spark.sql(QUERY).toArrow()
        handle = suspended(session, QUERY, 1)
    here.rename(there)
    with headway_session(spark.newSession(), **given) as session:
        session.tables(there)
        resumed = session.resume(handle.id)
        resumed.wait()
        assert resumed._queries["query"].states
        assert same_rows(resumed.arrow(), expected)


def test_a_shared_step_is_not_begun_again(make_session: Callable[..., Session]) -> None:
    session = make_session()
    texts = {f"q{n}": QUERY.replace("where", f"where l_quantity > {n} and") for n in range(4)}
    for _ in range(ATTEMPTS):
        handle = session.batch([session.sql(text, name=name) for name, text in texts.items()])
        if not await_stages(handle, 2):
            handle.wait()
            continue
        shared = [running.key for running in running_of(handle)]
        if suspend_after(handle, 0) and any(shared):
            break
    else:
        raise AssertionError("the batch was always quicker")
    (image,) = images_of(session, handle.id)
    assert image["keys"] and image["states"], "nothing of the shared step was kept"
    resumed = session.resume(handle.id)
    seen: set[str] = set()
    while not resumed.finished:
        for running in running_of(resumed):
            seen |= set(running.query.states) if running.key is not None else set()
        time.sleep(0.002)
    resumed.wait()
    assert seen & set(image["states"]), "the shared step did not go on from its states"
    for name, text in texts.items():
        assert same_rows(resumed.arrow(name), session.spark.sql(text).toArrow())
