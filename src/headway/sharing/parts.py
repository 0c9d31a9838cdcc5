"""Aggregates taken apart: what is computed for many queries at once, and merged for each.

Sums of sums, the least of the least. An aggregate that cannot be made from parts is none of these:
its query gets the rows themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headway.plan.expressions import Expression
from headway.plan.nodes import AggregateCall

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_WIDEST_SUM = 28
"""Digits of decimals of which ten thousand millions can be added in 38."""
_WIDEST_AVERAGE = 15
"""Digits of decimals whose average can be rounded twice without harm: the first time to nine more
places than the second, for fewer than a thousand million rows."""


@dataclass(frozen=True, slots=True)
class Part:
    """A call that is computed for all members of a class, over columns of the chain."""

    function: str
    argument: Expression | None
    """None counts rows."""
    type: str

    @property
    def text(self) -> str:
        return f"{self.function}({'*' if self.argument is None else self.argument.text})"


@dataclass(frozen=True, slots=True)
class Whole:
    """How a query's call is made from the parts of its groups: merged, then computed."""

    parts: tuple[Part, ...]
    merge: tuple[tuple[str, str], ...]
    """For each part the function that merges it, and the type of what that gives."""
    compute: Callable[[tuple[Expression, ...]], str]
    """The text of the call's value over the merged columns."""


def whole_of(call: AggregateCall, named: Callable[[Expression], Expression]) -> Whole | None:
    """The call taken apart; None where it cannot be made from parts."""
    if call.distinct or len(call.arguments) > 1:
        return None
    maker = _WHOLES.get(call.function)
    if maker is None:
        return None
    argument = named(call.arguments[0]) if call.arguments else None
    if argument is not None and argument.text == "1" and call.function == "count":
        argument = None
    if call.filter is not None:
        chosen = argument.text if argument is not None else "1"
        kind = argument.type if argument is not None else "int"
        argument = Expression(f"CASE WHEN {named(call.filter).text} THEN {chosen} END", kind)
    return maker(call, argument)


def is_made_of_parts(call: AggregateCall, *, ansi: bool = True) -> bool:
    """Without `ansi` a sum that overflows is null, which a sum of sums would leave out."""
    if not ansi and call.function == "sum" and call.arguments:
        number = _DECIMAL.fullmatch(call.arguments[0].type)
        if number is not None and int(number[1]) > _WIDEST_SUM:
            return False
    return whole_of(call, lambda expression: expression) is not None


def _count(call: AggregateCall, argument: Expression | None) -> Whole:
    part = Part("count", argument, "bigint")
    return Whole((part,), (("sum", "bigint"),), lambda merged: f"coalesce({merged[0].text}, 0L)")


def _sum(call: AggregateCall, argument: Expression | None) -> Whole | None:
    if argument is None:
        return None
    total = sum_type(call.column.type)
    if total is None:
        return None
    part = Part("sum", argument, call.column.type)
    return Whole((part,), (("sum", total),), _cast_to(call.column.type, total))


def _extreme(call: AggregateCall, argument: Expression | None) -> Whole | None:
    if argument is None:
        return None
    part = Part(call.function, argument, call.column.type)
    return Whole((part,), ((call.function, call.column.type),), lambda merged: merged[0].text)


def _average(call: AggregateCall, argument: Expression | None) -> Whole | None:
    """Of decimals and whole numbers, whose sums are exact. Spark rounds every bigint to a double
    before it adds it."""
    if argument is None:
        return None
    counted = Part("count", argument, "bigint")
    number = _DECIMAL.fullmatch(argument.type)
    if number is not None:
        if int(number[1]) > _WIDEST_AVERAGE:
            return None
        made = sum_type(argument.type)
        assert made is not None
        merged_type = sum_type(made)
        assert merged_type is not None
        summed = Part("sum", argument, made)

        def decimal(merged: tuple[Expression, ...]) -> str:
            total = _cast_to(made, merged_type)(merged[:1])
            count = f"CAST({merged[1].text} AS DECIMAL(20,0))"
            value = f"CAST(({total} / {count}) AS {call.column.type.upper()})"
            return f"CASE WHEN ({merged[1].text} > 0L) THEN {value} END"

        return Whole((summed, counted), (("sum", merged_type), ("sum", "bigint")), decimal)
    if argument.type not in _WHOLE or argument.type == "bigint":
        return None
    summed = Part("sum", argument, "bigint")

    def whole(merged: tuple[Expression, ...]) -> str:
        value = f"(CAST({merged[0].text} AS DOUBLE) / CAST({merged[1].text} AS DOUBLE))"
        return f"CASE WHEN ({merged[1].text} > 0L) THEN {value} END"

    return Whole((summed, counted), (("sum", "bigint"), ("sum", "bigint")), whole)


_WHOLES: dict[str, Callable[[AggregateCall, Expression | None], Whole | None]] = {
    "count": _count,
    "sum": _sum,
    "min": _extreme,
    "max": _extreme,
    "avg": _average,
}


def sum_type(ddl: str) -> str | None:
    """The type of a sum of such values; None where a sum depends on the order of its parts."""
    number = _DECIMAL.fullmatch(ddl)
    if number is not None:
        return f"decimal({min(38, int(number[1]) + 10)},{number[2]})"
    return "bigint" if ddl in _WHOLE else None


def _cast_to(ddl: str, made: str) -> Callable[[tuple[Expression, ...]], str]:
    if ddl == made:
        return lambda merged: merged[0].text
    return lambda merged: f"CAST({merged[0].text} AS {ddl.upper()})"
