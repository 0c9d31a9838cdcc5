"""The public API: a session over a Spark session, the only place where the parts are wired."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.base.collecting import cycles_left_alone
from headway.base.config import SETTINGS, Settings, load_settings
from headway.base.daemons import start_daemons
from headway.base.errors import HeadwayError, WrongUsage
from headway.session.batch_options import (
    batch_age,
    checked_options,
    options_left,
    record_batch,
)
from headway.session.batch_planning import (
    AfterDeadline,
    BatchOptions,
    BatchPlanner,
    Policy,
)
from headway.session.batch_plans import BatchPlan, plan_of_batch
from headway.session.batches import BatchHandle, cost_model
from headway.session.calibration import Calibration, calibrate
from headway.session.history import CostHistory, FailureHistory, StoreSpeed
from headway.session.keeping import Around
from headway.session.observations import Observations
from headway.session.pipelined import PipelinedEngine
from headway.session.planning import (
    PIPELINED,
    SPARK,
    PlannedQuery,
    Shapes,
    tables_of,
)
from headway.session.preemption import forget, vacate_when_terminated
from headway.session.present_tables import (
    PresentTables,
    check_tables,
    known_tables,
    present_tables,
    record_moved,
)
from headway.session.queries import Query, checked, listed, named_apart
from headway.session.requests import open_requests
from headway.session.resuming import Resumed, known_rows, left_of
from headway.session.reusing import ReusableStates
from headway.session.runs import RunHandle
from headway.session.sharing import shareable
from headway.session.spark_plans import SparkPlans
from headway.session.suspending import Suspension
from headway.session.taking_up import (
    as_it_was_asked_for,
    check_plans,
    planned_again,
    queries_of,
    taken_from_driver,
    took_snapshots,
    what_is_left,
)
from headway.session.workers import Workers
from headway.storage import (
    LOST_SECONDS,
    Run,
    new_manifest,
    open_store,
    sweep_runs,
)
from headway.workloads.tables import find_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headway.spark.results import KeptResult
    from headway.storage import ReliableStore

_CANCELLED_SECONDS = 15.0
"""For how long a run is waited for that was told to stop."""


class Session:
    """Runs queries on a Spark session and keeps what they did in the reliable store."""

    def __init__(
        self, spark: SparkSession, settings: Settings, workers: Workers | None = None
    ) -> None:
        """`workers` of another session are used, and left to it."""
        from headway.spark.engine import SparkEngine
        from headway.spark.tree_text import make_ready_to_plan

        # While tables are being read, and workers come up.
        start_daemons({"headway-ready": make_ready_to_plan}, 1)
        self.spark = spark
        self.settings = settings
        self.store: ReliableStore = open_store(settings.store.url)
        self._plans = SparkPlans(spark)
        self._shapes = Shapes()
        self._own_workers = Workers(spark, settings) if workers is None else None
        self.workers = workers or self._own_workers or Workers(spark, settings)
        self._around = Around(
            SparkEngine(spark),
            PipelinedEngine(spark, settings, self.workers),
            settings,
            self._observe,
            self._known_counts,
            FailureHistory(self.store),
            FailureHistory(self.store, "lost-drivers"),
            StoreSpeed(self.store),
            ReusableStates(self.store),
        )
        self._observations = Observations(self.store) if settings.statistics.observe else None
        cores = int(spark.sparkContext.defaultParallelism)
        self._costs = CostHistory(self.store, settings.engine.name, cores)
        self._observer = ThreadPoolExecutor(1, "headway-observer")
        self._runs: list[RunHandle] = []
        if settings.suspension.on_preemption == "suspend":
            vacate_when_terminated(self._preempted)
        sweep_runs(self.store)

    def sql(
        self,
        text: str,
        *,
        name: str | None = None,
        deadline: float | None = None,
        priority: float = 0.0,
    ) -> Query:
        """A query from its text. Nothing is parsed before it is run or explained."""
        if not text.strip():
            raise WrongUsage("the query is empty")
        return checked(Query(name or "query", text, None, deadline, priority))

    def dataframe(
        self,
        frame: DataFrame,
        *,
        name: str | None = None,
        deadline: float | None = None,
        priority: float = 0.0,
    ) -> Query:
        """A query from any DataFrame of this session."""
        return checked(Query(name or "dataframe", "", frame, deadline, priority))

    def tables(self, directory: str | Path) -> tuple[str, ...]:
        """Make every table of a folder known by its name; returns the names."""
        from headway.spark.tables import register_tables

        return register_tables(self.spark, find_tables(directory))

    def run(
        self,
        queries: Query | str | DataFrame | Iterable[Query | str | DataFrame],
        *,
        urgent: bool = False,
    ) -> RunHandle:
        """Start the queries as one run and return at once. For `urgent` ones all other runs of this
        session are paused until they are done."""
        holder = secrets.token_hex(4)
        paused: list[RunHandle] = []
        try:
            if urgent:
                self._pause_others(holder, paused)
            planned = [self._with_reused(query) for query in self.plan(queries)]
            run = self._new_run(planned)
            return self._start_run(run, planned, None, lambda: _let_go(paused, holder))
        except BaseException:
            _let_go(paused, holder)
            raise

    def vacate(self, how: Suspension = Suspension(wait=False)) -> tuple[str, ...]:  # noqa: B008
        """Suspend all runs of this session, and return their ids once nothing of them is under way
        here."""
        running = self._unfinished()

        def suspend(run: RunHandle) -> str | None:
            try:
                run.suspend(how)
            except WrongUsage:
                return None  # it has ended meanwhile
            return run.id

        with ThreadPoolExecutor(max(1, len(running)), "headway-vacate") as pool:
            futures = [pool.submit(suspend, run) for run in running]
        # Whatever became of the others: all were asked, and have answered.
        found = [future.result() for future in futures]
        return tuple(run_id for run_id in found if run_id is not None)

    def _unfinished(self) -> list[RunHandle]:
        return [run for run in self._runs if not run.finished]

    def _preempted(self) -> None:
        running = self._unfinished()
        with ThreadPoolExecutor(max(1, len(running)), "headway-preempted") as pool:
            for run in running:
                pool.submit(run.preempted)

    def check_tables(self, run_id: str, *, unchecked: bool = False) -> None:
        """Raises what resuming the run here would, if its tables are not those that it began with:
        worth knowing before it is stopped elsewhere."""
        run = Run.open(self.store, run_id)
        events, resumed = what_is_left(run)
        known = known_tables(run, events, resumed)
        queries = [
            query
            for query in queries_of(run, {}, {})
            if query.sql or query.plan is not None  # or its driver tells whether it can go on
        ]
        planned = planned_again(self.spark, run, queries, resumed, known, self._plan_batch)
        check_tables(run, known, present_tables(run, planned), unchecked=unchecked)

    def _pause_others(self, holder: str, paused: list[RunHandle]) -> None:
        """Adds to `paused` what is then held."""
        running = self._unfinished()

        def pause(run: RunHandle) -> None:
            with suppress(HeadwayError):  # it has ended meanwhile, or goes on beside
                run.pause(holder)
                paused.append(run)

        with ThreadPoolExecutor(max(1, len(running)), "headway-pause") as pool:
            list(pool.map(pause, running))

    def _with_reused(self, query: PlannedQuery) -> PlannedQuery:
        """With what earlier runs have kept of the same work."""
        if not self.settings.suspension.reuse or query.plan is None or query.error is not None:
            return query
        try:
            asked = query.imported.plan if query.imported and query.engine == SPARK else query.plan
            found = self._around.reusable.used_by(asked)
        except HeadwayError:
            return query  # the work can be done as well
        if found is None:
            return query
        rows = {name: float(kept.rows) for name, kept in found.states.items()}
        observed = {**self._known_counts(), **known_rows(found.plan, rows)}
        return left_of(query, found.plan, found.states, observed, query.engine)

    def batch(
        self,
        queries: Iterable[Query | str | DataFrame],
        *,
        deadline: float | None = None,
        after_deadline: AfterDeadline = "stop",
        failures_per_hour: float | None = None,
        policy: Policy | None = None,
    ) -> BatchHandle:
        """Start the queries as one batch that shares their common work, and return at once.

        `deadline` is in seconds from now, planning included: as many queries as possible are done
        by then. What is not is stopped, or goes on, as `after_deadline` says. How many failures
        are expected is taken from earlier batches where it is not given.
        """
        began = time.monotonic()
        options = self._batch_options(began, deadline, after_deadline, failures_per_hour, policy)
        with cycles_left_alone():
            planned = self._plan_batch(queries)
            run = self._new_run(planned)
        record_batch(run, planned, options, failures_per_hour)
        return self._start_batch(run, planned, options, None)

    def resume(
        self,
        run_id: str,
        *,
        deadline: float | None = None,
        take_over: bool = False,
        unchecked: bool = False,
    ) -> RunHandle:
        """Go on with a run that was suspended, or whose driver is gone: what is done stays done,
        and rows that were kept are used. `deadline`, of a batch, is in seconds from now; without
        one, what is left of the first. Deadlines of single queries that have passed count no more
        when there is a new one. `take_over` even from a driver that may still be there, which then
        cannot go on. With `unchecked`, tables whose files only Spark can read are believed to be
        the same."""
        from headway.spark.tree_text import make_ready_to_resume

        start_daemons({"headway-ready": make_ready_to_resume}, 1)  # beside the planning
        run = Run.open(self.store, run_id)
        resume = partial(self._resume, run, deadline, take_over, unchecked)
        return taken_from_driver(run, resume) if take_over else resume()

    def _resume(
        self, run: Run, deadline: float | None, take_over: bool, unchecked: bool
    ) -> RunHandle:
        events, resumed = what_is_left(run)
        run_id, summary = run.run_id, run.summary(events)
        if not summary.resumable and not (take_over and summary.status in ("running", "paused")):
            raise WrongUsage(
                f"run {run_id} is {summary.status}: only a run that was suspended, or whose driver "
                "is gone, can be resumed",
                hint="`headway runs` shows how runs stand; a driver that is gone with its machine "
                f"is known to be after {LOST_SECONDS:.0f} seconds, or with --take-over",
            )
        asked = resumed.options
        if deadline is not None and not asked:
            raise WrongUsage(
                f"run {run_id} is no batch: it has no deadline",
                hint="resume it without --deadline",
            )
        options = options_left(run, asked, deadline, self._batch_options) if asked else None
        own = asked.get("deadlines", {})
        if deadline is not None:
            own = {name: end for name, end in own.items() if end > batch_age(run, asked)}
        known = known_tables(run, events, resumed)
        queries = queries_of(run, own, asked.get("priorities", {}))
        planned = planned_again(
            self.spark,
            run,
            queries,
            resumed,
            known,
            self.plan if options is None else self._plan_batch,
        )
        here = PresentTables(known, planned)
        resumed = replace(
            resumed,
            plans={name: here.plan(plan) for name, plan in resumed.plans.items()},
            begun={key: here.plan(plan) for key, plan in resumed.begun.items()},
            forming=resumed.forming.moved(here.plan),
        )
        present = present_tables(run, planned, [*resumed.plans.values(), *resumed.begun.values()])
        check_tables(run, known, present, unchecked=unchecked)
        check_plans(run, planned, resumed)
        of_the_former_driver = open_requests(run)
        run.take_over(resumed.events)
        if summary.status == "lost" and took_snapshots(run):
            self._around.lost_drivers.add(1, run.seconds_until(events[-1]) if events else 0.0)
        run.remove_pieces(of_the_former_driver)
        record_moved(run, known, present)
        if options is not None:
            record_batch(run, planned, options, asked.get("failures_per_hour"))
            return self._start_batch(run, planned, options, resumed)
        return self._start_run(run, planned, resumed)

    def _batch_options(
        self,
        began: float,
        deadline: float | None,
        after_deadline: AfterDeadline,
        failures_per_hour: float | None,
        policy: Policy | None,
    ) -> BatchOptions:
        if failures_per_hour is None:
            failures_per_hour = self._around.failures.per_hour()
        return checked_options(
            BatchOptions(
                began,
                deadline,
                after_deadline,
                policy or Policy(),
                failures_per_hour,
                self.settings.batch.checkpoint_share,
                self.workers.count,
                self.settings.run.parallel_queries,
                asked=began,
            )
        )

    def _start_run(
        self,
        run: Run,
        planned: list[PlannedQuery],
        resumed: Resumed | None,
        at_end: Callable[[], None] = lambda: None,
    ) -> RunHandle:
        handle = RunHandle(run, planned, self._around_of(run, resumed), resumed)
        handle.at_end(at_end)
        self._started(handle)
        return handle

    def _around_of(self, run: Run, resumed: Resumed | None) -> Around:
        if resumed is None:
            return self._around
        settings = as_it_was_asked_for(run, self.settings)
        if settings.suspension.on_preemption == "suspend":
            vacate_when_terminated(self._preempted)
        return replace(self._around, settings=settings)

    def _started(self, handle: RunHandle) -> None:
        self._runs = [*(run for run in self._runs if not run.finished), handle.start()]

    def _start_batch(
        self,
        run: Run,
        planned: list[PlannedQuery],
        options: BatchOptions,
        resumed: Resumed | None,
    ) -> BatchHandle:
        options = replace(options, planning=time.monotonic() - options.asked)
        around = self._around_of(run, resumed)
        handle = BatchHandle(run, planned, around, options, self._costs, resumed)
        self._started(handle)
        return handle

    def _new_run(self, planned: list[PlannedQuery]) -> Run:
        return Run.create(
            self.store,
            new_manifest(
                [query.record() for query in planned],
                tables_of(planned),
                {setting.name: self.settings.text(setting.name) for setting in SETTINGS},
            ),
        )

    def forget_plans(self) -> None:
        """Queries that come again are planned as new ones."""
        self._plans, self._shapes = SparkPlans(self.spark), Shapes()

    def _known_counts(self) -> Mapping[str, float]:
        return self._observations.known() if self._observations is not None else {}

    def explain(self, query: Query | str | DataFrame) -> str:
        """What would run where, and why. Nothing is run."""
        (planned,) = self.plan(query, act=False)
        if planned.error is not None:
            raise planned.error
        return planned.explain()

    def explain_batch(
        self,
        queries: Iterable[Query | str | DataFrame],
        *,
        deadline: float | None = None,
        failures_per_hour: float | None = None,
    ) -> BatchPlan:
        """How a batch would be run: overlap, order, mini-batches, shared plans. Nothing is run."""
        options = self._batch_options(time.monotonic(), deadline, "stop", failures_per_hour, None)
        planned = self.plan(list(queries), act=False, forms=True)
        model = cost_model(self.settings, self._costs)
        found = [shareable(query) for query in planned]
        ends = {
            q.name: min(end for end in (q.deadline, deadline) if end is not None)
            for q in planned
            if q.deadline is not None or deadline is not None
        }
        planner = BatchPlanner(found, options)
        return plan_of_batch(planner, found, ends, model, time.monotonic() - options.began)

    def expected_seconds(self, queries: Iterable[Query | str | DataFrame]) -> dict[str, float]:
        """By the names of the queries, how long each is expected to take by itself. Nothing is
        run."""
        planned = self.plan(list(queries), act=False, forms=True)
        model = cost_model(self.settings, self._costs)
        options = self._batch_options(time.monotonic(), None, "stop", None, None)
        planner = BatchPlanner([shareable(query) for query in planned], options)
        return {q.name: planner.next([q.name], {}, model).seconds for q in planned}

    def calibrate(
        self, progress: Callable[[str, int, int], None] = lambda what, done, total: None
    ) -> Calibration:
        """Run small batches to learn how long shared work takes here; later batches plan by it."""
        return calibrate(self, lambda: cost_model(self.settings, self._costs), progress)

    def plan(
        self,
        queries: Query | str | DataFrame | Iterable[Query | str | DataFrame],
        *,
        act: bool = True,
        forms: bool = False,
    ) -> list[PlannedQuery]:
        """Plan queries without running them. One that cannot even be parsed carries its error.

        Spark runs a command, such as INSERT, as soon as it sees it: unless `act`, it is refused.
        With `forms`, they are planned as those of a batch.
        """
        planned: list[PlannedQuery] = []
        for query in self._plans.imported(self._asked(queries), act=act, forms=forms):
            planned.append(self._with_engine(query))
            if act and planned[-1].engine == PIPELINED:
                self.workers.start_soon()  # beside the planning of the others
        return planned if act else [self._around.pipelined.explained(query) for query in planned]

    def _plan_batch(self, queries: Iterable[Query | str | DataFrame]) -> list[PlannedQuery]:
        """Their engines are chosen when it is known what of them is shared."""
        asked = self._asked(queries)
        if self.settings.engine.name != SPARK:
            self.workers.start_soon()
        planned: list[PlannedQuery] = []
        for query in self._plans.imported(asked, act=True, forms=True):
            found = query.imported
            if found is not None:
                query = replace(query, plan=found.plan, session_frames=found.frames)
            shareable(query)  # which is remembered: beside what Spark does for the next ones
            planned.append(query)
        return planned

    def _asked(self, queries: Query | str | DataFrame | Iterable[Any]) -> list[Query]:
        asked = [self._query(item) for item in listed(queries)]
        if not asked:
            raise WrongUsage("there is no query to run")
        return named_apart(asked)

    def _query(self, item: Any) -> Query:
        if isinstance(item, Query):
            return item
        return self.sql(item) if isinstance(item, str) else self.dataframe(item)

    def _with_engine(self, query: PlannedQuery) -> PlannedQuery:
        if query.imported is None:
            return query
        return self._shapes.with_plan(
            query, query.imported, self._known_counts(), self.settings.engine.name
        )

    def _observe(self, query: PlannedQuery, kept: KeptResult) -> None:
        """File the row counts that Spark measured, beside the queries that come after."""
        whole = query.plan is not None and not query.states
        if self._observations is not None and whole and kept.rows >= 0:
            self._observer.submit(self._file_observed, query, kept)

    def _file_observed(self, query: PlannedQuery, kept: KeptResult) -> None:
        from headway.spark.observe import observed_rows

        assert self._observations is not None and query.plan is not None
        # What the executors wrote, they ran as another query: its frame has measured nothing.
        measured = query.frame if kept.collected else None
        with suppress(HeadwayError):  # counts serve estimates alone
            self._observations.add(observed_rows(measured, query.plan, kept.rows))

    def close(self) -> None:
        """Wait for the runs, and for what goes on beside them; runs that are paused are suspended.
        The Spark session stays open."""
        for run in self._runs:
            if run.paused:
                try:
                    run.suspend()
                except HeadwayError:  # nobody else will let it go on
                    run.let_go(None)
            run.join(_CANCELLED_SECONDS if run.cancelled else None)
        forget(self._preempted)
        self._observer.shutdown()
        if self._own_workers is not None:
            self._own_workers.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(
    spark: SparkSession, workers: Workers | None, settings: Mapping[str, Any]
) -> Session:
    """A session with settings by their name with a dot or an underscore."""
    known = {setting.name.replace(".", "_"): setting.name for setting in SETTINGS}
    given = {known.get(name, name): str(value) for name, value in settings.items()}
    found = load_settings(spark_conf=_spark_conf(spark), command_line=given)
    return Session(spark, found, workers)


def _let_go(paused: Iterable[RunHandle], holder: str) -> None:
    for run in paused:
        run.let_go(holder)


def _spark_conf(spark: SparkSession) -> dict[str, str]:
    settings = dict(spark.sparkContext.getConf().getAll())
    settings.update(spark.conf.getAll)
    return {k: v for k, v in settings.items() if k.startswith("spark.headway.")}
