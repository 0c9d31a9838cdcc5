"""Batches with a deadline: the rows of every query alone, failures that stay alone, the clock."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headway.base.errors import RunInterrupted, TableChanged, WrongUsage
from headway.cli.deadlines import late_queries
from headway.plan.spark_sql import to_spark_sql
from headway.session import Policy, Session, opening
from headway.session.batches import BatchHandle, cost_model
from headway.session.calibration import calibrate
from headway.session.planning import PlannedQuery
from headway.session.resuming import BATCH, FALLBACK, MINI_BATCH, SHARED_DONE, resumed_from
from headway.session.workers import Workers
from headway.sharing.cost_model import CostModel
from headway.sharing.costs import Work
from headway.spark import results
from headway.spark.compare import same_result
from headway.spark.results import KeptResult, fetch_small
from headway.storage import QUERY_DONE, Event, ReliableStore, Run, open_store
from headway.testing.random_batches import make_star, random_batch
from headway.testing.session_batches import Sessions, check_rows, opened, run_batch
from headway.workloads import WORKLOADS
from headway.workloads.batches import high_share, low_share, regular_share

SEED = int(os.environ.pop("HEADWAY_TEST_SEED", time.time()))
KINDS = {"low": low_share, "high": high_share, "regular": regular_share}
ENGINES = ("auto", "spark")


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        pytest.param("low", "auto", marks=pytest.mark.nightly),
        ("high", "auto"),
        ("regular", "spark"),
        pytest.param("low", "spark", marks=pytest.mark.nightly),
        pytest.param("high", "spark", marks=pytest.mark.nightly),
        pytest.param("regular", "auto", marks=pytest.mark.nightly),
    ],
)
def test_every_query_has_the_rows_that_it_has_alone(
    kind: str, engine: str, workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    texts = KINDS[kind](seed=SEED, count=6)
    print(f"seed {SEED}")
    with opened(workload_session("tpcds"), workers, tmp_path, engine) as session:
        handle = run_batch(session, texts, deadline=600)
        assert sum(each.shared_steps for each in handle.batch().mini_batches) >= 1
        assert {str(query.status) for query in handle.progress()} == {"done"}
        check_rows(session, handle, texts)


def test_spark_fetches_shared_rows_once_for_all_queries(
    workload_session: Sessions, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its executors hold them while the queries are finished, and no longer."""
    texts = high_share(seed=4, count=5)
    fetched: list[str] = []

    def counted(run: Run, states: Mapping[str, KeptResult]) -> dict[str, pa.Table]:
        fetched.extend(states)
        return fetch_small(run, states)

    monkeypatch.setattr(results, "fetch_small", counted)
    monkeypatch.setattr(opening, "_SMALL_SIZE", 0)
    spark = workload_session("tpcds")
    held = spark.sparkContext._jsc.getPersistentRDDs
    before = len(held())
    with opened(spark, workers, tmp_path, "spark") as session:
        handle = run_batch(session, texts, deadline=600)
        kept = [e for e in Run.open(session.store, handle.id).events() if e.kind == SHARED_DONE]
        shared = [e.data["name"] for e in kept if len(e.data["queries"]) > 1]
        assert shared and sorted(fetched) == sorted(shared)
        assert len(held()) == before
        check_rows(session, handle, texts)


@pytest.mark.nightly
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_queries_of_a_workload(
    kind: str, engine: str, workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    texts = KINDS[kind]()
    with opened(workload_session("tpcds"), workers, tmp_path, engine) as session:
        handle = run_batch(session, texts, deadline=3600)
        check_rows(session, handle, texts)


@pytest.mark.nightly
def test_tpch_as_one_batch(workload_session: Sessions, workers: Workers, tmp_path: Path) -> None:
    texts = WORKLOADS["tpch"].queries()
    with opened(workload_session("tpch"), workers, tmp_path) as session:
        handle = run_batch(session, texts, deadline=600)
        assert sum(each.shared_steps for each in handle.batch().mini_batches) >= 1
        check_rows(session, handle, texts)


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.nightly if n >= 20 else ()) for n in range(200)],
)
def test_random_batches(number: int, spark: SparkSession, workers: Workers, tmp_path: Path) -> None:
    """From texts, as users write them; half of the batches on each engine."""
    seed = SEED + number
    print(f"HEADWAY_TEST_SEED={seed}, the first batch")
    rng = random.Random(seed)
    (tmp_path / "tables").mkdir()
    star = make_star(tmp_path / "tables", rng)
    own = spark.newSession()
    names = {}
    for scan in (star.fact, *star.others.values()):
        folder = tmp_path / "tables" / scan.source.table
        own.read.parquet(str(folder)).createOrReplaceTempView(scan.source.table)
        names[scan.source] = scan.source.table
    # By night, every fifth has more queries than a word holds, and one more than two words do.
    large = number >= 20 and number % 5 == 0
    count = 130 if number == 195 else 70 if large else 3 if number % 2 or number < 20 else 8
    plans = random_batch(star, rng, count)
    texts = {
        name: to_spark_sql(plan, lambda scan: names[scan.source])  # type: ignore[union-attr]
        for name, plan in plans.items()
    }
    with opened(own, workers, tmp_path / "store", ENGINES[number % 2]) as session:
        handle = run_batch(session, texts, deadline=600)
        if len(texts) > 3:  # few may share nothing
            assert sum(each.shared_steps for each in handle.batch().mini_batches) >= 1
        check_rows(session, handle, texts)


def test_a_query_that_fails_fails_alone(
    workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    texts = regular_share(seed=3, count=4)
    bad = {
        "wrong": "SELEC nothing",
        "missing": "SELECT * FROM no_such_table",
        "division": """
            SELECT s_store_id, sum(ss_quantity / (s_store_sk - s_store_sk)) AS broken
            FROM store_sales, store, date_dim
            WHERE ss_store_sk = s_store_sk AND ss_sold_date_sk = d_date_sk AND d_year = 2000
            GROUP BY s_store_id""",
    }
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        handle = run_batch(session, {**texts, **bad}, deadline=600)
        found = {query.name: str(query.status) for query in handle.progress()}
        assert found == dict.fromkeys(texts, "done") | dict.fromkeys(bad, "failed")
        good = [each for each in handle.batch().mini_batches if not bad.keys() & set(each.queries)]
        assert len(handle._model.observations) == len(good)
        check_rows(session, handle, texts)


def test_at_the_deadline_what_is_not_done_is_late(
    workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    slow = "SELECT count(*) AS n FROM range(300000) a JOIN range(300000) b ON a.id % 2 = b.id % 3"
    texts = {"quick": "SELECT 1 AS one", "slow": slow}
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        began = time.monotonic()
        handle = run_batch(session, texts, deadline=6, policy=Policy(shuffle=False))
        assert time.monotonic() - began < 30
        by_name = {query.name: query for query in handle.progress()}
        assert str(by_name["quick"].status) == "done"
        assert str(by_name["slow"].status) == "interrupted"
        assert "deadline" in by_name["slow"].error.describe()  # type: ignore[union-attr]


def test_a_query_that_is_wrong_says_so_even_when_it_is_late(
    workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        queries = [session.sql("SELECT 1 AS one", name="fine")]
        queries.append(session.sql("SELEC 1", name="wrong", deadline=500, priority=1))
        plan = session.explain_batch(queries, deadline=600)
        assert "1 of 2 queries are expected in time" in plan.explain()
        assert "cannot be run: wrong" in plan.explain()
        handle = session.batch(queries, deadline=0.001)
        handle.join()
        wrong = next(query for query in handle.progress() if query.name == "wrong")
        assert str(wrong.status) == "failed"
        assert "WRONG_SQL" in wrong.error.describe(), "and not that there was no time for it"  # type: ignore[union-attr]
        assert handle._queries["wrong"].deadline == 500 and handle._queries["wrong"].priority == 1


def test_commands_are_kept_as_done_before_a_deadline_can_stop_them(
    workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    """Spark runs them while they are planned: nobody may run them again."""
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        session.spark.sql(
            f"CREATE TABLE late_command (n INT) USING parquet LOCATION '{tmp_path / 't'}'"
        )
        try:
            queries = [session.sql("INSERT INTO late_command VALUES (1)", name="insert")]
            queries.append(session.sql("SELECT count(*) AS n FROM late_command", name="count"))
            handle = session.batch(queries, deadline=0.001)
            handle.join()
            found = {query.name: str(query.status) for query in handle.progress()}
            assert found["insert"] == "done"
            resumed = session.resume(handle.id, deadline=600)
            resumed.wait()
            assert resumed.arrow("count").to_pylist() == [{"n": 1}]
        finally:
            session.spark.sql("DROP TABLE late_command")


def test_a_query_that_cannot_be_placed_is_run_by_spark(
    workload_session: Sessions, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever planning it trips over: the others go on, and so does the query."""

    def broken(*given: object, **named: object) -> None:
        raise KeyError("nobody thought of this")

    monkeypatch.setattr(sys.modules[BatchHandle.__module__], "with_engine", broken)
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        texts = {f"q{n}": f"SELECT {n} AS n, count(*) AS c FROM store" for n in range(2)}
        handle = run_batch(session, texts, deadline=600, policy=Policy(share=False))
        assert {(str(q.status), q.engine) for q in handle.progress()} == {("done", "spark")}
        check_rows(session, handle, texts)


def test_a_shared_step_that_is_interrupted_leaves_late_queries(
    workload_session: Sessions,
    workers: Workers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deadline comes in the middle of shared work: its queries are late, and not failed."""
    texts = regular_share(seed=4, count=3)

    def interrupted(handle: BatchHandle, made: object, key: str) -> None:
        handle._options = replace(handle._options, deadline=handle._elapsed)
        handle._stop_at_deadline()
        raise RunInterrupted("the batch was interrupted")

    monkeypatch.setattr(BatchHandle, "_execute_step", interrupted)
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        handle = run_batch(session, texts, deadline=600)
        found = handle.progress()
        assert {str(query.status) for query in found} == {"interrupted"}
        assert set(late_queries(found, handle.batch())) == set(texts)


def test_past_the_deadline_a_batch_can_go_on(
    workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    texts = regular_share(seed=4, count=3)
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        handle = run_batch(session, texts, deadline=0.05, after_deadline="continue")
        found = handle.progress()
        assert {str(query.status) for query in found} == {"done"}
        assert set(late_queries(found, handle.batch())) == set(texts)
        assert all("late" in handle.batch().why_late(name) for name in texts)
        check_rows(session, handle, texts)


@pytest.mark.parametrize("by", ["priority", "deadline"])
def test_urgent_queries_come_first(
    by: str, workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    texts = list(regular_share(seed=8, count=4).values())
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        queries = [
            session.sql(text, name=f"q{n}", priority=n)
            if by == "priority"
            else session.sql(text, name=f"q{n}", deadline=500 - n)
            for n, text in enumerate(texts)
        ]
        handle = session.batch(queries, deadline=600, policy=Policy(share=False))
        handle.wait()
        done = handle.batch().finished_at
        assert sorted(done, key=lambda name: done[name]) == ["q3", "q2", "q1", "q0"]


def test_a_deadline_that_has_passed_is_refused(headway: Session) -> None:
    with pytest.raises(WrongUsage, match="has passed"):
        headway.batch(["SELECT 1"], deadline=0)


@pytest.mark.parametrize("checkpoints", ["all", "none", "selective"])
def test_checkpoints_change_no_row(
    checkpoints: str, workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    texts = regular_share(seed=6, count=5)
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        policy = Policy(checkpoints=checkpoints)  # type: ignore[arg-type]
        # So often that every checkpoint is worth it, and so much time that all of them fit.
        handle = run_batch(session, texts, deadline=1e8, policy=policy, failures_per_hour=1e7)
        check_rows(session, handle, texts)
        steps = sum(each.shared_steps for each in handle.batch().mini_batches)
        assert steps >= 1
        kept = [e for e in Run.open(session.store, handle.id).events() if e.kind == SHARED_DONE]
        assert (len(kept) > steps) == (checkpoints != "none")
        budget = handle._steps.budget
        assert (budget < 0.25e8) == (checkpoints != "none")  # what they really took


def killed_batch(store: Path, tables: Path, *, until: str) -> tuple[Run, list[Event]]:
    """A batch whose driver was killed after the first event of a kind; with its events."""
    scenario = Path(__file__).with_name("batch_scenario.py")
    process = subprocess.Popen(
        [sys.executable, str(scenario), str(store), str(tables)], stdout=subprocess.PIPE
    )
    try:
        run = _run_with(open_store(str(store)), store, process, until)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert run.summary().status == "lost"
    return run, list(run.events())


@pytest.mark.nightly
def test_a_batch_whose_spark_was_killed_goes_on(
    workload_session: Sessions, workers: Workers, workload_data: Callable[[str], Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    """Its driver notices that, keeps what is done, and leaves the rest to another one."""
    scenario = Path(__file__).with_name("batch_scenario.py")
    tables = workload_data("tpcds")
    process = subprocess.Popen(
        [sys.executable, str(scenario), str(tmp_path), str(tables)], stdout=subprocess.PIPE
    )
    try:
        run = _run_with(open_store(str(tmp_path)), tmp_path, process, SHARED_DONE)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (java,) = (pid for pid in children if b"java" in Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(int(java), signal.SIGKILL)
        process.wait(120)
    finally:
        process.kill()
        process.wait()
    assert (run.summary().status, run.summary().resumable) == ("interrupted", True)
    before = run.events()
    made = {e.data["key"] for e in before if e.kind == SHARED_DONE}
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        handle = session.resume(run.run_id)
        handle.wait()
        after = Run.open(session.store, run.run_id).events()[len(before) :]
        assert made and not made & {e.data["key"] for e in after if e.kind == SHARED_DONE}
        assert isinstance(handle, BatchHandle)
        check_rows(session, handle, regular_share(seed=5, count=12))


def test_a_batch_whose_driver_was_killed_goes_on(
    workload_session: Sessions, workers: Workers, workload_data: Callable[[str], Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    """What was done is not done again, and what was shared is used."""
    run, before = killed_batch(tmp_path, workload_data("tpcds"), until=QUERY_DONE)
    done = {e.query for e in before if e.kind == QUERY_DONE}
    assert done and len(done) < 12
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        with _another_table(session.spark, "date_dim"), pytest.raises(TableChanged, match="date"):
            session.resume(run.run_id)
        handle = session.resume(run.run_id)
        handle.wait()
        assert {str(query.status) for query in handle.progress()} == {"done"}
        after = Run.open(session.store, run.run_id).events()[len(before) :]
        assert not done & {e.query for e in after if e.kind == QUERY_DONE}
        kept = set(resumed_from(run, before).plans) - done
        again = {q for e in after if e.kind == SHARED_DONE for q in e.data["queries"]}
        assert kept and not kept & again
        assert isinstance(handle, BatchHandle)
        finished = handle.batch().finished_at
        assert max(finished[str(n)] for n in done) < min(finished[n] for n in set(finished) - done)
        check_rows(session, handle, regular_share(seed=5, count=12))


@pytest.mark.nightly
def test_checkpoints_of_a_driver_that_was_killed_are_found(
    workload_session: Sessions, workers: Workers, workload_data: Callable[[str], Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    """In the middle of a shared step: what was cut from it is there, later cuts included."""
    run, before = killed_batch(tmp_path, workload_data("tpcds"), until=SHARED_DONE)
    cuts = {e.data["key"] for e in before if e.kind == SHARED_DONE}
    assert cuts and not resumed_from(run, before).plans
    forming = [e.data["queries"] for e in before if e.kind == MINI_BATCH]
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        handle = session.resume(run.run_id, deadline=3000)
        assert isinstance(handle, BatchHandle)
        asked = handle._options
        assert asked.policy.checkpoints == "all" and asked.failures_per_hour == 7.0
        handle.wait()
        after = Run.open(session.store, run.run_id).events()[len(before) :]
        again = {e.data["key"] for e in after if e.kind == SHARED_DONE}
        assert again and not cuts & again
        assert handle.batch().mini_batches[0].queries == tuple(forming[-1])
        (told,) = (e.data for e in after if e.kind == BATCH)
        assert told["deadline"] == pytest.approx(3000 + run.age(), abs=120)
        assert told["failures_per_hour"] == 7.0
        check_rows(session, handle, regular_share(seed=5, count=12))


SALES = {
    "store": "store_sales JOIN store ON ss_store_sk = s_store_sk WHERE ss_quantity",
    "catalog": "catalog_sales JOIN call_center ON cs_call_center_sk = cc_call_center_sk "
    "WHERE cs_quantity",
}
PLACES = {"store": "s_store_id", "catalog": "cc_call_center_id"}


def sales_of(what: str, least: int) -> str:
    place = PLACES[what]
    return f"SELECT {place}, count(*) AS n FROM {SALES[what]} > {least} GROUP BY {place}"


def test_a_query_of_two_shared_steps_is_resumed_between_them(
    workload_session: Sessions,
    spark: SparkSession,
    workers: Workers,
    workload_data: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither what the first has made nor what was cut from the second is made again, for whatever
    reason the batch would be planned in another way: here its tables are elsewhere."""
    texts = {
        "store": sales_of("store", 10),
        "catalog": sales_of("catalog", 10),
        "both": f"{sales_of('store', 20)} UNION ALL {sales_of('catalog', 20)}",
    }
    real = BatchHandle._execute_step
    stuck, released = threading.Event(), threading.Event()

    def until_the_last(handle: BatchHandle, made: PlannedQuery, key: str) -> tuple[object, str]:
        found = Run.open(handle._run.store, handle.id).events()
        if sum(e.kind == SHARED_DONE for e in found) == 3 and not stuck.is_set():
            stuck.set()
            released.wait(120)
            raise RunInterrupted("this driver is gone")
        return real(handle, made, key)

    monkeypatch.setattr(BatchHandle, "_execute_step", until_the_last)
    moved = spark.newSession()
    for table in ("store_sales", "store", "catalog_sales", "call_center"):
        copied = shutil.copytree(workload_data("tpcds") / table, tmp_path / "moved" / table)
        moved.read.parquet(str(copied)).createOrReplaceTempView(table)
    policy = Policy(checkpoints="all", fixed_size=3)
    with (
        opened(workload_session("tpcds"), workers, tmp_path / "store") as first,
        opened(moved, workers, tmp_path / "store") as second,
    ):
        queries = [first.sql(text, name=name) for name, text in texts.items()]
        gone = first.batch(queries, deadline=600, policy=policy)
        assert stuck.wait(120)
        before = Run.open(first.store, gone.id).events()
        handle = second.resume(gone.id, take_over=True)
        handle.wait()
        released.set()
        gone.join()
        after = Run.open(second.store, gone.id).events()[len(before) :]
        keys = [e.data["key"] for e in (*before, *after) if e.kind == SHARED_DONE]
        assert len(keys) == len(set(keys)) == 4
        assert isinstance(handle, BatchHandle) and not any(e.kind == FALLBACK for e in after)
        check_rows(second, handle, texts)


@contextmanager
def _another_table(spark: SparkSession, name: str) -> Iterator[None]:
    """Some of the table's rows under its name."""
    frame = spark.table(name)
    with TemporaryDirectory() as folder:
        frame.limit(10).write.parquet(f"{folder}/{name}")
        spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
        yield
    frame.createOrReplaceTempView(name)


@pytest.mark.nightly
def test_calibration_learns_what_work_takes(
    spark: SparkSession, workers: Workers, tmp_path: Path
) -> None:
    with opened(spark.newSession(), workers, tmp_path) as session:
        steps: list[int] = []

        def far_off() -> CostModel:
            """One that believed in a machine of a tenth of the speed at first."""
            known = cost_model(session.settings, session._costs)
            model = CostModel(Work(*(10 * rate for rate in known.prior.values())))
            session._costs.recall(model)
            return model

        found = calibrate(
            session,
            far_off,
            lambda what, done, total: steps.append(done),
            rows=20_000,
        )
        assert steps == list(range(found.batches + 1))
        assert found.error_after < found.error_before
        assert all(rate > 0 for rate in found.rates.values())
        assert not list((tmp_path / "runs").iterdir())
        assert not session.spark.catalog.listTables()


def _run_with(
    store: ReliableStore, folder: Path, process: subprocess.Popen[bytes], until: str
) -> Run:
    """The run of the scenario, once it has such an event."""
    patience = time.monotonic() + 300
    while time.monotonic() < patience and process.poll() is None:
        for found in (folder / "runs").glob("*/manifest"):
            run = Run.open(store, found.parent.name)
            if any(event.kind == until for event in run.events()):
                return run
        time.sleep(0.01)
    raise AssertionError(f"the batch has no event {until}")


def test_data_of_the_session_is_told_apart(
    spark: SparkSession, workers: Workers, tmp_path: Path
) -> None:
    """Spark filters local data while it plans, and prints neither that nor checkpoints."""
    rows = pa.table({"x": list(range(9000)), "y": [n % 7 for n in range(9000)]})
    own = spark.newSession()
    own.createDataFrame(rows).createOrReplaceTempView("v")
    texts = {
        f"{name}-{least}": f"SELECT sum(y) AS s, count(*) AS n FROM v WHERE x {sign} {least}"
        for name, sign in (("above", ">"), ("below", "<="))
        for least in (1000, 4000)
    }
    frames = {
        f"frame-{n}": own.range(9000).where(f"id % 2 = {n}").localCheckpoint().groupBy().sum("id")
        for n in (0, 1)
    }
    with opened(own, workers, tmp_path) as session:
        queries = [session.sql(text, name=name) for name, text in texts.items()]
        queries += [session.dataframe(frame, name=name) for name, frame in frames.items()]
        handle = session.batch(queries, deadline=600)
        handle.wait()
        check_rows(session, handle, texts)
        for name, frame in frames.items():
            assert handle.arrow(name).equals(frame.toArrow())


def test_settings_are_told_apart(spark: SparkSession, workers: Workers, tmp_path: Path) -> None:
    """The same texts in two time zones, in one batch: neither has the rows of the other."""
    own = spark.newSession()
    own.range(0, 500_000, 7).selectExpr("id", "timestamp_seconds(id) AS at").write.parquet(
        str(tmp_path / "moments")
    )
    own.read.parquet(str(tmp_path / "moments")).createOrReplaceTempView("moments")
    asked = [f"SELECT hour(at) AS h, count(*) AS n FROM moments WHERE id > {n} GROUP BY 1"
             for n in (100, 200)]  # fmt: skip
    zones = {zone: f"SET spark.sql.session.timeZone={zone}" for zone in ("UTC", "Asia/Kolkata")}
    texts = [text for setting in zones.values() for text in (setting, *asked)]
    with opened(own, workers, tmp_path / "store", "spark") as session:
        handle = session.batch(
            [session.sql(text, name=f"q{n}") for n, text in enumerate(texts)], deadline=600
        )
        handle.wait()
        steps = [e for e in Run.open(session.store, handle.id).events() if e.kind == SHARED_DONE]
        assert len(steps) == 2, "each time zone shares its own work"
        for first, setting in enumerate(zones.values()):
            own.sql(setting)
            for number, text in enumerate(asked, 3 * first + 1):
                verdict = same_result(own.sql(text), handle.result(f"q{number}"))
                assert verdict.equal, verdict.difference


def test_nested_columns_are_shared(spark: SparkSession, workers: Workers, tmp_path: Path) -> None:
    """Of a query that groups by one, beside others that do not have it."""
    own = spark.newSession()
    own.range(5000).selectExpr(
        "id", "named_struct('a', id % 3, 'B', array(id % 2)) AS s", "id % 10 AS g"
    ).write.parquet(str(tmp_path / "nested"))
    own.read.parquet(str(tmp_path / "nested")).createOrReplaceTempView("nested")
    texts = {
        "struct": "SELECT s, count(*) AS n FROM nested WHERE id > 10 GROUP BY s",
        "plain": "SELECT g, count(*) AS n FROM nested WHERE id > 20 GROUP BY g",
    }
    with opened(own, workers, tmp_path / "store", "spark") as session:
        handle = run_batch(session, texts, deadline=600)
        assert not [e for e in Run.open(session.store, handle.id).events() if e.kind == FALLBACK]
        assert sum(each.shared_steps for each in handle.batch().mini_batches) == 1
        check_rows(session, handle, texts)


def test_what_is_late_goes_on_under_a_new_deadline(
    workload_session: Sessions, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From what was shared before the first one came."""
    texts = regular_share(seed=4, count=6)
    real = BatchHandle._finish
    shared = threading.Event()

    def until_the_deadline(handle: BatchHandle, *given: object, **named: object) -> None:
        shared.set()
        while not handle.stopping:
            time.sleep(0.01)
        real(handle, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(BatchHandle, "_finish", until_the_deadline)
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        queries = [session.sql(text, name=name) for name, text in texts.items()]
        handle = session.batch(queries, deadline=600)
        assert shared.wait(300)
        handle._stop_at_deadline()
        handle.join()
        assert {str(query.status) for query in handle.progress()} == {"interrupted"}
        monkeypatch.undo()
        before = Run.open(session.store, handle.id).events()
        assert any(e.kind == SHARED_DONE for e in before)
        resumed = session.resume(handle.id, deadline=600)
        resumed.wait()
        after = Run.open(session.store, handle.id).events()
        assert isinstance(resumed, BatchHandle)
        check_rows(session, resumed, texts)
        keys = [e.data["key"] for e in after if e.kind == SHARED_DONE]
        assert len(keys) == len(set(keys)), "what was shared is not made again"
        left = Run.open(session.store, handle.id).pieces()
        assert not any("shared-" in piece for piece in left), "and goes when all is done"


def test_a_plan_of_a_batch_tells_who_will_be_late(
    workload_session: Sessions, workers: Workers, tmp_path: Path
) -> None:
    texts = list(regular_share(seed=4, count=4).values())
    with opened(workload_session("tpcds"), workers, tmp_path) as session:
        queries = [session.sql(text, name=f"q{n}") for n, text in enumerate(texts)]
        calm = session.explain_batch(queries, deadline=600)
        assert not calm.late and "4 of 4 queries are expected in time" in calm.explain()
        assert calm.begins[0] > 0, "planning takes time as well"
        late = session.explain_batch(queries, deadline=0.001)
        assert set(late.late) == {"q0", "q1", "q2", "q3"}
        assert "too late: q" in late.explain() and "0 of 4 queries" in late.picture()
        assert late.to_builtins()["late"] == late.late
        with pytest.raises(WrongUsage, match="has passed"):
            session.sql(texts[0], deadline=0)
