"""A chain joins one large table with all others that its members need, each once.

A member that does not need a table lets its rows pass; so one chain serves members with different
joins. Tables are joined in the order of `roles`, which the planner chooses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

from headway.plan.expressions import Expression
from headway.plan.nodes import JoinKey, JoinKind
from headway.plan.sources import Source
from headway.sharing.members import field_of, table_of
from headway.sharing.shapes import Shape, Step

RoleKey = tuple[object, ...]


@dataclass(slots=True)
class Role:
    """A table joined in one way. `users` says by member which of its tables it is."""

    label: str
    source: Source
    keys: tuple[JoinKey, ...]
    """Left sides over columns of the chain, right sides over the role's own."""
    after: frozenset[str]
    """The roles whose columns the left sides read."""
    users: dict[int, Step] = field(default_factory=dict)

    def kinds(self) -> dict[JoinKind, int]:
        """The members that join it in each way, as sets."""
        found: dict[JoinKind, int] = {}
        for number, step in self.users.items():
            found[step.join] = found.get(step.join, 0) | (1 << number)
        return found


@dataclass
class Seat:
    """A member's place in a chain: its number there, and the roles of its tables."""

    number: int
    shape: Shape
    labels: dict[int, str]

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The texts of its groups, or columns: members with the same ones are a class. What a left
        join adds depends on which rows of the table take part in it."""
        outputs = self.shape.member.outputs

        def name(of: str) -> str:
            table = table_of(of)
            joined = self.shape.member.tables[table].join
            asked = f" where {self.asked[table]}" if joined is JoinKind.LEFT else ""
            return self.column(of) + asked

        expressions = (output.expression for output in outputs)
        texts = {e.rename({of: name(of) for of in e.columns}).text for e in expressions}
        return tuple(sorted(texts))

    @cached_property
    def asked(self) -> dict[int, str]:
        """What it asks of the rows of each table, in the words of the chain: members that ask for
        the same want the same rows."""
        return {
            table: " and ".join(sorted(self.named(c).text for c in conditions))
            for table, conditions in self.shape.own.items()
        }

    @cached_property
    def tested(self) -> dict[str, list[frozenset[str]]]:
        """By role, the columns that each of its conditions reads."""
        return {
            label: [
                frozenset(self.column(name) for name in condition.columns)
                for condition in self.shape.own[table]
            ]
            for table, label in self.labels.items()
        }

    def column(self, name: str) -> str:
        """The chain's name for one of the member's columns."""
        return column_name(self.labels[table_of(name)], field_of(name))

    def named(self, expression: Expression) -> Expression:
        return expression.rename({name: self.column(name) for name in expression.columns})


def column_name(label: str, of_field: str) -> str:
    return f"{label}.{of_field}"


def own_name(what: str, label: str) -> str:
    """For a column of ours beside those of a role; no field's name is without a point."""
    return f"{what} of {label}"


class Chain:
    """Members are added one by one; who adds them says where new roles are joined."""

    def __init__(self, source: Source, *, grouped: bool) -> None:
        self.source = source
        self.grouped = grouped
        self.root = _label(source)
        self.roles: list[Role] = []
        self.seats: list[Seat] = []
        self.tests: dict[str, Counter[frozenset[str]]] = {}
        """By role: how many conditions read which of its columns."""
        self._by_key: dict[RoleKey, str] = {}
        self._labels = {self.root}

    @property
    def everyone(self) -> int:
        return (1 << len(self.seats)) - 1

    def copy(self) -> Chain:
        made = Chain(self.source, grouped=self.grouped)
        made.roles = [replace(role, users=dict(role.users)) for role in self.roles]
        made.seats = list(self.seats)
        made.tests = dict(self.tests)
        made._by_key = dict(self._by_key)
        made._labels = set(self._labels)
        return made

    def role(self, label: str) -> Role:
        return next(role for role in self.roles if role.label == label)

    def matched(self, shape: Shape) -> Matched:
        """Which of the chain's roles the member's tables are, and which it would add."""
        labels = {shape.root: self.root}
        found = Matched({}, [], labels)
        names = set(self._labels)
        by_key = dict(self._by_key)
        taken: set[str] = set()
        for step in shape.steps:
            key, role = self._described(shape, step, labels)
            ordinal = 0
            while by_key.get((*key, ordinal)) in taken:
                ordinal += 1  # a table that the member joins twice in the same way
            known = by_key.get((*key, ordinal))
            if known is None:
                known = role.label = by_key[(*key, ordinal)] = _free(role.label, names)
                names.add(known)
                found.added.append((step, role, (*key, ordinal)))
            taken.add(known)
            labels[step.table] = known
            found.used[known] = step
        return found

    def add(self, shape: Shape, matched: Matched, order: list[str]) -> None:
        """Seat the member; `order` has all roles, old ones in the order that they had."""
        seat = Seat(len(self.seats), shape, dict(matched.labels))
        for _, role, key in matched.added:
            self._by_key[key] = role.label
            self._labels.add(role.label)
            self.roles.append(role)
        for label, step in matched.used.items():
            self.role(label).users[seat.number] = step
        self.roles.sort(key=lambda role: order.index(role.label))
        self.seats.append(seat)
        for label, tested in seat.tested.items():
            if tested:  # the counts before are a copy's as well
                self.tests[label] = self.tests.get(label, Counter()) + Counter(tested)

    def _described(self, shape: Shape, step: Step, labels: dict[int, str]) -> tuple[RoleKey, Role]:
        """What makes the step the same as another member's: its table and its equalities."""
        source = shape.member.tables[step.table].source
        keys = []
        for key in step.keys:
            names = {n: column_name(labels[table_of(n)], field_of(n)) for n in key.left.columns}
            own = {n: field_of(n) for n in key.right.columns}
            keys.append(JoinKey(key.left.rename(names), key.right.rename(own), key.null_safe))
        after = frozenset(labels[number] for number in step.after)
        described = tuple((k.left.text, k.right.text, k.null_safe) for k in keys)
        return (source, described), Role(_label(source), source, tuple(keys), after)


@dataclass(slots=True)
class Matched:
    """A member laid over a chain: roles that it would use, and those that are new."""

    used: dict[str, Step]
    added: list[tuple[Step, Role, RoleKey]]
    labels: dict[int, str]


def _label(source: Source) -> str:
    return source.table.replace(".", "_")


def _free(base: str, taken: set[str]) -> str:
    """Plans do not tell capitals from small letters."""
    name, number = base, 2
    known = {each.casefold() for each in taken}
    while name.casefold() in known:
        name, number = f"{base}_{number}", number + 1
    return name
