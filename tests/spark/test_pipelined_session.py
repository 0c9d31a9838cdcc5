"""The pipelined engine as a user of a session meets it, on workers that Spark hosts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headway.base.errors import HeadwayError, NotSupported, QueryFailed, RunInterrupted
from headway.pipelined.control.redis import RedisStore
from headway.session import Session
from headway.session import session as headway_session
from headway.session.pipelined import StagingWatch
from headway.session.suspending import Suspension
from headway.session.workers import Workers
from headway.spark.compare import same_result
from headway.storage import Run
from headway.workloads import WORKLOADS

QUERIES = ("q01", "q03", "q11", "q13", "q18", "q21")
SLOW = "SELECT count(*) AS n FROM range(40000) a JOIN range(40000) b ON a.id % 2 = b.id % 3"


@pytest.mark.parametrize("name", QUERIES)
def test_rows_types_and_order_are_those_of_spark(
    name: str, workload_session: Callable[[str], SparkSession], workers: Workers, tmp_path: Path
) -> None:
    spark = workload_session("tpch")
    text = WORKLOADS["tpch"].queries()[name]
    with headway_session(spark, workers=workers, store_url=str(tmp_path / "store")) as session:
        handle = session.run(session.sql(text, name=name))
        handle.wait()
        (progress,) = handle.progress()
        assert progress.engine == "pipelined"
        verdict = same_result(spark.sql(text), handle.result())
        assert verdict.equal, verdict.difference
        assert handle.arrow().num_rows == progress.rows


@pytest.mark.parametrize(
    "make",
    [
        lambda spark, folder: spark.createDataFrame([(1, "a"), (2, None)], "n int, s string"),
        lambda spark, folder: spark.range(10).selectExpr("cast(id as int) n", "'x' s").cache(),
        lambda spark, folder: _written(spark, folder, "csv"),
        lambda spark, folder: _written(spark, folder, "json"),
        lambda spark, folder: _written(spark, folder, "orc"),
    ],
    ids=("in memory", "cached", "csv", "json", "orc"),
)
def test_tables_that_only_spark_reads_are_staged(
    make: Callable[..., object], pipelined: Session, tmp_path: Path
) -> None:
    make(pipelined.spark, tmp_path / "table").createOrReplaceTempView("staged")  # type: ignore[attr-defined]
    text = "SELECT s, sum(n) AS total, count(*) AS c FROM staged GROUP BY s"
    handle = pipelined.run(text)
    handle.wait()
    assert handle.progress()[0].engine == "pipelined"
    assert same_result(pipelined.spark.sql(text), handle.result()).equal
    assert not Run.open(pipelined.store, handle.id).pieces("staged"), "it was there for the query"


@pytest.mark.nightly
def test_a_query_is_stopped_while_its_tables_are_staged(pipelined: Session) -> None:
    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(0.5)
            yield batch

    slow = pipelined.spark.range(0, 60, 1, 60).mapInArrow(slowly, "id bigint")  # 15 s on 2 cores
    slow.cache().createOrReplaceTempView("slow")
    handle = pipelined.run("SELECT count(*) AS n FROM slow")
    while not any(isinstance(r.watch, StagingWatch) for r in handle._running_now().values()):
        assert not handle.finished
        time.sleep(0.01)
    time.sleep(1.0)
    began = time.monotonic()
    handle.suspend(Suspension(wait=False))
    assert time.monotonic() - began < 8.0, "it waited for the table"
    run = Run.open(pipelined.store, handle.id)
    assert run.summary().status == "suspended" and not run.pieces("staged")
    resumed = pipelined.resume(handle.id)
    resumed.wait()
    assert resumed.arrow().to_pylist() == [{"n": 60}]


def _written(spark: SparkSession, folder: Path, kind: str) -> object:
    spark.createDataFrame([(1, "a"), (2, "b"), (3, "a")], "n int, s string").write.format(
        kind
    ).save(str(folder))
    return spark.read.format(kind).schema("n int, s string").load(str(folder))


def test_a_large_sorted_result_comes_in_order_and_in_pieces(pipelined: Session) -> None:
    text = "SELECT id, id % 7 AS r, cast(id AS string) AS s FROM range(3000000) ORDER BY r, id"
    handle = pipelined.run(text)
    handle.wait()
    rows = handle.arrow()
    assert rows.num_rows == 3_000_000
    assert rows.column("r").to_pylist() == sorted(rows.column("r").to_pylist())
    first = handle.result().limit(3).collect()
    assert [row.id for row in first] == [0, 7, 14]


def test_a_result_without_rows_has_its_columns(pipelined: Session) -> None:
    handle = pipelined.run("SELECT id, 'x' AS s FROM range(10) WHERE id < 0")
    handle.wait()
    assert handle.arrow().column_names == ["id", "s"]
    assert handle.result().count() == 0


def test_an_error_of_the_query_has_a_name_and_the_next_query_runs(pipelined: Session) -> None:
    handle = pipelined.run("SELECT 1 / (id - 5) AS x FROM range(10)")
    handle.wait()
    error = handle.progress()[0].error
    assert isinstance(error, QueryFailed) and "DIVIDE_BY_ZERO" in error.message
    again = pipelined.run("SELECT 1 / (id + 5) AS x FROM range(10)")
    again.wait()
    assert again.arrow().num_rows == 10


def test_what_has_no_kernel_goes_to_spark_with_the_reason(
    pipelined: Session, spark: SparkSession, workers: Workers, tmp_path: Path
) -> None:
    text = "SELECT collect_list(id) AS l FROM range(3)"
    explained = pipelined.explain(text)
    assert "Engine: spark" in explained and "not pipelined:" in explained
    handle = pipelined.run(text)
    handle.wait()
    assert handle.progress()[0].engine == "spark"
    settings = {"store_url": str(tmp_path / "other"), "engine_name": "pipelined"}
    with headway_session(spark, workers=workers, **settings) as forced:
        refused = forced.run(text)
        refused.wait()
        assert isinstance(refused.progress()[0].error, NotSupported)


def test_explain_shows_stages_and_channels(pipelined: Session) -> None:
    explained = pipelined.explain("SELECT id % 3 AS k, count(*) AS n FROM range(100) GROUP BY k")
    assert "Engine: pipelined" in explained
    assert "Stage 0: 1 channel, the result, in the reliable store" in explained
    assert "reads range: 1 units" in explained


def test_a_running_query_is_cancelled(pipelined: Session) -> None:
    handle = pipelined.run(SLOW)
    while not handle.finished and handle.report() is None:
        time.sleep(0.01)
    time.sleep(0.2)
    began = time.monotonic()
    handle.cancel()
    handle.wait(20)
    assert time.monotonic() - began < 10
    assert isinstance(handle.progress()[0].error, RunInterrupted)
    again = pipelined.run("SELECT count(*) AS n FROM range(10)")
    again.wait()
    assert again.arrow().to_pylist() == [{"n": 10}]


def test_queries_run_side_by_side(spark: SparkSession, workers: Workers, tmp_path: Path) -> None:
    settings = {"store_url": str(tmp_path / "store"), "run_parallel_queries": "3"}
    with headway_session(spark, workers=workers, **settings) as session:
        queries = [
            session.sql(f"SELECT sum(id) AS s FROM range({n}00000)", name=f"q{n}")
            for n in range(1, 7)
        ]
        handle = session.run(queries)
        handle.wait()
        for n in range(1, 7):
            count = n * 100_000
            assert handle.arrow(f"q{n}").to_pylist() == [{"s": count * (count - 1) // 2}]


def test_a_killed_worker_is_replaced_and_the_query_ends(pipelined: Session) -> None:
    pipelined.run("SELECT 1 AS one").wait()
    (pid,) = pipelined.workers.processes.values()
    handle = pipelined.run(SLOW)
    while not handle.finished and handle.report() is None:
        time.sleep(0.01)
    time.sleep(0.2)
    assert not handle.finished
    os.kill(pid, signal.SIGKILL)
    handle.wait()
    report = handle.report()
    assert report is not None and report.workers_lost == 1
    assert handle.arrow().to_pylist() == [{"n": 533_340_000}]


def test_a_query_that_comes_again_sees_what_has_changed(
    pipelined: Session, spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "sales"
    folder.mkdir()
    pq.write_table(pa.table({"n": [1, 2]}), folder / "a.parquet")
    spark.read.parquet(str(folder)).createOrReplaceTempView("sales")
    text = "SELECT sum(n) AS s FROM sales"

    def total() -> int:
        handle = pipelined.run(text)
        handle.wait()
        return int(handle.arrow().to_pylist()[0]["s"])

    assert total() == total() == 3
    pq.write_table(pa.table({"n": [10]}), folder / "b.parquet")
    spark.read.parquet(str(folder)).createOrReplaceTempView("sales")
    assert total() == 13
    pq.write_table(pa.table({"n": [5, 6, 7]}), folder / "a.parquet")  # other rows, the same name
    spark.catalog.refreshByPath(str(folder))
    assert total() == 28
    spark.range(5).selectExpr("id AS n").createOrReplaceTempView("sales")
    assert total() == 10


def test_what_depends_on_the_moment_is_planned_each_time(pipelined: Session) -> None:
    def moment() -> object:
        handle = pipelined.run("SELECT cast(now() AS double) AS t FROM range(1)")
        handle.wait()
        return handle.arrow().to_pylist()[0]["t"]

    assert moment() != moment()


@pytest.mark.nightly
def test_a_lost_control_store_is_named(
    spark: SparkSession, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RedisStore.__init__.__kwdefaults__, "patience", 1.0)
    settings = {
        "store_url": str(tmp_path / "store"),
        "pipelined_control_store": "redis://127.0.0.1:1/0",
    }
    with headway_session(spark, workers=workers, **settings) as session:
        handle = session.run("SELECT 1 AS one")
        handle.wait()
        error = handle.progress()[0].error
        assert isinstance(error, HeadwayError) and error.name == "CONTROL_STORE_UNAVAILABLE"


def test_workers_stop_computing_what_was_cancelled(pipelined: Session) -> None:
    handle = pipelined.run(SLOW.replace("40000", "4000000"))  # hours of work
    while not handle.finished and handle.report() is None:
        time.sleep(0.01)
    time.sleep(0.5)
    handle.cancel()
    handle.wait(20)
    (pid,) = pipelined.workers.processes.values()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        before = _processor_seconds(pid)
        time.sleep(0.5)
        if _processor_seconds(pid) - before < 0.2:
            return
    pytest.fail("the worker is still busy with a query that was cancelled")


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
