"""Sharing in a session: queries as the optimizer sees them, and shared plans as queries to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headway.plan.cardinalities import Statistics
from headway.plan.nodes import QueryPlan, StateScan
from headway.plan.sources import Source
from headway.session.planning import PlannedQuery, statistics_of, with_engine
from headway.session.uniqueness import is_unique_key
from headway.sharing.estimates import expectation
from headway.sharing.finishing import finished
from headway.sharing.global_plan import Candidate, PlannedChain
from headway.sharing.members import Member, NotShared, find_members
from headway.sharing.mini_batches import BatchQuery, MiniBatch
from headway.sharing.overlap import JoinGraph, join_graph
from headway.sharing.shapes import shape_of
from headway.sharing.shared_plan import Share, SharedPlan, shared_plan

if TYPE_CHECKING:
    from headway.spark.results import KeptResult


@dataclass(frozen=True)
class Shareable:
    """A query of a batch: what of it can be shared, and why the rest cannot."""

    planned: PlannedQuery
    query: BatchQuery
    graph: JoinGraph
    not_shared: tuple[NotShared, ...] = ()


@dataclass(frozen=True)
class SharedStep:
    """A chain of a mini-batch, to be run before the queries that read its result."""

    name: str
    plan: SharedPlan
    chain: PlannedChain
    queries: tuple[str, ...]

    @property
    def state(self) -> StateScan:
        return StateScan("batch", self.name, self.plan.plan.root.schema)


@dataclass
class SharedWork:
    """The shared steps of a mini-batch, and by query what it finds in which of them."""

    steps: list[SharedStep] = field(default_factory=list)
    shares: dict[str, list[tuple[Member, Share, SharedStep]]] = field(default_factory=dict)


def shareable(planned: PlannedQuery) -> Shareable:
    """What the sharing optimizer makes of a query. One without a plan shares nothing."""
    if planned.imported is None or planned.error is not None:
        reason = planned.not_imported or "it cannot be run"
        nothing = (NotShared(planned.name, "query", reason),)
        return Shareable(planned, BatchQuery(planned.name), join_graph(planned.name, ()), nothing)
    statistics = statistics_of(planned.imported)
    found = find_members(planned.name, planned.imported.plan)
    refused = list(found.not_shared)
    candidates: list[Candidate] = []
    for member in found.members:
        shape = shape_of(member, lambda source: _rows(source, statistics))
        if isinstance(shape, NotShared):
            refused.append(shape)
        else:
            candidates.append(Candidate(shape, expectation(shape, statistics)))
    graph = join_graph(planned.name, (c.shape.member for c in candidates))
    return Shareable(planned, BatchQuery(planned.name, tuple(candidates)), graph, tuple(refused))


def _rows(source: Source, statistics: Statistics) -> float:
    known = statistics(source)
    return float(known.rows) if known is not None else 0.0


def shared_work(batch: MiniBatch, prefix: str) -> SharedWork:
    """The chains that several queries use as plans. One that serves a single member is left out:
    that member stays in its query."""
    work = SharedWork()
    for planned in batch.plan.chains if batch.plan is not None else ():
        seats = planned.chain.seats
        if len(seats) < 2:
            continue
        made = shared_plan(planned.chain, is_unique_key)
        names = dict.fromkeys(seat.shape.member.query for seat in seats)
        step = SharedStep(f"{prefix}-{len(work.steps) + 1}", made, planned, tuple(names))
        work.steps.append(step)
        for seat in seats:
            member = seat.shape.member
            share = (member, made.shares[seat.number], step)
            work.shares.setdefault(member.query, []).append(share)
    return work


def planned_step(
    step: SharedStep, users: Iterable[PlannedQuery], observed: Mapping[str, float], wanted: str
) -> PlannedQuery:
    """A shared step as a query for an engine."""
    sources = [user.imported for user in users if user.imported is not None]
    statistics = statistics_of(sources[0])
    frames = {name: frame for each in sources for name, frame in each.frames.items()}
    query = PlannedQuery(step.name, "", None, session_frames=frames)
    return with_engine(query, step.plan.plan, statistics, observed, wanted)


def finishing_query(
    planned: PlannedQuery,
    shares: list[tuple[Member, Share, SharedStep]],
    states: Mapping[str, KeptResult],
    observed: Mapping[str, float],
    wanted: str,
) -> PlannedQuery:
    """What is left of a query once its shared steps are done."""
    assert planned.imported is not None
    plan: QueryPlan = finished(
        planned.imported.plan, [(member, share, step.state) for member, share, step in shares]
    )
    names = {step.name for _, _, step in shares}
    query = replace(planned, states={name: states[name] for name in names})
    return with_engine(query, plan, statistics_of(planned.imported), observed, wanted)
