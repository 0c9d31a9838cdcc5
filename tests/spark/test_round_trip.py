"""Queries beyond the benchmarks: what a plan can hold comes back from Spark unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headway.plan.serialize import plan_from_json, plan_to_json
from headway.spark.catalyst import import_plan
from headway.spark.compare import same_result
from headway.spark.frames import frame_of


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Small tables with everything awkward in them: nulls, NaN, extremes, odd names and texts."""
    folder = tmp_path_factory.mktemp("tables")
    session = spark.newSession()
    session.sql(
        """
        SELECT * FROM VALUES
          (1, 'a', 1.5D, 10.25BD, DATE '2020-02-29', TIMESTAMP '2020-02-29 12:34:56.789'),
          (2, 'b''s \\\\ "q" `t` :x', CAST('NaN' AS DOUBLE), -0.01BD, DATE '1969-12-31', NULL),
          (3, NULL, CAST('-Infinity' AS DOUBLE), 99999.99BD, NULL, TIMESTAMP '1969-12-31 23:59:59'),
          (4, '', -0.0D, NULL, DATE '0001-01-01', TIMESTAMP '9999-12-31 23:59:59.999999'),
          (NULL, 'a', 0.0D, 0.00BD, DATE '2020-02-29', TIMESTAMP '2024-11-03 01:30:00'),
          (2147483647, 'É∆%_', NULL, 1.00BD, DATE '2024-02-29', NULL)
          AS t(i, s, d, n, day, moment)
        """
    ).write.parquet(str(folder / "t"))
    session.range(20).selectExpr(
        "CAST(id % 5 AS INT) AS i",
        "id AS `odd name.with ``ticks```",
        "array(id, id + 1, NULL) AS items",
        "map('k', id) AS pairs",
        "named_struct('f', id, 'g g', CAST(id AS STRING)) AS part",
    ).write.parquet(str(folder / "u"))
    for name in ("t", "u"):
        session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    yield session


ODD = "`odd name.with ``ticks```"

QUERIES = {
    "constants": """
        SELECT 1, 1Y, 1S, 9223372036854775807, -9223372036854775808L, 1.50, 1e-30BD, 1.5F, 1e300D,
          'x', 'it''s', "dou\\"ble", 'back\\\\slash', 'new\\nline', ':no_parameter', true, NULL,
          DATE '2024-02-29', TIMESTAMP '2024-11-03 01:30:00', TIMESTAMP_NTZ '2024-11-03 01:30:00',
          X'00ff', INTERVAL '3' DAY, day + INTERVAL '1-2' YEAR TO MONTH, CAST('NaN' AS FLOAT),
          CAST('Infinity' AS DOUBLE), CAST(NULL AS DECIMAL(7,3)), array(1, 2), map('a', 1),
          named_struct('a', 1, 'b', 'c')
        FROM t""",
    "arithmetic": """
        SELECT i + 1, i - 1L, i * 2, i / 2, i % 3, i DIV 2, -i, abs(i - 10), n + 1, n * n, n / 3,
          n - i, d * 2, d / 3, round(n, 1), round(d, 2), bround(n, 1), ceil(n), floor(n), sqrt(abs(d)),
          pmod(i, 3), i & 3, i | 8, i ^ 1, ~i, shiftleft(i, 2), shiftright(i, 1), greatest(i, 3),
          least(n, 2), power(d, 2), sign(n), CAST(n AS INT), CAST(i AS STRING), CAST(d AS FLOAT)
        FROM t WHERE i < 100""",
    "attempts": """
        SELECT try_add(i, 2147483647), try_subtract(-2, i), try_multiply(i, 2147483647),
          try_divide(i, 0), try_cast(s AS INT), try_sum(i) OVER (PARTITION BY s)
        FROM t""",
    "try aggregates": "SELECT s, try_sum(i), try_avg(n) FROM t GROUP BY s",
    "comparisons": """
        SELECT i = 1, i <=> NULL, i <> 2, i < 3, d > 0, d = CAST('NaN' AS DOUBLE), d <= 0.0D,
          s IS NULL, s IS NOT NULL, i IN (1, 2, NULL), s IN ('a', ''), i NOT IN (1, 2),
          i BETWEEN 1 AND 3, s LIKE 'a%', s LIKE '%\\\\%', s LIKE '%!_' ESCAPE '!', s RLIKE '^[ab]',
          s LIKE ANY ('a', 'b%'), s NOT LIKE ALL ('a', 'b%'), isnan(d), NOT (i = 1 AND d > 0),
          startswith(s, 'a'), endswith(s, 'a'), contains(s, '%'), s ILIKE 'A%'
        FROM t""",
    "many in a list": f"SELECT i FROM t WHERE i IN ({', '.join(map(str, range(500)))})",
    "choices": """
        SELECT CASE WHEN i = 1 THEN 'one' WHEN i = 2 THEN s ELSE 'many' END,
          CASE s WHEN 'a' THEN 1 END, IF(i > 2, d, NULL), coalesce(s, 'none'), nullif(i, 2),
          nvl(n, 0), nvl2(s, 1, 2), ifnull(s, 'x')
        FROM t""",
    "strings": """
        SELECT upper(s), lower(s), length(s), substring(s, 2, 3), left(s, 2), right(s, 2), trim(s),
          ltrim(s), lpad(s, 5, '*'), rpad(s, 5, '*'), concat(s, '-', i), s || 'x', concat_ws(',', s, 'y'),
          replace(s, 'a', 'b'), regexp_replace(s, '[ab]', 'x'), split(s, 'b'), instr(s, 'a'),
          initcap(s), reverse(s), repeat(s, 2), translate(s, 'ab', 'xy'), md5(s), ascii(s)
        FROM t""",
    "times": """
        SELECT year(day), month(day), dayofmonth(day), quarter(day), weekofyear(day), dayofweek(day),
          date_add(day, 7), date_sub(day, 7), datediff(day, DATE '2000-01-01'), add_months(day, 1),
          last_day(day), trunc(day, 'MM'), date_trunc('HOUR', moment), hour(moment), minute(moment),
          second(moment), date_format(moment, 'yyyy-MM-dd HH:mm'), to_date(CAST(day AS STRING)),
          unix_timestamp(moment), CAST(day AS TIMESTAMP), CAST(moment AS DATE), day + INTERVAL 1 DAY
        FROM t WHERE day > DATE '1900-01-01'""",
    "aggregates": """
        SELECT s, count(*), count(i), count(DISTINCT i), sum(i), sum(n), avg(n), avg(d), min(day),
          max(moment), sum(DISTINCT i), stddev_samp(n), var_pop(d), first(i, true), max(s),
          count(*) FILTER (WHERE i > 1), sum(n) FILTER (WHERE day IS NOT NULL) + 1,
          count(DISTINCT i, s), any_value(1), bool_or(i > 1), sort_array(collect_set(i))
        FROM t GROUP BY s""",
    "no groups": "SELECT count(*), sum(i) + max(n), avg(d) FROM t WHERE i > 1000000000000",
    "aggregates of nothing": "SELECT 1 FROM t HAVING count(*) > 0",
    "groups of expressions": "SELECT i % 2, upper(s), (i % 2) + count(*) FROM t GROUP BY i % 2, upper(s)",
    "distinct": "SELECT DISTINCT s, d FROM t",
    "having": "SELECT s, count(*) AS c FROM t GROUP BY s HAVING sum(i) > 1 AND c > 0",
    "grouping sets": """
        SELECT s, day, grouping(s), grouping_id(s, day), sum(i), count(DISTINCT n)
        FROM t GROUP BY GROUPING SETS ((s, day), (s), ())""",
    "rollup and cube": """
        SELECT s, i, sum(n) FROM t GROUP BY ROLLUP (s, i)
        UNION ALL SELECT s, i, sum(n) FROM t GROUP BY CUBE (s, i)""",
    "inner join": f"SELECT t.i, s, {ODD} FROM t JOIN u ON t.i = u.i AND t.d > u.i - 3",
    "self join": "SELECT a.s, b.s, a.i + b.i FROM t a JOIN t b ON a.s = b.s AND a.i < b.i",
    "left join": f"SELECT t.*, {ODD} FROM t LEFT JOIN u ON t.i = u.i AND u.i > 1",
    "right join": "SELECT t.s, u.i FROM t RIGHT JOIN u ON t.i = u.i",
    "full join": "SELECT t.i, u.i FROM t FULL OUTER JOIN (SELECT DISTINCT i FROM u) u ON t.i = u.i",
    "cross join": "SELECT t.i, x.i FROM t CROSS JOIN (SELECT DISTINCT i FROM u) x",
    "join on nothing equal": "SELECT t.i, u.i FROM t JOIN u ON t.i < u.i",
    "null safe join": "SELECT a.i, b.s FROM t a JOIN t b ON a.i <=> b.i",
    "join on floats": "SELECT a.i, b.i FROM t a JOIN t b ON a.d = b.d",
    "semi join": "SELECT * FROM t WHERE i IN (SELECT i FROM u)",
    "semi join by exists": "SELECT * FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.i = t.i AND u.i > 1)",
    "anti join": "SELECT * FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.i = t.i)",
    "null aware anti join": "SELECT * FROM t WHERE i NOT IN (SELECT i FROM u WHERE i > 2)",
    "null aware anti join with nulls": "SELECT * FROM u WHERE i NOT IN (SELECT i FROM t)",
    "existence join": "SELECT * FROM t WHERE i IN (SELECT i FROM u) OR s = ''",
    "existence join by exists": """
        SELECT s, EXISTS (SELECT 1 FROM u WHERE u.i = t.i) AS found,
          i NOT IN (SELECT i FROM u WHERE i > 3) AS left_out
        FROM t""",
    "scalar subqueries": """
        SELECT i, (SELECT max(i) FROM u) AS most, i > (SELECT avg(i) FROM u) AS above,
          (SELECT count(*) FROM u WHERE u.i = t.i) AS matching
        FROM t WHERE n < (SELECT max(n) FROM t)""",
    "nested subqueries": """
        SELECT i FROM t WHERE i > (SELECT avg(i) FROM u WHERE i < (SELECT max(i) FROM u))""",
    "windows": """
        SELECT i, row_number() OVER (ORDER BY i, s), rank() OVER (PARTITION BY s ORDER BY n),
          dense_rank() OVER (PARTITION BY s ORDER BY n DESC NULLS LAST),
          percent_rank() OVER (ORDER BY i, s), cume_dist() OVER (ORDER BY i), ntile(3) OVER (ORDER BY i, s),
          lag(i) OVER (ORDER BY i, s), lag(i, 2, -1) OVER (ORDER BY i, s),
          lag(i, -1) OVER (ORDER BY i, s), lead(i, -1) OVER (ORDER BY i, s),
          lead(n, 1) OVER (ORDER BY i, s), sum(n) OVER (PARTITION BY s),
          sum(i) OVER (ORDER BY i, s ROWS BETWEEN 1 PRECEDING AND CURRENT ROW),
          avg(n) OVER (ORDER BY i RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING),
          first_value(s) IGNORE NULLS OVER (ORDER BY i, n),
          last_value(s) OVER (ORDER BY i, n ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING),
          nth_value(i, 2) OVER (ORDER BY i, n),
          count(*) FILTER (WHERE i > 1) OVER (PARTITION BY s)
        FROM t WHERE i < 100""",
    "first of each group": """
        SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY i) AS place FROM t)
        WHERE place <= 1""",
    "order": "SELECT i, s FROM t ORDER BY i DESC NULLS FIRST, s ASC NULLS LAST",
    "order by what is not shown": "SELECT s FROM t ORDER BY n + 1 NULLS LAST, i",
    "order and limit": "SELECT i FROM t ORDER BY i NULLS LAST LIMIT 3",
    "order, limit and offset": "SELECT i FROM t ORDER BY i NULLS LAST LIMIT 2 OFFSET 1",
    "offset alone": "SELECT i FROM t ORDER BY i NULLS LAST OFFSET 3",
    "limit inside": "SELECT count(*) FROM (SELECT * FROM t LIMIT 3)",
    "limit zero": "SELECT * FROM t LIMIT 0",
    "union": "SELECT i, s FROM t UNION ALL SELECT i, 'u' FROM u UNION ALL SELECT 1, NULL",
    "union of the same": "SELECT i FROM t UNION ALL SELECT i FROM t",
    "union distinct": "SELECT i FROM t UNION SELECT i FROM u",
    "intersect and except": "(SELECT i FROM t INTERSECT SELECT i FROM u) EXCEPT SELECT 3",
    "intersect all": "SELECT i FROM t INTERSECT ALL SELECT i FROM u",
    "explode": f"SELECT {ODD}, item FROM u LATERAL VIEW explode(items) AS item WHERE i = 1",
    "explode outer": "SELECT s, x FROM t LATERAL VIEW OUTER explode(split(s, 'b')) AS x",
    "posexplode and inline": """
        SELECT pos, col, f FROM u LATERAL VIEW posexplode(items) AS pos, col
          LATERAL VIEW inline(array(part)) AS f, g""",
    "stack": "SELECT stack(2, i, s, 0, 'x') AS (a, b) FROM t",
    "nested values": "SELECT items[0], pairs['k'], part.f, part.`g g`, size(items), part FROM u",
    "common table used twice": """
        WITH totals AS (SELECT s, sum(n) AS total FROM t GROUP BY s)
        SELECT a.s, b.total FROM totals a JOIN totals b ON a.total <= b.total""",
    "values": "SELECT * FROM VALUES (1, 'a', 1.5, DATE '2020-01-01'), (2, NULL, 2.50, NULL) v(a, b, c, d)",
    "range": "SELECT id, id % 3 FROM range(5, 50, 7)",
    "one row": "SELECT 1 AS one",
    "nested constants": """
        SELECT sequence(1, 4)[i % 2], array_repeat('a', 3)[i % 2], map_from_arrays(sequence(1, 2),
          array('x', 'y'))[i % 2 + 1],
          array(1.5BD, 2.25BD)[i % 2], array(CAST(1 AS DECIMAL(10,2)))[0],
          CAST(named_struct('Ab', i) AS STRUCT<`Cd`: BIGINT>), map('k', array(i))
        FROM t WHERE i < 5""",
    "what looks like a variable": r"SELECT '\u0024{spark.app.name}' AS v, s FROM t WHERE s <> '\u0024{x}'",
    "nothing": "SELECT * FROM t WHERE 1 = 0",
    "columns of one name": "SELECT i, i, s AS i FROM t",
    "no columns": "SELECT count(*) FROM t CROSS JOIN u",
    "odd column names": f"SELECT {ODD} AS `a b.c`, i AS `select`, i AS `É``:x` FROM u",
    "hints and repartitioning": """
        SELECT /*+ BROADCAST(u), REPARTITION(3) */ t.i FROM t JOIN u ON t.i = u.i""",
}  # fmt: skip


def travel(frame: DataFrame, spark: SparkSession) -> DataFrame:
    imported = import_plan(frame)
    plan = plan_from_json(plan_to_json(imported.plan))
    assert plan == imported.plan
    return frame_of(spark.newSession(), plan, session_frames=imported.frames)


def assert_travels(frame: DataFrame, spark: SparkSession) -> None:
    verdict = same_result(frame, travel(frame, spark))
    assert verdict.equal, verdict.difference


@pytest.mark.parametrize("name", QUERIES)
def test_the_query_travels(name: str, tables: SparkSession, spark: SparkSession) -> None:
    assert_travels(tables.sql(QUERIES[name]), spark)


def test_settings_travel_with_the_plan(tables: SparkSession, spark: SparkSession) -> None:
    legacy = tables.newSession()
    legacy.conf.set("spark.sql.ansi.enabled", "false")
    legacy.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    frame = legacy.sql(
        "SELECT 1 / 0 AS nothing, CAST('x' AS INT) AS none, CAST(2147483648L AS INT) AS wrapped, "
        "CAST(TIMESTAMP '2024-01-01 00:00:00' AS STRING) AS local, id FROM range(2)"
    )
    assert_travels(frame, spark)


@pytest.mark.parametrize(
    ("setting", "value", "text"),
    [
        ("spark.sql.parser.escapedStringLiterals", "true", r"SELECT 'a\d' AS s, id FROM range(2)"),
        ("spark.sql.timestampType", "TIMESTAMP_NTZ", "SELECT CAST('2024-01-01' AS TIMESTAMP) AS m"),
        ("spark.sql.ansi.enabled", "TRUE", "SELECT id + 1 AS n FROM range(2)"),
        ("spark.sql.ansi.enabled", "false", "SELECT size(NULL) AS n, id / 0 AS z FROM range(2)"),
        ("spark.sql.caseSensitive", "true", "SELECT id AS a, id + 1 AS A FROM range(2)"),
        (
            "spark.sql.decimalOperations.allowPrecisionLoss",
            "false",
            "SELECT CAST(id AS DECIMAL(38,10)) * CAST(2.5 AS DECIMAL(20,8)) AS n FROM range(2)",
        ),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN", "SELECT map(id, 1, id, 2) AS m FROM range(2)"),
        ("spark.sql.legacy.timeParserPolicy", "LEGACY", "SELECT to_date('1/2/24', 'd/M/yy') AS d"),
    ],
)
def test_a_session_with_another_setting_takes_its_plan_back(
    setting: str, value: str, text: str, spark: SparkSession
) -> None:
    session = spark.newSession()
    session.conf.set(setting, value)
    assert_travels(session.sql(text), spark)


def test_a_table_of_the_catalog_keeps_its_partitions(spark: SparkSession) -> None:
    spark.sql("CREATE TABLE parted (id BIGINT, k INT) USING parquet PARTITIONED BY (k)")
    try:
        spark.sql("INSERT INTO parted SELECT id, id % 4 FROM range(20)")
        for condition in ("k = 1", "k IN (1, 2)", "k > 9", "true"):
            assert_travels(spark.sql(f"SELECT * FROM parted WHERE {condition}"), spark)
        spark.sql("ALTER TABLE parted ADD COLUMN late INT DEFAULT 5")
        assert_travels(spark.table("parted"), spark)
    finally:
        spark.sql("DROP TABLE parted")


def test_partitions_below_a_base_path_keep_their_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    base = str(tmp_path / "base")
    spark.range(20).selectExpr("id", "id % 4 AS k").write.partitionBy("k").parquet(base)
    reader = spark.read.option("basePath", base)
    assert_travels(reader.parquet(f"{base}/k=1"), spark)
    assert_travels(reader.parquet(f"{base}/k=1", f"{base}/k=2"), spark)


def test_what_is_cached_stays_cached(spark: SparkSession) -> None:
    plan = import_plan(spark.range(77)).plan
    cached = spark.range(77).cache()
    try:
        assert cached.count() == frame_of(spark, plan).count()
        assert cached.storageLevel.useMemory
    finally:
        cached.unpersist()


def test_keys_of_a_store_stay_out_of_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.csv(str(tmp_path / "table"))
    frame = spark.read.option("fs.s3a.secret.key", "SECRET").csv(str(tmp_path / "table"))
    assert b"SECRET" not in plan_to_json(import_plan(frame).plan)


@pytest.mark.parametrize("format", ["parquet", "orc", "csv", "json"])
def test_tables_of_files_travel(format: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "odd [name] {x} 100%"
    data = spark.range(10).selectExpr("id", "id % 3 AS kind", "CAST(id AS STRING) AS text")
    data.write.format(format).option("header", "true").save(str(folder))
    reader = spark.read.option("header", "true").option("inferSchema", "true").format(format)
    escaped = str(folder).replace("[", "\\[").replace("]", "\\]")
    escaped = escaped.replace("{", "\\{").replace("}", "\\}")
    assert_travels(reader.load(escaped).filter("kind > 0").groupBy("kind").count(), spark)


def test_partitioned_tables_travel(spark: SparkSession, tmp_path: Path) -> None:
    data = spark.range(30).selectExpr("id", "id % 3 AS kind", "DATE '2024-01-01' AS day")
    data.write.partitionBy("kind", "day").parquet(str(tmp_path / "parts"))
    frame = spark.read.parquet(str(tmp_path / "parts"))
    assert_travels(frame.filter("kind = 1 AND id > 5"), spark)
    assert_travels(frame.groupBy("kind", "day").count(), spark)


def test_data_of_the_session_stays_in_the_session(spark: SparkSession) -> None:
    local = spark.createDataFrame([(1, "a"), (2, None)], "id int, name string")
    frame = spark.range(3).join(local, "id", "left").orderBy("id")
    assert_travels(frame, spark)

    from headway.base.errors import PlanNotRunnable

    with pytest.raises(PlanNotRunnable, match="data of the session"):
        frame_of(spark, import_plan(frame).plan)


def test_a_dataframe_travels_like_a_text(tables: SparkSession, spark: SparkSession) -> None:
    frame = tables.table("t").where("i > 1").groupBy("s").agg({"n": "sum"}).sort("s").limit(2)
    assert_travels(frame, spark)


def test_a_common_table_is_one_node(tables: SparkSession) -> None:
    plan = import_plan(tables.sql(QUERIES["common table used twice"])).plan
    assert plan.explain().count("Aggregate") == 1
    assert "(drawn above)" in plan.explain()
