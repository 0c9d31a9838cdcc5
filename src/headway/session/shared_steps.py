"""The shared steps of a batch: cut where checkpoints are worth it, run, kept for its queries."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from headway.base.errors import InternalError
from headway.plan.serialize import plan_to_builtins
from headway.session.formed import Formed, StepPlan, formed_to_json
from headway.session.keeping import Around
from headway.session.planning import PlannedQuery
from headway.session.resuming import MINI_BATCH, SHARED_DONE, TO_FINISH, kept_data, left_of
from headway.session.sharing import (
    Checkpoints,
    Piece,
    SharedPart,
    SharedStep,
    finishing_plan,
    pieces_of,
    planned_piece,
)
from headway.sharing.checkpoints import choose_checkpoints
from headway.sharing.cost_model import CostModel
from headway.sharing.failures import Failures, Stage, stages_of
from headway.sharing.global_plan import PlannedChain
from headway.storage import Run

if TYPE_CHECKING:
    from headway.plan.nodes import QueryPlan
    from headway.spark.results import KeptResult

Execute = Callable[[PlannedQuery, str], tuple["KeptResult", str]]


class SharedParts:
    """What is done of a mini-batch: by query the parts of it that are there, and their rows, of
    which some may be there from the start."""

    def __init__(self, states: Mapping[str, KeptResult] | None = None) -> None:
        self._parts: dict[str, list[SharedPart]] = {}
        self.states = dict(states or {})
        self.steps = 0
        self.rows_read_once = self.rows_read_alone = 0.0

    def add(self, step: SharedStep, kept: KeptResult) -> None:
        self.put(step.state.state, kept)
        seats = step.chain.chain.seats
        rows = step.chain.expected[0].rows[seats[0].shape.root]
        self.rows_read_once += rows
        self.rows_read_alone += rows * len(seats)
        for query, part in step.shares():
            self._parts.setdefault(query, []).append(part)

    def put(self, state: str, kept: KeptResult) -> None:
        """The rows of a step that has been run."""
        self.steps += 1
        self.states[state] = kept

    def of_any(self, names: Iterable[str]) -> bool:
        return any(name in self._parts for name in names)

    def plans(
        self,
        names: Iterable[str],
        queries: Mapping[str, PlannedQuery],
        failed: Callable[..., None],
    ) -> dict[str, QueryPlan]:
        """What is left of each of the queries that have parts by now."""
        found: dict[str, QueryPlan] = {}
        for name in names:
            if name in self._parts:
                try:
                    found[name] = finishing_plan(queries[name], self._parts[name])
                except Exception as error:  # noqa: BLE001 - the query is run without its parts
                    failed(name, error)
                    del self._parts[name]
        return found

    def left_of(
        self, query: PlannedQuery, plan: QueryPlan, observed: Mapping[str, float], wanted: str
    ) -> PlannedQuery:
        return left_of(query, plan, self.states, observed, wanted)


class StepRunner:
    """Runs shared steps. `known` are results that an earlier driver has left, by their keys;
    `execute` runs a query that is a part of a step, with its key; what is done within `planning`
    counts as that."""

    def __init__(
        self,
        run: Run,
        around: Around,
        model: CostModel,
        checkpoints: Checkpoints,
        budget: float,
        known: Mapping[str, KeptResult],
        execute: Execute,
        planning: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._run = run
        self._around = around
        self._model = model
        self._checkpoints = checkpoints
        self._known = dict(known)
        self._execute = execute
        self._planning = planning
        self._serves: dict[str, tuple[str, ...]] = {}
        self.budget = budget
        """Seconds that checkpoints may still take."""
        self.taken_over = 0
        """Parts of steps that were there already."""

    def serves(self, name: str) -> tuple[str, ...]:
        """The queries that a part of a step works for; a query works for itself."""
        return self._serves.get(name, (name,))

    def cuts(
        self, step: SharedStep, later: Sequence[PlannedChain], failures: Failures
    ) -> Collection[int]:
        """After which joins the step is cut. It competes for the budget with the steps that come
        `later` in the mini-batch."""
        stages = self.stages(step, failures)
        for number, planned in enumerate(later):
            stages += stages_of(f"later {number}", planned, self._model.rates, failures)
        return self._chosen(step.name, len(step.plan.joined), stages, failures)

    def cuts_again(
        self,
        step: StepPlan,
        begun: Collection[str],
        later: Sequence[StepPlan],
        failures: Failures,
    ) -> Collection[int]:
        """The same of a step that an earlier driver has planned. Where it had begun with that,
        there is something of its parts, or was to be: it stays cut there. `begun` are those that
        were under way."""
        known = {*self._known, *begun}
        there = [number for number, key in enumerate(step.keys) if key in known]
        if there:
            return there
        stages = [stage for each in (step, *later) for stage in each.stages]
        return self._chosen(step.name, len(step.keys), stages, failures)

    def stages(self, step: SharedStep, failures: Failures) -> list[Stage]:
        """What it takes from one place where it can be cut to the next."""
        return stages_of(step.name, step.chain, self._model.rates, failures)

    def _chosen(
        self, step: str, joins: int, stages: Sequence[Stage], failures: Failures
    ) -> Collection[int]:
        if self._checkpoints != "selective":
            return range(joins) if self._checkpoints == "all" else ()
        chosen = choose_checkpoints(stages, self.budget, failures, self._around.speed.seconds)
        return {position for name, position in chosen if name == step}

    def run(
        self, step: StepPlan, cuts: Collection[int], users: Sequence[PlannedQuery]
    ) -> KeptResult:
        """The parts of the step one after the other; the result of the last."""
        pieces = pieces_of(step, cuts)
        states: dict[str, KeptResult] = {}
        # What is there already of the last parts makes those before them needless.
        there = [number for number, piece in enumerate(pieces) if piece.key in self._known]
        for piece in pieces[there[-1] if there else 0 :]:
            states[piece.name] = self._run_piece(piece, step, states, users)
            if piece is not pieces[-1]:
                self.budget -= 2 * self._around.speed.seconds(states[piece.name].bytes)
        return states[pieces[-1].name]

    def _run_piece(
        self,
        piece: Piece,
        step: StepPlan,
        states: Mapping[str, KeptResult],
        users: Sequence[PlannedQuery],
    ) -> KeptResult:
        from headway.spark.schemas import arrow_schema, schema_of

        known = self._known.get(piece.key)
        if known is not None:
            self.taken_over += 1
            return known
        wanted = self._around.settings.engine.name
        with self._planning():
            made = planned_piece(piece, states, users, self._around.observed(), wanted)
            arrow_schema(schema_of(piece.plan))  # what cannot be kept fails before it is run
        self._serves[piece.name] = tuple(user.name for user in users)
        began = time.monotonic()
        kept, engine = self._execute(made, piece.key)
        if not kept.kept:
            raise InternalError(f"the rows of {step.name} were not kept for its queries")
        told: dict[str, Any] = {"step": step.name, "queries": list(step.queries)}
        seconds = round(time.monotonic() - began, 6)
        self._run.append(
            SHARED_DONE,
            None,
            name=piece.name,
            key=piece.key,
            engine=engine,
            seconds=seconds,
            **told,
            **kept_data(kept),
        )
        self._known[piece.key] = kept
        return kept

    @property
    def done(self) -> set[str]:
        """The keys of what there is of shared steps."""
        return set(self._known)

    def pieces(self) -> list[str]:
        """Of the run, that hold shared rows."""
        return [piece for kept in self._known.values() for piece in kept.pieces]

    def note(
        self, plans: Mapping[str, QueryPlan], known: Mapping[str, QueryPlan] | None = None
    ) -> None:
        """What is left to do of queries, for a driver that may have to go on from here. What the
        mini-batch began with is `known` to it."""
        new = {name: plan for name, plan in plans.items() if plan != (known or {}).get(name)}
        if new:
            told = {name: plan_to_builtins(plan) for name, plan in new.items()}
            piece = self._write(msgspec.json.encode(told))
            self._run.append(TO_FINISH, None, piece=piece, queries=list(new))

    def begin(self, number: int, made: Formed, **told: Any) -> None:
        """A mini-batch, for a driver that may have to go on with it."""
        with self._planning():
            piece = self._write(formed_to_json(made))
            names = list(made.queries)
            self._run.append(MINI_BATCH, None, number=number, queries=names, piece=piece, **told)

    def _write(self, data: bytes) -> str:
        piece = f"batch/{secrets.token_hex(6)}"
        self._run.write_piece(piece, data)
        return piece
