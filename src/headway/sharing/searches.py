"""One search per column, whatever the number of queries: the place of a value among constants.

Texts that Spark and DuckDB run by themselves: arrays of constants, and a binary search in them, one
step of it per projection. A tree of CASEs does for few constants; DuckDB goes through all its
branches for every vector of rows, and Spark does not compile a text without end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headway.plan.expressions import Column, Expression, quote
from headway.plan.nodes import Named
from headway.sharing.ranges import Cut, literal


@dataclass(frozen=True, slots=True)
class Search:
    """Places are counted from 1: below the first value, at it, between it and the next, and so on;
    the last is that of nulls. `sets` are by place, each different one once beside its neighbour."""

    name: str
    column: Column
    values: tuple[Any, ...]
    sets: tuple[int, ...]

    @classmethod
    def over(
        cls, name: str, column: Column, cuts: Sequence[Cut], sets: Sequence[int], of_null: int
    ) -> Search:
        """`sets` are those of the segments between the cuts."""
        values = tuple(dict.fromkeys(cut[1] for cut in cuts))
        of_place = []
        for value in values:
            before: Cut = (0, value, False)
            of_place += [sets[bisect_left(cuts, before)], sets[bisect_right(cuts, before)]]
        return cls(name, column, values, (*of_place, sets[-1], of_null))

    def steps(self) -> list[Named]:
        """The column `name`, computed again and again: how many values are not above that of the
        row, counted in the largest power of two at first and in ones at last; then, the place."""
        levels = len(self.values).bit_length()
        # It ends in copies of its last value, as long as a full tree of comparisons.
        values = [*self.values, *self.values[-1:] * ((1 << levels) - 1 - len(self.values))]
        found = [self._named("0")]
        place, value = quote(self.name), quote(self.column.name)
        for level in reversed(range(levels)):
            array = self._array(values[(1 << level) - 1 :: 2 << level])  # what is new at this level
            reached = f"(try_element_at({array}, ({place} + 1)) <= {value})"
            twice = f"({place} + {place})"
            found.append(self._named(f"CASE WHEN {reached} THEN ({twice} + 1) ELSE {twice} END"))
        last = len(self.sets)
        if not levels:
            return [self._named(f"CASE WHEN ({value} IS NULL) THEN {last} ELSE 1 END")]
        below = f"least({place}, {len(self.values)})"  # copies of the last value do not count
        equal = f"(try_element_at({self._array(self.values)}, greatest({below}, 1)) = {value})"
        text = (
            f"CASE WHEN ({value} IS NULL) THEN {last} WHEN {equal} THEN ({below} + {below}) "
            f"ELSE (({below} + {below}) + 1) END"
        )
        return [*found, self._named(text)]

    def word(self, of_place: Sequence[int]) -> Expression:
        """What stands at the place of a row."""
        listed = ", ".join(f"{word}L" for word in of_place)
        text = f"coalesce(try_element_at(array({listed}), {quote(self.name)}), 0L)"
        return Expression(text, "bigint", False)

    def _named(self, text: str) -> Named:
        return Named(self.name, Expression(text, "int", False))

    def _array(self, values: Iterable[Any]) -> str:
        return f"array({', '.join(literal(value, self.column.type) for value in values)})"
