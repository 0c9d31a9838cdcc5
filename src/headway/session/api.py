"""The public API: a session over a Spark session, the only place where the parts are wired."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.base.config import SETTINGS, Settings, load_settings
from headway.base.errors import HeadwayError, PlanNotImportable, TableChanged, WrongUsage
from headway.session.batch_planning import (
    AfterDeadline,
    BatchOptions,
    BatchPlanner,
    Policy,
)
from headway.session.batch_plans import BatchPlan, plan_of_batch
from headway.session.batches import BATCH, BatchHandle, Resumed, cost_model, resumed_from
from headway.session.calibration import Calibration, calibrate
from headway.session.history import CostHistory, FailureHistory
from headway.session.observations import Observations
from headway.session.pipelined import PipelinedEngine
from headway.session.planning import (
    PIPELINED,
    SPARK,
    PlannedQuery,
    Shapes,
    changed_tables,
    tables_of,
    without_plan,
)
from headway.session.runs import RunHandle
from headway.session.sharing import shareable
from headway.session.workers import Workers
from headway.storage import Run, new_manifest, open_store, sweep_runs
from headway.workloads.tables import find_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headway.spark.results import KeptResult
    from headway.storage import ReliableStore

_IMPORTERS = 2


@dataclass(frozen=True, slots=True)
class Query:
    """A query that has a name: a text, or a DataFrame that somebody made."""

    name: str
    sql: str
    frame: DataFrame | None = None
    deadline: float | None = None
    """In a batch: seconds from its start, where the query has a deadline of its own."""
    priority: float = 0.0
    """In a batch: queries with a higher one are taken first."""


class Session:
    """Runs queries on a Spark session and keeps what they did in the reliable store."""

    def __init__(
        self, spark: SparkSession, settings: Settings, workers: Workers | None = None
    ) -> None:
        """`workers` of another session are used, and left to it."""
        from headway.spark.engine import SparkEngine
        from headway.spark.remembered import ImportedPlans

        self.spark = spark
        self.settings = settings
        self.store: ReliableStore = open_store(settings.store.url)
        self._engine = SparkEngine(spark)
        self._imported = ImportedPlans()
        self._shapes = Shapes()
        self._own_workers = Workers(spark, settings) if workers is None else None
        self.workers = workers or self._own_workers or Workers(spark, settings)
        self._pipelined = PipelinedEngine(spark, settings, self.workers)
        self._observations = Observations(self.store) if settings.statistics.observe else None
        self._failures = FailureHistory(self.store)
        cores = int(spark.sparkContext.defaultParallelism)
        self._costs = CostHistory(self.store, settings.engine.name, cores)
        self._observer = ThreadPoolExecutor(1, "headway-observer")
        self._runs: list[RunHandle] = []
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
        return Query(name or "query", text, None, deadline, priority)

    def dataframe(self, frame: DataFrame, *, name: str | None = None) -> Query:
        """A query from any DataFrame of this session."""
        return Query(name or "dataframe", "", frame)

    def tables(self, directory: str | Path) -> tuple[str, ...]:
        """Make every table of a folder known by its name; returns the names."""
        from headway.spark.tables import register_tables

        return register_tables(self.spark, find_tables(directory))

    def run(
        self, queries: Query | str | DataFrame | Iterable[Query | str | DataFrame]
    ) -> RunHandle:
        """Start the queries as one run and return at once."""
        planned = self.plan(queries)
        handle = RunHandle(
            self._new_run(planned),
            planned,
            self._engine,
            self._pipelined,
            self.settings,
            self._observe,
        )
        self._runs = [*(run for run in self._runs if not run.finished), handle.start()]
        return handle

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
        planned = self._plan_batch(queries)
        run = self._new_run(planned)
        run.append(
            BATCH,
            None,
            deadline=deadline,
            after_deadline=after_deadline,
            deadlines={q.name: q.deadline for q in planned if q.deadline is not None},
            priorities={q.name: q.priority for q in planned if q.priority},
        )
        return self._start_batch(run, planned, options, None)

    def resume(self, run_id: str, *, deadline: float | None = None) -> BatchHandle:
        """Go on with a batch whose driver is gone: what is done stays done, and what was shared
        is used. `deadline` is in seconds from now; without one, what is left of the first."""
        began = time.monotonic()
        run = Run.open(self.store, run_id)
        status = run.summary().status
        if status != "lost":
            raise WrongUsage(
                f"run {run_id} is {status}: only a run whose driver is gone can be resumed",
                hint="`headway runs` shows how runs stand",
            )
        asked, resumed = resumed_from(run)
        if not asked:
            raise WrongUsage(f"run {run_id} is no batch", hint="run its queries again")
        if deadline is None and asked["deadline"] is not None:
            deadline = float(asked["deadline"]) - run.age()
            if deadline <= 0 and asked["after_deadline"] == "stop":
                raise WrongUsage(
                    f"the deadline of run {run_id} has passed", hint="give a new one: --deadline 5m"
                )
            deadline = max(deadline, 0.001)
        after: AfterDeadline = "continue" if asked["after_deadline"] == "continue" else "stop"
        options = self._batch_options(began, deadline, after, None, None)
        queries = [
            Query(
                record.name,
                record.sql,
                None,
                asked["deadlines"].get(record.name),
                asked["priorities"].get(record.name, 0.0),
            )
            for record in run.manifest.queries
        ]
        planned = self._plan_batch(queries)
        changed = changed_tables(run.manifest.tables, tables_of(planned))
        if changed:
            raise TableChanged(
                f"{', '.join(changed)} changed since run {run_id} began: its shared results are "
                "of the former rows",
                hint="run the queries again",
            )
        run.take_over()
        return self._start_batch(run, planned, options, resumed)

    def _batch_options(
        self,
        began: float,
        deadline: float | None,
        after_deadline: AfterDeadline,
        failures_per_hour: float | None,
        policy: Policy | None,
    ) -> BatchOptions:
        if deadline is not None and not deadline > 0:
            raise WrongUsage(f"a deadline of {deadline:g} seconds has passed already")
        if after_deadline not in ("stop", "continue"):
            raise WrongUsage(
                f"after the deadline a batch can stop or continue, not {after_deadline}"
            )
        if failures_per_hour is None:
            failures_per_hour = self._failures.per_hour()
        if failures_per_hour < 0:
            raise WrongUsage(f"{failures_per_hour:g} failures per hour is no number of failures")
        return BatchOptions(
            began,
            deadline,
            after_deadline,
            policy or Policy(),
            failures_per_hour,
            workers=self.workers.count,
        )

    def _start_batch(
        self,
        run: Run,
        planned: list[PlannedQuery],
        options: BatchOptions,
        resumed: Resumed | None,
    ) -> BatchHandle:
        handle = BatchHandle(
            run,
            planned,
            self._engine,
            self._pipelined,
            self.settings,
            self._observe,
            self._known_counts,
            options,
            self._failures,
            self._costs,
            resumed,
        )
        self._runs = [*(run for run in self._runs if not run.finished), handle.start()]
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

    def _known_counts(self) -> Mapping[str, float]:
        return self._observations.known() if self._observations is not None else {}

    def explain(self, query: Query | str | DataFrame) -> str:
        """What would run where, and why. Nothing is run."""
        (planned,) = self.plan(query, act=False)
        if planned.error is not None:
            raise planned.error
        return planned.explain()

    def explain_batch(
        self, queries: Iterable[Query | str | DataFrame], *, deadline: float | None = None
    ) -> BatchPlan:
        """How a batch would be run: overlap, order, mini-batches, shared plans. Nothing is run."""
        options = self._batch_options(time.monotonic(), deadline, "stop", None, None)
        planned = self.plan(list(queries), act=False)
        model = cost_model(self.settings, self._costs)
        found = [shareable(query) for query in planned]
        return plan_of_batch(planned, BatchPlanner(found, options), found, deadline, model)

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
    ) -> list[PlannedQuery]:
        """Plan queries without running them. One that cannot even be parsed carries its error.

        Spark runs a command, such as INSERT, as soon as it sees it: unless `act`, it is refused.
        """
        planned: list[PlannedQuery] = []
        for query in self._imported_plans(self._asked(queries), act=act):
            planned.append(self._with_engine(query))
            if act and planned[-1].engine == PIPELINED:
                self.workers.start_soon()  # beside the planning of the others
        return planned if act else [self._pipelined.explained(query) for query in planned]

    def _plan_batch(self, queries: Iterable[Query | str | DataFrame]) -> list[PlannedQuery]:
        """Their engines are chosen when it is known what of them is shared."""
        asked = self._asked(queries)
        if self.settings.engine.name != SPARK:
            self.workers.start_soon()
        return [
            query if query.imported is None else replace(query, plan=query.imported.plan)
            for query in self._imported_plans(asked, act=True)
        ]

    def _asked(self, queries: Query | str | DataFrame | Iterable[Any]) -> list[Query]:
        asked = [self._query(item) for item in _listed(queries)]
        if not asked:
            raise WrongUsage("there is no query to run")
        return _named_apart(asked)

    def _imported_plans(self, queries: list[Query], *, act: bool) -> Iterator[PlannedQuery]:
        """Spark sees one text after the other, as some of them change what the next ones mean.
        Optimising and reading their plans goes on beside that."""
        if len(queries) == 1:
            yield self._with_import(self._analysed(queries[0], act=act))
            return
        with ThreadPoolExecutor(_IMPORTERS, "headway-import") as pool:
            futures = []
            for query in queries:
                futures.append(pool.submit(self._with_import, self._analysed(query, act=act)))
            for future in futures:
                yield future.result()

    def _query(self, item: Any) -> Query:
        if isinstance(item, Query):
            return item
        return self.sql(item) if isinstance(item, str) else self.dataframe(item)

    def _analysed(self, query: Query, *, act: bool) -> PlannedQuery:
        from headway.spark.catalyst import is_action
        from headway.spark.errors import named_error

        try:
            if not act and query.frame is None and is_action(self.spark, query.sql):
                raise WrongUsage(
                    f"{query.name} is a command, which Spark runs as soon as it sees it",
                    hint="explain the query inside it",
                )
            frame = query.frame if query.frame is not None else self.spark.sql(query.sql)
        except Exception as error:  # noqa: BLE001 - named, and carried by the query alone
            return PlannedQuery(query.name, query.sql, None, error=named_error(error))
        return PlannedQuery(
            query.name, query.sql, frame, deadline=query.deadline, priority=query.priority
        )

    def _with_import(self, query: PlannedQuery) -> PlannedQuery:
        if query.frame is None:
            return query
        try:
            return replace(query, imported=self._imported.get(query.frame))
        except PlanNotImportable as error:
            return without_plan(query, error)

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

        assert self._observations is not None and query.frame is not None and query.plan is not None
        # What the executors wrote, they ran as another query: its frame has measured nothing.
        measured = query.frame if kept.collected else None
        with suppress(HeadwayError):  # counts serve estimates alone
            self._observations.add(observed_rows(measured, query.plan, kept.rows))

    def close(self) -> None:
        """Wait for the runs, and for what goes on beside them. The Spark session stays open."""
        for run in self._runs:
            run.join()
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


def _spark_conf(spark: SparkSession) -> dict[str, str]:
    settings = dict(spark.sparkContext.getConf().getAll())
    settings.update(spark.conf.getAll)
    return {k: v for k, v in settings.items() if k.startswith("spark.headway.")}


def _listed(queries: Any) -> Sequence[Any]:
    if isinstance(queries, str | Query) or hasattr(queries, "sparkSession"):
        return [queries]
    return list(queries)


def _named_apart(queries: list[Query]) -> list[Query]:
    """Names that fit into a store and occur once."""
    taken: set[str] = set()
    named = []
    for query in queries:
        base = re.sub(r"[^A-Za-z0-9_-]+", "_", query.name).strip("_")[:56] or "query"
        name, number = base, 2
        while name.casefold() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.casefold())
        named.append(replace(query, name=name))
    return named
