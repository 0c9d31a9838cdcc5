"""Runs that go on in another session: over tables that are elsewhere, and of DataFrames."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

import headway.storage.runs
from headway.base.errors import PlanNotResumable, StoreConflict, TableChanged, TableNotFound
from headway.session import Session
from headway.session import session as headway_session
from headway.session.attending import Attendant
from headway.session.opening import OpenStates
from headway.session.resuming import IMAGE
from headway.spark.results import KeptResult
from headway.storage import QueryRecord, Run, new_manifest, this_process
from headway.testing.suspensions import (
    ATTEMPTS,
    NOW,
    await_stages,
    goes_on,
    resumed_with,
    suspend_after,
    suspended,
)

ROWS = 40_000
TEXT = """
with sums as (select v, count(*) as n, sum(k) as s from numbers group by v)
select /*+ broadcast(sums) */ r.v % 10 as d, sum(n) as n, sum(s) as s,
    sum(crc32(cast(r.k * e as string))) as x
from (select k, v, explode(sequence(1, 100)) as e from numbers) r join sums on r.v = sums.v
group by 1 order by 1
"""
"""What is left of it once the sums are there reads the table a second time."""

Elsewhere = Callable[..., Session]


@pytest.fixture
def at(spark: SparkSession, tmp_path: Path) -> Iterator[Elsewhere]:
    """Sessions apart, each with the view `numbers` over a folder of its own."""
    opened = []

    def make(folder: Path, **settings: str) -> Session:
        given = {"store_url": str(tmp_path / "store"), "engine_name": "spark", **settings}
        session = headway_session(spark.newSession(), **given)
        session.spark.read.parquet(str(folder)).createOrReplaceTempView("numbers")
        opened.append(session)
        return session

    yield make
    for session in opened:
        session.close()


def write_numbers(folder: Path, first: int = 0) -> Path:
    folder.mkdir(parents=True)
    rows = range(first, ROWS)
    table = pa.table({"k": list(rows), "v": [n % 97 for n in rows]})
    pq.write_table(table, folder / "part.parquet")
    return folder


def test_tables_are_known_by_what_they_hold(at: Elsewhere, tmp_path: Path) -> None:
    """Whatever their folders are called: moved once, and once more."""
    places = [write_numbers(tmp_path / "data" / "v1"), tmp_path / "w2", tmp_path / "x3"]
    session = at(places[0])
    expected = session.spark.sql(TEXT).toArrow()
    run_id = suspended(session, TEXT, 1).id
    other = at(write_numbers(tmp_path / "others" / "v9", first=1))
    with pytest.raises(TableChanged, match="v9"):
        other.resume(run_id)
    for before, place in pairwise(places):
        shutil.move(before, place)
        session = at(place)
        session.check_tables(run_id)
        if place == places[-1]:
            assert goes_on(session, run_id).equals(expected)
            assert resumed_with(session.store, run_id), "it began anew"
        else:
            handle = session.resume(run_id)
            assert suspend_after(handle, 0)


def test_partitions_that_changed_places_are_other_data(at: Elsewhere, tmp_path: Path) -> None:
    folder = tmp_path / "table"
    for part in ("p=1", "p=2"):
        write_numbers(folder / part, first=int(part[-1]))
    session = at(folder)
    run_id = suspended(session, TEXT.replace("group by v)", "where p > 0 group by v)"), 1).id
    (folder / "p=1").rename(folder / "p=3")
    with pytest.raises(TableChanged, match="table"):
        at(folder).resume(run_id)


def test_a_data_frame_goes_on_in_another_session(at: Elsewhere, tmp_path: Path) -> None:
    """It has no text, and its plan is enough."""
    folder = write_numbers(tmp_path / "numbers")
    session = at(folder)
    frame = session.spark.sql(TEXT)
    expected = frame.toArrow()
    waiting = session.dataframe(session.spark.table("numbers").groupBy().count(), name="waiting")
    for _ in range(ATTEMPTS):
        handle = session.run([session.dataframe(frame.select("*"), name="first"), waiting])
        if suspend_after(handle, 1):
            break
    else:
        raise AssertionError("the query was always quicker")
    other = at(folder)
    other.check_tables(handle.id)
    resumed = other.resume(handle.id)
    resumed.wait()
    assert resumed.arrow("first").equals(expected)
    assert resumed.arrow("waiting").to_pylist() == [{"count": ROWS}]
    assert resumed_with(other.store, handle.id, "first"), "it began anew"


def doubled(frame: DataFrame) -> DataFrame:
    """By a function of this process, which no plan can hold."""

    def twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            yield batch

    return frame.mapInArrow(twice, frame.schema)


def test_what_nobody_could_resume_is_not_suspended(at: Elsewhere, tmp_path: Path) -> None:
    session = at(write_numbers(tmp_path / "numbers"))
    expected = session.spark.sql(TEXT).toArrow()
    handle = session.run(session.dataframe(doubled(session.spark.sql(TEXT)), name="twice"))
    assert await_stages(handle, 1)
    with pytest.raises(PlanNotResumable, match="twice") as refused:
        handle.suspend(NOW)
    assert refused.value.hint
    with pytest.raises(PlanNotResumable):
        session.vacate()
    kinds = [event.kind for event in Run.open(session.store, handle.id).events()]
    assert "halting" not in kinds, "and what is done of it is not lost"
    handle.pause()
    handle.go_on()
    handle.wait()
    assert handle.arrow().num_rows == 2 * expected.num_rows


def test_nothing_begins_anew_for_an_urgent_query(at: Elsewhere, tmp_path: Path) -> None:
    """It goes on beside."""
    session = at(write_numbers(tmp_path / "numbers"))
    handle = session.run(session.dataframe(doubled(session.spark.sql(TEXT)), name="twice"))
    assert await_stages(handle, 1)
    urgent = session.run("select count(*) as n from numbers", urgent=True)
    urgent.wait()
    assert urgent.arrow().to_pylist() == [{"n": ROWS}]
    handle.wait()
    kinds = [event.kind for event in Run.open(session.store, handle.id).events()]
    assert "paused" not in kinds and kinds.count("query_started") == 1


def test_commands_given_as_frames_are_commands(at: Elsewhere, tmp_path: Path) -> None:
    """Spark has done what they say, and nobody does it again."""
    session = at(write_numbers(tmp_path / "numbers"))
    frame = session.spark.sql("show tables")
    (planned,) = session.plan(session.dataframe(frame, name="tables"))
    assert planned.command


def test_a_preemption_keeps_what_can_be_kept(at: Elsewhere, tmp_path: Path) -> None:
    """A query that nobody could resume does not cost the others what they have done: they go on
    from that, and it fails by itself."""
    numbers = write_numbers(tmp_path / "numbers")
    session = at(numbers, suspension_on_preemption="suspend")
    bound = session.dataframe(doubled(session.spark.sql(TEXT)), name="twice")
    for _ in range(ATTEMPTS):
        handle = session.run([session.sql(TEXT, name="text"), bound])
        assert await_stages(handle, 1)
        session._preempted()
        images = [event.data for event in handle._run.events() if event.kind == IMAGE]
        handle.cancel()
        handle.join()
        if images and images[-1]["states"]:
            break
    else:
        raise AssertionError("nothing was ever kept")
    resumed = at(numbers).resume(handle.id)
    assert resumed.settings.suspension.on_preemption == "suspend", "as it was begun"
    with suppress(PlanNotResumable):
        resumed.arrow("twice")
    resumed.join()
    assert resumed_with(session.store, handle.id, "text"), "it began anew"
    assert resumed.arrow("text").equals(session.spark.sql(TEXT).toArrow())
    told = {each.name: each.error for each in resumed.progress()}
    assert isinstance(told["twice"], PlanNotResumable) and told["text"] is None


def test_a_frame_outlives_its_run(at: Elsewhere, tmp_path: Path) -> None:
    """Spark remembers of a frame that it was stopped: it is the user's, and he may want more."""
    session = at(write_numbers(tmp_path / "numbers"))
    frame = session.spark.sql(TEXT)
    expected = session.spark.sql(TEXT).toArrow()
    handle = suspended(session, session.dataframe(frame, name="query"), 1)
    assert frame.toArrow().equals(expected)
    assert goes_on(session, handle.id).equals(expected)


def test_a_driver_that_was_overtaken_ends(
    at: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not go on giving signs of life, which are those of another."""
    monkeypatch.setattr(sys.modules[Attendant.__module__], "BEAT_SECONDS", 0.2)
    session = at(write_numbers(tmp_path / "numbers"))
    handle = session.run(f"select count(*) as n from ({TEXT}) a cross join range(100000000000) b")
    assert await_stages(handle, 1)
    other = msgspec.structs.replace(this_process(), pid=1, started="another")
    monkeypatch.setattr(headway.storage.runs, "this_process", lambda: other)
    run = Run.open(session.store, handle.id)
    run.take_over(len(run.events()))
    with pytest.raises(StoreConflict, match="taken over"):
        handle.wait(60)
    assert handle.finished
    assert Run.open(session.store, handle.id).driver() == other


def test_states_without_rows_are_told_apart(at: Elsewhere, tmp_path: Path) -> None:
    """They have no pieces, and may have other columns."""
    session = at(write_numbers(tmp_path / "numbers"))
    run = Run.create(session.store, new_manifest([QueryRecord("q", "select 1")]))
    schemas = {"a": StructType().add("x", "long"), "b": StructType().add("y", "string")}
    states = {name: KeptResult(0, 0, (), schema.json()) for name, schema in schemas.items()}
    opened = OpenStates(session.spark, run)
    found = opened.open(states, ())
    assert {name: frame.schema for name, frame in found.items()} == schemas
    assert opened.open(states, ())["a"] is found["a"]
    opened.close()


def test_a_data_frame_that_is_done_does_not_hold_up_the_others(
    at: Elsewhere, tmp_path: Path
) -> None:
    session = at(write_numbers(tmp_path / "numbers"))
    expected = session.spark.sql(TEXT).toArrow()
    for _ in range(ATTEMPTS):
        small = session.dataframe(doubled(session.spark.range(3)), name="small")
        handle = session.run([small, session.sql(TEXT, name="large")])
        while handle.progress()[0].status != "done" and not handle.finished:
            handle.join(0.01)
        if suspend_after(handle, 1):
            break
    else:
        raise AssertionError("the query was always quicker")
    resumed = session.resume(handle.id)
    resumed.wait()
    assert resumed.arrow("large").equals(expected)
    assert resumed.arrow("small").num_rows == 6


LATER = """
select hour(timestamp_seconds(k)) as h, count(*) as n, sum(v) as v from few group by 1 order by 1
"""


def test_texts_mean_what_they_meant(at: Elsewhere, tmp_path: Path) -> None:
    """In another session that has another time zone, not the view which a statement of the run has
    made, and two tables under each other's name: also for a query that had not begun."""
    folders = [write_numbers(tmp_path / "a"), write_numbers(tmp_path / "b", first=7)]

    def opened(zone: str, numbers: Path, others: Path) -> Session:
        session = at(numbers)
        session.spark.read.parquet(str(others)).createOrReplaceTempView("others")
        session.spark.conf.set("spark.sql.session.timeZone", zone)
        return session

    session = opened("UTC", *folders)
    statements = (
        "create or replace temporary view few as select * from others where k < 9999",
        TEXT,
        LATER,
    )
    for _ in range(ATTEMPTS):
        handle = session.run(
            session.sql(text, name=f"q{number}") for number, text in enumerate(statements)
        )
        if suspend_after(handle, 1):
            break
    else:
        raise AssertionError("the query was always quicker")
    expected = [session.spark.sql(text).toArrow() for text in (TEXT, LATER)]
    resumed = opened("Asia/Tokyo", *reversed(folders)).resume(handle.id)
    resumed.wait()
    assert [resumed.arrow(name) for name in ("q1", "q2")] == expected
    assert resumed_with(session.store, handle.id, "q1"), "it began anew"


def test_what_has_a_text_alone_means_what_it_meant(at: Elsewhere, tmp_path: Path) -> None:
    """Under the settings of a statement that is not run again, and over the same rows."""
    folder, others = write_numbers(tmp_path / "numbers"), write_numbers(tmp_path / "others")

    def opened() -> Session:
        session = at(folder)
        session.spark.read.parquet(str(others)).createOrReplaceTempView("others")
        return session

    session = opened()
    zone = session.spark.conf.get("spark.sql.session.timeZone")
    # No plan can hold what is random; here it makes no difference.
    text = """select h, count(*) as n from
        (select hour(timestamp_seconds(k)) as h, length(uuid()) as u from others)
        where u = 36 group by h order by h"""
    statements = ("set time zone 'Asia/Tokyo'", TEXT, text)
    for _ in range(ATTEMPTS):
        session.spark.conf.set("spark.sql.session.timeZone", zone)
        handle = session.run(
            session.sql(statement, name=f"q{number}") for number, statement in enumerate(statements)
        )
        if suspend_after(handle, 1):
            break
    else:
        raise AssertionError("the query was always quicker")
    expected = session.spark.sql(text).toArrow()
    assert expected != opened().spark.sql(text).toArrow()
    (others / "part.parquet").rename(tmp_path / "away.parquet")
    shutil.copy(write_numbers(tmp_path / "less", first=9) / "part.parquet", others)
    with pytest.raises(TableChanged, match="the files of q2"):
        opened().resume(handle.id)
    (tmp_path / "away.parquet").replace(others / "part.parquet")
    resumed = opened().resume(handle.id)
    resumed.wait()
    assert resumed.arrow("q2") == expected


def test_tables_need_not_be_named_again(at: Elsewhere, spark: SparkSession, tmp_path: Path) -> None:
    """Where they are still in their places; where they are not, that is said."""
    folder = write_numbers(tmp_path / "numbers")
    session = at(folder)
    expected = session.spark.sql(TEXT).toArrow()
    run_id = suspended(session, TEXT, 1).id
    with headway_session(spark.newSession(), store_url=session.settings.store.url) as bare:
        folder.rename(tmp_path / "away")
        with pytest.raises(TableNotFound, match="numbers"):
            bare.resume(run_id)
        (tmp_path / "away").rename(folder)
        assert goes_on(bare, run_id).equals(expected)
        assert resumed_with(bare.store, run_id), "it began anew"
