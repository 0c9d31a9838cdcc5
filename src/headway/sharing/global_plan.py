"""The plan of a mini-batch, built query by query: each adds to the chains what it costs least.

A query's joins that a chain has already cost only the rows that it adds; where its other tables are
joined, dynamic programming finds out. The rows that any of n queries wants are 1 - prod(1 - s).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import log2, prod

from headway.sharing.chains import Chain, Matched, Role, Seat
from headway.sharing.costs import Work
from headway.sharing.estimates import Expectation
from headway.sharing.shapes import Shape


@dataclass(frozen=True, slots=True)
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
    _work: Work | None = None

    def copy(self) -> PlannedChain:
        return PlannedChain(self.chain.copy(), list(self.expected), self._work)

    def add(self, candidate: Candidate, matched: Matched, order: list[str]) -> Seat:
        self.expected.append(candidate.expected)
        self._work = None
        return self.chain.add(candidate.shape, matched, order)

    @property
    def work(self) -> Work:
        """All that the chain costs, from reading its tables to the finished queries."""
        if self._work is None:
            self._work = walk_chain(self)[0] if self.chain.seats else Work()
        return self._work


@dataclass(frozen=True, slots=True)
class Insertion:
    """Where a member would go: into which chain, and in which order its roles would be joined."""

    matched: Matched
    order: list[str]
    added: float
    """Seconds."""


class GlobalPlan:
    """Chains for the members so far. With `shared_costs` off, a query's joins are placed as if it
    were alone."""

    def __init__(self, rates: Work, *, shared_costs: bool = True) -> None:
        self._rates = rates
        self._shared_costs = shared_costs
        self.chains: list[PlannedChain] = []

    def copy(self) -> GlobalPlan:
        made = GlobalPlan(self._rates, shared_costs=self._shared_costs)
        made.chains = [planned.copy() for planned in self.chains]
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

    def add(self, candidate: Candidate) -> tuple[PlannedChain, Seat]:
        """Seat a member where it adds least."""
        best: tuple[PlannedChain, Insertion] | None = None
        for planned in self.chains:
            if _fits(planned.chain, candidate):
                found = self._insertion(planned, candidate)
                if best is None or found.added < best[1].added:
                    best = (planned, found)
        alone = PlannedChain(Chain(candidate.shape.source, grouped=candidate.grouped))
        apart = self._insertion(alone, candidate)
        if best is None or apart.added < best[1].added:
            self.chains.append(alone)
            best = (alone, apart)
        planned, insertion = best
        return planned, planned.add(candidate, insertion.matched, insertion.order)

    def _insertion(self, planned: PlannedChain, candidate: Candidate) -> Insertion:
        matched = planned.chain.matched(candidate.shape)
        order = _Placement(planned, candidate, matched, self._rates, self._shared_costs).best()
        trial = planned.copy()
        trial.add(candidate, matched.copy(), order)
        return Insertion(matched, order, (trial.work - planned.work).times(self._rates))


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
        total += Work(
            values_read=size * max(expected[n].fields[s.table] for n, s in users),
            conditions=size * _levels(chain, role.label),
            rows_built=size * wanted,
            rows_probed=rows,
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


def any_of(shares: list[float]) -> float:
    """The share of rows that one of several queries wants or more."""
    return 1 - prod(1 - share for share in shares)


def _levels(chain: Chain, label: str) -> float:
    """How deep the search trees of a table's conditions are, all columns together."""
    constants: Counter[frozenset[str]] = Counter()
    for seat in chain.seats:
        constants.update(seat.tested.get(label, ()))
    return sum(log2(1 + count) for count in constants.values())


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
        return Work(rows_probed=rows).times(self._rates)

    def _is_ready(self, role: Role, joined: int, taken: int) -> bool:
        there = {role.label for role in self._old[:joined]}
        there |= {each.label for n, each in enumerate(self._new) if taken & (1 << n)}
        new_or_old = {r.label for r in (*self._old, *self._new)}
        return all(label in there for label in role.after if label in new_or_old)
