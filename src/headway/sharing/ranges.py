"""Conditions on one column as sets of ranges, for numbers, dates and texts.

`Condition` says for which values a condition holds, and what becomes of a null. A condition that
is not a matter of ranges (a pattern, two columns compared) is none of these.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from math import isfinite
from typing import Any

from sqlglot import expressions as tree

from headway.base.errors import InvalidPlan
from headway.plan.expressions import Column, Expression, quote, string_literal

# A place between values: before or after one of them, or beyond all.
Cut = tuple[int, Any, bool]
_START: Cut = (-1, None, False)
_END: Cut = (1, None, False)
_WHOLE = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS = Context(prec=76)
"""More than any decimal has; Python computes with 28 of them by itself."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ascending, apart from each other; each from a cut to a later one."""

    parts: tuple[tuple[Cut, Cut], ...]

    def complement(self) -> Ranges:
        edges = [_START, *(cut for part in self.parts for cut in part), _END]
        pairs = zip(edges[::2], edges[1::2], strict=True)
        return Ranges(tuple((low, high) for low, high in pairs if low < high))

    def union(self, other: Ranges) -> Ranges:
        joined: list[tuple[Cut, Cut]] = []
        for low, high in sorted((*self.parts, *other.parts)):
            if joined and low <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(joined[-1][1], high))
            else:
                joined.append((low, high))
        return Ranges(tuple(joined))

    def intersection(self, other: Ranges) -> Ranges:
        return self.complement().union(other.complement()).complement()


NOTHING = Ranges(())
EVERYTHING = Ranges(((_START, _END),))


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds for the values in `holds`; of a null it is true, false or null (None)."""

    holds: Ranges
    of_null: bool | None = None

    def negated(self) -> Condition:
        return Condition(
            self.holds.complement(), None if self.of_null is None else not self.of_null
        )

    def and_(self, other: Condition) -> Condition:
        return Condition(self.holds.intersection(other.holds), _and(self.of_null, other.of_null))

    def or_(self, other: Condition) -> Condition:
        return self.negated().and_(other.negated()).negated()


def _and(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return None if a is None or b is None else True


def condition_on(expression: Expression, column: Column) -> Condition | None:
    """The condition as ranges of the column; None where it is something else."""
    try:
        return _condition(expression.parsed, column)
    except (_NoRanges, InvalidPlan, RecursionError):
        return None


def cut_test(cut: Cut, column: Column, *, behind: bool = False) -> str:
    """Whether the column's value lies before the cut, or behind it."""
    _, value, after = cut
    sign = (">" if after else ">=") if behind else ("<=" if after else "<")
    return f"({quote(column.name)} {sign} {literal(value, column.type)})"


def is_bound(cut: Cut) -> bool:
    """Whether the cut is at a value, rather than beyond all of them."""
    return cut[0] == 0


def literal(value: Any, ddl: str) -> str:
    """The value as a constant of exactly that type."""
    if ddl in _WHOLE:
        return f"{value}{_WHOLE[ddl]}"
    if ddl == "date":
        return f"DATE '{value.isoformat()}'"
    if ddl == "string":
        return string_literal(value)
    if ddl == "double":
        return f"{value!r}D"
    return f"CAST({value:f}BD AS {ddl.upper()})"


class _NoRanges(Exception):
    """The condition is not a matter of ranges."""


def _condition(node: tree.Expr, column: Column) -> Condition:
    if isinstance(node, tree.Paren):
        return _condition(node.this, column)
    if isinstance(node, tree.Not):
        return _condition(node.this, column).negated()
    if isinstance(node, tree.And | tree.Or):
        left, right = _condition(node.left, column), _condition(node.right, column)
        return left.and_(right) if isinstance(node, tree.And) else left.or_(right)
    if isinstance(node, tree.Is):
        return _is_null(node, column)
    if isinstance(node, tree.In):
        return _is_in(node, column)
    if isinstance(node, tree.Between):
        _check_column(node.this, column)
        low, high = _value(node.args["low"], column), _value(node.args["high"], column)
        return Condition(_from(low, False).intersection(_to(high, True)))
    return _comparison(node, column)


def _is_null(node: tree.Is, column: Column) -> Condition:
    _check_column(node.this, column)
    if not isinstance(node.expression, tree.Null):
        raise _NoRanges
    return Condition(NOTHING, of_null=True)


def _is_in(node: tree.In, column: Column) -> Condition:
    _check_column(node.this, column)
    if not node.expressions:
        raise _NoRanges
    found = NOTHING
    for each in node.expressions:
        found = found.union(_point(_value(each, column)))
    return Condition(found)


def _comparison(node: tree.Expr, column: Column) -> Condition:
    sign = type(node)
    if sign not in _SIGNS:
        raise _NoRanges
    left, right = node.this, node.expression
    if not isinstance(left, tree.Column):
        left, right, sign = right, left, _TURNED.get(sign, sign)
    _check_column(left, column)
    found = _SIGNS[sign](_value(right, column))
    return Condition(found, of_null=False if sign is tree.NullSafeEQ else None)


def _from(value: Any, after: bool) -> Ranges:
    return Ranges((((0, value, after), _END),))


def _to(value: Any, after: bool) -> Ranges:
    return Ranges(((_START, (0, value, after)),))


def _point(value: Any) -> Ranges:
    return Ranges((((0, value, False), (0, value, True)),))


_SIGNS: dict[type[tree.Expr], Callable[[Any], Ranges]] = {
    tree.EQ: _point,
    tree.NullSafeEQ: _point,
    tree.NEQ: lambda value: _point(value).complement(),
    tree.LT: lambda value: _to(value, False),
    tree.LTE: lambda value: _to(value, True),
    tree.GT: lambda value: _from(value, True),
    tree.GTE: lambda value: _from(value, False),
}
_TURNED: dict[type[tree.Expr], type[tree.Expr]] = {
    tree.LT: tree.GT,
    tree.LTE: tree.GTE,
    tree.GT: tree.LT,
    tree.GTE: tree.LTE,
}


def _check_column(node: tree.Expr, column: Column) -> None:
    while isinstance(node, tree.Paren):
        node = node.this
    if not isinstance(node, tree.Column) or node.table or node.name != column.name:
        raise _NoRanges


def _value(node: tree.Expr, column: Column) -> Any:
    """A constant of the column's own type."""
    number = _DECIMAL.fullmatch(column.type)
    if column.type in _WHOLE:
        value = _number(node)
        if value != value.to_integral_value():
            raise _NoRanges
        return int(value)
    if number is not None:
        return _decimal(_number(node), int(number[1]), int(number[2]))
    if column.type == "double":
        return _double(node)
    if column.type == "string" and isinstance(node, tree.Literal) and node.is_string:
        return str(node.this)
    if column.type == "date":
        return _date(node)
    raise _NoRanges


def _number(node: tree.Expr) -> Decimal:
    while isinstance(node, tree.Paren | tree.Cast):  # a cast of a constant to a type that holds it
        node = node.this
    if isinstance(node, tree.Neg):
        return -_number(node.this)
    if not isinstance(node, tree.Literal):
        raise _NoRanges
    try:
        value = Decimal(node.this)
    except InvalidOperation as error:
        raise _NoRanges from error
    if not value.is_finite():
        raise _NoRanges
    return value


def _decimal(value: Decimal, precision: int, scale: int) -> Decimal:
    """With all its places; one that the type does not hold would be another value there."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    if -exponent > scale or len(digits) + exponent > precision - scale:
        raise _NoRanges
    return value.quantize(Decimal(1).scaleb(-scale), context=_DIGITS)


def _double(node: tree.Expr) -> float:
    value = float(_number(node))
    if not isfinite(value) or value == 0.0:  # 0.0 and -0.0 are equal, and written differently
        raise _NoRanges
    return value


def _date(node: tree.Expr) -> datetime.date:
    if not (isinstance(node, tree.Cast) and node.to.this == tree.DataType.Type.DATE):
        raise _NoRanges
    inner = node.this
    if not (isinstance(inner, tree.Literal) and inner.is_string):
        raise _NoRanges
    try:
        return datetime.date.fromisoformat(str(inner.this))
    except ValueError as error:
        raise _NoRanges from error
