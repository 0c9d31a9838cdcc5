"""Members that group alike are grouped together, by their groups and the set of their queries.

What a query gets of it are the rows with its bit, grouped once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headway.base.errors import InternalError
from headway.plan.expressions import Column, Expression, quote, type_text
from headway.sharing.chains import Seat
from headway.sharing.parts import Part, Whole, whole_of
from headway.sharing.query_sets import words


@dataclass(slots=True)
class RowClass:
    """Members with the same groups. A class of rows has all columns as its groups, and no parts."""

    keys: tuple[Expression, ...]
    members: int = 0
    parts: dict[Part, int] = field(default_factory=dict)
    """With the members that asked for each."""
    wholes: dict[int, tuple[Whole, ...]] = field(default_factory=dict)


def classes_of(
    seats: list[Seat], named: Callable[[Seat, Expression], Expression], *, grouped: bool
) -> tuple[list[RowClass], dict[int, int]]:
    """The classes, and by member the number of its own. `named` writes a member's expression over
    columns of the chain."""
    classes: dict[tuple[str, ...], RowClass] = {}
    numbers: dict[int, int] = {}
    for seat in seats:
        keys = {e.text: e for e in (named(seat, o.expression) for o in seat.shape.member.outputs)}
        identity = tuple(sorted(keys))
        if identity not in classes:
            classes[identity] = RowClass(tuple(keys.values()))
        found = classes[identity]
        found.members |= 1 << seat.number
        numbers[seat.number] = list(classes).index(identity)
        if grouped:
            found.wholes[seat.number] = _wholes(seat, named)
            for whole in found.wholes[seat.number]:
                for part in whole.parts:
                    found.parts[part] = found.parts.get(part, 0) | (1 << seat.number)
    return list(classes.values()), numbers


def _wholes(seat: Seat, named: Callable[[Seat, Expression], Expression]) -> tuple[Whole, ...]:
    made = []
    for call in seat.shape.member.calls or ():
        whole = whole_of(call, lambda expression: named(seat, expression))
        if whole is None:
            raise InternalError(f"{call.text} is not made of parts")
        made.append(whole)
    return tuple(made)


def typed_null(ddl: str) -> Expression:
    return Expression(f"CAST(NULL AS {type_text(ddl)})", ddl, True)


def guarded(expression: Expression, queries: int, of_row: Sequence[Column]) -> Expression:
    """Evaluated only for rows of the queries that asked for it, empty in those of others: it may
    fail on them. `of_row` holds the set of a row."""
    pairs = zip(of_row, words(queries, len(of_row)), strict=True)
    test = " OR ".join(test_of(column, word) for column, word in pairs if word)
    return Expression(f"CASE WHEN {test} THEN {expression.text} END", expression.type, True)


def test_of(column: Column, word: int) -> str:
    return f"(({quote(column.name)} & {word}L) > 0L)"
