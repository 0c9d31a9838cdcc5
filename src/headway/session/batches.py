"""A batch under way: mini-batches that share work, one after the other, until the deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from headway.base.collecting import cycles_left_alone
from headway.base.config import Settings
from headway.base.errors import HeadwayError, RunInterrupted, StoreFull, StoreUnavailable
from headway.session.batch_planning import BatchOptions, BatchPlanner
from headway.session.batch_reports import BatchProgress, Lost, MiniBatchReport, report_of
from headway.session.formed import StepPlan
from headway.session.history import CostHistory
from headway.session.keeping import Around
from headway.session.losses import LossWatch
from headway.session.opening import OpenStates
from headway.session.pipelined import ExecutionWatch
from headway.session.planning import SPARK, PlannedQuery, statistics_of, with_engine
from headway.session.progress import QueryStatus
from headway.session.resuming import MINI_BATCH_ENDED, Resumed
from headway.session.runs import RunHandle
from headway.session.shared_steps import SharedParts, StepRunner
from headway.session.sharing import (
    Shareable,
    SharedStep,
    formed,
    shareable,
    shared_step,
)
from headway.sharing.cost_model import PIPELINED_RATES, SPARK_RATES, CostModel
from headway.sharing.failures import Failures
from headway.sharing.global_plan import GlobalPlan, PlannedChain
from headway.sharing.mini_batches import MiniBatch
from headway.storage import Run

if TYPE_CHECKING:
    from headway.plan.nodes import QueryPlan
    from headway.spark.results import KeptResult

_FINISHED_TOGETHER = 3
_TICK = 0.2


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
        around: Around,
        options: BatchOptions,
        costs: CostHistory,
        resumed: Resumed | None = None,
    ) -> None:
        super().__init__(run, queries, around, resumed)
        self._options = options
        self._costs = costs
        self._late = False
        self._without_spark = False
        self._commands_kept = threading.Event()
        self._overdue: dict[str, float] = {}
        """Queries that were told to stop at their own deadlines, and when."""
        self._planning = options.planning
        self._planning_since = 0.0
        self._planners = 0
        """Threads that plan something just now."""
        self._mini_batches: list[MiniBatchReport] = []
        self._doing = "planning"
        self._closed_at: float | None = None
        """When it ended, or was told to."""
        self._as_planned = True
        """Whether what was done of the mini-batch is what was predicted."""
        self._shareable: dict[str, Shareable] = {}
        self._finished_at: dict[str, float] = dict(self._resumed.done_at)
        self._model = cost_model(around.settings, costs)
        self._losses = LossWatch(around, Failures(options.failures_per_hour, options.workers))
        self._steps = StepRunner(
            run,
            around,
            self._model,
            options.policy.checkpoints,
            options.checkpoint_budget(queries),
            self._resumed.by_key,
            self._execute_step,
            self._planned,
        )

    def _done(self) -> set[str]:
        return super()._done() | self._steps.done

    @contextmanager
    def _states_open(self) -> Iterator[None]:
        """What a mini-batch shares is fetched once for all of its queries."""
        self._opened = OpenStates(self._around.engine.spark, self._run, many=True)
        try:
            yield
        finally:
            self._opened.close()
            self._opened = None

    def start(self) -> BatchHandle:
        super().start()
        ends = (self._deadline_of(name) for name in self._queries)
        if self._options.after_deadline == "stop" and any(end is not None for end in ends):
            threading.Thread(target=self._watch_deadlines, daemon=True).start()
        return self

    def batch(self) -> BatchProgress:
        """The clock and the mini-batches so far."""
        with self._lock:
            started = dict(self._started)
        return BatchProgress(
            self._options.deadline,
            self._elapsed if self._closed_at is None else self._closed_at,
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
            {name: at - self._options.began for name, at in started.items()},
        )

    @property
    def goes_on_after_deadline(self) -> bool:
        return self._options.after_deadline == "continue"

    def cancel(self) -> None:
        if self._closed_at is None:
            self._closed_at = self._elapsed
        super().cancel()

    # The clock.

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._options.began

    def _deadline_of(self, name: str) -> float | None:
        ends = (self._queries[name].deadline, self._options.deadline)
        return min((end for end in ends if end is not None), default=None)

    def _time_left(self, names: Iterable[str]) -> dict[str, float]:
        """By query, until its own deadline or that of the batch."""
        ends = {name: self._deadline_of(name) for name in names}
        now = self._elapsed
        return {name: float("inf") if end is None else end - now for name, end in ends.items()}

    def _watch_deadlines(self) -> None:
        """Stops queries at their own deadlines, and everything at that of the batch; not before it
        is known of commands that they are done."""
        self._commands_kept.wait()
        deadline = self._options.deadline
        while self._thread.is_alive():
            if deadline is not None and self._elapsed >= deadline:
                self._stop_at_deadline()
                return
            left = self._time_left(self._queries)
            for name, seconds in left.items():
                if seconds <= 0:
                    self._overdue.setdefault(name, time.monotonic())
            for name, running in self._running_now().items():
                if self._is_stopped(name):
                    with suppress(HeadwayError):  # it is asked again as long as the query runs
                        running.stop()
            ahead = [seconds for seconds in left.values() if seconds > 0]
            self._thread.join(min([_TICK, *ahead]))

    def _stop_at_deadline(self) -> None:
        if not self.finished:
            self._late = True
            self.cancel()

    def _is_stopped(self, name: str) -> bool:
        """A shared step is, when all of its queries are."""
        served = self._steps.serves(name)
        return super()._is_stopped(name) or all(each in self._overdue for each in served)

    def _stopped_since(self, name: str) -> float | None:
        since = super()._stopped_since(name)
        if since is not None:
            return since
        overdue = [self._overdue.get(each) for each in self._steps.serves(name)]
        known = [at for at in overdue if at is not None]
        return max(known) if len(known) == len(overdue) else None

    @contextmanager
    def _planned(self) -> Iterator[None]:
        """Adds to the time that planning took: that in which anybody plans, in whichever thread."""
        with self._lock:
            if not self._planners:
                self._planning_since = time.monotonic()
            self._planners += 1
        try:
            with cycles_left_alone():
                yield
        finally:
            with self._lock:
                self._planners -= 1
                if not self._planners:
                    self._planning += time.monotonic() - self._planning_since

    # The course of a batch.

    def _work(self) -> None:
        try:
            self._work_batch()
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            self._failure = error
        self._doing = "done"
        for name, progress in list(self._progress.items()):
            under_way = progress.status in (QueryStatus.WAITING, QueryStatus.RUNNING)
            if under_way and not self._suspending:
                self._give_up(self._queries[name], self._failure or _too_late())
        if self._closed_at is None:
            self._closed_at = self._elapsed
        self._end()

    def _work_batch(self) -> None:
        try:
            waiting = self._keep_commands(self._take_over_done())
        finally:
            self._commands_kept.set()
        waiting = self._go_on_with_steps(self._go_on(waiting))
        with self._planned():
            self._shareable = {name: shareable(self._queries[name]) for name in waiting}
            planner = BatchPlanner([self._shareable[name] for name in waiting], self._options)
        while waiting and not self.stopping and self._failure is None:
            with self._planned():
                planner.expect(self._losses.expected(), self._steps.budget)
                batch = planner.next(waiting, self._time_left(waiting), self._model)
            back = self._run_mini_batch(batch, planner.known)
            taken = {query.name for query in batch.queries} - back
            waiting = [name for name in waiting if name not in taken]
        for name in waiting if self.stopping else ():
            self._run_query(self._queries[name])  # which finds that it was interrupted

    def _keep_commands(self, names: list[str]) -> list[str]:
        """They are done, and cannot be done again: whoever resumes the batch must know that."""
        commands = [name for name in names if self._queries[name].command]
        self._together(self._run_query, commands)
        return [name for name in names if name not in commands]

    def _go_on(self, names: list[str]) -> list[str]:
        """Finishes what an earlier driver had come to; the rest waits."""
        known = (name for name in names if self._keeping.image_of(name) is not None)
        to_finish = [] if self.stopping else list(known)
        self._doing = f"{len(to_finish)} queries from kept results"
        self._together(self._finish_from_image, to_finish)
        return [name for name in names if name not in to_finish]

    def _go_on_with_steps(self, names: list[str]) -> list[str]:
        """Does what is left of the mini-batch that an earlier driver was at, as that had planned
        it. What is not done then waits to be planned."""
        formed = self._resumed.forming
        queries = [name for name in names if name in formed.rests]
        if not queries or self.stopping:
            return names
        number = len(self._mini_batches) + 1
        told = "an earlier driver had formed it"
        report = MiniBatchReport(number, tuple(queries), told, 0.0, self._elapsed)
        self._mini_batches.append(report)
        self._losses.begin()
        parts = SharedParts(self._resumed.states)
        for position, step in enumerate(formed.steps, 1):
            users = [name for name in queries if step.state in formed.needs(name)]
            if users and step.state not in parts.states and not self.stopping:
                self._go_on_with(step, users, parts, formed.steps[position:])
            plans = formed.ready(parts.states)
            ready = [name for name in users if name in plans and self._is_waiting(name)]
            with self._states_open():
                self._together(partial(self._finish, plans=plans, parts=parts), ready)
        if self._is_ended:
            self._run.append(MINI_BATCH_ENDED, None, number=number)
        lost = self._losses.end()
        self._mini_batches[number - 1] = replace(
            report, ended=self._elapsed, shared_steps=parts.steps, lost=lost
        )
        return [name for name in names if self._is_waiting(name)]

    def _go_on_with(
        self, step: StepPlan, users: list[str], parts: SharedParts, later: Sequence[StepPlan]
    ) -> None:
        self._doing = f"shared work for {len(users)} queries, which was begun before"
        try:
            begun = self._resumed.begun
            cuts = self._steps.cuts_again(step, begun, later, self._losses.expected())
            asked = [self._queries[name] for name in users]
            parts.put(step.state, self._steps.run(step, cuts, asked))
        except Exception as error:  # noqa: BLE001 - its queries are planned anew
            self._stop_without_spark()
            if not self.stopping:
                self._tell_fallback(None, error, step=step.name, queries=users)

    def _is_waiting(self, name: str) -> bool:
        return self._progress[name].status is QueryStatus.WAITING

    def _finish_from_image(self, query: PlannedQuery) -> None:
        try:
            left = self._left(query)
        except Exception as error:  # noqa: BLE001 - the whole query can be run
            self._tell_fallback(query.name, error)
            left = query
        self._run_query(left, instead=query)

    def _run_mini_batch(self, batch: MiniBatch, known: frozenset[str]) -> set[str]:
        """Returns the queries that are to be planned again. How long it took is learned from, where
        the work was `known` for every query, and was done."""
        number, chains = len(self._mini_batches) + 1, batch.chains()
        report = report_of(number, batch, self._elapsed)
        self._mini_batches.append(report)
        began = time.monotonic()
        self._losses.begin()
        parts = SharedParts()
        self._as_planned = known.issuperset(report.queries)
        back: set[str] = set()
        try:
            with self._states_open():
                back = self._run_chains(batch, chains, report, parts)
        except RunInterrupted:
            self._run_alone(report.queries)  # which find that they were interrupted
        lost = self._losses.end()
        if self._as_planned and lost == Lost() and self._all_done(report.queries):
            self._model.observe(batch.work, time.monotonic() - began)
            self._costs.keep(self._model.observations)
        if self._is_ended:
            self._run.append(MINI_BATCH_ENDED, None, number=number, put_back=sorted(back))
        self._mini_batches[number - 1] = replace(
            report,
            ended=self._elapsed,
            shared_steps=parts.steps,
            rows_read_once=parts.rows_read_once,
            rows_read_alone=parts.rows_read_alone,
            lost=lost,
            put_back=tuple(sorted(back)),
        )
        return back

    @property
    def _is_ended(self) -> bool:
        """Whether a mini-batch is over for good, or left to whoever resumes the run."""
        return not self.stopping and self._failure is None

    def _all_done(self, names: Iterable[str]) -> bool:
        return all(self._progress[name].status is QueryStatus.DONE for name in names)

    def _tell_fallback(self, query: str | None, error: Exception, **data: Any) -> None:
        self._as_planned = False
        super()._tell_fallback(query, error, **data)

    def _let_them_go(self) -> None:
        self._as_planned = False  # it stood still for a while
        super()._let_them_go()

    def _run_chains(
        self,
        batch: MiniBatch,
        chains: list[PlannedChain],
        report: MiniBatchReport,
        parts: SharedParts,
    ) -> set[str]:
        """The shared steps, each followed by the queries that wait for no other; then those that
        share nothing. After a loss, what was not begun is planned again."""
        number = report.number
        with self._planned():
            steps = {
                id(planned): _made_if_it_can_be(f"shared-{number}-{position}", planned)
                for position, planned in enumerate(chains, 1)
            }
            stages = partial(self._steps.stages, failures=self._losses.expected())
            made = formed(report.queries, self._queries, filter(None, steps.values()), stages)
        predicted = round(report.predicted, 3)
        self._steps.begin(number, made, predicted=predicted, closed_by=report.closed_by)
        waiting = list(chains)
        back: set[str] = set()
        while waiting and self._failure is None:
            planned = waiting.pop(0)
            done = len(chains) - len(waiting)
            told = f"shared work {done} of {len(chains)} for {len(planned.queries)} queries"
            self._doing = f"mini-batch {number}: {told}"
            self._share(planned, f"shared-{number}-{done}", parts, waiting, steps[id(planned)])
            plans = self._ready(planned.queries, parts, waiting)
            self._steps.note(plans, made.rests)
            self._doing = f"mini-batch {number}: {len(plans)} queries from shared work"
            self._together(partial(self._finish, plans=plans, parts=parts), plans)
            if self._losses.look() and not self.stopping:
                begun = [each for each in waiting if parts.of_any(each.queries)]
                kept = {name for each in begun for name in each.queries}
                back |= {name for each in waiting for name in each.queries} - kept
                waiting = begun
        alone = [query.name for query in batch.queries if query.name not in back]
        return back | self._run_alone(alone, number)

    def _ready(
        self, names: Iterable[str], parts: SharedParts, later: list[PlannedChain]
    ) -> dict[str, QueryPlan]:
        """What is left of those queries that share nothing in what comes `later`."""
        with self._planned():
            plans = parts.plans(names, self._queries, self._tell_fallback)
        waited_for = {name for each in later for name in each.queries}
        return {name: plan for name, plan in plans.items() if name not in waited_for}

    def _run_alone(self, names: Iterable[str], number: int = 0) -> set[str]:
        """Those of the queries that were not run yet; after a loss, the rest is planned again."""
        left = [name for name in names if self._is_waiting(name)]
        count = self._settings.run.parallel_queries
        while left:
            now, left = left[:count], left[count:]
            self._doing = f"mini-batch {number}: {', '.join(now)} by itself"
            self._side_by_side(self._run_query, [self._queries[name] for name in now], count)
            if self._losses.look() and not self.stopping:
                return set(left)
        return set()

    def _share(
        self,
        planned: PlannedChain,
        name: str,
        parts: SharedParts,
        later: list[PlannedChain],
        step: SharedStep | None = None,
    ) -> None:
        """Does the work that queries share, as `step` where that could be planned. Where it fails,
        it is done for each half of them: the one that is to blame ends up alone, and fails
        alone."""
        try:
            with self._planned():
                step = step or shared_step(name, planned)
                cuts = self._steps.cuts(step, later, self._losses.expected())
            users = [self._queries[each] for each in step.queries]
            before = self._steps.taken_over
            parts.add(step, self._steps.run(step.to_run, cuts, users))
            self._as_planned &= self._steps.taken_over == before
        except Exception as error:
            self._stop_without_spark()
            if self.stopping:
                raise RunInterrupted("the batch was interrupted") from error
            if all(each in self._overdue for each in planned.queries):
                return
            failed = name if step is None else step.name
            self._tell_fallback(None, error, step=failed, queries=list(planned.queries))
            for number, half in enumerate(self._halves(planned), 1):
                self._share(half, f"{name}.{number}", parts, later)
                self._steps.note(self._ready(half.queries, parts, later))

    def _halves(self, planned: PlannedChain) -> list[PlannedChain]:
        """The work for each half of the queries, where there is time for it."""
        names = planned.queries
        middle = (len(names) + 1) // 2
        found: list[PlannedChain] = []
        with self._planned():
            for half in (names[:middle], names[middle:]) if len(names) > 2 else ():
                plan = GlobalPlan(self._model.rates, shared_costs=self._options.policy.shared_costs)
                for candidate in planned.candidates:
                    if candidate.shape.member.query in half:
                        plan.add(candidate)
                longest = max(self._time_left(half).values())
                found += [
                    chain
                    for chain in plan.chains
                    if len(chain.chain.seats) > 1
                    and (longest <= 0 or self._model.cautious(chain.work) <= longest)
                ]
        return found

    def _finish(self, query: PlannedQuery, plans: dict[str, QueryPlan], parts: SharedParts) -> None:
        """What is left of a query, or the whole of it where that fails."""
        try:
            observed, wanted = self._around.observed(), self._settings.engine.name
            with self._planned():
                left = parts.left_of(query, plans[query.name], observed, wanted)
        except Exception as error:  # noqa: BLE001 - the whole query can be run
            self._tell_fallback(query.name, error)
            left = query
        self._run_query(left, instead=query)

    def _placed(self, query: PlannedQuery) -> PlannedQuery:
        """A query that shares nothing gets its engine here."""
        if query.imported is not None and query.estimates is None:
            wanted, known = self._settings.engine.name, self._around.observed()
            try:
                with self._planned():
                    statistics = statistics_of(query.imported)
                    query = with_engine(query, query.imported.plan, statistics, known, wanted)
            except Exception as error:  # noqa: BLE001 - Spark can run it, and the others go on
                self._tell_fallback(query.name, error)
        return super()._placed(query)

    def _together(self, work: Callable[[PlannedQuery], None], names: Iterable[str]) -> None:
        """What is left of a query is small: several at a time use what one leaves idle."""
        count = max(self._settings.run.parallel_queries, _FINISHED_TOGETHER)
        self._side_by_side(work, [self._queries[name] for name in names], count)

    def _execute_step(self, made: PlannedQuery, key: str) -> tuple[KeptResult, str]:
        """A part of a shared step to its end; its rows, and the engine that made them."""
        left = self._left(made, key)
        self._as_planned &= left is made
        query = self._placed(left)
        if self.stopping:
            raise RunInterrupted("the batch was interrupted")
        if query.error is not None:
            raise query.error
        try:
            return self._execute(query, key), query.engine
        finally:
            with self._lock:
                running = self._running.pop(query.name, None)
            if running is not None:
                running.watch.let_go()
            if running is not None and isinstance(running.watch, ExecutionWatch):
                self._losses.repeated(running.watch.report.repeated)

    def _ended(self, name: str, **changes: Any) -> None:
        if changes.get("status") is QueryStatus.DONE:
            self._finished_at.setdefault(name, self._elapsed)
        super()._ended(name, **changes)
        report = self._reports.get(name)
        if report is not None:
            self._losses.repeated(report.repeated)

    def _wanted(self, goes_on: bool) -> set[str]:
        shared = self._steps.pieces() if goes_on else ()
        return super()._wanted(goes_on) | set(shared)

    def _is_to_go_on(self) -> bool:
        """What was too late, or was interrupted, can be gone on with under a new deadline; so can
        what failed with the store, and not by itself."""
        status = self._final_status()
        if status != "failed":
            return status == "interrupted"
        errors = [self._failure, *(progress.error for progress in self._progress.values())]
        return any(isinstance(error, StoreUnavailable | StoreFull) for error in errors)

    def _stop_without_spark(self) -> None:
        """Whatever fails on a Spark that has ended is left to a driver with another one."""
        from headway.spark.executors import is_gone

        if not self.stopping and is_gone(self._around.engine.spark):
            with self._lock:
                self._cancelled = self._without_spark = True
                self._stopped_at = time.monotonic()

    def _fail(self, query: PlannedQuery, error: HeadwayError, seconds: float) -> None:
        self._stop_without_spark()
        if self._without_spark and query.error is None:
            hint = f"go on with the batch: headway resume {self.id}"
            error = RunInterrupted("Spark has ended", hint=hint)
        stopped = (self._late and self._cancelled) or query.name in self._overdue
        if stopped and query.error is None:
            error = _too_late()
        super()._fail(query, error, seconds)


def _made_if_it_can_be(name: str, planned: PlannedChain) -> SharedStep | None:
    """Whoever needs it finds out what is wrong with it."""
    try:
        return shared_step(name, planned)
    except Exception:  # noqa: BLE001 - it is tried again for fewer queries
        return None


def _too_late() -> RunInterrupted:
    return RunInterrupted("the deadline came first")
