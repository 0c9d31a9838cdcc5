"""Sharing in a session: queries as the optimizer sees them, and shared plans as queries to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from headway.plan.cardinalities import Statistics, estimate
from headway.plan.graph import replace_nodes, walk, with_root
from headway.plan.nodes import Aggregate, Join, Node, QueryPlan, Scan, Sort, StateScan, Window
from headway.plan.sources import Source
from headway.session.planning import PlannedQuery, statistics_of, with_engine
from headway.session.uniqueness import is_unique_key
from headway.sharing.checkpoints import StageChoice, choose_checkpoints
from headway.sharing.cost_model import CostModel
from headway.sharing.costs import Work
from headway.sharing.estimates import expectation
from headway.sharing.finishing import finished
from headway.sharing.global_plan import Candidate, PlannedChain, walk_chain
from headway.sharing.members import Member, NotShared, find_members
from headway.sharing.mini_batches import BatchQuery, MiniBatch
from headway.sharing.overlap import JoinGraph, join_graph
from headway.sharing.routing import Share
from headway.sharing.shapes import shape_of
from headway.sharing.shared_plan import SharedPlan, shared_plan

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
    def chain_work(self) -> Work:
        return self.chain.work

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
        query = BatchQuery(planned.name)
        return Shareable(planned, query, join_graph(planned.name, ()), nothing)
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
    alone = Work() if candidates else _work_alone(planned.imported.plan, statistics)
    query = BatchQuery(planned.name, tuple(candidates), alone)
    return Shareable(planned, query, graph, tuple(refused))


def _work_alone(plan: QueryPlan, statistics: Statistics) -> Work:
    """What a query costs that shares nothing, as far as its estimates tell."""
    rows = {node: found.rows for node, found in estimate(plan, statistics).items()}
    total = Work(steps=1)
    for node in walk(plan.root):
        if isinstance(node, Scan):
            total += Work(values_read=rows[node] * (1 + len(node.columns)))
        elif isinstance(node, Join):
            total += Work(rows_built=rows[node.build_input], rows_probed=rows[node.probe_input])
        elif isinstance(node, Aggregate | Sort | Window):
            total += Work(rows_grouped=rows[node.input])
    return total


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


@dataclass(frozen=True)
class Piece:
    """A part of a shared step that is run by itself, its result kept."""

    name: str
    plan: QueryPlan


Checkpoints = Literal["selective", "all", "none"]


def pieces_of(
    step: SharedStep,
    model: CostModel,
    budget: float,
    failures_per_hour: float,
    checkpoints: Checkpoints,
) -> tuple[list[Piece], float]:
    """The step cut where a checkpoint is worth it, first part first; and what the cuts cost."""
    _, reached = walk_chain(step.chain)
    whole = model.predict(step.chain_work)
    stages = [
        StageChoice(
            step.name,
            position,
            len(step.queries),
            model.predict(found.work),
            max(0.0, whole - model.predict(found.work)),
            found.rows * 8 * len(node.schema),
        )
        for position, (found, node) in enumerate(zip(reached, step.plan.joined, strict=True))
    ]
    if checkpoints == "selective":
        chosen = choose_checkpoints(stages, budget, failures_per_hour)
    else:
        chosen = stages if checkpoints == "all" else []
    pieces: list[Piece] = []
    replaced: dict[Node, Node] = {}
    for stage in sorted(chosen, key=lambda stage: stage.position):
        node = step.plan.joined[stage.position]
        name = f"{step.name}-after-{stage.position + 1}"
        below = replace_nodes(node, dict(replaced))
        pieces.append(Piece(name, QueryPlan(below, below.column_names, step.plan.plan.settings)))
        replaced = {node: StateScan("batch", name, node.schema)}
    last = replace_nodes(step.plan.plan.root, dict(replaced))
    pieces.append(Piece(step.name, with_root(step.plan.plan, last)))
    return pieces, sum(stage.cost for stage in chosen)


def planned_piece(
    piece: Piece,
    states: Mapping[str, KeptResult],
    users: Iterable[PlannedQuery],
    observed: Mapping[str, float],
    wanted: str,
) -> PlannedQuery:
    """A part of a shared step as a query for an engine."""
    sources = [user.imported for user in users if user.imported is not None]
    statistics = statistics_of(sources[0])
    frames = {name: frame for each in sources for name, frame in each.frames.items()}
    read = {node.state for node in walk(piece.plan.root) if isinstance(node, StateScan)}
    query = PlannedQuery(
        piece.name,
        "",
        None,
        session_frames=frames,
        states={name: states[name] for name in read},
    )
    return with_engine(query, piece.plan, statistics, observed, wanted)


def finishing_plan(
    planned: PlannedQuery, shares: list[tuple[Member, Share, SharedStep]]
) -> QueryPlan:
    """What is left of a query once its shared steps are done."""
    assert planned.imported is not None
    return finished(
        planned.imported.plan, [(member, share, step.state) for member, share, step in shares]
    )


def finishing_query(
    planned: PlannedQuery,
    plan: QueryPlan,
    states: Mapping[str, KeptResult],
    observed: Mapping[str, float],
    wanted: str,
) -> PlannedQuery:
    """That plan as the query to run."""
    assert planned.imported is not None
    read = {node.state for node in walk(plan.root) if isinstance(node, StateScan)}
    query = replace(planned, states={name: states[name] for name in read})
    return with_engine(query, plan, statistics_of(planned.imported), observed, wanted)
