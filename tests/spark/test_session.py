"""The session: queries run, are kept, and tell how they stand."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headway.base.errors import (
    QueryFailed,
    StoreCorrupt,
    StoreFull,
    TableNotFound,
    WrongSql,
    WrongUsage,
)
from headway.pipelined.kernels.operators import explain_support
from headway.session import QueryStatus, Session, session
from headway.storage import Run, list_runs
from headway.testing.faults import DiskFault, disk_faults

SLOW = "SELECT count(*) FROM range(0, 2000000000) WHERE md5(CAST(id AS STRING)) <> ''"


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_a_text_gives_its_rows_in_order(headway: Session) -> None:
    run = headway.run("SELECT id, CAST(id AS DECIMAL(9,2)) AS n FROM range(5) ORDER BY id DESC")
    assert [tuple(map(int, row)) for row in run.result().collect()] == [
        (i, i) for i in range(4, -1, -1)
    ]
    assert run.result().schema.simpleString() == "struct<id:bigint,n:decimal(9,2)>"
    assert run.wait()
    (summary,) = list_runs(headway.store)
    assert (summary.run_id, summary.status, summary.queries_done) == (run.id, "done", 1)


def test_a_dataframe_runs_like_a_text(headway: Session, spark: SparkSession) -> None:
    frame = spark.range(100).groupBy("id").count()
    assert headway.run(frame).result().count() == 100


def test_a_large_result_is_written_by_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    with session(
        spark, engine_name="spark", store_url=str(tmp_path), results_collect_limit="1KiB"
    ) as headway:
        frame = spark.range(0, 50_000, 1, 4).selectExpr("id", "id % 7 AS kind")
        run = headway.run(frame)
        assert run.result().collect() == frame.collect()
        assert len(Run.open(headway.store, run.id).pieces("results")) == 4


def test_a_large_result_without_rows_is_empty(spark: SparkSession, tmp_path: Path) -> None:
    with session(
        spark, engine_name="spark", store_url=str(tmp_path), results_collect_limit="1B"
    ) as headway:
        run = headway.run(spark.range(100_000).where("id % 7 = 9"))
        assert run.result().collect() == []
        assert "RDD" in run.result()._jdf.queryExecution().analyzed().toString()  # not run again


def test_a_result_that_is_not_kept_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    with session(
        spark, engine_name="spark", store_url=str(tmp_path), results_keep=False
    ) as headway:
        run = headway.run("SELECT id FROM range(5)")
        assert run.result().count() == 5 and run.wait()
        assert Run.open(headway.store, run.id).pieces() == []


def test_moments_are_kept(headway: Session) -> None:
    """Of both kinds; and that there are none."""
    text = "SELECT timestamp_seconds(id) AS t, timestamp_ntz '2020-01-01' AS n FROM range(3)"
    run = headway.run(text)
    assert run.arrow().equals(headway.spark.sql(text).toArrow())
    assert run.result().collect() == headway.spark.sql(text).collect()
    empty = headway.run(f"SELECT * FROM ({text}) WHERE year(t) > 2000")
    assert empty.arrow().num_rows == 0 and empty.arrow().column_names == ["t", "n"]


def test_settings_that_change_rows_go_with_the_plan(headway: Session) -> None:
    """And to Spark, as nobody else knows what they mean."""
    text = "SELECT cast(array(1, null) as string) AS s, count(*) AS n FROM range(3)"
    usual, name = headway.explain(text), "spark.sql.legacy.castComplexTypesToString.enabled"
    session = headway.spark
    session.conf.set(name, "true")
    try:
        (planned,) = headway.plan(text)
        assert planned.plan is not None and (name, "true") in planned.plan.settings
        refusals = [str(each) for each in explain_support(planned.plan)]
        assert name not in usual and any(name in each for each in refusals)
        run = headway.run(text)
        assert run.arrow().equals(session.sql(text).toArrow())
    finally:
        session.conf.unset(name)


def test_leaving_the_session_waits_for_its_runs(spark: SparkSession, tmp_path: Path) -> None:
    with session(spark, engine_name="spark", store_url=str(tmp_path)) as headway:
        run = headway.run([f"SELECT sum(id) FROM range({n}000000)" for n in (1, 2, 3)])
    assert run.finished and run.wait()
    assert list_runs(headway.store)[0].status == "done"


def test_a_store_that_fails_under_a_run_ends_it(spark: SparkSession, tmp_path: Path) -> None:
    with session(
        spark, engine_name="spark", store_url=str(tmp_path), statistics_observe=False
    ) as headway:
        full = [DiskFault("fsync", nth=nth, error=errno.ENOSPC) for nth in range(8, 200)]
        with disk_faults(*full):
            run = headway.run([f"SELECT {n} AS n" for n in range(4)])
            with pytest.raises(StoreFull):
                run.wait(60)
        statuses = [progress.status for progress in run.progress()]
        assert QueryStatus.FAILED in statuses
        assert not {QueryStatus.WAITING, QueryStatus.RUNNING} & set(statuses)
        # The store has room again, and so has the session.
        assert headway.run("SELECT 1 AS one").result().collect()[0].one == 1


def test_a_result_can_be_opened_by_another_session(headway: Session, spark: SparkSession) -> None:
    """What a run kept is there for whoever opens the store."""
    from headway.spark.results import KeptResult, open_result

    run = headway.run(headway.sql("SELECT id FROM range(9) ORDER BY id", name="nine"))
    run.wait()
    kept = Run.open(headway.store, run.id)
    (done,) = [event for event in kept.events() if event.kind == "query_done"]
    data = done.data
    result = KeptResult(data["rows"], data["bytes"], tuple(data["pieces"]), data["schema"])
    assert [row.id for row in open_result(spark.newSession(), kept, result).collect()] == list(
        range(9)
    )


def test_a_damaged_result_is_named_and_never_read(headway: Session) -> None:
    run = headway.run("SELECT id FROM range(9)")
    run.wait()
    (piece,) = Path(run.url.removeprefix("file://")).glob("pieces/results/*/*")
    data = bytearray(piece.read_bytes())
    data[len(data) // 2] ^= 1
    piece.write_bytes(data)
    with pytest.raises(StoreCorrupt, match="results"):
        run.result()


def test_a_query_fails_alone(headway: Session) -> None:
    run = headway.run(
        [
            headway.sql("SELECT 1 AS one", name="good"),
            headway.sql("SELECT 1 / (id - id) FROM range(3)", name="division"),
            headway.sql("SELEC 1", name="wrong"),
            headway.sql("SELECT * FROM no_such_table", name="missing"),
            headway.sql("SELECT 2 AS two", name="also good"),
        ]
    )
    run.wait()
    by_name = {progress.name: progress for progress in run.progress()}
    assert [p.status for p in by_name.values()] == [
        QueryStatus.DONE,
        QueryStatus.FAILED,
        QueryStatus.FAILED,
        QueryStatus.FAILED,
        QueryStatus.DONE,
    ]
    for name, error in {
        "division": QueryFailed,
        "wrong": WrongSql,
        "missing": TableNotFound,
    }.items():
        found = by_name[name].error
        assert isinstance(found, error) and "\n" not in found.message and found.hint
        with pytest.raises(error):
            run.result(name)
    assert run.result("also_good").collect()[0].two == 2
    assert list_runs(headway.store)[0].status == "failed"


def test_progress_counts_pipelines(headway: Session) -> None:
    run = headway.run("SELECT id % 10 AS k, count(*) FROM range(3000000) GROUP BY 1 ORDER BY 1")
    seen = [run.progress()[0]]
    while not run.wait(0.02):
        seen.append(run.progress()[0])
    seen.append(run.progress()[0])
    assert all(0 <= p.pipelines_done <= max(p.pipelines_total, 0) for p in seen)
    assert all(a.pipelines_done <= b.pipelines_done for a, b in pairwise(seen))
    assert seen[-1].pipelines_done == seen[-1].pipelines_total >= 2
    assert seen[-1].rows == 10


def test_cancel_leaves_a_run_that_says_so(headway: Session, spark: SparkSession) -> None:
    run = headway.run([headway.sql(SLOW, name="slow"), headway.sql("SELECT 1", name="next")])
    wait_until(lambda: bool(spark.sparkContext.statusTracker().getActiveJobsIds()))
    run.cancel()
    assert run.wait(20)
    assert [p.status for p in run.progress()] == [QueryStatus.INTERRUPTED] * 2
    assert list_runs(headway.store)[0].status == "interrupted"
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    # The session is fit for the next run.
    assert headway.run("SELECT 1 AS one").result().collect()[0].one == 1


def test_several_queries_at_once(spark: SparkSession, tmp_path: Path) -> None:
    with session(
        spark, engine_name="spark", store_url=str(tmp_path), run_parallel_queries=3
    ) as headway:
        run = headway.run([f"SELECT sum(id * {n}) AS s FROM range(1000)" for n in range(6)])
        run.wait()
        names = [progress.name for progress in run.progress()]
        assert [run.result(n).collect()[0].s for n in names] == [499500 * n for n in range(6)]


def test_explain_tells_engine_plan_and_pipelines(headway: Session) -> None:
    text = headway.explain(
        "SELECT id % 3 AS k, count(*) AS c FROM range(100) GROUP BY 1 ORDER BY 1"
    )
    for part in ("Engine: spark", "Aggregate", "~100 rows", "Pipelines, in order of execution"):
        assert part in text


def test_what_was_observed_replaces_estimates(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1000).selectExpr("id", "CAST(id % 10 AS STRING) AS kind").write.parquet(
        str(tmp_path / "data" / "numbers")
    )
    query = "SELECT kind, count(*) AS c FROM numbers WHERE id % 2 = 0 AND kind <> '4' GROUP BY kind"
    with session(spark, engine_name="spark", store_url=str(tmp_path / "store")) as headway:
        headway.tables(tmp_path / "data")
        assert "[~1,000 rows]" in headway.explain(query)
        headway.run(query).wait()
    with session(spark, engine_name="spark", store_url=str(tmp_path / "store")) as headway:
        text = headway.explain(query)
    # 400 rows pass the filter and make 4 groups: seen, not guessed.
    assert "[400 rows]" in text and "[4 rows]" in text


def test_what_the_executors_wrote_is_observed_by_its_rows_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The frame behind a large result was not run itself: its counters stand at zero."""
    spark.range(1000).write.parquet(str(tmp_path / "data" / "numbers"))
    query = "SELECT id + 1 AS next FROM numbers WHERE id % 2 = 0"
    store = {"store_url": str(tmp_path / "store"), "results_collect_limit": "1B"}
    with session(spark, **store) as headway:
        headway.tables(tmp_path / "data")
        headway.run(query).wait()
    with session(spark, **store) as headway:
        text = headway.explain(query)
    assert "[500 rows]" in text and "[0 rows]" not in text


def test_settings_come_from_spark_too(spark: SparkSession, tmp_path: Path) -> None:
    other = spark.newSession()
    other.conf.set("spark.headway.store.url", str(tmp_path / "from-spark"))
    with session(other) as headway:
        assert headway.store.url.endswith("from-spark")


def test_misuse_is_named(headway: Session) -> None:
    with pytest.raises(WrongUsage, match="empty"):
        headway.sql("  ")
    with pytest.raises(WrongUsage, match="no query"):
        headway.run([])
    run = headway.run(["SELECT 1", "SELECT 2"])
    with pytest.raises(WrongUsage, match="several queries"):
        run.result()
    with pytest.raises(WrongUsage, match="no query 'x'"):
        run.result("x")
    run.wait()
