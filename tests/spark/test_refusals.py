"""What has no place in a plan is refused by name, and Spark runs it unchanged."""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from headway.base.errors import PlanNotImportable, WrongUsage
from headway.session import QueryStatus, Session
from headway.spark import catalyst
from headway.spark.catalyst import import_plan

REFUSED = {
    "SELECT rand() AS r FROM range(3)": "not deterministic",
    "SELECT monotonically_increasing_id() FROM range(3)": "not deterministic",
    "SELECT * FROM (SELECT * FROM range(100)) TABLESAMPLE (10 PERCENT)": "operator Sample",
    "SHOW TABLES": "operator CommandResult",
    "SELECT transform(array(1, 2), x -> x + id) FROM range(3)": "expression",
    "SELECT count(*) FROM range(9) WHERE CAST(id AS STRING) COLLATE UTF8_LCASE = 'a'": "collation",
    "SELECT CAST(id AS STRING) LIKE ANY ('a', CAST(NULL AS STRING)) FROM range(3)": "is NULL",
}


@pytest.mark.parametrize("text", REFUSED)
def test_it_is_refused_by_name(text: str, spark: SparkSession) -> None:
    with pytest.raises(PlanNotImportable, match=re.escape(REFUSED[text])):
        import_plan(spark.sql(text))


def test_a_users_function_is_refused_by_name(spark: SparkSession) -> None:
    double = udf(lambda value: value * 2, "bigint")
    frame = spark.range(3).select(double("id"))
    with pytest.raises(PlanNotImportable, match=r"EvalPython|PythonUDF"):
        import_plan(frame)


def test_a_sort_within_partitions_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PlanNotImportable, match="within partitions"):
        import_plan(spark.range(3).selectExpr("-id AS x").sortWithinPartitions("x"))


def test_a_mixed_evaluation_mode_is_refused(spark: SparkSession) -> None:
    """A frame made in one mode and imported in the other must not change its meaning."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    frame = session.range(3).selectExpr("CAST(id AS STRING) AS s").selectExpr("CAST(s AS INT) + 1")
    session.conf.set("spark.sql.ansi.enabled", "true")
    with pytest.raises(PlanNotImportable, match="LEGACY mode"):
        import_plan(frame)


def test_whatever_the_import_trips_over_is_a_refusal(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as an expression that is deeper than Python's stack."""

    def trip(*arguments: object) -> object:
        raise RecursionError("too deep")

    monkeypatch.setattr(catalyst, "optimised_tree", trip)
    with pytest.raises(PlanNotImportable, match="the import failed: RecursionError"):
        import_plan(spark.range(3))


def test_a_time_zone_that_changed_is_refused(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    frame = session.sql("SELECT CAST(timestamp_micros(id) AS STRING) AS s FROM range(3)")
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    with pytest.raises(PlanNotImportable, match="time zone UTC"):
        import_plan(frame)


def test_a_command_is_not_run_again(spark: SparkSession, headway: Session) -> None:
    spark.sql("CREATE TABLE counted (id INT) USING parquet")
    try:
        with pytest.raises(PlanNotImportable, match="command that has already run"):
            import_plan(spark.sql("INSERT INTO counted VALUES (1)"))
        assert spark.table("counted").count() == 1
        with pytest.raises(WrongUsage, match="command"):
            headway.explain("INSERT INTO counted VALUES (2)")
        assert spark.table("counted").count() == 1
        headway.plan("CREATE TEMP VIEW doubled AS SELECT id * 2 AS d FROM counted", act=False)
        assert "Scan counted" in headway.explain("SELECT d FROM doubled")
        headway.run("INSERT INTO counted VALUES (3)").wait()
        assert spark.table("counted").count() == 2
    finally:
        spark.sql("DROP TABLE counted")


def test_spark_runs_it_unchanged_and_says_so(headway: Session) -> None:
    run = headway.run(headway.sql("SELECT id, rand(7) AS r FROM range(3)", name="random"))
    assert [row.id for row in run.result().collect() if 0 <= row.r < 1] == [0, 1, 2]
    (progress,) = run.progress()
    assert progress.status is QueryStatus.DONE and progress.engine == "spark"
    assert "Spark runs it unchanged: the query is not deterministic" in run.explain()
