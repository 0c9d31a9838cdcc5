"""Where a member's new joins are best placed among those that a chain has already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul

from headway.plan.nodes import JoinKind
from headway.sharing.chains import Chain, Matched, Role
from headway.sharing.costs import Work
from headway.sharing.estimates import Expectation
from headway.sharing.shapes import Shape, Step

_LARGE_TABLE = 250_000.0
"""Rows that make it twice as long to look a row up: the caches do not hold them any more."""
_MOST_PLACED = 10
"""New joins whose places are all tried; of more, each is placed for itself."""


@dataclass(frozen=True, slots=True)
class Joining:
    """What it takes to join a table to the rows of a chain, and how many of its rows they find."""

    size: float
    fields: int
    wanted: float
    """The part of the table's rows that any user wants."""
    fan_out: float
    passed: bool
    """Whether rows go on that find nothing, for members that do not ask."""

    @property
    def building(self) -> Work:
        return Work(values_read=self.size * self.fields, rows_built=self.size * self.wanted)

    def looking_up(self, rows: float) -> Work:
        """So many rows of the chain."""
        amount = rows * (1 + self.size * self.wanted / _LARGE_TABLE)
        return Work(rows_passed=amount) if self.passed else Work(rows_probed=amount)


def joining(users: Sequence[tuple[Step, Expectation]], members: int) -> Joining:
    """Of a table with its users among so many members of a chain."""
    first, known = users[0]
    passed = len(users) < members or any(s.join is not JoinKind.INNER for s, _ in users)
    return Joining(
        known.rows[first.table],
        max(e.fields[s.table] for s, e in users),
        any_of([e.wanted[s.table] for s, e in users]),
        max(e.fan_out[s.table] for s, e in users),
        passed,
    )


def users_of(role: Role, expected: Sequence[Expectation]) -> list[tuple[Step, Expectation]]:
    return [(step, expected[number]) for number, step in role.users.items()]


def any_of(shares: list[float]) -> float:
    """The share of rows that one of several queries wants or more."""
    return 1 - prod(1 - share for share in shares)


@dataclass(frozen=True, slots=True)
class _Join:
    """A role as the placement sees it: `share` is the part of the member's rows that it leaves."""

    label: str
    seconds: float
    """For every row that comes to it."""
    fan_out: float
    share: float
    after_old: int = 0
    """So many old roles come before it,"""
    after_new: int = 0
    """and these new ones, as a set."""


class Placement:
    """Finds where a member's new roles are best joined: the old ones keep their order.

    A state is how many old roles have been joined and which new ones; what it costs to get there
    does not depend on the way, but for the least of it. What joins cost is what `walk_chain` says.
    With `shared_costs` off, the rows that other members want are left out.
    """

    def __init__(
        self,
        chain: Chain,
        expected: Sequence[Expectation],
        shape: Shape,
        own: Expectation,
        matched: Matched,
        rates: Work,
        *,
        shared_costs: bool,
    ) -> None:
        self._chain = chain
        self._expected = expected
        self._own = own
        self._matched = matched
        self._rates = rates
        self._root = own.rows[shape.root]
        self._share = own.share[shape.root]
        self._old = [self._join(role) for role in chain.roles]
        self._new = [self._join(role) for _, role, _ in matched.added]
        self._fan_outs = list(accumulate((j.fan_out for j in self._old), mul, initial=1.0))
        self._shares = list(accumulate((j.share for j in self._old), mul, initial=self._share))
        self._others = self._left_by_others() if shared_costs else [1.0] * (len(self._old) + 1)

    def _join(self, role: Role) -> _Join:
        """With the member among its users, if it is one."""
        users, share = users_of(role, self._expected), 1.0
        step = self._matched.used.get(role.label)
        if step is not None:
            users.append((step, self._own))
            share = self._own.share[step.table]
        found = joining(users, len(self._chain.seats) + 1)
        old = [n for n, each in enumerate(self._chain.roles, 1) if each.label in role.after]
        new = [n for n, (_, each, _) in enumerate(self._matched.added) if each.label in role.after]
        return _Join(
            role.label,
            found.looking_up(1.0).times(self._rates),
            found.fan_out,
            share,
            max(old, default=0),
            sum(1 << number for number in new),
        )

    def _left_by_others(self) -> list[float]:
        """After each number of old roles: the share of rows that no member so far wants."""
        seats = self._chain.seats
        surviving = [e.share[s.shape.root] for s, e in zip(seats, self._expected, strict=True)]
        left = [1 - any_of(surviving)]
        for role in self._chain.roles:
            for number, step in role.users.items():
                surviving[number] *= self._expected[number].share[step.table]
            left.append(1 - any_of(surviving))
        return left

    def best(self) -> list[str]:
        """The labels of all roles, in the order in which they are joined."""
        return self._tried() if len(self._new) <= _MOST_PLACED else self._one_by_one()

    def _one_by_one(self) -> list[str]:
        """Always the join next that leaves the fewest rows to the one after it."""
        order: list[str] = []
        state = (0, 0)
        while len(order) < len(self._old) + len(self._new):
            state, join = min(self._next(*state), key=lambda reached: self._rows(*reached[0]))
            order.append(join.label)
        return order

    def _tried(self) -> list[str]:
        start = (0, 0)
        costs = {start: 0.0}
        before: dict[tuple[int, int], tuple[tuple[int, int], str]] = {}
        full = (1 << len(self._new)) - 1
        for joined in range(len(self._old) + 1):
            for taken in range(full + 1):
                state = (joined, taken)
                if state not in costs:
                    continue
                rows = self._rows(joined, taken)
                for reached, join in self._next(joined, taken):
                    cost = costs[state] + rows * join.seconds
                    if cost < costs.get(reached, float("inf")):
                        costs[reached] = cost
                        before[reached] = (state, join.label)
        state = (len(self._old), full)
        order = []
        while state != start:
            state, label = before[state]
            order.append(label)
        return order[::-1]

    def _next(self, joined: int, taken: int) -> list[tuple[tuple[int, int], _Join]]:
        """The states that can follow, each with the join that leads to it."""
        found = [] if joined == len(self._old) else [((joined + 1, taken), self._old[joined])]
        for number, join in enumerate(self._new):
            ready = joined >= join.after_old and not join.after_new & ~taken
            if ready and not taken & (1 << number):
                found.append(((joined, taken | (1 << number)), join))
        return found

    def _rows(self, joined: int, taken: int) -> float:
        """What comes to the next join, whichever it is."""
        share, fan_out = self._shares[joined], self._fan_outs[joined]
        for number, join in enumerate(self._new):
            if taken & (1 << number):
                share *= join.share
                fan_out *= join.fan_out
        return self._root * fan_out * (1 - self._others[joined] * (1 - share))
