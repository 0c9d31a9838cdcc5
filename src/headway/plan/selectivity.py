"""The share of rows that a condition lets pass, from what is known of the columns it reads."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite, prod

from sqlglot import expressions as exp

from headway.base.errors import InvalidPlan
from headway.plan.expressions import Expression

# System R's guesses, where the columns tell nothing.
_EQUAL = 0.1
_RANGE = 1 / 3
_LIKE = 0.15
_OTHER = 0.25


@dataclass(frozen=True, slots=True)
class ColumnEstimate:
    distinct: float
    low: float | None
    high: float | None
    null_share: float
    width: float


Columns = Mapping[str, ColumnEstimate]


def selectivity(condition: Expression, columns: Columns) -> float:
    try:
        share = _share(condition.parsed, columns)
    # What sqlglot does not read, or is too deep for it, is no reason to fail an estimate.
    except (InvalidPlan, RecursionError):
        share = _OTHER
    return min(max(share, 0.0), 1.0)


def _share(node: exp.Expr, columns: Columns) -> float:
    if isinstance(node, exp.Paren):
        return _share(node.this, columns)
    if isinstance(node, exp.And):
        return prod(_share(part, columns) for part in node.flatten())
    if isinstance(node, exp.Or):
        return 1 - prod(1 - _share(part, columns) for part in node.flatten())
    if isinstance(node, exp.Not):
        return 1 - _share(node.this, columns)
    if isinstance(node, exp.Boolean):
        return 1.0 if node.this else 0.0
    rule = _RULES.get(type(node))
    return rule(node, columns) if rule is not None else _OTHER


def _equal(node: exp.Expr, columns: Columns) -> float:
    sides = [_column(side, columns) for side in (node.this, node.expression)]
    known = [side.distinct for side in sides if side is not None]
    return 1 / max(known) if known and max(known) < float("inf") else _EQUAL


def _compare(node: exp.Expr, columns: Columns) -> float:
    column, value = _column(node.this, columns), _number(node.expression)
    upward, inclusive = isinstance(node, exp.GT | exp.GTE), isinstance(node, exp.GTE | exp.LTE)
    if column is None:
        column, value = _column(node.expression, columns), _number(node.this)
        upward = not upward
    if column is None or value is None or column.low is None or column.high is None:
        return _RANGE
    if column.high <= column.low:
        passes = column.low > value if upward else column.low < value
        return 1.0 if passes or (inclusive and column.low == value) else 0.0
    below = min(max((value - column.low) / (column.high - column.low), 0.0), 1.0)
    share = 1 - below if upward else below
    one_value = 1 / column.distinct if inclusive and column.low <= value <= column.high else 0.0
    return max(share, one_value)


def _in(node: exp.Expr, columns: Columns) -> float:
    column = _column(node.this, columns)
    count = len(node.expressions)
    if column is None or column.distinct == float("inf"):
        return min(count * _EQUAL, 0.5)
    return min(count / column.distinct, 1.0)


def _is_null(node: exp.Expr, columns: Columns) -> float:
    column = _column(node.this, columns)
    return column.null_share if column is not None else 0.05


_RULES: dict[type[exp.Expr], Callable[[exp.Expr, Columns], float]] = {
    exp.EQ: _equal,
    exp.NullSafeEQ: _equal,
    exp.NEQ: lambda node, columns: 1 - _equal(node, columns),
    exp.LT: _compare,
    exp.LTE: _compare,
    exp.GT: _compare,
    exp.GTE: _compare,
    exp.In: _in,
    exp.Is: _is_null,
    exp.Like: lambda node, columns: _LIKE,
    exp.StartsWith: lambda node, columns: _LIKE,
}


def _column(node: exp.Expr, columns: Columns) -> ColumnEstimate | None:
    while isinstance(node, exp.Paren | exp.Cast):
        if isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE:
            return None  # of a timestamp, whose extremes are seconds and not days
        node = node.this
    # A struct's field looks like the column of a table.
    named = isinstance(node, exp.Column) and not node.table
    return columns.get(node.name) if named else None


def _number(node: exp.Expr) -> float | None:
    """A constant on the number line that the statistics use."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Cast):
        if node.to.this == exp.DataType.Type.DATE:
            try:
                return float(datetime.date.fromisoformat(node.this.name).toordinal())
            except ValueError:
                return None
        return _number(node.this)
    if isinstance(node, exp.Literal) and not node.is_string:
        try:
            value = float(node.this)
        except ValueError:
            return None
        return value if isfinite(value) else None
    return None
