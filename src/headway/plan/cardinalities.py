"""How many rows and bytes every node puts out: estimated, or observed in an earlier run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from math import prod

from headway.plan.canonical import row_keys
from headway.plan.expressions import Column, Expression
from headway.plan.graph import walk
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    StateScan,
    Union,
    Values,
)
from headway.plan.selectivity import ColumnEstimate, selectivity
from headway.plan.sources import Source
from headway.plan.statistics import ColumnStatistics, TableStatistics, source_statistics

_UNKNOWN_ROWS = 100_000.0
_MOST_ROWS = 1e18  # so that the product of many inputs stays a number
_WIDTHS = {
    "boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "date": 4, "float": 4, "bigint": 8,
    "double": 8, "timestamp": 8, "timestamp_ntz": 8,
}  # fmt: skip
_TEXT_WIDTH = 20.0
_CODED_WIDTH = 8.0  # at least, of a text whose file has only a code for it
_ELEMENTS_PER_ARRAY = 4.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """`observed` says that the rows were counted in an earlier run of the same operators."""

    rows: float
    bytes: float
    observed: bool = False


Statistics = Callable[[Source], TableStatistics | None]


def estimate(
    plan: QueryPlan,
    statistics: Statistics = source_statistics,
    observed: Mapping[str, float] | None = None,
) -> dict[Node, Estimate]:
    """Rows and bytes of every node; `observed` maps row keys to rows that were counted."""
    estimator = Estimator(statistics, observed or {}, row_keys(plan.root))
    for node in walk(plan.root):
        estimator.add(node)
    return estimator.estimates


def width_of(ddl: str) -> float:
    """Bytes that a value of this type takes in memory, roughly."""
    if ddl.startswith("decimal"):
        return 16.0
    return float(_WIDTHS.get(ddl, _TEXT_WIDTH))


class Estimator:
    """Estimates nodes one by one, each after its inputs. `keys` are the row keys of nodes, by which
    `observed` counts are found."""

    def __init__(
        self, statistics: Statistics, observed: Mapping[str, float], keys: Mapping[Node, str]
    ) -> None:
        self.estimates: dict[Node, Estimate] = {}
        self._statistics = statistics
        self._observed = observed
        self._keys = keys
        self._columns: dict[Node, dict[str, ColumnEstimate]] = {}

    def add(self, node: Node) -> None:
        columns = self._inherited(node)
        self._columns[node] = columns
        rows = min(max(self._rows(node), self._fewest_rows(node)), _MOST_ROWS)
        counted = self._observed.get(self._keys.get(node, ""))
        known = counted is not None
        rows = float(counted) if counted is not None else rows
        for name, column in columns.items():
            columns[name] = replace(column, distinct=max(1.0, min(column.distinct, rows)))
        width = sum(columns[c.name].width for c in node.schema)
        self.estimates[node] = Estimate(rows, rows * max(width, 1.0), known)

    def _fewest_rows(self, node: Node) -> float:
        """A guess of no rows hides all that is above: where rows come in, one may come out."""
        if isinstance(node, Limit) and node.count == 0:
            return 0.0
        inputs = [self.estimates[child].rows for child in node.children]
        return 1.0 if inputs and all(inputs) else 0.0

    def _inherited(self, node: Node) -> dict[str, ColumnEstimate]:
        """What is known of the output's columns: what is known of the same columns below."""
        below: dict[str, ColumnEstimate] = {}
        for child in node.children:
            below |= self._columns[child]
        if isinstance(node, Scan):
            return self._scan_columns(node)
        if isinstance(node, Project):
            return {o.name: _of_output(o, below) for o in node.outputs}
        if isinstance(node, Aggregate):
            keys = {key.name: _of_output(key, below) for key in node.keys}
            return keys | {c.column.name: _unknown(c.column) for c in node.aggregates}
        if isinstance(node, Union):
            names = zip(*(child.column_names for child in node.inputs), strict=True)
            found = [self._united(node, inputs) for inputs in names]
            return dict(zip(node.column_names, found, strict=True))
        return {c.name: below.get(c.name) or _unknown(c) for c in node.schema}

    def _united(self, node: Union, names: tuple[str, ...]) -> ColumnEstimate:
        """What is known of a union's column from the columns that it is made of."""
        parts = [self._columns[c][name] for c, name in zip(node.inputs, names, strict=True)]
        rows = [self.estimates[child].rows for child in node.inputs]
        lows = [part.low for part in parts if part.low is not None]
        highs = [part.high for part in parts if part.high is not None]
        nulls = sum(part.null_share * n for part, n in zip(parts, rows, strict=True))
        return ColumnEstimate(
            sum(part.distinct for part in parts),
            min(lows) if len(lows) == len(parts) else None,
            max(highs) if len(highs) == len(parts) else None,
            nulls / sum(rows) if any(rows) else 0.0,
            max(part.width for part in parts),
        )

    def _scan_columns(self, node: Scan) -> dict[str, ColumnEstimate]:
        table = self._statistics(node.source)
        rows = float(table.rows) if table is not None else _UNKNOWN_ROWS
        known = table.columns if table is not None else {}
        return {c.column.name: _of_field(c.column, known.get(c.field), rows) for c in node.columns}

    @singledispatchmethod
    def _rows(self, node: Node) -> float:
        return self.estimates[node.children[0]].rows

    @_rows.register
    def _(self, node: Scan) -> float:
        table = self._statistics(node.source)
        return float(table.rows) if table is not None else _UNKNOWN_ROWS

    @_rows.register
    def _(self, node: StateScan) -> float:
        return _UNKNOWN_ROWS

    @_rows.register
    def _(self, node: Values) -> float:
        return float(len(node.rows))

    @_rows.register
    def _(self, node: Filter) -> float:
        share = selectivity(node.condition, self._columns[node.input])
        return self.estimates[node.input].rows * share

    @_rows.register
    def _(self, node: Join) -> float:
        left, right = self.estimates[node.left].rows, self.estimates[node.right].rows
        matched = self._matches(node, left, right)
        if node.join in (JoinKind.INNER, JoinKind.CROSS):
            return matched
        if node.join is JoinKind.LEFT:
            return max(left, matched)
        if node.join is JoinKind.RIGHT:
            return max(right, matched)
        if node.join is JoinKind.FULL:
            return max(left, matched) + max(right - matched, 0.0)
        if node.join is JoinKind.EXISTENCE:
            return left
        share = min(1.0, matched / left) if left else 0.0
        share *= 0.5 if node.keys else 1.0  # a key found at all says little of how many find one
        return left * share if node.join is JoinKind.SEMI else left * max(1 - share, 0.05)

    def _matches(self, node: Join, left: float, right: float) -> float:
        values = [
            shared_values([self.domain(key.left, node.left), self.domain(key.right, node.right)])
            for key in node.keys
        ]
        rows = left * right / key_values(values, left, right)
        if node.residual is not None:
            known = self._columns[node.left] | self._columns[node.right]
            rows *= selectivity(node.residual, known)
        return rows

    def columns_of(self, node: Node) -> Mapping[str, ColumnEstimate]:
        return self._columns[node]

    def distinct(self, expression: Expression, node: Node) -> float:
        """How many values the expression takes over the rows of the node."""
        rows = self.estimates[node].rows
        known = [self._columns[node][name].distinct for name in expression.columns]
        return min(rows, max(known, default=1.0))

    def domain(self, expression: Expression, node: Node) -> Domain:
        """How many values the expression could take, had no row been filtered out."""
        known = self._columns[node].get(expression.column or "")
        if known is None or known.domain == float("inf"):
            return Domain(max(self.distinct(expression, node), 1.0), False)
        return Domain(max(known.domain, 1.0), known.unique)

    @_rows.register
    def _(self, node: Aggregate) -> float:
        rows = self.estimates[node.input].rows
        if not node.keys:
            return 1.0
        groups = 1.0
        for key in node.keys:
            groups *= self.distinct(key.expression, node.input)
        # Keys depend on each other; even independent ones do not fill all their combinations.
        return min(groups, rows, max(rows**0.9, 1.0)) if len(node.keys) > 1 else min(groups, rows)

    @_rows.register
    def _(self, node: Limit) -> float:
        rows = max(self.estimates[node.input].rows - node.offset, 0.0)
        return rows if node.count is None else min(rows, float(node.count))

    @_rows.register
    def _(self, node: Union) -> float:
        return sum(self.estimates[child].rows for child in node.inputs)

    @_rows.register
    def _(self, node: Expand) -> float:
        return self.estimates[node.input].rows * len(node.projections)

    @_rows.register
    def _(self, node: Generate) -> float:
        return self.estimates[node.input].rows * _ELEMENTS_PER_ARRAY


@dataclass(frozen=True, slots=True)
class Domain:
    """How many values a key can take. One that looks `unique` may take fewer: a number between far
    extremes can refer to another table as well as name a row of its own."""

    values: float
    unique: bool


def shared_values(domains: list[Domain]) -> float:
    """The values that equal keys can have in common."""
    certain = [domain.values for domain in domains if not domain.unique]
    # Of two that look unique, the larger table probably refers to the smaller one.
    found = max(certain) if certain else min(domain.values for domain in domains)
    if certain and len(certain) < len(domains):
        found = max(found, min(domain.values for domain in domains if domain.unique))
    return max(found, 1.0)


def key_values(values: list[float], left: float, right: float) -> float:
    """How many values several keys take together, as those of a table that links two others do: no
    more than a side has rows."""
    if len(values) <= 1:
        return values[0] if values else 1.0
    return max(min(prod(values), left, right), *values, 1.0)


def _of_output(output: Named, below: Mapping[str, ColumnEstimate]) -> ColumnEstimate:
    column = output.expression.column
    if column is not None:
        return below[column]
    made = _unknown(output.column)
    distinct = max((below[name].distinct for name in output.expression.columns), default=1.0)
    return replace(made, distinct=distinct)


def _of_field(column: Column, known: ColumnStatistics | None, rows: float) -> ColumnEstimate:
    made = _unknown(column)
    if known is None or rows <= 0:
        return replace(made, distinct=max(rows, 1.0))
    low, high = known.low, known.high
    # A dictionary's codes take as many bits as tell its values apart.
    codes = 2.0 ** min(8 * known.bytes / rows, 40.0) if known.bytes else rows
    distinct = rows
    if low is not None and high is not None and column.type in (*_WIDTHS,):
        # Whole numbers and dates take at most as many values as there are between the extremes.
        whole = column.type not in ("float", "double", "timestamp", "timestamp_ntz")
        distinct = min(rows, high - low + 1) if whole else rows
    elif column.type.startswith("decimal"):
        distinct = min(rows, codes)
    elif column.type == "string":
        distinct = max(min(rows**0.6, codes), 1.0)
    in_file = column.type == "string" and known.bytes
    width = max(known.bytes / rows, _CODED_WIDTH) if in_file else made.width
    distinct = max(distinct, 1.0)
    return ColumnEstimate(
        distinct, low, high, min(known.nulls / rows, 1.0), width, distinct, distinct > 0.9 * rows
    )


def _unknown(column: Column) -> ColumnEstimate:
    return ColumnEstimate(float("inf"), None, None, 0.0, width_of(column.type))
