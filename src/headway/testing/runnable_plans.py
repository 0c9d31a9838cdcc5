"""Random plans that can be run, and small tables for them: awkward values, few rows, many files.

The rows of such a plan are the same however it is run: a limit is over a total order, and nothing
depends on the order in which doubles are added. Needs hypothesis, as `headway.testing.plans` does.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from headway.plan.expressions import Column, column_reference
from headway.plan.nodes import (
    AggregateCall,
    Expand,
    Join,
    JoinKind,
    Limit,
    Node,
    QueryPlan,
    Scan,
    ScanColumn,
    Sort,
    SortKey,
    Union,
    Values,
    Window,
)
from headway.plan.sources import RangeSource
from headway.testing.example_plans import parquet_table
from headway.testing.plans import ODD_NAMES, ODD_STRINGS, TYPES, PlanMaker

_TYPES = tuple(ddl for ddl in TYPES if ddl != "array<int>")
_VALUES: dict[str, Sequence[Any]] = {
    "int": (7, -3, 0, 1, 2),
    "bigint": (42, 0, -7, 1),
    "double": (1.5, -0.25, 0.0, -0.0, float("nan"), float("inf")),
    "string": ODD_STRINGS[:8],
    "boolean": (True, False),
    "date": (datetime.date(2020, 2, 29), datetime.date(1992, 1, 1), datetime.date(1, 1, 1)),
    "decimal(15,2)": (Decimal("1.25"), Decimal("-9999999999999.99"), Decimal("0.00")),
}
_SUMS = {"int": "bigint", "bigint": "bigint", "decimal(15,2)": "decimal(25,2)"}
_AVERAGES = {"int": "double", "bigint": "double", "decimal(15,2)": "decimal(19,6)"}
_SETTINGS = (("spark.sql.ansi.enabled", "true"), ("spark.sql.session.timeZone", "UTC"))
_MOST_ROWS = 3_000
_ROWS = (0, 1, 20, 60)


def small_tables(folder: Path, rng: random.Random) -> tuple[Scan, ...]:
    """Scans of all columns of Parquet tables, from one without rows to one in several files."""
    return tuple(
        _small_table(folder / f"it's table {n}", rows, rng) for n, rows in enumerate(_ROWS)
    )


def _small_table(folder: Path, rows: int, rng: random.Random) -> Scan:
    types = dict(zip(ODD_NAMES, _TYPES, strict=False))
    values = [
        tuple(None if rng.random() < 0.1 else rng.choice(_VALUES[ddl]) for ddl in types.values())
        for _ in range(rows)
    ]
    files = 3 if rows > 5 else 1
    return parquet_table(folder, types, values, files=files, group_rows=rng.choice((1, 7, 1_000)))


def runnable_plans(tables: Sequence[Scan], max_operators: int = 6) -> st.SearchStrategy[QueryPlan]:
    """Valid plans over the tables, all of whose operators have a kernel."""
    return _runnable_plans(tuple(tables), max_operators)


@st.composite
def _runnable_plans(draw: st.DrawFn, tables: tuple[Scan, ...], max_operators: int) -> QueryPlan:
    root = _RunnableMaker(draw, tables).plan(max_operators)
    return QueryPlan(root, tuple(draw(st.sampled_from(ODD_NAMES)) for _ in root.schema), _SETTINGS)


class _RunnableMaker(PlanMaker):
    types = _TYPES
    literals: Mapping[str, Sequence[str]] = {
        **PlanMaker.literals,
        "bigint": ("42L", "-7L"),  # whose products do not overflow
        "decimal(25,2)": ("CAST(1.25BD AS DECIMAL(25,2))",),
        "decimal(19,6)": ("CAST(1.25BD AS DECIMAL(19,6))",),
    }

    def __init__(self, draw: st.DrawFn, tables: tuple[Scan, ...]) -> None:
        super().__init__(draw)
        self._tables = tables

    @property
    def operators(self) -> Sequence[Callable[[Any], Node]]:
        return _OPERATORS

    def _accepts(self, made: Node) -> bool:
        return _most_rows(made) <= _MOST_ROWS

    def _leaf(self) -> Node:
        choice = self._number(0, 5)
        if choice == 0:
            return self._values()
        if choice == 1:
            return Scan(self._range(), (ScanColumn("id", self._column("bigint")),))
        table = self._pick(self._tables)
        fields = {self._pick(table.columns).field: None for _ in range(self._number(0, 3))}
        types = {c.field: c.column.type for c in table.columns}
        columns = (ScanColumn(f, Column(self._name(), types[f])) for f in fields)
        return Scan(table.source, tuple(columns))

    def _limited(self, node: Node, count: int | None, offset: int = 0) -> Node:
        keys = self._all_columns(node)
        return Limit(Sort(node, keys), count, offset) if keys else Limit(node, count, offset)

    def _all_columns(self, node: Node) -> tuple[SortKey, ...]:
        return tuple(SortKey(column_reference(c), self._flag(), self._flag()) for c in node.schema)

    def _window(self) -> Node:
        node = self._input()
        partition = tuple(column_reference(c) for c in node.schema[: self._number(0, 2)])
        calls = tuple(self._window_call(node.schema) for _ in range(self._number(1, 2)))
        return Window(node, partition, self._all_columns(node), calls)

    def _call(self, columns: tuple[Column, ...]) -> AggregateCall:
        if self._flag():
            return super()._call(columns)
        function, types = self._pick((("sum", _SUMS), ("avg", _AVERAGES)))
        ddl = self._pick(tuple(types))
        argument = self._expression(ddl, columns)
        made = Column(self._name(), types[ddl])
        return AggregateCall(made, function, (argument,), self._number(0, 3) == 3)


_OPERATORS: tuple[Callable[[Any], Node], ...] = (
    _RunnableMaker._filter,
    _RunnableMaker._filter_by_value,
    _RunnableMaker._project,
    _RunnableMaker._join,
    _RunnableMaker._join,
    _RunnableMaker._join,
    _RunnableMaker._aggregate,
    _RunnableMaker._aggregate,
    _RunnableMaker._window,
    _RunnableMaker._sort,
    _RunnableMaker._limit,
    _RunnableMaker._union,
    _RunnableMaker._expand,
    _RunnableMaker._copy,
)


def _most_rows(node: Node) -> int:
    """No fewer than the node can put out."""
    below = [_most_rows(child) for child in node.children]
    if isinstance(node, Values):
        return len(node.rows)
    if isinstance(node, Scan):
        return _table_rows(node)
    if isinstance(node, Join):
        left, right = below
        if node.join in (JoinKind.INNER, JoinKind.CROSS):
            return left * right
        if node.join in (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL):
            return left * right + left + right
        return left
    if isinstance(node, Limit) and node.count is not None:
        return min(below[0], node.count)
    if isinstance(node, Union):
        return sum(below)
    if isinstance(node, Expand):
        return below[0] * len(node.projections)
    return max(below[0], 1)


def _table_rows(scan: Scan) -> int:
    if isinstance(scan.source, RangeSource):
        return len(range(scan.source.start, scan.source.end, scan.source.step))
    return max(_ROWS)
