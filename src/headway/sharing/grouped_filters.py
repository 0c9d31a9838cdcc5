"""All queries' conditions on a table evaluated at once: for every row the set of its queries.

The conditions on one column become a search over their constants, which both engines run by
themselves: for as many queries as a word holds, a tree of nested CASEs that ends in words. For more
of them (`searches`), one binary search per column, and its place is looked up for every word.
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
    prefilter = _prefilter(ranges, others, by_name, queries)
    if queries.bit_length() > WORD_BITS:
        made, steps = _searched(ranges, others, by_name, queries)
        return GroupedFilter(made, prefilter, steps)
    factors = [
        _tree(by_name[name], {1 << n: condition for n, condition in of_column.items()}, queries)
        for name, of_column in ranges.items()
    ]
    factors += [test.word(asking, queries) for test, asking in others.items()]
    return GroupedFilter((both(*factors) if factors else constant(queries),), prefilter)


def _searched(
    ranges: Mapping[str, Mapping[int, Condition]],
    others: Mapping[_Test, int],
    columns: Mapping[str, Column],
    queries: int,
) -> tuple[tuple[Expression, ...], tuple[tuple[Named, ...], ...]]:
    """The words of more queries than one holds, and the steps before them."""
    searches = []
    for number, (name, of_column) in enumerate(ranges.items()):
        conditions = {1 << n: condition for n, condition in of_column.items()}
        cuts, sets = _segments(conditions, queries)
        of_null = _of_null(conditions, queries)
        searches.append(Search.over(f"place {number}", columns[name], cuts, sets, of_null))
    tests = {Column(f"test {number}", "int", False): test for number, test in enumerate(others)}
    asked = [Named(c.name, test.as_number()) for c, test in tests.items()]
    levels = list(zip_longest(*(search.steps() for search in searches)))
    steps = [tuple(each for each in level if each is not None) for level in levels]
    if asked:
        steps = [(*steps[0], *asked), *steps[1:]] if steps else [tuple(asked)]
    count = word_count(queries.bit_length())
    found = []
    for number, everyone in enumerate(words(queries, count)):
        if not everyone:
            found.append(constant(0))
            continue
        factors = [s.word([words(each, count)[number] for each in s.sets]) for s in searches]
        for column, (test, asking) in zip(tests, others.items(), strict=True):
            mask = words(asking, count)[number]
            if mask:
                met = f"({quote(column.name)} = 1)"
                text = f"CASE WHEN {met} THEN {everyone}L ELSE {everyone & ~mask}L END"
                factors.append(Expression(text, "bigint", False, test.expression.subqueries))
        found.append(both(*factors) if factors else constant(everyone))
    return tuple(found), tuple(steps)


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
