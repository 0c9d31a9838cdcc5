"""The plan of a mini-batch, built query by query: each adds to the chains what it costs least.

A query's joins that a chain has already cost only the rows that it adds; where its other tables are
joined, `placement` finds out. The rows that any of n queries wants are 1 - prod(1 - s).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf, log2

from headway.sharing.chains import Chain, Matched
from headway.sharing.costs import Work
from headway.sharing.estimates import Expectation
from headway.sharing.placement import Placement, any_of, joining, users_of
from headway.sharing.shapes import Shape


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

    def shared_chains(self) -> list[PlannedChain]:
        """Those that several members use; one that serves a single member is left out, as that
        member stays in its query. First comes what finishes most queries for each second, where a
        query is finished with the last of its chains."""
        left = [planned for planned in self.chains if len(planned.chain.seats) > 1]
        found: list[PlannedChain] = []
        while left:
            waits_for = Counter(query for planned in left for query in planned.queries)
            per_second = [self._finished_per_second(planned, waits_for) for planned in left]
            found.append(left.pop(per_second.index(max(per_second))))
        return found

    def _finished_per_second(self, planned: PlannedChain, waits_for: Mapping[str, int]) -> float:
        """`waits_for` are the chains that each query waits for."""
        queries = sum(waits_for[query] == 1 for query in planned.queries)
        seconds = planned.work.times(self._rates)
        return queries / seconds if seconds > 0 else inf

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
    order = [role.label for role in planned.chain.roles]
    if matched.added:
        order = Placement(
            planned.chain,
            planned.expected,
            candidate.shape,
            candidate.expected,
            matched,
            rates,
            shared_costs=shared_costs,
        ).best()
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
        table = joining(users_of(role, expected), len(chain.seats))
        total += table.building + table.looking_up(rows)
        total += Work(conditions=table.size * _levels(chain, role.label))
        fan_out *= table.fan_out
        for number, used in role.users.items():
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
        grouped = routed if chain.grouped else 0
        read = kept * len(chain.seats)
        total += Work(rows_routed=rows, rows_grouped=grouped, rows_kept=kept, rows_read=read)
    return total, reached


def _levels(chain: Chain, label: str) -> float:
    """How deep the search trees of a table's conditions are, all columns together."""
    return sum(log2(1 + count) for count in chain.tests.get(label, {}).values())
