"""All queries' conditions on a table evaluated at once: for every row the set of its queries.

The conditions on one column become a search over their constants, which both engines run by
themselves: for few of them, a tree of nested CASEs for every word of the set, with its part of the
set at the ends. For more (`searches`), one binary search, whose place is looked up for every word.
Conditions that are not a matter of ranges are tested one by one, each different one once. One that
may fail on a row is tested on those alone that meet what its query asks before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from headway.plan.expressions import Column, Expression, quote
from headway.plan.nodes import Named
from headway.sharing.failing import can_fail
from headway.sharing.query_sets import (
    WORD_BITS,
    both,
    constant,
    members_of,
    word_count,
    words,
)
from headway.sharing.ranges import (
    EVERYTHING,
    Condition,
    Cut,
    Ranges,
    condition_on,
    cut_test,
    is_bound,
)
from headway.sharing.searches import Search

_MOST_CUTS = 128
"""In the trees of a column, all words together. With so many, a tree and a search take DuckDB about
0.13 s for a million rows; with 1,000 it is 0.8 s and 0.2 s, and Spark compiles the tree for 10 s.
"""


@dataclass(frozen=True, slots=True)
class GroupedFilter:
    """`words` say which queries want a row; what fails `prefilter`, none of them wants."""

    words: tuple[Expression, ...]
    prefilter: tuple[Expression, ...]
    steps: tuple[tuple[Named, ...], ...] = ()
    """Columns that the words read, to be computed one after the other, beside those before."""


@dataclass(frozen=True, slots=True)
class _Test:
    """A condition that is not a matter of ranges, and those that must hold before it is asked."""

    expression: Expression
    after: tuple[Expression, ...]

    def word(self, asking: int, everyone: int) -> Expression:
        """The word of those queries whose rows it leaves."""
        text = self._case(f"{everyone}L", f"{everyone & ~asking}L")
        return Expression(text, "bigint", False, self.expression.subqueries)

    def as_number(self) -> Expression:
        """1 where it holds, and 0 elsewhere."""
        return Expression(self._case("1", "0"), "int", False, self.expression.subqueries)

    def _case(self, yes: str, no: str) -> str:
        # Of an AND both sides may be computed; of a CASE only what is reached.
        for condition in (self.expression, *reversed(self.after)):
            yes = f"CASE WHEN {condition.text} THEN {yes} ELSE {no} END"
        return yes


def grouped_filter(
    conditions: Mapping[int, Sequence[Expression]], columns: Iterable[Column], queries: int
) -> GroupedFilter:
    """For the set of numbered queries, of which each has a list of conditions on a row.

    A query without conditions wants every row.
    """
    by_name = {column.name: column for column in columns}
    ranges: dict[str, dict[int, Condition]] = {}
    others: dict[_Test, int] = {}
    for number in members_of(queries):
        asked = tuple(conditions.get(number, ()))
        for position, expression in enumerate(asked):
            found = _single_column_condition(expression, by_name)
            if found is None:
                test = _Test(expression, asked[:position] if can_fail(expression) else ())
                others[test] = others.get(test, 0) | (1 << number)
                continue
            name, condition = found
            of_column = ranges.setdefault(name, {})
            before = of_column.get(number)
            of_column[number] = condition if before is None else before.and_(condition)
    made = _Words(queries)
    for name, of_column in ranges.items():
        made.add_ranges(by_name[name], of_column)
    for test, asking in others.items():
        made.add_test(test, asking)
    return GroupedFilter(made.found(), _prefilter(ranges, others, by_name, queries), made.steps())


class _Words:
    """The words of a set of queries: each is what all its factors leave of it."""

    def __init__(self, queries: int) -> None:
        self._queries = queries
        self._everyone = words(queries, word_count(queries.bit_length()))
        self._factors: list[list[Expression]] = [[] for _ in self._everyone]
        self._searches: list[Search] = []
        self._tested: list[Named] = []

    def add_ranges(self, column: Column, conditions: Mapping[int, Condition]) -> None:
        of_words = [
            {1 << (n % WORD_BITS): c for n, c in conditions.items() if n // WORD_BITS == number}
            for number in range(len(self._everyone))
        ]
        pairs = list(zip(of_words, self._everyone, strict=True))
        if sum(len(_segments(*pair)[0]) for pair in pairs) > _MOST_CUTS:
            self._search(column, {1 << n: c for n, c in conditions.items()})
            return
        for factors, (of_word, everyone) in zip(self._factors, pairs, strict=True):
            if of_word:
                factors.append(_tree(column, of_word, everyone))

    def _search(self, column: Column, conditions: Mapping[int, Condition]) -> None:
        cuts, sets = _segments(conditions, self._queries)
        of_null = _of_null(conditions, self._queries)
        search = Search.over(f"place {len(self._searches)}", column, cuts, sets, of_null)
        self._searches.append(search)
        count = len(self._everyone)
        of_words = zip(*(words(each, count) for each in search.sets), strict=True)
        for factors, of_place in zip(self._factors, of_words, strict=True):
            factors.append(search.word(of_place))

    def add_test(self, test: _Test, asking: int) -> None:
        """What several words need is tested before them, once."""
        if len(self._everyone) == 1:
            self._factors[0].append(test.word(asking, self._queries))
            return
        column = Column(f"test {len(self._tested)}", "int", False)
        self._tested.append(Named(column.name, test.as_number()))
        met = _Test(Expression(f"({quote(column.name)} = 1)", "boolean", False), ())
        masks = words(asking, len(self._everyone))
        for factors, mask, everyone in zip(self._factors, masks, self._everyone, strict=True):
            if mask:
                factors.append(met.word(mask, everyone))

    def found(self) -> tuple[Expression, ...]:
        pairs = zip(self._factors, self._everyone, strict=True)
        return tuple(both(*each) if each and word else constant(word) for each, word in pairs)

    def steps(self) -> tuple[tuple[Named, ...], ...]:
        levels = zip_longest(*(search.steps() for search in self._searches))
        steps = [tuple(each for each in level if each is not None) for level in levels]
        if self._tested:
            steps[:1] = [(*(steps[0] if steps else ()), *self._tested)]
        return tuple(steps)


def _single_column_condition(
    expression: Expression, columns: Mapping[str, Column]
) -> tuple[str, Condition] | None:
    if len(expression.columns) != 1 or expression.subqueries:
        return None
    (name,) = expression.columns
    condition = condition_on(expression, columns[name])
    return None if condition is None else (name, condition)


def _tree(column: Column, conditions: Mapping[int, Condition], everyone: int) -> Expression:
    """The word of those queries that want a row with the column's value."""
    cuts, sets = _segments(conditions, everyone)
    text = _search(cuts, sets, column)
    of_null = _of_null(conditions, everyone)
    if column.nullable and not (len(sets) == 1 and of_null == sets[0]):
        text = f"CASE WHEN ({quote(column.name)} IS NULL) THEN {of_null}L ELSE {text} END"
    return Expression(text, "bigint", False)


def _of_null(conditions: Mapping[int, Condition], everyone: int) -> int:
    """The queries that want a row in which the column is null."""
    for bit, condition in conditions.items():
        if condition.of_null is not True:
            everyone &= ~bit
    return everyone


def _segments(conditions: Mapping[int, Condition], everyone: int) -> tuple[list[Cut], list[int]]:
    """The number line in pieces, each with its set: one more than there are cuts."""
    changes: dict[Cut, int] = {}
    current = everyone
    for bit, condition in conditions.items():
        starts_inside = False
        for low, high in condition.holds.parts:
            for cut in (low, high):
                if is_bound(cut):
                    changes[cut] = changes.get(cut, 0) ^ bit
            starts_inside = starts_inside or not is_bound(low)
        if not starts_inside:
            current &= ~bit
    cuts: list[Cut] = []
    sets = [current]
    for cut in sorted(changes):
        current ^= changes[cut]
        if current != sets[-1]:
            cuts.append(cut)
            sets.append(current)
    return cuts, sets


def _search(cuts: Sequence[Cut], sets: Sequence[int], column: Column) -> str:
    if not cuts:
        return f"{sets[0]}L"
    middle = len(cuts) // 2
    before = _search(cuts[:middle], sets[: middle + 1], column)
    after = _search(cuts[middle + 1 :], sets[middle + 1 :], column)
    return f"CASE WHEN {cut_test(cuts[middle], column)} THEN {before} ELSE {after} END"


def _prefilter(
    ranges: Mapping[str, Mapping[int, Condition]],
    others: Mapping[_Test, int],
    columns: Mapping[str, Column],
    queries: int,
) -> tuple[Expression, ...]:
    """Plain conditions that every wanted row meets: files can be skipped by them."""
    found = [
        test.expression
        for test, asking in others.items()
        if asking == queries and not can_fail(test.expression)
    ]
    for name, of_column in ranges.items():
        if len(of_column) == queries.bit_count():
            found += _hull(columns[name], of_column.values())
    return tuple(found)


def _hull(column: Column, conditions: Iterable[Condition]) -> list[Expression]:
    """From the smallest to the largest value that any of them holds for."""
    union = Ranges(())
    for condition in conditions:
        union = union.union(condition.holds)
        if condition.of_null:
            return []
    if not union.parts:
        return [Expression("false", "boolean", False)]
    found = [Expression(f"({quote(column.name)} IS NOT NULL)", "boolean", False)]
    low, high = union.parts[0][0], union.parts[-1][1]
    if union == EVERYTHING:
        return found if column.nullable else []
    if is_bound(low):
        found.append(Expression(cut_test(low, column, behind=True), "boolean", column.nullable))
    if is_bound(high):
        found.append(Expression(cut_test(high, column), "boolean", column.nullable))
    return found
