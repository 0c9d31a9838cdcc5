"""How a member is walked: from its largest table along the joins to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headway.plan.expressions import Expression
from headway.plan.nodes import JoinKey, JoinKind
from headway.plan.sources import Source
from headway.sharing.members import Member, NotShared, tables_read


@dataclass(frozen=True, slots=True)
class Step:
    """A table joined to those that were joined before it."""

    table: int
    join: JoinKind
    keys: tuple[JoinKey, ...]
    """The table's own side is on the right."""
    after: frozenset[int]
    """The tables that the left sides read."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A member as the walk over its tables; every condition stands where it can first be tested."""

    member: Member
    root: int
    steps: tuple[Step, ...]
    """In an order in which they can be walked."""
    own: Mapping[int, tuple[Expression, ...]]
    """By table the conditions on its rows alone."""
    across: tuple[Expression, ...]
    """Conditions on several tables, or on what a left join may have left empty."""

    @property
    def source(self) -> Source:
        return self.member.tables[self.root].source


def shape_of(member: Member, rows: Callable[[Source], float]) -> Shape | NotShared:
    """The walk over the member's tables, from the one with the most rows."""
    inner = [n for n, table in enumerate(member.tables) if table.join is JoinKind.INNER]
    root = max(inner, key=lambda number: (rows(member.tables[number].source), -number))
    steps, left_over = _walk(member, root, inner)
    if len(steps) + 1 < len(inner):
        return NotShared(member.query, "Join", "tables without an equality between them")
    reached = {root} | {step.table for step in steps}
    for number, table in enumerate(member.tables):
        if number not in reached:
            after = frozenset().union(*(tables_read(key.left) for key in table.keys))
            steps.append(Step(number, table.join, table.keys, after))
    own: dict[int, list[Expression]] = {}
    for number, table in enumerate(member.tables):
        found_by_key = _not_null(key.right for key in table.keys if not key.null_safe)
        own[number] = [c for c in table.conditions if c.text not in found_by_key]
    needless = _tested_by_joins(steps)
    across = [key.condition for key in left_over]
    for condition in member.conditions:
        if condition.text in needless:
            continue
        read = tables_read(condition) or {root}
        (first, *others) = read
        if others or member.tables[first].join is not JoinKind.INNER:
            across.append(condition)
        else:
            own[first].append(condition)
    found = {number: tuple(conditions) for number, conditions in own.items()}
    return Shape(member, root, tuple(steps), found, tuple(across))


def _tested_by_joins(steps: list[Step]) -> set[str]:
    """That keys are not null: a join drops those rows anyway, and Spark asks for it everywhere.
    Above a left join it means that a row was found, which has to be asked."""
    dropping = [step for step in steps if step.join in (JoinKind.INNER, JoinKind.SEMI)]
    keys = [key for step in dropping for key in step.keys if not key.null_safe]
    return _not_null(side for key in keys for side in (key.left, key.right))


def _not_null(sides: Iterable[Expression]) -> set[str]:
    return {f"({side.text} IS NOT NULL)" for side in sides if side.column is not None}


def _walk(member: Member, root: int, inner: list[int]) -> tuple[list[Step], list[JoinKey]]:
    """Breadth first over the inner joins; and the equalities that no step uses."""
    keys = list(member.keys)
    steps: list[Step] = []
    reached = [root]
    for parent in reached:  # grows meanwhile
        for table in inner:
            if table in reached:
                continue
            between = [turned for key in keys if (turned := _between(key, parent, table))]
            if between:
                steps.append(Step(table, JoinKind.INNER, _ordered(between), frozenset({parent})))
                reached.append(table)
                keys = [key for key in keys if _between(key, parent, table) is None]
    return steps, keys


def _between(key: JoinKey, parent: int, table: int) -> JoinKey | None:
    """The equality with the parent's side on the left; None when it is between others."""
    left, right = tables_read(key.left), tables_read(key.right)
    if left == {parent} and right == {table}:
        return key
    if left == {table} and right == {parent}:
        return JoinKey(key.right, key.left, key.null_safe)
    return None


def _ordered(keys: list[JoinKey]) -> tuple[JoinKey, ...]:
    """The same for every query that has these equalities."""
    unique = dict.fromkeys(keys)
    return tuple(sorted(unique, key=lambda key: (key.right.text, key.left.text)))
