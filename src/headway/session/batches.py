"""A batch under way: mini-batches that share work, one after the other, until the deadline."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from headway.base.config import Settings
from headway.base.errors import HeadwayError, RunInterrupted
from headway.plan.canonical import canonical_forms
from headway.plan.serialize import plan_from_builtins, plan_to_builtins
from headway.session.batch_planning import BatchOptions, BatchPlanner
from headway.session.history import CostHistory, FailureHistory
from headway.session.pipelined import PipelinedEngine
from headway.session.planning import SPARK, PlannedQuery, statistics_of, with_engine
from headway.session.runs import QueryStatus, RunHandle
from headway.session.sharing import (
    Piece,
    Shareable,
    SharedStep,
    SharedWork,
    finishing_plan,
    finishing_query,
    pieces_of,
    planned_piece,
    shareable,
    shared_work,
)
from headway.sharing.cost_model import PIPELINED_RATES, SPARK_RATES, CostModel
from headway.sharing.global_plan import GlobalPlan
from headway.sharing.mini_batches import MiniBatch
from headway.storage import QUERY_DONE, Event, Run

if TYPE_CHECKING:
    from headway.plan.nodes import QueryPlan
    from headway.spark.engine import SparkEngine
    from headway.spark.results import KeptResult

BATCH = "batch"
MINI_BATCH = "mini_batch"
SHARED_DONE = "shared_done"
TO_FINISH = "to_finish"
_FINISHED_TOGETHER = 3


@dataclass(frozen=True, slots=True)
class MiniBatchReport:
    """What became of a mini-batch. Seconds are from the start of the batch."""

    number: int
    queries: tuple[str, ...]
    closed_by: str
    predicted: float
    began: float
    ended: float | None = None
    shared_steps: int = 0
    rows_read_once: float = 0.0
    """Rows of large tables that were read for all members at once."""
    rows_read_alone: float = 0.0
    """What the same members would have read one by one."""
    failures: int = 0
    """Executors that were lost meanwhile."""


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Where a batch stands, beside its queries."""

    deadline: float | None
    elapsed: float
    planning: float
    mini_batches: tuple[MiniBatchReport, ...] = ()
    doing: str = "planning"
    not_shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    finished_at: Mapping[str, float] = field(default_factory=dict)
    """By query, when it was done."""
    deadlines: Mapping[str, float] = field(default_factory=dict)
    """By query that has one: its own deadline, or that of the batch."""

    @property
    def remaining(self) -> float | None:
        return None if self.deadline is None else self.deadline - self.elapsed


@dataclass(frozen=True, slots=True)
class Resumed:
    """What an earlier driver of the run has left: results, shared states, plans to finish."""

    results: Mapping[str, KeptResult]
    states: Mapping[str, KeptResult]
    plans: Mapping[str, QueryPlan]
    by_key: Mapping[str, KeptResult]
    """Shared states by what they are, apart from their names."""


def cost_model(settings: Settings, history: CostHistory) -> CostModel:
    """With the rates of the engine that most of a batch will run on, and what was seen before."""
    model = CostModel(SPARK_RATES if settings.engine.name == SPARK else PIPELINED_RATES)
    history.recall(model)
    return model


class BatchHandle(RunHandle):
    """A batch that was started."""

    def __init__(
        self,
        run: Run,
        queries: list[PlannedQuery],
        engine: SparkEngine,
        pipelined: PipelinedEngine,
        settings: Settings,
        observe: Callable[[PlannedQuery, KeptResult], None],
        observed: Callable[[], Mapping[str, float]],
        options: BatchOptions,
        failures: FailureHistory,
        costs: CostHistory,
        resumed: Resumed | None = None,
    ) -> None:
        super().__init__(run, queries, engine, pipelined, settings, observe)
        self._options = options
        self._observed = observed
        self._failures = failures
        self._costs = costs
        self._resumed = resumed
        self._known = dict(resumed.by_key) if resumed is not None else {}
        self._late = False
        self._planning = time.monotonic() - options.began
        self._mini_batches: list[MiniBatchReport] = []
        self._doing = "planning"
        self._shareable: dict[str, Shareable] = {}
        self._finished_at: dict[str, float] = {}
        self._budget = options.checkpoint_share * (options.deadline or 0.0)
        self._model = cost_model(settings, costs)

    def start(self) -> BatchHandle:
        super().start()
        left = self._remaining
        if left is not None and self._options.after_deadline == "stop":
            timer = threading.Timer(max(0.0, left), self._stop_at_deadline)
            timer.daemon = True
            timer.start()
        return self

    def batch(self) -> BatchProgress:
        """The clock and the mini-batches so far."""
        return BatchProgress(
            self._options.deadline,
            self._elapsed,
            self._planning,
            tuple(self._mini_batches),
            self._doing,
            {
                name: tuple(f"{each.operator}: {each.reason}" for each in found.not_shared)
                for name, found in self._shareable.items()
                if found.not_shared
            },
            dict(self._finished_at),
            {name: end for name in self._queries if (end := self._deadline_of(name)) is not None},
        )

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._options.began

    @property
    def _remaining(self) -> float | None:
        deadline = self._options.deadline
        return None if deadline is None else deadline - self._elapsed

    def _stop_at_deadline(self) -> None:
        if not self.finished:
            self._late = True
            self.cancel()

    # The course of a batch.

    def _work(self) -> None:
        try:
            self._work_batch()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            self._failure = error
        self._doing = "done"
        for name, progress in list(self._progress.items()):
            if progress.status in (QueryStatus.WAITING, QueryStatus.RUNNING):
                self._give_up(self._queries[name], self._failure or _too_late())
        try:
            self._run.end(self._final_status())
        except HeadwayError as error:
            self._failure = self._failure or error

    def _work_batch(self) -> None:
        waiting = list(self._queries)
        if self._resumed is not None:
            waiting = self._go_on(self._resumed, waiting)
        with self._planned():
            for name in waiting:
                self._shareable[name] = shareable(self._queries[name])
            planner = BatchPlanner([self._shareable[name] for name in waiting], self._options)
        while waiting and not self._cancelled and self._failure is None:
            with self._planned():
                batch = planner.next(waiting, self._time_left(waiting), self._model)
            self._run_mini_batch(batch)
            taken = {query.name for query in batch.queries}
            waiting = [name for name in waiting if name not in taken]
        for name in waiting if self._cancelled else ():
            self._run_query(self._queries[name])  # which finds that it was interrupted

    @contextmanager
    def _planned(self) -> Iterator[None]:
        """Adds to the time that planning took."""
        began = time.monotonic()
        yield
        self._planning += time.monotonic() - began

    def _go_on(self, resumed: Resumed, names: list[str]) -> list[str]:
        """Takes over what is done, finishes what an earlier driver had come to; the rest waits."""
        left, to_finish = [], []
        for name in names:
            kept = resumed.results.get(name)
            if kept is not None:
                with self._lock:
                    self._results[name] = kept
                self._ended(name, status=QueryStatus.DONE, rows=kept.rows)
            elif name in resumed.plans and not self._cancelled:
                to_finish.append(name)
            else:
                left.append(name)
        self._doing = f"{len(to_finish)} queries from shared results"
        self._together(
            lambda query: self._finish(query, resumed.plans[query.name], resumed.states), to_finish
        )
        return left

    def _time_left(self, names: list[str]) -> dict[str, float]:
        """By query, until its own deadline or that of the batch. Past it there is no hurry."""
        found = {}
        for name in names:
            end = self._deadline_of(name)
            left = float("inf") if end is None else end - self._elapsed
            found[name] = left if left > 0 else float("inf")
        return found

    def _deadline_of(self, name: str) -> float | None:
        ends = (self._queries[name].deadline, self._options.deadline)
        return min((end for end in ends if end is not None), default=None)

    def _run_mini_batch(self, batch: MiniBatch) -> None:
        with self._planned():
            number = len(self._mini_batches) + 1
            work = shared_work(batch, f"shared-{number}")
        report = _report_of(number, batch, work, self._elapsed)
        self._mini_batches.append(report)
        self._run.append(
            MINI_BATCH,
            None,
            number=number,
            queries=list(report.queries),
            predicted=round(batch.seconds, 3),
            closed_by=batch.closed_by,
        )
        began, before = time.monotonic(), self._executors()
        shared = self._run_shared(batch, work, number)
        if shared:
            self._model.observe(batch.work, time.monotonic() - began)
            self._costs.keep(self._model.observations)
        lost = self._failures.add(before, self._executors(), time.monotonic() - began)
        self._mini_batches[number - 1] = replace(report, ended=self._elapsed, failures=lost)

    def _executors(self) -> frozenset[str]:
        from headway.spark.executors import list_executors

        return frozenset(each.id for each in list_executors(self._engine.spark))

    def _run_shared(self, batch: MiniBatch, work: SharedWork, number: int) -> bool:
        """Whether the shared work of a mini-batch was done. Where a step fails, its queries are run
        in two halves: the one that is to blame ends up alone, and fails alone."""
        states: dict[str, KeptResult] = {}
        for position, step in enumerate(work.steps, 1):
            self._doing = (
                f"mini-batch {number}: shared work {position} of {len(work.steps)} "
                f"for {len(step.queries)} queries"
            )
            try:
                states[step.name] = self._run_step(step)
            except RunInterrupted:
                break
            except HeadwayError as error:
                self._run.append("shared_failed", None, name=step.name, error=error.describe())
                self._run_halves(batch, number)
                return False
        plans: dict[str, QueryPlan] = {}
        if not self._cancelled:
            for name, shares in work.shares.items():
                plans[name] = finishing_plan(self._queries[name], shares)
            self._note_plans(plans, number)
        self._doing = f"mini-batch {number}: its {len(batch.queries)} queries"

        def finish(query: PlannedQuery) -> None:
            if self._cancelled:
                self._run_query(query)  # which finds that it was interrupted
            else:
                self._finish(query, plans[query.name], states)

        for shared, queries in groupby(batch.queries, lambda query: query.name in plans):
            if shared:
                self._together(finish, (query.name for query in queries))
            else:
                for query in queries:
                    self._run_query(self._queries[query.name])
        return not self._cancelled

    def _placed(self, query: PlannedQuery) -> PlannedQuery:
        """A query that shares nothing gets its engine here."""
        if query.imported is not None and query.estimates is None:
            statistics = statistics_of(query.imported)
            wanted = self._settings.engine.name
            query = with_engine(query, query.imported.plan, statistics, self._observed(), wanted)
        return super()._placed(query)

    def _together(self, work: Callable[[PlannedQuery], None], names: Iterable[str]) -> None:
        """What is left of a query is small: several at a time use what one leaves idle."""
        count = max(self._settings.run.parallel_queries, _FINISHED_TOGETHER)
        self._side_by_side(work, [self._queries[name] for name in names], count)

    def _run_halves(self, batch: MiniBatch, number: int) -> None:
        middle = (len(batch.queries) + 1) // 2
        for half in (batch.queries[:middle], batch.queries[middle:]):
            if len(half) == 1:
                self._run_query(self._queries[half[0].name])
            elif half:
                plan = GlobalPlan(self._model.rates)
                for query in half:
                    for candidate in query.candidates:
                        plan.add(candidate)
                again = MiniBatch(list(half), plan, batch.seconds / 2, "a shared step failed")
                work = shared_work(again, f"shared-{number}-{secrets.token_hex(2)}")
                self._run_shared(again, work, number)

    def _finish(
        self, query: PlannedQuery, plan: QueryPlan, states: Mapping[str, KeptResult]
    ) -> None:
        wanted = self._settings.engine.name
        self._run_query(finishing_query(query, plan, states, self._observed(), wanted))

    def _note_plans(self, plans: Mapping[str, QueryPlan], number: int) -> None:
        """What is left to do of each query, for a driver that may have to go on from here."""
        if plans:
            piece = f"batch/{number}-{secrets.token_hex(4)}"
            told = {name: plan_to_builtins(plan) for name, plan in plans.items()}
            self._run.write_piece(piece, msgspec.json.encode(told))
            self._run.append(TO_FINISH, None, piece=piece, queries=list(plans))

    def _run_step(self, step: SharedStep) -> KeptResult:
        """The parts of a shared step one after the other; the result of the last."""
        options = self._options
        pieces, cost = pieces_of(
            step,
            self._model,
            self._budget,
            options.failures_per_hour,
            options.policy.checkpoints,
        )
        self._budget -= cost
        states: dict[str, KeptResult] = {}
        for piece in pieces:
            states[piece.name] = self._run_piece(piece, step, states)
        return states[step.name]

    def _run_piece(
        self, piece: Piece, step: SharedStep, states: Mapping[str, KeptResult]
    ) -> KeptResult:
        key = _key_of(piece)
        known = self._known.get(key)
        if known is not None:  # made by an earlier driver of this run
            return known
        users = [self._queries[name] for name in step.queries]
        wanted = self._settings.engine.name
        query = self._placed(planned_piece(piece, states, users, self._observed(), wanted))
        if self._cancelled:
            raise RunInterrupted("the batch was interrupted")
        if query.error is not None:
            raise query.error
        began = time.monotonic()
        try:
            kept = self._execute(query)
        except HeadwayError as error:
            if self._cancelled:
                raise RunInterrupted("the batch was interrupted") from error
            raise
        finally:
            with self._lock:
                self._watches.pop(query.name, None)
                self._stops.pop(query.name, None)
        self._run.append(
            SHARED_DONE,
            None,
            name=piece.name,
            key=key,
            engine=query.engine,
            queries=list(step.queries),
            seconds=round(time.monotonic() - began, 6),
            **_kept_data(kept),
        )
        return kept

    def _ended(self, name: str, **changes: Any) -> None:
        if changes.get("status") is QueryStatus.DONE:
            self._finished_at.setdefault(name, self._elapsed)
        super()._ended(name, **changes)

    def _fail(self, query: PlannedQuery, error: HeadwayError, seconds: float) -> None:
        if self._late and self._cancelled and query.error is None:
            error = _too_late()
        super()._fail(query, error, seconds)


def _too_late() -> RunInterrupted:
    return RunInterrupted("the deadline came first")


def resumed_from(run: Run) -> tuple[Mapping[str, Any], Resumed]:
    """The options a batch was started with, and what is left of the driver that is gone."""
    options: Mapping[str, Any] = {}
    results: dict[str, KeptResult] = {}
    states: dict[str, KeptResult] = {}
    plans: dict[str, QueryPlan] = {}
    by_key: dict[str, KeptResult] = {}
    for event in run.events():
        if event.kind == BATCH:
            options = event.data
        elif event.kind == QUERY_DONE and event.query is not None:
            results[event.query] = _kept_of(event)
        elif event.kind == SHARED_DONE:
            kept = _kept_of(event)
            states[event.data["name"]] = by_key[event.data["key"]] = kept
        elif event.kind == TO_FINISH:
            told = msgspec.json.decode(run.read_piece(event.data["piece"]))
            plans |= {name: plan_from_builtins(plan) for name, plan in told.items()}
    return options, Resumed(results, states, plans, by_key)


def _key_of(piece: Piece) -> str:
    """What a part of a shared step computes, and how its columns are called."""
    root = piece.plan.root
    return f"{canonical_forms(root)[root].key} {' '.join(piece.plan.names)}"


def _kept_data(kept: KeptResult) -> dict[str, Any]:
    return {
        "rows": kept.rows,
        "bytes": kept.bytes,
        "kept": kept.kept,
        "pieces": list(kept.pieces),
        "schema": kept.schema,
    }


def _kept_of(event: Event) -> KeptResult:
    from headway.spark.results import KeptResult

    data = event.data
    return KeptResult(
        data["rows"], data["bytes"], tuple(data["pieces"]), data["schema"], data["kept"]
    )


def _report_of(number: int, batch: MiniBatch, work: SharedWork, began: float) -> MiniBatchReport:
    once = alone = 0.0
    for step in work.steps:
        seats = step.chain.chain.seats
        rows = step.chain.expected[0].rows[seats[0].shape.root]
        once += rows
        alone += rows * len(seats)
    return MiniBatchReport(
        number,
        tuple(query.name for query in batch.queries),
        batch.closed_by,
        batch.seconds,
        began,
        shared_steps=len(work.steps),
        rows_read_once=once,
        rows_read_alone=alone,
    )
