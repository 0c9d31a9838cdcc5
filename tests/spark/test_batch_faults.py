"""Batches in which something goes wrong: it concerns the query that is to blame, and no other."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headway.base.errors import (
    QueryFailed,
    StoreConflict,
    StoreUnavailable,
    WorkerNotStarted,
)
from headway.plan.nodes import QueryPlan
from headway.session import Policy, Session, sharing
from headway.session import session as headway_session
from headway.session.batches import BatchHandle
from headway.session.executing import QUERY_STARTED
from headway.session.losses import LossWatch
from headway.session.pipelined import PipelinedEngine
from headway.session.planning import PlannedQuery
from headway.session.resuming import (
    FALLBACK,
    MINI_BATCH,
    SHARED_DONE,
    resumed_from,
)
from headway.session.runs import RunHandle
from headway.session.shared_steps import SharedParts
from headway.session.workers import Workers
from headway.sharing.chains import Chain
from headway.sharing.shared_plan import IsUnique, SharedPlan
from headway.spark import executors
from headway.storage import QUERY_DONE, RESULTS, Run
from headway.testing.session_batches import Sessions, check_rows, opened, run_batch
from headway.workloads.batches import regular_share

SLOW = "SELECT count(*) AS n FROM range(300000) a JOIN range(300000) b ON a.id % 2 = b.id % 3"
GROUPED = {
    f"grouped_{n}": f"""SELECT ss_store_sk, count(*) AS n FROM store_sales
        WHERE ss_quantity > {n} GROUP BY ss_store_sk"""
    for n in (10, 20, 30)
}
ROWS = {
    f"rows_{n}": f"SELECT ss_item_sk, ss_quantity FROM store_sales WHERE ss_item_sk < {n}"
    for n in (3, 5, 7)
}


@pytest.fixture
def session(workload_session: Sessions, workers: Workers, tmp_path: Path) -> Any:
    with opened(workload_session("tpcds"), workers, tmp_path) as made:
        yield made


def statuses(handle: BatchHandle) -> dict[str, str]:
    return {query.name: str(query.status) for query in handle.progress()}


def events(session: Session, handle: BatchHandle, kind: str) -> list[dict[str, Any]]:
    found = Run.open(session.store, handle.id).events()
    return [{**event.data, "query": event.query} for event in found if event.kind == kind]


def break_plans(monkeypatch: pytest.MonkeyPatch, culprit: str) -> None:
    """No plan can be built that serves the query."""
    real = sharing.shared_plan

    def broken(chain: Chain, is_unique: IsUnique, *, dropping: bool) -> SharedPlan:
        if any(seat.shape.member.query == culprit for seat in chain.seats):
            raise ValueError("no such plan")
        return real(chain, is_unique, dropping=dropping)

    monkeypatch.setattr(sharing, "shared_plan", broken)


def test_a_plan_that_cannot_be_built_is_built_for_the_others(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done of other shared work is not done again."""
    break_plans(monkeypatch, "rows_5")
    handle = run_batch(session, {**GROUPED, **ROWS}, deadline=600, policy=Policy(fixed_size=6))
    assert set(statuses(handle).values()) == {"done"}
    told = events(session, handle, FALLBACK)
    assert told and all("no such plan" in each["error"] for each in told)
    shared = [set(each["queries"]) for each in events(session, handle, SHARED_DONE)]
    assert shared.count(set(GROUPED)) == 1
    assert all("rows_5" not in queries for queries in shared)
    check_rows(session, handle, {**GROUPED, **ROWS})


def test_what_a_half_has_done_is_known_to_who_goes_on(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the other half is begun, in which the driver may be lost."""
    real = sharing.shared_plan
    halves: list[Chain] = []

    def broken(chain: Chain, is_unique: IsUnique, *, dropping: bool) -> SharedPlan:
        if len(chain.seats) > 2 or halves:
            raise ValueError("no such plan")
        halves.append(chain)
        return real(chain, is_unique, dropping=dropping)

    monkeypatch.setattr(sharing, "shared_plan", broken)
    rows = {f"rows_{n}": ROWS["rows_3"].replace("< 3", f"< {n}") for n in (3, 5, 7, 9)}
    handle = run_batch(session, rows, deadline=600, policy=Policy(fixed_size=4))
    check_rows(session, handle, rows)
    run = Run.open(session.store, handle.id)
    found = run.events()
    last = [n for n, e in enumerate(found) if e.data.get("step", "").endswith(".2")][-1]
    assert found[last].kind == FALLBACK
    left = resumed_from(run, found[:last])
    done = {seat.shape.member.query for seat in halves[0].seats}
    assert set(left.plans) == done and len(done) == 2 and not left.results


def left_to_others(session: Session, handle: BatchHandle, status: str) -> None:
    """The batch can be gone on with, and no shared work is done again."""
    shared = events(session, handle, SHARED_DONE)
    run = Run.open(session.store, handle.id)
    assert shared and (run.summary().status, run.summary().resumable) == (status, True)
    assert {piece for each in shared for piece in each["pieces"]} <= set(run.pieces(RESULTS))
    resumed = session.resume(handle.id, deadline=600)
    resumed.wait()
    assert isinstance(resumed, BatchHandle)
    assert set(statuses(resumed).values()) == {"done"}
    assert len(events(session, handle, SHARED_DONE)) == len(shared)
    check_rows(session, resumed, GROUPED)


def test_a_batch_without_spark_is_left_to_another_driver(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunHandle._execute

    def broken(handle: RunHandle, query: PlannedQuery, key: str | None = None) -> Any:
        if key is None:
            raise QueryFailed("connection refused")
        return real(handle, query, key)

    with monkeypatch.context() as patched:
        patched.setattr(RunHandle, "_execute", broken)
        patched.setattr(executors, "is_gone", lambda spark: True)
        handle = run_batch(session, GROUPED, deadline=600)
    assert set(statuses(handle).values()) == {"interrupted"}
    told = [query.error for query in handle.progress()]
    assert all(error and "Spark has ended" in error.message for error in told)
    left_to_others(session, handle, "interrupted")


def test_a_batch_whose_store_failed_is_left_to_another_driver(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Run.append
    failed: list[str] = []

    def failing(run: Run, kind: str, query: str | None = None, /, **data: Any) -> Any:
        if kind == QUERY_STARTED and not failed:
            failed.append(kind)
            raise StoreUnavailable("it is away for a moment")
        return real(run, kind, query, **data)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "append", failing)
        queries = [session.sql(text, name=name) for name, text in GROUPED.items()]
        handle = session.batch(queries, deadline=600)
        with pytest.raises(StoreUnavailable):
            handle.wait()
    left_to_others(session, handle, "failed")


def test_who_was_overtaken_takes_nothing_away(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shared rows are those of the run, and its next driver reads them."""
    real = BatchHandle._finish
    stuck, released = threading.Event(), threading.Event()

    def hanging(handle: BatchHandle, *arguments: Any, **named: Any) -> None:
        stuck.set()
        released.wait(120)
        real(handle, *arguments, **named)

    monkeypatch.setattr(BatchHandle, "_finish", hanging)
    queries = [session.sql(text, name=name) for name, text in GROUPED.items()]
    gone = session.batch(queries, deadline=600)
    assert stuck.wait(120)
    run = Run.open(session.store, gone.id)
    run.take_over(len(run.events()))
    released.set()
    with pytest.raises(StoreConflict):
        gone.wait()
    shared = {piece for each in events(session, gone, SHARED_DONE) for piece in each["pieces"]}
    assert shared and shared <= set(run.pieces(RESULTS))


def test_commands_are_kept_before_anything_is_shared(session: Session) -> None:
    """They were run when the batch was planned, and cannot be run again."""
    handle = run_batch(session, {**GROUPED, "shown": "SHOW DATABASES"}, deadline=600)
    found = Run.open(session.store, handle.id).events()
    first = next(event for event in found if event.kind in (QUERY_DONE, MINI_BATCH))
    assert (first.kind, first.query) == (QUERY_DONE, "shown")
    check_rows(session, handle, {**GROUPED, "shown": "SHOW DATABASES"})


def test_a_query_that_cannot_be_taken_apart_runs_alone(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sharing.find_members

    def broken(name: str, plan: QueryPlan) -> Any:
        if name == "grouped_20":
            raise KeyError(name)
        return real(name, plan)

    monkeypatch.setattr(sharing, "find_members", broken)
    handle = run_batch(session, GROUPED, deadline=600)
    assert set(statuses(handle).values()) == {"done"}
    assert "taken apart" in handle.batch().not_shared["grouped_20"][0]
    known = [each for each in handle.batch().mini_batches if "grouped_20" not in each.queries]
    assert len(handle._model.observations) == len(known)
    check_rows(session, handle, GROUPED)


@pytest.mark.parametrize("where", ["plan", "execution"])
def test_what_cannot_be_finished_from_shared_rows_is_run_whole(
    where: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "plan":

        def no_rest(*_: object) -> PlannedQuery:
            raise KeyError("state")

        monkeypatch.setattr(SharedParts, "left_of", no_rest)
    else:
        real = RunHandle._execute

        def broken(handle: RunHandle, query: PlannedQuery, key: str | None = None) -> Any:
            if query.states and key is None:
                raise QueryFailed("sums of sums overflow")
            return real(handle, query, key)

        monkeypatch.setattr(RunHandle, "_execute", broken)
    handle = run_batch(session, GROUPED, deadline=600)
    assert set(statuses(handle).values()) == {"done"}
    assert {each["query"] for each in events(session, handle, FALLBACK)} == set(GROUPED)
    assert not handle._model.observations  # more was done than was predicted
    check_rows(session, handle, GROUPED)


def test_a_batch_runs_on_spark_where_workers_cannot_start(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_workers(engine: PipelinedEngine) -> None:
        raise WorkerNotStarted("there is no room for them")

    monkeypatch.setattr(PipelinedEngine, "start", no_workers)
    handle = run_batch(session, GROUPED, deadline=600)
    assert set(statuses(handle).values()) == {"done"}
    assert {query.engine for query in handle.progress()} == {"spark"}
    check_rows(session, handle, GROUPED)


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_shared_rows_are_kept_where_results_are_not(
    engine: str, workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    """As long as the batch needs them."""
    spark = workload_session("tpcds")
    with headway_session(
        spark, workers=workers, store_url=str(tmp_path), engine_name=engine, results_keep=False
    ) as session:
        handle = run_batch(session, GROUPED, deadline=600)
        assert len(events(session, handle, SHARED_DONE)) >= 1
        found = {query.name: query.rows for query in handle.progress()}
        assert found == {name: spark.sql(text).count() for name, text in GROUPED.items()}
        assert not events(session, handle, FALLBACK)
        assert not Run.open(session.store, handle.id).pieces(RESULTS)


def test_what_has_no_arrow_form_is_not_shared(
    spark: SparkSession, workers: Workers, tmp_path: Path
) -> None:
    own = spark.newSession()
    own.createDataFrame(
        [(n, n % 3) for n in range(50)], "id int, kind int"
    ).createOrReplaceTempView("made")
    texts = {
        f"odd_{n}": f"""SELECT kind, make_ym_interval(id, 0) AS span
            FROM made WHERE id > {n}"""
        for n in (10, 20)
    }
    with opened(own, workers, tmp_path, "spark") as session:
        handle = run_batch(session, texts, deadline=600)
        assert set(statuses(handle).values()) == {"done"}
        assert events(session, handle, FALLBACK) and not events(session, handle, SHARED_DONE)
        assert handle.result("odd_20").count() == 29


@pytest.mark.parametrize("engine", ["auto", "spark"])
def test_data_of_the_session_is_shared_and_read(
    engine: str, spark: SparkSession, workers: Workers, tmp_path: Path
) -> None:
    """Rows that are in no file: in shared work, beside it, and by themselves."""
    own = spark.newSession()
    made = own.createDataFrame([(n, n % 3) for n in range(100)], "id int, kind int")
    made.createOrReplaceTempView("made")
    own.range(50).selectExpr(
        "CAST(id AS INT) AS id", "'x' AS kind"
    ).cache().createOrReplaceTempView("cached")
    texts = {
        "one": "SELECT kind, count(*) AS n FROM made WHERE id > 10 GROUP BY kind",
        "two": "SELECT kind, count(*) AS n FROM made WHERE id > 20 GROUP BY kind",
        "both": """SELECT kind, count(*) AS n FROM made WHERE id > 30 GROUP BY kind
            UNION ALL SELECT max(id), count(DISTINCT kind) FROM cached""",
        "alone": "SELECT id FROM cached ORDER BY id LIMIT 3",
    }
    with opened(own, workers, tmp_path, engine) as session:
        handle = run_batch(session, texts, deadline=600)
        assert set(statuses(handle).values()) == {"done"}
        assert sum(each.shared_steps for each in handle.batch().mini_batches) >= 1
        check_rows(session, handle, texts)


def test_a_query_is_stopped_at_its_own_deadline(session: Session) -> None:
    queries = [
        session.sql(SLOW, name="slow", deadline=500.0, priority=1.0),
        *(session.sql(text, name=name) for name, text in GROUPED.items()),
    ]
    handle = session.batch(queries, deadline=600)
    while statuses(handle)["slow"] == "waiting":
        assert not handle.wait(0.05)
    # However long planning took: the deadline comes now that it runs.
    handle._queries["slow"] = replace(handle._queries["slow"], deadline=handle._elapsed)
    began = time.monotonic()
    handle.wait()
    assert time.monotonic() - began < 60
    assert statuses(handle) == {"slow": "interrupted", **dict.fromkeys(GROUPED, "done")}
    found = next(query for query in handle.progress() if query.name == "slow")
    assert found.error is not None and "deadline" in found.error.message
    assert "it had run for" in handle.batch().why_late("slow")
    in_time = [each for each in handle.batch().mini_batches if "slow" not in each.queries]
    assert len(handle._model.observations) == len(in_time)
    check_rows(session, handle, GROUPED)


def test_after_a_loss_the_rest_is_planned_again(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not begun of a mini-batch waits for the next; nothing is done twice."""
    real = LossWatch.look
    looks: list[bool] = []

    def lost(watch: LossWatch) -> bool:
        real(watch)
        looks.append(len(looks) == 1)  # the first look is when a mini-batch begins
        if looks[-1]:
            watch._all, watch._now = 1, 1
        return looks[-1]

    monkeypatch.setattr(LossWatch, "look", lost)
    handle = run_batch(session, {**GROUPED, **ROWS}, deadline=600, policy=Policy(fixed_size=6))
    first, *others = handle.batch().mini_batches
    assert others and set(first.put_back) in (set(GROUPED), set(ROWS))
    assert handle._losses.expected().per_hour > 0
    shared = [tuple(each["queries"]) for each in events(session, handle, SHARED_DONE)]
    assert len(shared) == len(set(shared)) == 2
    assert len(handle._model.observations) == len(others)
    check_rows(session, handle, {**GROUPED, **ROWS})


def test_the_live_view_may_look_at_any_time(session: Session) -> None:
    handle = session.batch(
        [session.sql(text, name=name) for name, text in regular_share(seed=2, count=4).items()],
        deadline=600,
    )
    while not handle.finished:
        assert handle.batch().elapsed >= 0
    handle.wait()
