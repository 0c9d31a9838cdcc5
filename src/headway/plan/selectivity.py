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
    """`distinct` values here; `domain` is how many there are in the table that the column comes
    from, where it was not filtered yet; `unique` says that this may be as many as it has rows."""

    distinct: float
    low: float | None
    high: float | None
    null_share: float
    width: float
    domain: float = float("inf")
    unique: bool = False


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
        return _all_hold([*node.flatten()], columns)
    if isinstance(node, exp.Or):
        return 1 - prod(1 - _share(part, columns) for part in node.flatten())
    if isinstance(node, exp.Not):
        return 1 - _share(node.this, columns)
    if isinstance(node, exp.Boolean):
        return 1.0 if node.this else 0.0
    rule = _RULES.get(type(node))
    return rule(node, columns) if rule is not None else _OTHER


def _all_hold(parts: list[exp.Expr], columns: Columns) -> float:
    """Independent of each other, but for the two ends of a range."""
    parts = [inner for part in parts for inner in _flattened(part)]
    shares: list[float] = []
    ends: dict[str, dict[bool, float]] = {}
    for part in parts:
        share = _share(part, columns)
        bound = _bound(part, columns)
        if bound is None:
            shares.append(share)
            continue
        name, upward = bound
        known = ends.setdefault(name, {})
        known[upward] = min(share, known.get(upward, 1.0))
    for sides in ends.values():
        # Both ends of a range cut off their own part: what is left is not the product.
        rest = 1 - sum(1 - share for share in sides.values())
        shares.append(rest if rest > 0 else prod(sides.values()) / 10)
    return prod(shares)


def _flattened(node: exp.Expr) -> list[exp.Expr]:
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.And):
        return [inner for part in node.flatten() for inner in _flattened(part)]
    return [node]


def _bound(node: exp.Expr, columns: Columns) -> tuple[str, bool] | None:
    """The column that a comparison with a constant bounds, and whether from below."""
    if not isinstance(node, exp.GT | exp.GTE | exp.LT | exp.LTE):
        return None
    upward = isinstance(node, exp.GT | exp.GTE)
    for side, other, turned in (
        (node.this, node.expression, upward),
        (node.expression, node.this, not upward),
    ):
        column = _column(side, columns)
        if column is not None and column.low is not None and _number(other) is not None:
            return side.name, turned
    return None


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
