"""The plan of a mini-batch, built query by query: each adds to the chains what it costs least.

A query's joins that a chain has already cost only the rows that it adds; where its other tables are
joined, dynamic programming finds out. The rows that any of n queries wants are 1 - prod(1 - s).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import log2, prod

from headway.plan.nodes import JoinKind
from headway.sharing.chains import Chain, Matched, Role
from headway.sharing.costs import Work
from headway.sharing.estimates import Expectation
from headway.sharing.shapes import Shape

_LARGE_TABLE = 250_000.0
"""Rows that make it twice as long to look a row up: the caches do not hold them any more."""
_MOST_PLACED = 10
"""New joins whose places are all tried; of more, each is placed for itself."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A member ready to be planned."""

    shape: Shape
    expected: Expectation

    @property
    def grouped(self) -> bool:
        return self.shape.member.calls is not None


@dataclass(slots=True)
class PlannedChain:
    """A chain with what is expected of its members, in the order of their seats."""

    chain: Chain
    expected: list[Expectation] = field(default_factory=list)
    _walked: tuple[Work, list[Reached]] | None = None

    def copy(self) -> PlannedChain:
        return PlannedChain(self.chain.copy(), list(self.expected), self._walked)

    def add(self, candidate: Candidate, matched: Matched, order: list[str]) -> None:
        self.expected.append(candidate.expected)
        self._walked = None
        self.chain.add(candidate.shape, matched, order)

    @property
    def work(self) -> Work:
        """All that the chain costs, from reading its tables to the finished queries."""
        return self._walk()[0]

    @property
    def reached(self) -> list[Reached]:
        """Where it stands after each join."""
        return self._walk()[1]

    def _walk(self) -> tuple[Work, list[Reached]]:
        if self._walked is None:
            self._walked = walk_chain(self) if self.chain.seats else (Work(), [])
        return self._walked

    @property
    def share_wanted(self) -> float:
        """Of the rows of the large table: those that any member wants, as far as it can tell."""
        pairs = zip(self.chain.seats, self.expected, strict=True)
        return any_of([expected.share[seat.shape.root] for seat, expected in pairs])

    @property
    def queries(self) -> tuple[str, ...]:
        """Those that have a member in it."""
        return tuple(dict.fromkeys(seat.shape.member.query for seat in self.chain.seats))

    @property
    def candidates(self) -> list[Candidate]:
        pairs = zip(self.chain.seats, self.expected, strict=True)
        return [Candidate(seat.shape, expected) for seat, expected in pairs]


class GlobalPlan:
    """Chains for the members so far; a member that is added makes a new one of its chain. With
    `shared_costs` off, a query's joins are placed as if it were alone."""

    def __init__(self, rates: Work, *, shared_costs: bool = True) -> None:
        self._rates = rates
        self._shared_costs = shared_costs
        self.chains: list[PlannedChain] = []

    def copy(self) -> GlobalPlan:
        made = GlobalPlan(self._rates, shared_costs=self._shared_costs)
        made.chains = list(self.chains)
        return made

    @property
    def work(self) -> Work:
        total = Work()
        for planned in self.chains:
            total += planned.work
        return total

    @property
    def seconds(self) -> float:
        return self.work.times(self._rates)

    def add(self, candidate: Candidate) -> None:
        """Seat a member where it adds least: in one of the chains, or in one of its own."""
        best = _alone(candidate, self._rates, self._shared_costs)
        least, place = best.work.times(self._rates), len(self.chains)
        for number, planned in enumerate(self.chains):
            if _fits(planned.chain, candidate):
                grown = _grown(planned, candidate, self._rates, self._shared_costs)
                added = (grown.work - planned.work).times(self._rates)
                if added <= least:
                    best, least, place = grown, added, number
        self.chains[place : place + 1] = [best]


@lru_cache(maxsize=4_096)
def _alone(candidate: Candidate, rates: Work, shared_costs: bool) -> PlannedChain:
    """A chain of its own; asked for again whenever the rest of a batch is planned."""
    chain = Chain(candidate.shape.source, grouped=candidate.grouped)
    return _grown(PlannedChain(chain), candidate, rates, shared_costs)


def _grown(
    planned: PlannedChain, candidate: Candidate, rates: Work, shared_costs: bool
) -> PlannedChain:
    matched = planned.chain.matched(candidate.shape)
    order = _Placement(planned, candidate, matched, rates, shared_costs).best()
    grown = planned.copy()
    grown.add(candidate, matched, order)
    return grown


def _fits(chain: Chain, candidate: Candidate) -> bool:
    shape = candidate.shape
    return (
        chain.source == shape.source
        and chain.grouped == candidate.grouped
        and chain.seats[0].shape.member.settings == shape.member.settings
    )


@dataclass(frozen=True, slots=True)
class Reached:
    """After a join: the work so far, and the rows that are left."""

    work: Work
    rows: float


def walk_chain(planned: PlannedChain) -> tuple[Work, list[Reached]]:
    """The whole work of a chain, and where it stands after each join."""
    chain = planned.chain
    expected = planned.expected
    root = expected[0].rows[chain.seats[0].shape.root]
    fields = max(e.fields[s.shape.root] for s, e in zip(chain.seats, expected, strict=True))
    total = Work(steps=1, values_read=root * (fields + 1), queries=len(chain.seats))
    total += Work(conditions=root * _levels(chain, chain.root))
    surviving = [e.share[s.shape.root] for s, e in zip(chain.seats, expected, strict=True)]
    fan_out = 1.0
    reached: list[Reached] = []
    for role in chain.roles:
        rows = root * fan_out * any_of(surviving)
        users = list(role.users.items())
        first, step = users[0]
        size = expected[first].rows[step.table]
        wanted = any_of([expected[n].wanted[s.table] for n, s in users])
        looked_up = rows * (1 + size * wanted / _LARGE_TABLE)
        passed = is_passed(role, len(chain.seats))
        total += Work(
            values_read=size * max(expected[n].fields[s.table] for n, s in users),
            conditions=size * _levels(chain, role.label),
            rows_built=size * wanted,
            rows_probed=0.0 if passed else looked_up,
            rows_passed=looked_up if passed else 0.0,
        )
        fan_out *= max(expected[n].fan_out[s.table] for n, s in users)
        for number, used in users:
            surviving[number] *= expected[number].share[used.table]
        reached.append(Reached(total, root * fan_out * any_of(surviving)))
    surviving = [s * e.across for s, e in zip(surviving, expected, strict=True)]
    rows = root * fan_out * any_of(surviving)
    classes: dict[tuple[str, ...], list[int]] = {}
    for seat in chain.seats:
        classes.setdefault(seat.groups, []).append(seat.number)
    for members in classes.values():
        routed = root * fan_out * any_of([surviving[n] for n in members])
        groups = max(expected[n].groups for n in members) * len(members)
        kept = min(routed, groups) if chain.grouped else routed
        total += Work(rows_routed=rows, rows_grouped=routed if chain.grouped else 0, rows_kept=kept)
    return total, reached


def is_passed(role: Role, members: int) -> bool:
    """Whether rows go on that find nothing in the role's table, for members that do not ask."""
    return len(role.users) < members or role.kinds().keys() != {JoinKind.INNER}


def any_of(shares: list[float]) -> float:
    """The share of rows that one of several queries wants or more."""
    return 1 - prod(1 - share for share in shares)


def _levels(chain: Chain, label: str) -> float:
    """How deep the search trees of a table's conditions are, all columns together."""
    return sum(log2(1 + count) for count in chain.tests.get(label, {}).values())


class _Placement:
    """Finds where a member's new roles are best joined: the old ones keep their order.

    A state is how many old roles have been joined and which new ones; what it costs to get there
    does not depend on the way, but for the least of it.
    """

    def __init__(
        self,
        planned: PlannedChain,
        candidate: Candidate,
        matched: Matched,
        rates: Work,
        shared_costs: bool,
    ) -> None:
        self._old = list(planned.chain.roles)
        self._new = [role for _, role, _ in matched.added]
        self._matched = matched
        self._candidate = candidate
        self._rates = rates
        shape, expected = candidate.shape, candidate.expected
        self._root = expected.rows[shape.root]
        self._tables = {label: step.table for label, step in matched.used.items()}
        self._others = (
            self._left_by_others(planned) if shared_costs else [1.0] * (len(self._old) + 1)
        )

    @staticmethod
    def _left_by_others(planned: PlannedChain) -> list[float]:
        """After each number of old roles: the share of rows that no member so far wants."""
        seats = planned.chain.seats
        surviving = [e.share[s.shape.root] for s, e in zip(seats, planned.expected, strict=True)]
        left = [prod(1 - s for s in surviving)]
        for role in planned.chain.roles:
            for number, step in role.users.items():
                surviving[number] *= planned.expected[number].share[step.table]
            left.append(prod(1 - s for s in surviving))
        return left

    def best(self) -> list[str]:
        return self._tried() if len(self._new) <= _MOST_PLACED else self._one_by_one()

    def _one_by_one(self) -> list[str]:
        """Always the join next that leaves the fewest rows to the one after it."""
        order: list[str] = []
        joined = taken = 0
        while len(order) < len(self._old) + len(self._new):
            states = [] if joined == len(self._old) else [(joined + 1, taken, self._old[joined])]
            for number, role in enumerate(self._new):
                if not taken & (1 << number) and self._is_ready(role, joined, taken):
                    states.append((joined, taken | (1 << number), role))
            joined, taken, role = min(states, key=lambda state: self._cost(state[0], state[1]))
            order.append(role.label)
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
                cost = costs[state] + self._cost(joined, taken)
                if joined < len(self._old):
                    self._reach(costs, before, state, (joined + 1, taken), cost, self._old[joined])
                for number, role in enumerate(self._new):
                    bit = 1 << number
                    if not taken & bit and self._is_ready(role, joined, taken):
                        self._reach(costs, before, state, (joined, taken | bit), cost, role)
        state = (len(self._old), full)
        order = []
        while state != start:
            state, label = before[state]
            order.append(label)
        return order[::-1]

    def _reach(
        self,
        costs: dict[tuple[int, int], float],
        before: dict[tuple[int, int], tuple[tuple[int, int], str]],
        state: tuple[int, int],
        reached: tuple[int, int],
        cost: float,
        role: Role,
    ) -> None:
        if cost < costs.get(reached, float("inf")):
            costs[reached] = cost
            before[reached] = (state, role.label)

    def _cost(self, joined: int, taken: int) -> float:
        """Of the next join, whichever it is: all rows that are left go through it."""
        own = self._candidate.expected
        share = own.share[self._candidate.shape.root]
        labels = [role.label for role in self._old[:joined]]
        labels += [role.label for n, role in enumerate(self._new) if taken & (1 << n)]
        for label in labels:
            if label in self._tables:
                share *= own.share[self._tables[label]]
        rows = self._root * (1 - self._others[joined] * (1 - share))
        return Work(rows_passed=rows).times(self._rates)

    def _is_ready(self, role: Role, joined: int, taken: int) -> bool:
        there = {role.label for role in self._old[:joined]}
        there |= {each.label for n, each in enumerate(self._new) if taken & (1 << n)}
        new_or_old = {r.label for r in (*self._old, *self._new)}
        return all(label in there for label in role.after if label in new_or_old)
