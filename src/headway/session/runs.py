"""A run under way: its queries in worker threads, its story in the store."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headway.base.config import Settings
from headway.base.errors import (
    HeadwayError,
    QueryFailed,
    RunInterrupted,
    WorkerNotStarted,
    WrongUsage,
)
from headway.pipelined.execution import Report
from headway.session.pipelined import ExecutionWatch, PipelinedEngine
from headway.session.planning import PIPELINED, SPARK, PlannedQuery
from headway.storage import QUERY_DONE, QUERY_FAILED, Run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headway.spark.adaptive import QueryWatch
    from headway.spark.engine import SparkEngine
    from headway.spark.results import KeptResult

QUERY_STARTED = "query_started"
_STOP_INTERVAL = 0.3


class QueryStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Where a query stands. `pipelines` are those of the engine that runs it."""

    name: str
    engine: str
    status: QueryStatus = QueryStatus.WAITING
    pipelines_done: int = 0
    pipelines_total: int = 0
    seconds: float = 0.0
    rows: int | None = None
    error: HeadwayError | None = None


class RunHandle:
    """A run that was started. Waiting, asking and cancelling work from any thread."""

    def __init__(
        self,
        run: Run,
        queries: list[PlannedQuery],
        engine: SparkEngine,
        pipelined: PipelinedEngine,
        settings: Settings,
        observe: Callable[[PlannedQuery, KeptResult], None],
    ) -> None:
        self._run = run
        self._queries = {query.name: query for query in queries}
        self._engine = engine
        self._pipelined = pipelined
        self._settings = settings
        self._observe = observe
        self._lock = threading.Lock()
        self._progress = {q.name: QueryProgress(q.name, q.engine) for q in queries}
        self._watches: dict[str, QueryWatch | ExecutionWatch] = {}
        self._stops: dict[str, Callable[[], None]] = {}
        self._started: dict[str, float] = {}
        self._results: dict[str, KeptResult] = {}
        self._reports: dict[str, Report] = {}
        self._cancelled = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=f"headway-{run.run_id}")
        self._thread.daemon = True

    def start(self) -> RunHandle:
        self._thread.start()
        return self

    @property
    def id(self) -> str:
        return self._run.run_id

    @property
    def url(self) -> str:
        """Where the run is kept."""
        return self._run.url

    @property
    def finished(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when `timeout` seconds passed first."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def join(self) -> None:
        """Wait for the end without asking how it went."""
        self._thread.join()

    def progress(self) -> tuple[QueryProgress, ...]:
        """Every query of the run, in its order."""
        with self._lock:
            shown = list(self._progress.values())
            watches = dict(self._watches)
        return tuple(self._live(p, watches.get(p.name)) for p in shown)

    def _live(
        self, progress: QueryProgress, watch: QueryWatch | ExecutionWatch | None
    ) -> QueryProgress:
        if progress.status is not QueryStatus.RUNNING or watch is None:
            return progress
        count = watch.count()
        seconds = time.monotonic() - self._started[progress.name]
        return replace(
            progress,
            pipelines_done=count.done,
            pipelines_total=count.total,
            seconds=seconds,
        )

    def result(self, query: str | None = None) -> DataFrame:
        """The rows of a query, once it is done; of the only query when none is named."""
        from headway.spark.results import open_result

        name = self._one(query)
        kept = self._kept(name)
        planned = self._queries[name]
        assert planned.frame is not None
        if not kept.kept:
            return planned.frame
        return open_result(planned.frame.sparkSession, self._run, kept)

    def arrow(self, query: str | None = None) -> pa.Table:
        """The rows as an Arrow table of this process, without going through Spark again."""
        from headway.spark.results import read_result

        name = self._one(query)
        kept = self._kept(name)
        return read_result(self._run, kept) if kept.kept else self.result(name).toArrow()

    def report(self, query: str | None = None) -> Report | None:
        """What the query took so far, tasks done again included; None on the spark engine."""
        name = self._one(query)
        with self._lock:
            watch = self._watches.get(name)
            known = self._reports.get(name)
        return watch.report if isinstance(watch, ExecutionWatch) else known

    def _kept(self, name: str) -> KeptResult:
        while not self.finished and name not in self._results:
            if self._progress[name].status not in (QueryStatus.WAITING, QueryStatus.RUNNING):
                break
            self._thread.join(0.01)
        kept = self._results.get(name)
        if kept is None:
            self.wait(0)
            raise self._progress[name].error or QueryFailed(f"query {name} has no result")
        return kept

    def explain(self, query: str | None = None) -> str:
        """What runs where, and why; of all queries when none is named."""
        if query is not None:
            return self._queries[self._one(query)].explain()
        return "\n\n".join(planned.explain() for planned in self._queries.values())

    def cancel(self) -> None:
        """Stop what is running, start nothing more, and leave a run that says so."""
        with self._lock:
            asked_before, self._cancelled = self._cancelled, True
        if not asked_before:
            threading.Thread(target=self._stop_queries, daemon=True).start()

    def _stop_queries(self) -> None:
        """Again and again until all is still: a stage that Spark submits just after a cancel,
        because none was running at that moment, is not stopped by it."""
        while not self.finished:
            with self._lock:
                stops = list(self._stops.values())
            for stop in stops:
                with suppress(HeadwayError):  # it is asked again as long as the query runs
                    stop()
            self._thread.join(_STOP_INTERVAL)

    def _one(self, name: str | None) -> str:
        if name is None and len(self._queries) == 1:
            return next(iter(self._queries))
        if name is None or name not in self._queries:
            raise WrongUsage(
                "the run has several queries" if name is None else f"no query {name!r} in the run",
                hint=f"its queries: {', '.join(self._queries)}",
            )
        return name

    def _work(self) -> None:
        self._side_by_side(
            self._run_query, self._queries.values(), self._settings.run.parallel_queries
        )
        try:
            self._run.end(self._final_status())
        except HeadwayError as error:
            self._failure = self._failure or error

    def _side_by_side(
        self, work: Callable[[PlannedQuery], None], queries: Iterable[PlannedQuery], count: int
    ) -> None:
        """So many queries at a time, in daemon threads: a driver that is to end does not wait for
        them."""
        waiting = deque(queries)
        threads = [
            threading.Thread(target=self._work_off, args=(work, waiting), daemon=True)
            for _ in range(min(count, len(waiting)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work_off(self, work: Callable[[PlannedQuery], None], waiting: deque[PlannedQuery]) -> None:
        while waiting:
            try:
                query = waiting.popleft()
            except IndexError:
                return
            if self._failure is not None:
                self._give_up(query, self._failure)
                continue
            try:
                work(query)
            except Exception as error:  # noqa: BLE001 - handed to whoever waits
                # The store failed under the run: without it no further query can be kept.
                self._failure = error
                self._give_up(query, error)

    def _give_up(self, query: PlannedQuery, cause: Exception) -> None:
        error = cause if isinstance(cause, HeadwayError) else QueryFailed(f"{cause!r}")
        self._ended(query.name, status=QueryStatus.FAILED, error=error)

    def _final_status(self) -> Any:
        statuses = {progress.status for progress in self._progress.values()}
        if QueryStatus.INTERRUPTED in statuses:
            return "interrupted"
        return "failed" if QueryStatus.FAILED in statuses else "done"

    def _placed(self, query: PlannedQuery) -> PlannedQuery:
        """The query with the workers it needs, which are started with the first one. Where there
        can be none, Spark runs it, unless the user asked for the pipelined engine."""
        if query.engine != PIPELINED or query.error is not None or self._cancelled:
            return query
        try:
            self._pipelined.start()
        except WorkerNotStarted as error:
            if self._settings.engine.name == PIPELINED:
                return replace(query, error=error)
            query = replace(query, engine=SPARK, refusals=(error.message,))
            with self._lock:
                self._queries[query.name] = query
            self._update(query.name, engine=SPARK)
        return query

    def _run_query(self, query: PlannedQuery) -> None:
        query = self._placed(query)
        began = time.monotonic()
        with self._lock:
            self._started[query.name] = began
        try:
            if self._cancelled:
                raise RunInterrupted("the run was interrupted before the query began")
            if query.error is not None:
                raise query.error
            self._update(query.name, status=QueryStatus.RUNNING, engine=query.engine)
            self._run.append(QUERY_STARTED, query.name, engine=query.engine)
            kept = self._execute(query)
        except HeadwayError as error:
            self._fail(query, error, time.monotonic() - began)
            return
        seconds = time.monotonic() - began
        self._run.append(
            QUERY_DONE,
            query.name,
            engine=query.engine,
            rows=kept.rows,
            bytes=kept.bytes,
            seconds=round(seconds, 6),
            kept=kept.kept,
            pieces=list(kept.pieces),
            schema=kept.schema,
        )
        watch = self._watches.get(query.name)
        total = watch.count().total if watch is not None else 1
        with self._lock:
            self._results[query.name] = kept
        self._ended(
            query.name,
            status=QueryStatus.DONE,
            pipelines_done=total,
            pipelines_total=total,
            seconds=seconds,
            rows=kept.rows if kept.rows >= 0 else None,
        )
        self._observe(query, kept)

    def _execute(self, query: PlannedQuery) -> KeptResult:
        def started(watch: QueryWatch | ExecutionWatch, stop: Callable[[], None]) -> None:
            with self._lock:
                self._watches[query.name] = watch
                self._stops[query.name] = stop
                cancelled = self._cancelled
            if cancelled:  # after the query was told to run, and before it could be stopped
                stop()

        if query.engine == PIPELINED:
            return self._pipelined.execute(query, self._run, started=started)
        return self._engine.execute(
            self._frame(query),
            self._run,
            query.name,
            large=query.result_bytes > self._settings.results.collect_limit,
            keep=self._settings.results.keep,
            started=started,
        )

    def _frame(self, query: PlannedQuery) -> DataFrame:
        """What Spark is to run: the query untouched, or its plan over saved states."""
        from headway.spark.frames import frame_of
        from headway.spark.results import open_result

        if query.frame is not None and not query.states:
            return query.frame
        assert query.plan is not None
        spark = self._engine.spark
        return frame_of(
            spark,
            query.plan,
            session_frames=query.session_frames,
            state_frames=lambda scan: open_result(spark, self._run, query.states[scan.state]),
        )

    def _fail(self, query: PlannedQuery, error: HeadwayError, seconds: float) -> None:
        interrupted = self._cancelled and query.error is None
        if interrupted and not isinstance(error, RunInterrupted):
            error = RunInterrupted("the query was interrupted")
        status = QueryStatus.INTERRUPTED if interrupted else QueryStatus.FAILED
        self._run.append(
            "query_interrupted" if interrupted else QUERY_FAILED,
            query.name,
            engine=query.engine,
            error=error.name,
            message=error.message,
            hint=error.hint,
            seconds=round(seconds, 6),
        )
        self._ended(query.name, status=status, seconds=seconds, error=error)

    def _ended(self, name: str, **changes: Any) -> None:
        """In one step: a query that is still running is never seen without its watch."""
        with self._lock:
            self._progress[name] = replace(self._progress[name], **changes)
            watch = self._watches.pop(name, None)
            if isinstance(watch, ExecutionWatch):
                self._reports[name] = watch.report
            self._stops.pop(name, None)

    def _update(self, name: str, **changes: Any) -> None:
        with self._lock:
            self._progress[name] = replace(self._progress[name], **changes)


def summary_rows(progress: tuple[QueryProgress, ...]) -> list[Mapping[str, Any]]:
    """Query, rows, seconds, engine and status, for a table or for JSON."""
    return [
        {
            "query": p.name,
            "status": str(p.status),
            "rows": p.rows,
            "seconds": round(p.seconds, 3),
            "engine": p.engine,
            "error": None if p.error is None else p.error.describe(),
        }
        for p in progress
    ]
