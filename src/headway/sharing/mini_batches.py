"""Which queries are taken together next: as many as share work and can be finished in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.sharing.checkpoints import seconds_of
from headway.sharing.cost_model import CostModel
from headway.sharing.costs import Work
from headway.sharing.failures import NEVER, Failures, Stage, stages_of
from headway.sharing.global_plan import Candidate, GlobalPlan, PlannedChain
from headway.sharing.overlap import OverlapGraph

WEAK_OVERLAP = 0.15
ALL_TAKEN = "all queries are taken"


@dataclass(frozen=True, slots=True)
class BatchQuery:
    """A query as the sharing optimizer sees it. `candidates` are its members; without any it is
    run by itself, which is `alone`."""

    name: str
    candidates: tuple[Candidate, ...] = ()
    alone: Work = field(default_factory=lambda: Work(steps=1))


@dataclass(slots=True)
class MiniBatch:
    """Queries that are run together, and why no more of them were taken."""

    queries: list[BatchQuery] = field(default_factory=list)
    plan: GlobalPlan | None = None
    seconds: float = 0.0
    """Predicted, with the margin."""
    closed_by: str = ALL_TAKEN

    @property
    def work(self) -> Work:
        """Of the shared plan, and of the queries that share nothing."""
        total = self.plan.work if self.plan is not None else Work()
        for query in self.queries:
            if not query.candidates:
                total += query.alone
        return total

    def chains(self) -> list[PlannedChain]:
        """Shared steps, in the order that they are to be done in."""
        return [] if self.plan is None else self.plan.shared_chains()

    @property
    def shared(self) -> bool:
        return self.plan is not None and bool(self.plan.chains)


@dataclass(frozen=True, slots=True)
class Rules:
    """How mini-batches are closed. With a `fixed_size` the rules do not count."""

    weak_overlap: float = WEAK_OVERLAP
    fixed_size: int | None = None
    alone_together: int = 1
    """Queries that share nothing and are run at the same time."""
    shared_costs: bool = True
    failures: Failures = NEVER
    checkpoint_budget: float = 0.0
    """Seconds that checkpoints may still take."""


def next_mini_batch(
    queries: Sequence[BatchQuery],
    graph: OverlapGraph,
    order: Sequence[int],
    remaining: Sequence[float],
    model: CostModel,
    rules: Rules = Rules(),  # noqa: B008 - frozen
) -> MiniBatch | None:
    """The first mini-batch of the queries in `order` (numbers of `queries` and of the graph's
    vertices) that fits into the seconds that remain for each of its queries; None when not even
    one query does.

    A query that does not fit by itself is passed over. The first rule looks at the queries that
    are not taken yet.
    """
    left = float("inf")
    batch = nothing = MiniBatch(plan=GlobalPlan(model.rates, shared_costs=rules.shared_costs))
    waiting = list(order)
    for number in order:
        query = queries[number]
        grown = _grown(batch, query, model, rules)
        if rules.fixed_size is None and grown.seconds > min(left, remaining[number]):
            by_itself = _grown(nothing, query, model, rules) if batch.queries else grown
            if by_itself.seconds > remaining[number]:
                continue  # too long by itself: another one may fit
            batch.closed_by = f"with {query.name} it would take longer than is left"
            return batch
        batch = grown
        left = min(left, remaining[number])
        waiting.remove(number)
        if rules.fixed_size is not None:
            if len(batch.queries) >= rules.fixed_size:
                batch.closed_by = f"it has {rules.fixed_size} queries"
                return batch
            continue
        alone = sum(not each.candidates for each in batch.queries)
        if not query.candidates and alone < rules.alone_together:
            continue
        follows = sum(graph.weight(number, other) for other in waiting)
        if waiting and follows < rules.weak_overlap:
            batch.closed_by = f"{query.name} has little in common with those that are left"
            return batch
    if waiting:
        batch.closed_by = "none of the others can be expected in time"
    return batch if batch.queries else None


def _grown(batch: MiniBatch, query: BatchQuery, model: CostModel, rules: Rules) -> MiniBatch:
    assert batch.plan is not None
    plan = batch.plan.copy()
    for candidate in query.candidates:
        plan.add(candidate)
    grown = MiniBatch([*batch.queries, query], plan, closed_by=batch.closed_by)
    grown.seconds = _expected(grown, model, rules)
    return grown


def _expected(batch: MiniBatch, model: CostModel, rules: Rules) -> float:
    """With the margin, the failures that are expected, and checkpoints against them."""
    if rules.failures.per_hour <= 0 or batch.plan is None:
        return model.cautious(batch.work)
    stages: list[Stage] = []
    for number, planned in enumerate(batch.plan.chains):
        stages += stages_of(str(number), planned, model.rates, rules.failures)
    for query in batch.queries:
        if not query.candidates:
            seconds = model.predict(query.alone)
            tasks = rules.failures.workers
            stages.append(Stage(query.name, 0, seconds, tasks, 1, 0.0, last=True))
    return seconds_of(stages, rules.failures, rules.checkpoint_budget) * (1 + model.margin)
