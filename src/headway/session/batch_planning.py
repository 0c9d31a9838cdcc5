"""How a batch is planned: what was asked for, the order of its queries, the next mini-batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from headway.session.planning import PlannedQuery
from headway.session.sharing import Checkpoints, Shareable
from headway.sharing.checkpoints import BUDGET_SHARE
from headway.sharing.cost_model import CostModel
from headway.sharing.failures import Failures
from headway.sharing.mini_batches import (
    ALL_TAKEN,
    BatchQuery,
    MiniBatch,
    Rules,
    next_mini_batch,
)
from headway.sharing.overlap import OverlapGraph
from headway.sharing.query_order import exact_order, heuristic_order

AfterDeadline = Literal["stop", "continue"]
_EXACT_QUERIES = 24
_EXACT_SHARE = 0.01
"""The part of the deadline that the exact order may take to be found."""
_MOST_EXACT_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Policy:
    """How a batch is planned. The parts can be turned off, to see what each of them gives."""

    share: bool = True
    shuffle: bool = True
    shared_costs: bool = True
    fixed_size: int | None = None
    """A number of queries in place of the rules that close mini-batches."""
    checkpoints: Checkpoints = "selective"


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """`deadline` is in seconds from `began`, by the monotonic clock; None for none."""

    began: float
    deadline: float | None = None
    after_deadline: AfterDeadline = "stop"
    policy: Policy = Policy()
    failures_per_hour: float = 0.0
    checkpoint_share: float = BUDGET_SHARE
    workers: int = 1
    parallel_queries: int = 1
    """That share nothing."""
    asked: float = 0.0
    """When this driver was asked for it; of a batch that was resumed, later than it began."""
    planning: float = 0.0
    """Seconds that were spent on plans before the batch was started."""

    def latest(self, queries: Iterable[PlannedQuery]) -> float | None:
        """The deadline, or where only queries have some the last of those."""
        own = (query.deadline for query in queries if query.deadline is not None)
        return self.deadline if self.deadline is not None else max(own, default=None)

    def checkpoint_budget(self, queries: Iterable[PlannedQuery]) -> float:
        """Seconds that checkpoints may take."""
        return self.checkpoint_share * (self.latest(queries) or 0.0)


class BatchPlanner:
    """The order of the queries, found once, and the mini-batches cut from it."""

    def __init__(self, queries: list[Shareable], options: BatchOptions) -> None:
        policy = options.policy
        self._queries = [each.query if policy.share else _alone(each) for each in queries]
        known = (each for each in queries if policy.share and each.known)
        self.known = frozenset(each.planned.name for each in known)
        """Queries that there is an estimate of."""
        self.numbers = {query.name: number for number, query in enumerate(self._queries)}
        self._priorities = {each.planned.name: each.planned.priority for each in queries}
        self.graph = OverlapGraph([each.graph for each in queries])
        self._rules = Rules(
            fixed_size=policy.fixed_size,
            alone_together=options.parallel_queries,
            shared_costs=policy.shared_costs,
            failures=Failures(options.failures_per_hour, options.workers),
            checkpoint_budget=options.checkpoint_budget(each.planned for each in queries),
        )
        order = list(range(len(queries)))
        if policy.shuffle:
            order = self._shuffled(options.latest(each.planned for each in queries))
        whole = inf if options.deadline is None else options.deadline
        self.order = sorted(order, key=lambda number: self._urgency(queries[number].planned, whole))

    def _urgency(self, query: PlannedQuery, whole: float) -> tuple[float, float, bool]:
        end = whole if query.deadline is None else min(query.deadline, whole)
        return -query.priority, end, query.name not in self.known

    def _shuffled(self, deadline: float | None) -> list[int]:
        if self.graph.size > _EXACT_QUERIES:
            return heuristic_order(self.graph)
        seconds = _MOST_EXACT_SECONDS
        if deadline is not None:
            seconds = min(seconds, _EXACT_SHARE * deadline)
        return exact_order(self.graph, seconds)

    def expect(self, failures: Failures, checkpoint_budget: float) -> None:
        """From now on, plan with these."""
        self._rules = replace(self._rules, failures=failures, checkpoint_budget=checkpoint_budget)

    def next(self, waiting: list[str], left: Mapping[str, float], model: CostModel) -> MiniBatch:
        """The next mini-batch; `left` has the seconds until the deadline of each query. Queries
        that are late come after all others. When nothing is expected to fit, the shortest query is
        tried, of those with the highest priority."""
        numbers = {self.numbers[name] for name in waiting}
        late = {self.numbers[name] for name in waiting if left.get(name, inf) <= 0}
        chosen = numbers - late or late
        order = [number for number in self.order if number in chosen]
        remaining = [
            inf if n in late else left.get(q.name, inf) for n, q in enumerate(self._queries)
        ]
        found = self._cut(order, remaining, model)
        if found is not None:
            if found.closed_by == ALL_TAKEN and len(order) < len(numbers):
                found.closed_by = "all others are late"
            return found
        hopeful = [inf] * len(self._queries)
        batches = [self._cut([number], hopeful, model) for number in order]
        tried = min((each for each in batches if each is not None), key=self._rank)
        tried.closed_by = "nothing that is left can be expected in time"
        return tried

    def _rank(self, batch: MiniBatch) -> tuple[float, bool, float]:
        """Of a single query. What nobody knows the length of is the longest."""
        (query,) = batch.queries
        return -self._priorities[query.name], query.name not in self.known, batch.seconds

    def _cut(self, order: list[int], remaining: list[float], model: CostModel) -> MiniBatch | None:
        return next_mini_batch(self._queries, self.graph, order, remaining, model, self._rules)


def _alone(query: Shareable) -> BatchQuery:
    return BatchQuery(query.planned.name)
