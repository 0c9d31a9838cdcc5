"""A batch under way: mini-batches that share work, one after the other, until the deadline."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from headway.base.config import Settings
from headway.base.errors import HeadwayError, RunInterrupted
from headway.session.pipelined import PipelinedEngine
from headway.session.planning import SPARK, PlannedQuery
from headway.session.runs import QueryStatus, RunHandle
from headway.session.sharing import (
    Shareable,
    SharedStep,
    SharedWork,
    finishing_query,
    planned_step,
    shareable,
    shared_work,
)
from headway.sharing.cost_model import PIPELINED_RATES, SPARK_RATES, CostModel
from headway.sharing.global_plan import GlobalPlan
from headway.sharing.mini_batches import BatchQuery, MiniBatch, Rules, next_mini_batch
from headway.sharing.overlap import OverlapGraph
from headway.sharing.query_order import exact_order, heuristic_order
from headway.storage import Run

if TYPE_CHECKING:
    from headway.spark.engine import SparkEngine
    from headway.spark.results import KeptResult

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


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """`deadline` is in seconds from `began`, by the monotonic clock; None for none."""

    began: float
    deadline: float | None = None
    after_deadline: AfterDeadline = "stop"
    policy: Policy = Policy()


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


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Where a batch stands, beside its queries."""

    deadline: float | None
    elapsed: float
    planning: float
    mini_batches: tuple[MiniBatchReport, ...] = ()
    doing: str = "planning"
    not_shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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
    ) -> None:
        super().__init__(run, queries, engine, pipelined, settings, observe)
        self._options = options
        self._observed = observed
        self._late = False
        self._planning = time.monotonic() - options.began
        self._mini_batches: list[MiniBatchReport] = []
        self._doing = "planning"
        self._shareable: dict[str, Shareable] = {}
        pipelined_first = settings.engine.name != SPARK
        self._model = CostModel(PIPELINED_RATES if pipelined_first else SPARK_RATES)

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
        planning = time.monotonic()
        names = list(self._queries)
        for name in names:
            self._shareable[name] = shareable(self._queries[name])
        planner = _Planner([self._shareable[name] for name in names], self._options)
        self._planning += time.monotonic() - planning
        waiting = names
        while waiting and not self._cancelled:
            planning = time.monotonic()
            batch = planner.next(waiting, self._time_for_next(), self._model)
            self._planning += time.monotonic() - planning
            self._run_mini_batch(batch)
            taken = {query.name for query in batch.queries}
            waiting = [name for name in waiting if name not in taken]
        for name in waiting:
            self._run_query(self._queries[name])  # which finds that it was interrupted

    def _time_for_next(self) -> float:
        """What is left; past the deadline there is no hurry any more."""
        left = self._remaining
        return float("inf") if left is None or left <= 0 else left

    def _run_mini_batch(self, batch: MiniBatch) -> None:
        planning = time.monotonic()
        number = len(self._mini_batches) + 1
        work = shared_work(batch, f"shared-{number}")
        self._planning += time.monotonic() - planning
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
        began = time.monotonic()
        if not self._run_shared(batch, work, number):
            return
        if batch.plan is not None and not self._cancelled:
            self._model.observe(batch.plan.work, time.monotonic() - began)
        self._mini_batches[number - 1] = replace(report, ended=self._elapsed)

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
        for position, query in enumerate(batch.queries, 1):
            self._doing = f"mini-batch {number}: query {position} of {len(batch.queries)}"
            planned = self._queries[query.name]
            shares = work.shares.get(query.name, [])
            if shares and not self._cancelled:
                planned = finishing_query(
                    planned, shares, states, self._observed(), self._settings.engine.name
                )
            self._run_query(planned)
        return True

    def _run_halves(self, batch: MiniBatch, number: int) -> None:
        middle = (len(batch.queries) + 1) // 2
        for half in (batch.queries[:middle], batch.queries[middle:]):
            if len(half) > 1:
                plan = GlobalPlan(self._model.rates)
                for query in half:
                    for candidate in query.candidates:
                        plan.add(candidate)
                again = MiniBatch(list(half), plan, batch.seconds / 2, "a shared step failed")
                work = shared_work(again, f"shared-{number}-{secrets.token_hex(2)}")
                self._run_shared(again, work, number)
            else:
                for query in half:
                    self._run_query(self._queries[query.name])

    def _run_step(self, step: SharedStep) -> KeptResult:
        users = [self._queries[name] for name in step.queries]
        query = planned_step(step, users, self._observed(), self._settings.engine.name)
        query = self._placed(query)
        if self._cancelled:
            raise RunInterrupted("the batch was interrupted")
        if query.error is not None:
            raise query.error
        self._run.append("shared_started", None, name=step.name, engine=query.engine)
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
            name=step.name,
            engine=query.engine,
            queries=list(step.queries),
            rows=kept.rows,
            bytes=kept.bytes,
            seconds=round(time.monotonic() - began, 6),
            pieces=list(kept.pieces),
            schema=kept.schema,
        )
        return kept

    def _fail(self, query: PlannedQuery, error: HeadwayError, seconds: float) -> None:
        if self._late and self._cancelled and query.error is None:
            error = _too_late()
        super()._fail(query, error, seconds)


MINI_BATCH = "mini_batch"
SHARED_DONE = "shared_done"


def _too_late() -> RunInterrupted:
    return RunInterrupted("the deadline came first")


class _Planner:
    """The order of the queries, found once, and the mini-batches cut from it."""

    def __init__(self, queries: list[Shareable], options: BatchOptions) -> None:
        self._queries = [each.query if options.policy.share else _alone(each) for each in queries]
        self._numbers = {query.name: number for number, query in enumerate(self._queries)}
        self._graph = OverlapGraph([each.graph for each in queries])
        self._policy = options.policy
        self._order = list(range(len(queries)))
        if options.policy.shuffle:
            self._order = self._shuffled(options.deadline)

    def _shuffled(self, deadline: float | None) -> list[int]:
        if self._graph.size > _EXACT_QUERIES:
            return heuristic_order(self._graph)
        seconds = _MOST_EXACT_SECONDS
        if deadline is not None:
            seconds = min(seconds, _EXACT_SHARE * deadline)
        return exact_order(self._graph, seconds)

    def next(self, waiting: list[str], remaining: float, model: CostModel) -> MiniBatch:
        """The next mini-batch. When nothing is expected to fit, the shortest query is tried."""
        left = {self._numbers[name] for name in waiting}
        order = [number for number in self._order if number in left]
        rules = Rules(fixed_size=self._policy.fixed_size, shared_costs=self._policy.shared_costs)
        found = next_mini_batch(self._queries, self._graph, order, remaining, model, rules)
        if found is not None:
            return found
        batches = [
            next_mini_batch(self._queries, self._graph, [number], float("inf"), model, rules)
            for number in order
        ]
        return min((each for each in batches if each is not None), key=lambda each: each.seconds)


def _alone(query: Shareable) -> BatchQuery:
    return replace(query.query, candidates=())


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
