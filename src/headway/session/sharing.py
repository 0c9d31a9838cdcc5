"""Sharing in a session: queries as the optimizer sees them, and shared plans as queries to run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from headway.base.errors import PlanNotRunnable
from headway.plan.canonical import canonical_forms, row_keys
from headway.plan.cardinalities import Statistics, estimate
from headway.plan.graph import replace_nodes, walk, with_root
from headway.plan.nodes import Aggregate, Join, Node, QueryPlan, Scan, Sort, StateScan, Window
from headway.plan.sources import Source
from headway.plan.statistics import TableStatistics
from headway.session.formed import Formed, StepPlan
from headway.session.planning import PlannedQuery, statistics_of, with_engine
from headway.session.uniqueness import is_unique_key
from headway.sharing.costs import Work
from headway.sharing.estimates import expectation
from headway.sharing.failures import Stage
from headway.sharing.finishing import finished
from headway.sharing.global_plan import Candidate, PlannedChain
from headway.sharing.members import Member, NotShared, find_members
from headway.sharing.mini_batches import BatchQuery
from headway.sharing.overlap import JoinGraph, join_graph
from headway.sharing.routing import Share
from headway.sharing.shapes import shape_of
from headway.sharing.shared_plan import SharedPlan, shared_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headway.spark.catalyst import ImportedPlan
    from headway.spark.results import KeptResult

_MOST_ROWS = 1e15
_MOST_WANTED = 0.8
"""Of the rows of a large table: where more are wanted, it takes longer to drop the others early."""


@dataclass(frozen=True)
class Shareable:
    """A query of a batch: what of it can be shared, and why the rest cannot."""

    planned: PlannedQuery
    query: BatchQuery
    graph: JoinGraph
    not_shared: tuple[NotShared, ...] = ()
    known: bool = True
    """Whether its work was estimated; what stands in its place is else a guess."""


@dataclass(frozen=True)
class SharedStep:
    """A chain of a mini-batch, to be run before the queries that read its result. `name` is for
    people: what is kept is named by what it is, for another driver to find."""

    name: str
    plan: SharedPlan
    chain: PlannedChain

    @property
    def queries(self) -> tuple[str, ...]:
        return self.chain.queries

    @cached_property
    def to_run(self) -> StepPlan:
        root, joined = self.plan.plan.root, self.plan.joined
        forms = canonical_forms(root)
        # What a plan computes, in which sense, and how its columns are called.
        settings = sha256(repr(sorted(self.plan.plan.settings)).encode()).hexdigest()[:16]
        key, *keys = (
            f"{settings} {forms[n].key} {' '.join(n.column_names)}" for n in (root, *joined)
        )
        rows = tuple(reached.rows for reached in self.chain.reached)
        return StepPlan(
            self.name,
            self.queries,
            key,
            state_name(key),
            self.plan.plan,
            joined,
            tuple(keys),
            rows,
        )

    @property
    def state(self) -> StateScan:
        return StateScan("batch", self.to_run.state, self.plan.plan.root.schema)

    def shares(self) -> Iterator[tuple[str, SharedPart]]:
        """What each query finds in the result."""
        for seat in self.chain.chain.seats:
            member = seat.shape.member
            yield member.query, (member, self.plan.shares[seat.number], self.state)


SharedPart = tuple[Member, Share, StateScan]
"""A part of a query, and where its rows are."""


def state_name(key: str) -> str:
    return f"shared-{sha256(key.encode()).hexdigest()[:16]}"


def shareable(planned: PlannedQuery) -> Shareable:
    """What the sharing optimizer makes of a query. One without a plan shares nothing, nor does one
    that the optimizer cannot cope with."""
    if planned.imported is None or planned.error is not None:
        broken = None if planned.error is None else f"it cannot be run: {planned.error.message}"
        return _by_itself(planned, broken or planned.not_imported or "it has no plan")
    # What reads data of a session is not remembered beyond it.
    take_apart = _remembered_apart if not planned.imported.frames else _taken_apart
    try:
        query, graph, refused = take_apart(planned.name, planned.imported)
        return Shareable(planned, query, graph, refused)
    except Exception as error:  # noqa: BLE001 - it can be run all the same
        return _by_itself(planned, f"it could not be taken apart: {error!r}")


def _by_itself(planned: PlannedQuery, reason: str) -> Shareable:
    nothing = (NotShared(planned.name, "query", reason),)
    graph = join_graph(planned.name, ())
    return Shareable(planned, BatchQuery(planned.name), graph, nothing, known=False)


def _taken_apart(
    name: str, imported: ImportedPlan
) -> tuple[BatchQuery, JoinGraph, tuple[NotShared, ...]]:
    statistics = _believable(statistics_of(imported))
    found = find_members(name, imported.plan)
    refused = list(found.not_shared)
    candidates: list[Candidate] = []
    for member in found.members:
        shape = shape_of(member, lambda source: _rows(source, statistics))
        if isinstance(shape, NotShared):
            refused.append(shape)
        else:
            candidates.append(Candidate(shape, expectation(shape, statistics)))
    graph = join_graph(name, (c.shape.member for c in candidates))
    alone = Work() if candidates else _work_alone(imported.plan, statistics)
    return BatchQuery(name, tuple(candidates), alone), graph, tuple(refused)


_remembered_apart = lru_cache(maxsize=1_000)(_taken_apart)
"""A batch that comes again, or is planned again, is made of the same plans."""


def _believable(statistics: Statistics) -> Statistics:
    """Spark calls data of the session as large as can be where it does not know: no such query
    would ever be expected to be done in time."""

    def known(source: Source) -> TableStatistics | None:
        found = statistics(source)
        return None if found is None or found.rows > _MOST_ROWS else found

    return known


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


def shared_step(name: str, planned: PlannedChain) -> SharedStep:
    dropping = planned.share_wanted < _MOST_WANTED
    return SharedStep(name, shared_plan(planned.chain, is_unique_key, dropping=dropping), planned)


@dataclass(frozen=True)
class Piece:
    """A part of a shared step that is run by itself, its result kept under its name."""

    key: str
    plan: QueryPlan
    rows: Mapping[str, float]
    """Expected of its nodes, by what they compute."""

    @property
    def name(self) -> str:
        return state_name(self.key)


Checkpoints = Literal["selective", "all", "none"]


def pieces_of(step: StepPlan, cuts: Collection[int]) -> list[Piece]:
    """The step cut after these joins, first part first. A part has the same name however the
    work before it was cut."""
    pieces: list[Piece] = []
    replaced: dict[Node, Node] = {}
    settings = step.plan.settings
    for position in sorted(cuts):
        node = step.joined[position]
        below = replace_nodes(node, dict(replaced))
        plan = QueryPlan(below, below.column_names, settings)
        piece = Piece(step.keys[position], plan, _expected_rows(step, plan, replaced))
        pieces.append(piece)
        replaced = {node: StateScan("batch", piece.name, node.schema)}
    plan = with_root(step.plan, replace_nodes(step.plan.root, dict(replaced)))
    return [*pieces, Piece(step.key, plan, _expected_rows(step, plan, replaced))]


def _expected_rows(
    step: StepPlan, plan: QueryPlan, replaced: Mapping[Node, Node]
) -> dict[str, float]:
    """Of the joins in a plan that may read the first of them from a state."""
    keys = row_keys(plan.root)
    found: dict[str, float] = {}
    for node, rows in zip(step.joined, step.rows, strict=True):
        there = replace_nodes(node, dict(replaced))
        if there in keys:
            found[keys[there]] = rows
    return found


def planned_piece(
    piece: Piece,
    states: Mapping[str, KeptResult],
    users: Iterable[PlannedQuery],
    observed: Mapping[str, float],
    wanted: str,
) -> PlannedQuery:
    """A part of a shared step as a query for an engine. Its joins are in their best order, and how
    many rows they leave is expected of the queries: their words tell nothing to an estimate."""
    sources = [user.imported for user in users if user.imported is not None]
    of_users = [statistics_of(each) for each in sources]

    def statistics(source: Source) -> TableStatistics | None:
        return next((found for each in of_users if (found := each(source)) is not None), None)

    frames = _frames_of(sources)
    read = {node.state for node in walk(piece.plan.root) if isinstance(node, StateScan)}
    query = PlannedQuery(
        piece.name,
        "",
        None,
        session_frames=frames,
        states={name: states[name] for name in read},
        serves=len(sources),
    )
    known = {**observed, **piece.rows}
    return with_engine(query, piece.plan, statistics, known, wanted, ordered=True)


def _frames_of(sources: Iterable[ImportedPlan]) -> dict[str, DataFrame]:
    """The data of the session that they read. Its names are hashes, so a second look is taken."""
    frames: dict[str, DataFrame] = {}
    for each in sources:
        for name, frame in each.frames.items():
            known = frames.setdefault(name, frame)
            if known is not frame and not known.sameSemantics(frame):
                raise PlanNotRunnable(f"two tables of the session have one name: {name}")
    return frames


def formed(
    names: Iterable[str],
    queries: Mapping[str, PlannedQuery],
    steps: Iterable[SharedStep],
    stages: Callable[[SharedStep], Sequence[Stage]],
) -> Formed:
    """A mini-batch of these queries and steps, whose stages are noted with them. A query whose rest
    cannot be planned is run whole, and has none."""
    made = list(steps)
    parts: dict[str, list[SharedPart]] = {}
    for step in made:
        for name, part in step.shares():
            parts.setdefault(name, []).append(part)
    rests: dict[str, QueryPlan] = {}
    for name, found in parts.items():
        with suppress(Exception):
            rests[name] = finishing_plan(queries[name], found)
    to_run = (replace(step.to_run, stages=tuple(stages(step))) for step in made)
    return Formed(tuple(names), tuple(to_run), rests)


def finishing_plan(planned: PlannedQuery, parts: Sequence[SharedPart]) -> QueryPlan:
    """What is left of a query when these parts of it are there."""
    assert planned.imported is not None
    return finished(planned.imported.plan, list(parts))
