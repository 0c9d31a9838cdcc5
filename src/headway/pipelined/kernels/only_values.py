"""Spark's rewrite of several DISTINCT aggregates, and what it takes the first value of.

Spark expands each row once per set of distinct values and once more (with `gid` 0) for the plain
aggregates, aggregates by keys, distinct values and gid, and then takes `first_value(partial, true)
FILTER (WHERE gid = 0)` per group. Exactly one row of a group has gid 0, so that no order matters.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import expressions as tree

from headway.base.errors import NotSupported
from headway.pipelined.kernels.syntax import parse
from headway.plan.expressions import Expression
from headway.plan.nodes import Aggregate, AggregateCall, Expand

ONLY_VALUE = "only_value"


def any_value_of(node: Aggregate, call: AggregateCall) -> AggregateCall | None:
    """The call as one that takes the only value there is; None unless it is of that kind."""
    if call.function not in ("first", "first_value") or len(call.arguments) != 2:
        return None
    value, ignore_nulls = call.arguments
    if ignore_nulls.text.lower() != "true" or not _has_one_row(node, call):
        return None
    return replace(call, function=ONLY_VALUE, arguments=(value,))


def _has_one_row(node: Aggregate, call: AggregateCall) -> bool:
    """Whether the call's filter lets through one row per group of `node`."""
    inner = node.input
    if not isinstance(inner, Aggregate) or not isinstance(inner.input, Expand):
        return False
    wanted = _equality(call.filter)
    if wanted is None:
        return False
    column, constant = wanted
    positions = {made.name: position for position, made in enumerate(inner.input.columns)}
    places = {key.name: positions.get(key.expression.column or "") for key in inner.keys}
    outer = {key.expression.column for key in node.keys}
    if None in places.values() or column not in places or not outer <= set(places):
        return False
    numbered = {row[places[column] or 0].text: row for row in inner.input.projections}
    if constant not in numbered or not all(number.isdigit() for number in numbered):
        return False
    others = [place or 0 for name, place in places.items() if name not in (*outer, column)]
    return len(numbered) == len(inner.input.projections) and all(
        _is_constant(numbered[constant][place]) for place in others
    )


def _equality(condition: Expression | None) -> tuple[str, str] | None:
    """The column and the constant of a condition such as (`gid` = 0)."""
    if condition is None:
        return None
    try:
        node = parse(condition.text).unnest()
    except NotSupported:
        return None
    if not isinstance(node, tree.EQ) or not isinstance(node.this, tree.Column):
        return None
    if not isinstance(node.expression, tree.Literal):
        return None
    return node.this.name, str(node.expression.this)


def _is_constant(expression: Expression) -> bool:
    return not expression.columns and not expression.subqueries
