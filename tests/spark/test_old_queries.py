"""All 22 TPC-H and 99 TPC-DS queries through the kernels' translations, against plain Spark.

There is no engine here: a small interpreter runs each operator as one SELECT in one DuckDB
connection. Aggregates that can be split are computed in their three steps, over three parts of the
rows.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from decimal import Decimal
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headway.base.errors import NotSupported
from headway.pipelined.kernels.aggregates import AGGREGATES, SplitAggregate, split_aggregates
from headway.pipelined.kernels.connection import configure
from headway.pipelined.kernels.only_values import ONLY_VALUE
from headway.pipelined.kernels.operators import explain_support, input_schema
from headway.pipelined.kernels.sorting import sort_key
from headway.pipelined.kernels.translate import normalised_key, translate
from headway.pipelined.kernels.typed import Translated, quoted, string_text
from headway.pipelined.kernels.types import arrow_type, duckdb_type
from headway.pipelined.kernels.windows import OFFSETS, POSITIONS, RANKS, window_call
from headway.plan.expressions import Expression
from headway.plan.graph import walk
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Join,
    JoinKind,
    Limit,
    Node,
    Project,
    QueryPlan,
    Scan,
    Sort,
    Union,
    Values,
    Window,
)
from headway.plan.sources import FileSource
from headway.spark.catalyst import import_plan
from headway.workloads import WORKLOADS

QUERIES = [
    pytest.param(
        workload.name,
        text,
        id=f"{workload.name}-{name}",
        marks=[pytest.mark.nightly] if workload.name == "tpcds" else [],
    )
    for workload in WORKLOADS.values()
    for name, text in workload.queries().items()
]
PARTS = 3
JOINS = {
    JoinKind.INNER: "INNER JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "SEMI JOIN",
    JoinKind.ANTI: "ANTI JOIN",
    JoinKind.NULL_AWARE_ANTI: "ANTI JOIN",
}


class Interpreter:
    """Runs a plan, one table per operator."""

    def __init__(self, plan: QueryPlan, folder: Path) -> None:
        self._connection = duckdb.connect()
        configure(self._connection, readable=[str(folder)])
        self._settings = dict(plan.settings)
        self._plan = plan
        self._tables: dict[Node, str] = {}

    def rows(self) -> list[tuple[Any, ...]]:
        for number, node in enumerate(walk(self._plan.root)):
            self._tables[node] = table = f"n{number}"
            self._connection.execute(f"CREATE TEMP TABLE {table} AS {self._select(node)}")
            self._check_types(node, table)
        return self._connection.execute(f"SELECT * FROM {self._tables[self._plan.root]}").fetchall()

    def _check_types(self, node: Node, table: str) -> None:
        made = self._connection.execute(f"SELECT * FROM {table} LIMIT 0").description
        wanted = [duckdb_type(column.type) for column in node.schema]
        assert [str(column[1]) for column in made][: len(wanted)] == wanted, node

    def _translate(self, node: Node, expression: Expression) -> Translated:
        return translate(expression, input_schema(node), self._settings, self._subqueries(node))

    def _subqueries(self, node: Node) -> dict[str, Translated]:
        return {
            subquery.name: Translated(
                f"(SELECT * FROM {self._tables[subquery.plan]})", subquery.plan.schema[0].type
            )
            for subquery in node.subqueries
        }

    def _from(self, node: Node) -> str:
        return self._tables[node]

    @singledispatchmethod
    def _select(self, node: Node) -> str:
        raise NotSupported(node.kind, "the interpreter has no such operator")

    @_select.register
    def _(self, node: Scan) -> str:
        assert isinstance(node.source, FileSource)
        files = ", ".join(string_text(file.removeprefix("file:")) for file in node.source.files)
        columns = (f"{quoted(c.field)} AS {quoted(c.column.name)}" for c in node.columns)
        return f"SELECT {_list(columns)} FROM read_parquet([{files}])"

    @_select.register
    def _(self, node: Values) -> str:
        if not node.rows:
            empty = (
                f"CAST(NULL AS {duckdb_type(c.type)}) AS {quoted(c.name)}" for c in node.columns
            )
            return f"SELECT {_list(empty)} WHERE false"
        rows = (
            [
                self._translate(node, Expression(text, column.type)).text
                for text, column in zip(row, node.columns, strict=True)
            ]
            for row in node.rows
        )
        names = _list(quoted(name) for name in node.column_names)
        return f"SELECT * FROM (VALUES {', '.join(f'({_list(r)})' for r in rows)}) v({names})"

    @_select.register
    def _(self, node: Filter) -> str:
        condition = self._translate(node, node.condition).text
        return f"SELECT * FROM {self._from(node.input)} WHERE {condition}"

    @_select.register
    def _(self, node: Project) -> str:
        outputs = (
            f"{self._translate(node, o.expression).text} AS {quoted(o.name)}" for o in node.outputs
        )
        return f"SELECT {_list(outputs)} FROM {self._from(node.input)}"

    @_select.register
    def _(self, node: Join) -> str:
        left, right = self._from(node.left), self._from(node.right)
        conditions = " AND ".join(self._translate(node, c).text for c in node.conditions())
        if node.join is JoinKind.CROSS:
            return f"SELECT * FROM {left} CROSS JOIN {right}"
        if node.exists is not None:
            exists = f"EXISTS (SELECT 1 FROM {right} WHERE {conditions})"
            return f"SELECT *, {exists} AS {quoted(node.exists)} FROM {left}"
        columns = _list(map(quoted, node.column_names))
        return f"SELECT {columns} FROM {left} {JOINS[node.join]} {right} ON {conditions or 'true'}"

    @_select.register
    def _(self, node: Aggregate) -> str:
        subqueries = self._subqueries(node)
        splits = split_aggregates(node, self._settings, subqueries)
        keys = [
            (normalised_key(self._translate(node, key.expression)), quoted(key.name))
            for key in node.keys
        ]
        if not all(split.splittable for split in splits):
            return self._whole_aggregate(node, keys, splits)
        return self._split_aggregate(node, keys, splits)

    def _whole_aggregate(
        self, node: Aggregate, keys: list[tuple[str, str]], splits: list[SplitAggregate]
    ) -> str:
        calls = zip(splits, node.aggregates, strict=True)
        outputs = [f"{text} AS {name}" for text, name in keys]
        outputs += [f"{split.whole} AS {quoted(call.column.name)}" for split, call in calls]
        return f"SELECT {_list(outputs)} FROM {self._from(node.input)}{_group(len(keys))}"

    def _split_aggregate(
        self, node: Aggregate, keys: list[tuple[str, str]], splits: list[SplitAggregate]
    ) -> str:
        parts = [part for split in splits for part in split.partial]
        names = [name for _, name in keys]
        partial = [f"{text} AS {name}" for text, name in keys]
        partial += [f"{part.text} AS {quoted(part.name)}" for part in parts]
        per_part = f"SELECT {_list(partial)} FROM {self._from(node.input)}"
        merged = [text for split in splits for text in split.merge]
        merge = names + [
            f"{text} AS {quoted(p.name)}" for text, p in zip(merged, parts, strict=True)
        ]
        final = names + [
            f"{split.final} AS {quoted(call.column.name)}"
            for split, call in zip(splits, node.aggregates, strict=True)
        ]
        union = "\nUNION ALL\n".join(
            f"({per_part} WHERE rowid % {PARTS} = {number}{_group(len(keys))})"
            for number in range(PARTS)
        )
        return (
            f"SELECT {_list(final)} FROM "
            f"(SELECT {_list(merge)} FROM ({union}) partials{_group(len(keys))}) merged"
        )

    @_select.register
    def _(self, node: Window) -> str:
        subqueries = self._subqueries(node)
        calls = [
            f"{window_call(node, call, self._settings, subqueries).text} "
            f"AS {quoted(call.column.name)}"
            for call in node.calls
        ]
        return f"SELECT {_list(['*', *calls])} FROM {self._from(node.input)}"

    @_select.register
    def _(self, node: Sort) -> str:
        schema, subqueries = input_schema(node), self._subqueries(node)
        keys = (sort_key(key, schema, self._settings, subqueries) for key in node.keys)
        return f"SELECT * FROM {self._from(node.input)} ORDER BY {_list(keys)}"

    @_select.register
    def _(self, node: Limit) -> str:
        count = "" if node.count is None else f" LIMIT {node.count}"
        return f"SELECT * FROM {self._from(node.input)}{count} OFFSET {node.offset}"

    @_select.register
    def _(self, node: Union) -> str:
        names = _list(quoted(column.name) for column in node.columns)
        parts = " UNION ALL ".join(f"SELECT * FROM {self._from(child)}" for child in node.inputs)
        return f"SELECT * FROM ({parts}) u({names})"

    @_select.register
    def _(self, node: Expand) -> str:
        names = [quoted(column.name) for column in node.columns]
        return " UNION ALL ".join(
            "SELECT "
            + _list(
                f"{self._translate(node, e).text} AS {name}"
                for e, name in zip(row, names, strict=True)
            )
            + f" FROM {self._from(node.input)}"
            for row in node.projections
        )


def _list(items: Iterable[str]) -> str:
    return ", ".join(items) or "NULL AS no_columns"


def _group(keys: int) -> str:
    return f" GROUP BY {', '.join(str(n + 1) for n in range(keys))}" if keys else ""


def comparable(row: Iterable[Any]) -> tuple[Any, ...]:
    """Exact, but for the last digits of doubles: their sums depend on the order of rows."""
    return tuple(
        ("NaN" if math.isnan(value) else float(f"{value:.11g}"))
        if isinstance(value, float)
        else value
        for value in row
    )


@pytest.mark.parametrize(("workload", "text"), QUERIES)
def test_the_kernels_give_the_rows_of_spark(
    workload: str,
    text: str,
    workload_data: Callable[[str], Path],
    workload_session: Callable[[str], SparkSession],
) -> None:
    frame = workload_session(workload).sql(text)
    plan = import_plan(frame).plan
    assert explain_support(plan) == []

    wanted = [comparable(row) for row in frame.collect()]
    found = [comparable(row) for row in Interpreter(plan, workload_data(workload)).rows()]

    assert Counter(found) == Counter(wanted)
    if plan.is_ordered:
        assert _sort_values(plan, found) == _sort_values(plan, wanted)


def _sort_values(plan: QueryPlan, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The values of the columns that the query sorts by: rows that tie come in any order."""
    node = plan.root
    while not isinstance(node, Sort):
        node = node.children[0]
    sorted_by = {key.expression.column for key in node.keys}
    positions = [i for i, name in enumerate(plan.root.column_names) if name in sorted_by]
    return [tuple(row[i] for i in positions) for row in rows]


SEED = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))


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
        "k": lambda: rng.choice((rng.randint(-9, 9), 2**53 + 1, -(2**55))),
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
def awkward(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SparkSession, Path]:
    """A session with a table t of awkward values, and the folder of its file."""
    rng = random.Random(SEED)
    folder = tmp_path_factory.mktemp("awkward")
    makers = awkward_values(rng)
    arrays = {"id": pa.array(range(70), pa.int32())}
    for name, ddl in TYPES.items():
        values = [None if rng.random() < 0.1 else makers[name]() for _ in range(70)]
        arrays[name] = pa.array(values, arrow_type(ddl))
    pyarrow.parquet.write_table(pa.table(arrays), folder / "t.parquet")
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    # Pushed down, "= NaN" finds no row: Parquet's readers know no equal NaN, unlike Spark.
    session.conf.set("spark.sql.parquet.filterPushdown", "false")
    session.read.parquet(str(folder / "t.parquet")).createOrReplaceTempView("t")
    return session, folder


def test_aggregates_windows_sorts_and_joins_agree_with_spark(
    awkward: tuple[SparkSession, Path],
) -> None:
    print(f"seed {SEED}")
    session, folder = awkward
    differences = []
    for text in AWKWARD:
        frame = session.sql(text)
        plan = import_plan(frame).plan
        wanted = [comparable(row) for row in frame.collect()]
        try:
            found = [comparable(row) for row in Interpreter(plan, folder).rows()]
        except (NotSupported, duckdb.Error, AssertionError) as error:
            differences.append(f"{text}: {str(error)[:300]}")
            continue
        if Counter(found) != Counter(wanted) or (plan.is_ordered and found != wanted):
            extra, missing = Counter(found) - Counter(wanted), Counter(wanted) - Counter(found)
            differences.append(f"{text}: {list(extra)[:2]} instead of {list(missing)[:2]}")
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("call", OVERFLOWS)
def test_what_overflows_in_spark_overflows_here(
    call: str, awkward: tuple[SparkSession, Path]
) -> None:
    session, folder = awkward
    frame = session.sql(f"SELECT {call} FROM t")
    with pytest.raises((PySparkException, Py4JJavaError)):
        frame.collect()
    with pytest.raises(duckdb.Error, match=r"(?i)overflow|out of range|could not (cast|convert)"):
        Interpreter(import_plan(frame).plan, folder).rows()


def test_every_aggregate_is_compared() -> None:
    """Those of the table that have another name for the same are left out."""
    texts = " ".join([*AWKWARD, *OVERFLOWS])
    names = {*AGGREGATES, *RANKS, *OFFSETS, *POSITIONS} - {"mean", "variance", ONLY_VALUE}
    assert [name for name in sorted(names) if f"{name}(" not in texts] == []
