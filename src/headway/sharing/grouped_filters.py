"""All queries' conditions on a table evaluated at once: for every row the set of its queries.

The conditions on one column become a search tree over their constants, written as nested CASEs:
its depth grows with the logarithm of their number, and both engines run it by themselves.
Conditions that are not a matter of ranges are tested one by one, each different one once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headway.plan.expressions import Column, Expression, quote
from headway.sharing.query_sets import both, constant, members_of, word_count, words
from headway.sharing.ranges import (
    EVERYTHING,
    Condition,
    Cut,
    Ranges,
    condition_on,
    cut_test,
    is_bound,
)


@dataclass(frozen=True, slots=True)
class GroupedFilter:
    """`words` say which queries want a row; what fails `prefilter`, none of them wants."""

    words: tuple[Expression, ...]
    prefilter: tuple[Expression, ...]


def grouped_filter(
    conditions: Mapping[int, Sequence[Expression]], columns: Iterable[Column], queries: int
) -> GroupedFilter:
    """For the set of numbered queries, of which each has a list of conditions on a row.

    A query without conditions wants every row.
    """
    by_name = {column.name: column for column in columns}
    ranges: dict[str, dict[int, Condition]] = {}
    others: dict[str, tuple[Expression, int]] = {}
    for number in members_of(queries):
        for expression in conditions.get(number, ()):
            found = _single_column_condition(expression, by_name)
            if found is None:
                _, known = others.get(expression.text, (expression, 0))
                others[expression.text] = (expression, known | (1 << number))
                continue
            name, condition = found
            of_column = ranges.setdefault(name, {})
            before = of_column.get(number)
            of_column[number] = condition if before is None else before.and_(condition)
    count = word_count(queries.bit_length())
    made = []
    for number, everyone in enumerate(words(queries, count)):
        factors = [
            _tree(by_name[name], _in_word(of_column, number, count), everyone)
            for name, of_column in ranges.items()
        ]
        factors += [
            _test(expression, words(asking, count)[number], everyone)
            for expression, asking in others.values()
        ]
        telling = [each for each in factors if each is not None]
        made.append(both(*telling) if telling else constant(everyone))
    return GroupedFilter(tuple(made), _prefilter(ranges, others, by_name, queries))


def _single_column_condition(
    expression: Expression, columns: Mapping[str, Column]
) -> tuple[str, Condition] | None:
    if len(expression.columns) != 1 or expression.subqueries:
        return None
    (name,) = expression.columns
    condition = condition_on(expression, columns[name])
    return None if condition is None else (name, condition)


def _in_word(of_column: Mapping[int, Condition], word: int, count: int) -> dict[int, Condition]:
    """The conditions of the queries of one word, by their bit in it."""
    return {
        words(1 << number, count)[word]: condition
        for number, condition in of_column.items()
        if words(1 << number, count)[word]
    }


def _tree(column: Column, conditions: Mapping[int, Condition], everyone: int) -> Expression | None:
    """The word of those queries that want a row with the column's value; None: all of them."""
    if not conditions:
        return None
    cuts, sets = _segments(conditions, everyone)
    text = _search(cuts, sets, column)
    of_null = everyone
    for bit, condition in conditions.items():
        if condition.of_null is not True:
            of_null &= ~bit
    if column.nullable and not (len(sets) == 1 and of_null == sets[0]):
        text = f"CASE WHEN ({quote(column.name)} IS NULL) THEN {of_null}L ELSE {text} END"
    return Expression(text, "bigint", False)


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


def _test(expression: Expression, asking: int, everyone: int) -> Expression | None:
    if not asking:
        return None
    others = everyone & ~asking
    text = f"CASE WHEN {expression.text} THEN {everyone}L ELSE {others}L END"
    return Expression(text, "bigint", False, expression.subqueries)


def _prefilter(
    ranges: Mapping[str, Mapping[int, Condition]],
    others: Mapping[str, tuple[Expression, int]],
    columns: Mapping[str, Column],
    queries: int,
) -> tuple[Expression, ...]:
    """Plain conditions that every wanted row meets: files can be skipped by them."""
    found = [expression for expression, asking in others.values() if asking == queries]
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
