"""Queries that are planned together: in their order, and in forms with the rows of each alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headway.base.errors import WrongSql, WrongUsage
from headway.session import Session
from headway.spark.catalyst import IMPORTED_SETTINGS, import_plan
from headway.spark.frames import frame_of
from headway.spark.remembered import ImportedPlans
from headway.spark.tree_text import PlannedTogether
from headway.workloads import WORKLOADS
from headway.workloads.batches import high_share, low_share, regular_share

BATCHES = {"low": low_share, "high": high_share, "regular": regular_share}
_SAMPLE = 24
"""Of the queries of a batch, the rest of which is left for the night."""


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("count", [_SAMPLE, pytest.param(None, marks=pytest.mark.nightly)])
def test_plans_of_batches_are_those_of_each_query(
    kind: str, count: int | None, workload_session: Callable[[str], SparkSession]
) -> None:
    _assert_same_plans(workload_session("tpcds"), list(BATCHES[kind]().values())[:count])


@pytest.mark.nightly
@pytest.mark.parametrize("workload", WORKLOADS)
def test_plans_of_all_queries_are_those_of_each(
    workload: str, workload_session: Callable[[str], SparkSession]
) -> None:
    _assert_same_plans(workload_session(workload), list(WORKLOADS[workload].queries().values()))


def _assert_same_plans(spark: SparkSession, texts: Sequence[str]) -> None:
    found = list(ImportedPlans().get_all(spark, texts, forms=True))
    assert len(found) == len(texts)
    for text, seen in zip(texts, found, strict=True):
        assert seen.imported is not None, seen.error
        alone = import_plan(spark.sql(text))
        assert seen.imported.plan == alone.plan, text
        assert seen.imported.schema == alone.schema


def test_one_form_serves_its_queries(workload_session: Callable[[str], SparkSession]) -> None:
    plans = ImportedPlans()
    texts = list(high_share(count=40).values())
    list(plans.get_all(workload_session("tpcds"), texts, forms=True))
    assert len(plans._known) < len(texts) / 4
    again = list(plans.get_all(workload_session("tpcds"), texts, forms=True))
    before = list(plans._filled.values())
    assert all(any(seen.imported is each for each in before) for seen in again)


def test_constants_that_spark_has_to_see_are_found_once(things: SparkSession) -> None:
    """Other queries of a batch have them in their forms from the start, but for those that are
    looked at before that is known."""
    texts = [f"SELECT n AS n{i} FROM things WHERE price < {i}" for i in range(60)]
    work = PlannedTogether(things._jsparkSession, texts, IMPORTED_SETTINGS, forms=True)
    found = [work.about(number) for number in range(len(texts))]
    assert max(form.number for form in found if form is not None) < 1.5 * len(texts)


CASES: dict[str, tuple[str, Sequence[Sequence[object]]]] = {
    "whole numbers": ("SELECT * FROM things WHERE n > {} AND n <= {}", [(1, 5), (5, 1), (3, 3)]),
    "the constant first": ("SELECT * FROM things WHERE {} < n", [(2,), (400,)]),
    "between": ("SELECT * FROM things WHERE n BETWEEN {} AND {}", [(2, 4), (4, 2), (-5, 90)]),
    "not between": ("SELECT * FROM things WHERE NOT n BETWEEN {} AND {}", [(2, 4), (4, 2)]),
    "one value twice": ("SELECT * FROM things WHERE n = {} OR k = {}", [(2, 2), (2, 3), (3, 3)]),
    "lists": ("SELECT * FROM things WHERE n IN ({}, {}, {})", [(1, 2, 3), (1, 1, 2), (4, 4, 4)]),
    "lists with NULL": ("SELECT * FROM things WHERE n IN ({}, {})", [(1, "NULL"), (1, 2)]),
    "lists of one": ("SELECT * FROM things WHERE n IN ({})", [(1,), (2,)]),
    "constants that cannot be cast": (
        "SELECT n FROM things WHERE try_cast(name AS DATE) IS NULL AND day > {}",
        [("'2020-01-99'",), ("'2020-01-02'",), ("'2020-01-04'",)],
    ),
    "NULL": ("SELECT * FROM things WHERE n = {}", [(1,), ("NULL",), (2,)]),
    "texts": ("SELECT * FROM things WHERE name >= {}", [("'b'",), ("'it\\'s'",), ("'\u00e9'",)]),
    "texts with quotes": ("SELECT * FROM things WHERE name = {}", [('"it\'s"',), ("'\\\\'",)]),
    "dates": ("SELECT * FROM things WHERE day > DATE {}", [("'2020-01-02'",), ("'2020-01-04'",)]),
    "dates as texts": ("SELECT * FROM things WHERE day > {}", [("'2020-01-02'",), ("'2020-1-4'",)]),
    "decimals": ("SELECT * FROM things WHERE price < {}", [("1.5",), ("20.25",), ("3.10",)]),
    "decimals and numbers": ("SELECT * FROM things WHERE price < {}", [(1,), (20,), (3000000,)]),
    "doubles": ("SELECT * FROM things WHERE ratio >= {}", [("0.5D",), ("1e300",), ("2",)]),
    "columns that are cast": ("SELECT * FROM things WHERE small = {}", [(1,), (300,), (-1,)]),
    "texts and numbers": (
        "SELECT * FROM (SELECT n, CAST(n AS STRING) AS digits FROM things) WHERE digits = {}",
        [(1,), (2,)],
    ),
    "moments": (
        "SELECT * FROM things WHERE CAST(day AS TIMESTAMP) > TIMESTAMP {}",
        [("'2020-01-02 01:00:00'",), ("'2020-01-03 00:00:00'",)],
    ),
    "columns named by their texts": ("SELECT n > {}, n FROM things", [(2,), (3,)]),
    "conditions": ("SELECT sum(CASE WHEN n > {} THEN 1 END) FROM things", [(2,), (3,)]),
    "columns of fixed length": ("SELECT n FROM padded WHERE c = {}", [("'ab'",), ("'b'",)]),
    "groups": (
        "SELECT k, sum(price) s FROM things WHERE n < {} GROUP BY k HAVING sum(price) > {}",
        [(5, 1), (4, 2), (5, 100)],
    ),
    "positions": ("SELECT k, n FROM things WHERE n > {} ORDER BY {}, n", [(1, 1), (2, 2), (2, 1)]),
    "limits": ("SELECT n FROM things WHERE n > {} ORDER BY n LIMIT {}", [(1, 2), (2, 2), (2, 1)]),
    "outer joins": (
        "SELECT t.n, o.k FROM things t LEFT JOIN others o ON t.k = o.k WHERE o.v > {}",
        [(1,), (3,)],
    ),
    "semi joins": (
        "SELECT n FROM things WHERE n > {} AND k IN (SELECT k FROM others WHERE v > {})",
        [(0, 1), (2, 2), (2, 9)],
    ),
    "scalar subqueries": (
        "SELECT n FROM things WHERE n > (SELECT min(v) FROM others WHERE k < {})",
        [(2,), (3,), (-1,)],
    ),
    "common tables": (
        "WITH some AS (SELECT * FROM things WHERE n > {}) SELECT a.n FROM some a JOIN some b "
        "ON a.n = b.k WHERE b.n < {}",
        [(1, 5), (2, 4)],
    ),
    "unions": (
        "SELECT n FROM things WHERE n = {} UNION ALL SELECT v FROM others WHERE v = {}",
        [(1, 1), (2, 3)],
    ),
    "windows": (
        "SELECT n FROM (SELECT n, row_number() OVER (ORDER BY n) r FROM things) WHERE r <= {}",
        [(2,), (4,)],
    ),
    "partitions": ("SELECT n FROM parted WHERE part = {} AND n > {}", [(1, 1), (2, 0)]),
    "constants of columns": (
        "SELECT c, n FROM (SELECT 7 c, n FROM things) WHERE c = {} AND n > {}",
        [(7, 2), (8, 2)],
    ),
}


@pytest.fixture(scope="module")
def things(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with tables of files that have all kinds of columns."""
    session = spark.newSession()
    folder = tmp_path_factory.mktemp("forms")
    rows = session.sql(
        "SELECT * FROM VALUES "
        "(1, 1, 'a', DATE'2020-01-01', 1.50, 0.1D, 1Y), "
        "(2, 1, 'b', DATE'2020-01-02', 2.25, 0.5D, 2Y), "
        "(3, 2, \"it's\", DATE'2020-01-03', 3.10, 1.0D, 3Y), "
        "(4, 2, '1', DATE'2020-01-04', 20.00, 2.0D, 4Y), "
        "(5, 3, '\\\\', DATE'2020-01-05', 20.25, 1e300, -1Y), "
        "(6, NULL, NULL, NULL, NULL, NULL, NULL) "
        "AS t(n, k, name, day, price, ratio, small)"
    )
    rows.write.parquet(f"{folder}/things")
    session.sql("SELECT id k, id * 2 v FROM range(5)").write.parquet(f"{folder}/others")
    session.sql("SELECT id n, id % 3 part FROM range(9)").write.partitionBy("part").parquet(
        f"{folder}/parted"
    )
    for name in ("things", "others", "parted"):
        session.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
    spark.sql("CREATE TABLE padded (n INT, c CHAR(4)) USING parquet")
    spark.sql("INSERT INTO padded VALUES (1, 'ab'), (2, 'b'), (3, 'abcd')")
    session.conf.set("spark.sql.readSideCharPadding", "false")
    yield session
    spark.sql("DROP TABLE padded")


@pytest.mark.parametrize("case", CASES)
def test_rows_are_those_of_each_query_alone(case: str, things: SparkSession) -> None:
    text, constants = CASES[case]
    texts = [text.format(*each) for each in constants]
    for asked, seen in zip(texts, ImportedPlans().get_all(things, texts, forms=True), strict=True):
        assert seen.frame is not None
        expected = _outcome(things.sql(asked))
        assert _outcome(seen.frame()) == expected, asked
        if seen.imported is not None:
            assert _outcome(frame_of(things, seen.imported.plan)) == expected, asked
        else:  # Spark finds what is wrong with it while it optimises
            assert expected == "CAST_INVALID_INPUT", asked


def _outcome(frame: DataFrame) -> object:
    """Its rows in any order, or the name of its error."""
    try:
        return frame.dtypes, sorted(map(repr, frame.collect()))
    except PySparkException as error:
        return error.getCondition()


def test_cached_rows_are_read_from_the_cache(things: SparkSession) -> None:
    """Spark puts them in place of just the work that was cached, constants and all."""
    texts = [f"SELECT n FROM things WHERE n > {n}" for n in (2, 3)]
    cached = things.sql(texts[0]).cache()
    try:
        plans = ImportedPlans()
        found = [seen.imported for seen in plans.get_all(things, [*texts, texts[1]], forms=True)]
        assert [bool(each and each.frames) for each in found] == [True, False, False]
        assert len(plans._filled) == 1  # what is not held has a form
    finally:
        cached.unpersist(blocking=True)


def test_wrong_texts_fail_alone(things: SparkSession, tmp_path: Path) -> None:
    from headway.session import session as headway_session

    with headway_session(things, store_url=str(tmp_path), engine_name="spark") as session:
        texts = ["SELECT n FROM things WHERE n > 1", "SELEC 1", "SELECT nobody FROM things"]
        texts += ["SELECT n FROM things WHERE n > 2", "SELECT n FROM things WHERE day > 'never'"]
        planned = session.plan(texts, forms=True)
        assert [query.error is None for query in planned] == [True, False, False, True, True]
        assert isinstance(planned[1].error, WrongSql)


def test_commands_change_what_comes_after_them(headway: Session, spark: SparkSession) -> None:
    texts = [
        "CREATE OR REPLACE TEMP VIEW planned_after AS SELECT 1 AS x",
        "SELECT x FROM planned_after WHERE x > 0",
        "/* SELECT /* 1 */ */ CREATE OR REPLACE TEMP VIEW planned_after AS SELECT 2 AS x",
        "SELECT x FROM planned_after WHERE x > 1",
        "-- SELECT \\\nCREATE OR REPLACE TEMP VIEW planned_after AS SELECT 3 AS x",
        "-- SELECT\nCREATE OR REPLACE TEMP VIEW planned_after AS SELECT 4 AS x",
        "SELECT x FROM planned_after WHERE x > 2",
    ]
    try:
        run = headway.batch([headway.sql(text, name=f"t{n}") for n, text in enumerate(texts)])
        rows = [run.result(f"t{n}").collect()[0][0] for n in (1, 3, 6)]
        assert rows == [1, 2, 4]
    finally:
        spark.catalog.dropTempView("planned_after")


def test_texts_are_read_with_the_settings_of_their_session(things: SparkSession) -> None:
    zone = "spark.sql.session.timeZone"
    before = things.conf.get(zone)
    texts = [
        f"SELECT n FROM things WHERE CAST(day AS TIMESTAMP_LTZ) = TIMESTAMP '2020-01-0{n} 00:00:00'"
        for n in (1, 2, 3)
    ]
    try:
        for asked in ("Asia/Tokyo", "America/New_York"):
            things.conf.set(zone, asked)
            for forms in (True, False):
                found = ImportedPlans().get_all(things, texts, forms=forms)
                rows = [seen.frame().collect() for seen in found if seen.frame is not None]
                assert [[row.n for row in each] for each in rows] == [[1], [2], [3]]
    finally:
        things.conf.set(zone, before or "UTC")


def test_frames_of_one_form_can_be_joined(things: SparkSession) -> None:
    texts = [f"SELECT n, k FROM things WHERE n > {n}" for n in (1, 2)]
    found = ImportedPlans().get_all(things, texts, forms=True)
    a, b = (seen.frame() for seen in found if seen.frame is not None)
    joined = a.join(b, a.n == b.n).select(a.n, b.k).collect()
    assert sorted(row.n for row in joined) == [3, 4, 5, 6]


def test_explaining_a_batch_does_nothing(
    headway: Session, spark: SparkSession, tmp_path: Path
) -> None:
    spark.sql("CREATE TABLE explained_only (x INT) USING parquet")
    try:
        texts = [
            "SELECT count(*) FROM explained_only",
            "/* /* */ SELECT 1 */ INSERT INTO explained_only VALUES (1)",
            "WITH some AS (SELECT 1) INSERT INTO explained_only SELECT * FROM some",
            "FROM explained_only INSERT INTO explained_only SELECT x",
            f"INSERT OVERWRITE DIRECTORY '{tmp_path}/written' USING parquet SELECT 1 AS x",
            "EXECUTE IMMEDIATE 'INSERT INTO explained_only VALUES (1)'",
            "INSERT INTO IDENTIFIER('explained_' || 'only') VALUES (1)",
        ]
        plan = headway.explain_batch(texts)
        assert len(plan.errors) == 6
        assert not (tmp_path / "written").exists()
        assert all(isinstance(error, WrongUsage) for error in plan.errors.values())
        assert spark.table("explained_only").count() == 0
    finally:
        spark.sql("DROP TABLE explained_only")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM range(9) WHERE id IN (SELECT x FROM grown)",
        "SELECT id FROM range(9) WHERE EXISTS (SELECT 1 FROM grown WHERE x = id)",
        "SELECT (SELECT max(x) FROM grown) AS m",
        "SELECT x FROM grown WHERE x > 0",
    ],
)
def test_tables_that_have_grown_are_read_again(
    text: str, headway: Session, spark: SparkSession
) -> None:
    spark.sql("CREATE TABLE grown (x BIGINT) USING parquet")
    try:
        for number in (3, 5, 7):
            spark.sql(f"INSERT INTO grown VALUES ({number})")
            expected = sorted(spark.sql(text).collect())
            assert sorted(headway.run(text).result().collect()) == expected
            assert sorted(headway.batch([text, text]).result("query").collect()) == expected
    finally:
        spark.sql("DROP TABLE grown")
