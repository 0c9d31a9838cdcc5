"""Aggregates, windows, sorts, joins and subqueries over awkward values, against plain Spark.

Each query runs as a dataflow of two workers, whose tasks come in any order.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headway.base.errors import NotSupported
from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.kernels.aggregates import AGGREGATES
from headway.pipelined.kernels.only_values import ONLY_VALUE
from headway.pipelined.kernels.types import arrow_type
from headway.pipelined.kernels.windows import OFFSETS, POSITIONS, RANKS
from headway.plan.cardinalities import estimate
from headway.plan.nodes import QueryPlan
from headway.spark.catalyst import import_plan
from headway.testing.dataflows import rows_of, run_dataflow

SEED = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))
CHOICES = Choices(workers=2, replicate_bytes=0, broadcast_bytes=1_000)


def _windows(specification: str, calls: Iterable[str]) -> str:
    texts = (f"{call} OVER ({specification}) AS w{n}" for n, call in enumerate(calls))
    return f"SELECT id, {', '.join(texts)} FROM t"


NUMBERS = ("i", "k", "a", "e", "f", "z")
AWKWARD = [
    *(f"SELECT g, {', '.join(calls)} FROM t {condition} GROUP BY g"
      for condition in ("", "WHERE id < 0") for calls in (
        [f"{name}({column}) AS {name}_{column}" for name in ("sum", "avg", "count")
         for column in NUMBERS],
        [f"{name}({column}) AS {name}_{column}" for name in ("min", "max")
         for column in (*NUMBERS, "x", "s", "u", "p", "m", "w")],
        [f"{name}(z)" for name in ("stddev", "stddev_pop", "var_samp", "var_pop", "std")],
        ["count(*)", "sum(i) FILTER (WHERE p)", "avg(a) FILTER (WHERE i > 0)", "count(i, s)"],
      )),
    "SELECT count(*), sum(k), avg(a), min(s), stddev_samp(z) FROM t WHERE false",
    *(f"SELECT {calls} FROM t {condition}" for condition in ("", "WHERE id < 0") for calls in (
        "count(*), sum(k), avg(a), min(s), stddev_samp(z)", "sum(x), avg(x), stddev_samp(x)",
        "count(DISTINCT g), min(u)", "sum(DISTINCT i)", "avg(DISTINCT a)", "count(DISTINCT i, s)",
        "count(DISTINCT s), sum(k), max(u)", "avg(v), sum(v)", "var_pop(x)", "max(DISTINCT a)")),
    "SELECT s, count(DISTINCT g), count(*) FROM t GROUP BY s",
    "SELECT g, count(DISTINCT i), count(DISTINCT s), sum(k), avg(a) FROM t GROUP BY g",
    "SELECT count(DISTINCT i), sum(DISTINCT k), avg(a), max(s) FROM t",
    "SELECT g FROM t GROUP BY g", "SELECT DISTINCT g, p FROM t",
    _windows("PARTITION BY g ORDER BY x DESC NULLS LAST, id", (
        "row_number()", "rank()", "percent_rank()", "lag(i)", "lead(s, 2, 'none')", "lag(a, 3)",
        "first_value(s)", "last_value(s)", "sum(i)", "avg(a)", "max(x)", "count(*)")),
    _windows("PARTITION BY p ORDER BY g NULLS LAST", (
        "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "sum(k)", "min(x)", "avg(e)")),
    *(_windows(f"PARTITION BY g ORDER BY id ROWS BETWEEN {frame}", (
        "sum(a)", "avg(e)", "max(x)", "count(s)", "sum(i) FILTER (WHERE p)"))
      for frame in ("2 PRECEDING AND 1 FOLLOWING", "CURRENT ROW AND UNBOUNDED FOLLOWING")),
    "SELECT id, sum(k) OVER () FROM t",
    *(f"SELECT id, {key} FROM t ORDER BY {key} {order}, id" for key in ("x", "g", "s", "e", "p")
      for order in ("DESC", "ASC NULLS LAST")),
    *(f"SELECT a.id, b.id FROM t a {kind} JOIN t b ON {condition}"
      for kind in ("INNER", "LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI")
      for condition in ("a.x = b.g", "a.g <=> b.x", "a.i = b.i AND a.a < b.a")
      if "LEFT " not in kind),
    *(f"SELECT id FROM t WHERE {condition}" for condition in (
        "i NOT IN (SELECT i FROM t WHERE i > 5)", "i NOT IN (SELECT i FROM t WHERE i IS NOT NULL)",
        "EXISTS (SELECT 1 FROM t b WHERE b.g = t.x)", "x IN (SELECT g FROM t)",
        "p OR i IN (SELECT k FROM t)", "a > (SELECT avg(a) FROM t)", "x = (SELECT max(x) FROM t)")),
    "SELECT id, x FROM t UNION ALL SELECT id, g FROM t",
    "SELECT g, p, sum(i), grouping(p) FROM t GROUP BY ROLLUP(g, p)",
    "SELECT * FROM VALUES (1, 'a', 1.5BD), (NULL, 'b', NULL) AS v(n, s, d)",
]  # fmt: skip
OVERFLOWS = ["sum(b)", "sum(m)", "avg(m)", "sum(m) OVER ()", "sum(b) OVER (PARTITION BY p)"]


def awkward_values(rng: random.Random) -> dict[str, Callable[[], Any]]:
    def decimal(digits: int, scale: int) -> Decimal:
        return Decimal(f"{rng.randrange(-(10**digits) + 1, 10**digits)}E-{scale}")

    nan, infinity = float("nan"), float("inf")
    return {
        "g": lambda: rng.choice((0.0, -0.0, nan, 1.5, None)),
        "i": lambda: rng.choice((rng.randint(-9, 9), 2**31 - 1, -(2**31))),
        # Spark adds them up as doubles: an average that all but cancels depends on their order.
        "k": lambda: rng.choice((rng.randint(-9, 9), 2**53 + 1, 2**55)),
        "b": lambda: 2**63 - 1,
        "a": lambda: decimal(rng.randint(1, 7), 2),
        "e": lambda: decimal(rng.choice((3, 20, 33)), 18),
        "f": lambda: decimal(15, 2),
        "v": lambda: decimal(36, 37),
        "m": lambda: Decimal("9" * 38),
        "x": lambda: rng.choice(
            (rng.randint(-2, 2) + 0.5, 0.0, -0.0, nan, infinity, -infinity, 1.5)
        ),
        "z": lambda: rng.choice((rng.gauss(1e6, 1), rng.uniform(-1, 1))),
        "s": lambda: rng.choice(("", "a", "B", "ß", "z", "😀", "\uffee")),
        "u": lambda: date(1, 1, 1) + timedelta(days=rng.randrange(3_600_000)),
        "p": lambda: rng.random() < 0.5,
        "w": lambda: rng.randint(-128, 127),
    }


TYPES = {
    "g": "double", "i": "int", "k": "bigint", "b": "bigint", "a": "decimal(7,2)",
    "e": "decimal(38,18)", "f": "decimal(15,2)", "v": "decimal(38,37)", "m": "decimal(38,0)",
    "x": "double", "z": "double", "s": "string", "u": "date", "p": "boolean", "w": "tinyint",
}  # fmt: skip


@pytest.fixture(scope="module")
def awkward(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """A session with a table t of awkward values, in several row groups."""
    rng = random.Random(SEED)
    file = tmp_path_factory.mktemp("awkward") / "t.parquet"
    makers = awkward_values(rng)
    arrays = {"id": pa.array(range(70), pa.int32())}
    for name, ddl in TYPES.items():
        values = [None if rng.random() < 0.1 else makers[name]() for _ in range(70)]
        arrays[name] = pa.array(values, arrow_type(ddl))
    pyarrow.parquet.write_table(pa.table(arrays), file, row_group_size=25)
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # Pushed down, "= NaN" finds no row: Parquet's readers know no equal NaN, unlike Spark.
    session.conf.set("spark.sql.parquet.filterPushdown", "false")
    session.read.parquet(str(file)).createOrReplaceTempView("t")
    return session


def run(plan: QueryPlan) -> pa.Table:
    dataflow = compile_plan(plan, estimate(plan), CHOICES)
    return run_dataflow(dataflow, task_bytes=1, order=random.Random(SEED))


def test_aggregates_windows_sorts_and_joins_agree_with_spark(awkward: SparkSession) -> None:
    print(f"seed {SEED}")
    differences = []
    for text in AWKWARD:
        frame = awkward.sql(text)
        plan = import_plan(frame).plan
        expected = frame.toArrow()
        try:
            result = run(plan)
        except (NotSupported, duckdb.Error, AssertionError) as error:
            differences.append(f"{text}: {str(error)[:300]}")
            continue
        found, wanted = rows_of(result), rows_of(expected)
        if result.schema.types != expected.schema.types:
            differences.append(f"{text}: {result.schema.types} not {expected.schema.types}")
        if Counter(found) != Counter(wanted) or (plan.is_ordered and found != wanted):
            extra, missing = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
            differences.append(f"{text}: {list(extra)[:2]} instead of {list(missing)[:2]}")
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("call", OVERFLOWS)
def test_what_overflows_in_spark_overflows_here(call: str, awkward: SparkSession) -> None:
    frame = awkward.sql(f"SELECT {call} FROM t")
    with pytest.raises((PySparkException, Py4JJavaError)):
        frame.collect()
    with pytest.raises(duckdb.Error, match=r"(?i)overflow|out of range|could not (cast|convert)"):
        run(import_plan(frame).plan)


def test_every_aggregate_is_compared() -> None:
    """Those of the table that have another name for the same are left out."""
    texts = " ".join([*AWKWARD, *OVERFLOWS])
    names = {*AGGREGATES, *RANKS, *OFFSETS, *POSITIONS} - {"mean", "variance", ONLY_VALUE}
    assert [name for name in sorted(names) if f"{name}(" not in texts] == []
