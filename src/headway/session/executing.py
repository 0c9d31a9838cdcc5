"""The queries of a run, each to its end: on its engine, from what is kept of it, and with its story
in the run."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.base.daemons import start_daemons
from headway.base.errors import (
    HeadwayError,
    QueryFailed,
    RunInterrupted,
    RunSuspended,
    WorkerNotStarted,
)
from headway.pipelined.execution import Report
from headway.session.keeping import Around, Keeping, Running
from headway.session.opening import OpenStates, frame_to_run
from headway.session.pipelined import ExecutionWatch, StagingWatch
from headway.session.planning import PIPELINED, SPARK, PlannedQuery, statistics_of, with_engine
from headway.session.progress import QueryProgress, QueryStatus
from headway.session.resuming import FALLBACK, QueryImage, Resumed, kept_data, known_rows, left_of
from headway.storage import QUERY_DONE, QUERY_FAILED, Run

if TYPE_CHECKING:
    from headway.spark.adaptive import QueryWatch
    from headway.spark.results import KeptResult

QUERY_STARTED = "query_started"
STOP_INTERVAL = 0.3
GO_INTERVAL = 0.1
_STOP_PATIENCE = 10.0


class QueryRunner:
    """What there is of the queries of a run, and how one of them is run. Safe from several
    threads."""

    def __init__(
        self, run: Run, queries: list[PlannedQuery], around: Around, resumed: Resumed | None
    ) -> None:
        """`resumed` is what an earlier driver of the run has left."""
        self._run = run
        self._queries = {query.name: query for query in queries}
        self._around = around
        self._settings = around.settings
        self._resumed = resumed or Resumed()
        self._running: dict[str, Running] = {}
        self._keeping = Keeping(run, around, self._resumed, self._running_now)
        self._suspending = False
        self._cancelled = False
        self._may_go = threading.Event()
        self._may_go.set()
        self._stopped_at: float | None = None
        """Since when queries are told to stop."""
        self._lock = threading.Lock()
        self._progress = {q.name: QueryProgress(q.name, q.engine) for q in queries}
        self._started: dict[str, float] = {}
        self._results: dict[str, KeptResult] = {}
        self._reports: dict[str, Report] = {}
        self._failure: Exception | None = None
        self._opened: OpenStates | None = None
        """States that several queries read."""

    @property
    def id(self) -> str:
        return self._run.run_id

    @property
    def cancelled(self) -> bool:
        """Whether it was told to stop, and to leave it at that."""
        return self._cancelled

    @property
    def stopping(self) -> bool:
        """Whether it was told to end, or is being suspended."""
        return self._cancelled or self._suspending

    def _running_now(self) -> dict[str, Running]:
        with self._lock:
            return dict(self._running)

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
                self._failure = self._failure or error
                self._give_up(query, error)

    def _give_up(self, query: PlannedQuery, cause: Exception) -> None:
        error = cause if isinstance(cause, HeadwayError) else QueryFailed(f"{cause!r}")
        self._ended(query.name, status=QueryStatus.FAILED, error=error)

    def _run_query(self, query: PlannedQuery, instead: PlannedQuery | None = None) -> None:
        """`instead` is run where the query fails: the whole of what this one is the rest of."""
        if self._suspending:
            self._ended(query.name, status=QueryStatus.SUSPENDED, error=_suspended(self.id))
            return
        if not self._is_stopped(query.name):
            query = self._placed(query)
        began = time.monotonic()
        with self._lock:
            self._started[query.name] = began
        refusal = query.error
        if refusal is None and self._is_stopped(query.name):
            refusal = RunInterrupted("the run was interrupted before the query began")
        if refusal is None:
            self._update(query.name, status=QueryStatus.RUNNING, engine=query.engine)
            states = sorted(query.states)
            self._run.append(QUERY_STARTED, query.name, engine=query.engine, states=states)
        try:
            if refusal is not None:
                raise refusal
            kept = self._execute(query)
        except Exception as error:
            if instead is not None and not (self._suspending or self._is_stopped(query.name)):
                self._tell_fallback(query.name, error)
                self._run_query(instead)
            elif isinstance(error, HeadwayError):
                self._fail(query, error, time.monotonic() - began)
            else:
                raise
            return
        seconds = time.monotonic() - began
        self._run.append(
            QUERY_DONE,
            query.name,
            engine=query.engine,
            seconds=round(seconds, 6),
            **kept_data(kept),
        )
        running = self._running.get(query.name)
        total = running.watch.count().total if running is not None else 1
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
        if running is not None and kept.kept:
            running.watch.let_go()
        if not self._keeping.snapshots:  # reading states counts their rows again
            self._around.observe(query, kept)

    def _placed(self, query: PlannedQuery) -> PlannedQuery:
        """The query with the workers it needs, which are started with the first one. Where there
        can be none, Spark runs it, unless the user asked for the pipelined engine."""
        if query.engine != PIPELINED or query.error is not None or self._cancelled:
            return query
        try:
            self._around.pipelined.start()
        except WorkerNotStarted as error:
            if self._settings.engine.name == PIPELINED:
                return replace(query, error=error)
            query = replace(query, engine=SPARK, refusals=(error.message,))
            if query.name in self._queries:  # or it is a shared step of a batch
                with self._lock:
                    self._queries[query.name] = query
                self._update(query.name, engine=SPARK)
        return query

    def _stopped_since(self, name: str) -> float | None:
        """When a query was told to stop."""
        return self._stopped_at

    def _is_stopped(self, name: str) -> bool:
        """Whether a query is not to be started, or was told to end."""
        return self._cancelled

    def _execute(self, query: PlannedQuery, key: str | None = None) -> KeptResult:
        """The rows of a query, or of the shared step with that key; after a pause from what is
        left of it."""
        self._await_leave()
        while True:
            try:
                return self._execute_once(query, key)
            except HeadwayError as error:
                with self._lock:
                    running = self._running.get(query.name)
                    if running is not None and running.paused:
                        running.failed = not (running.stopped or self._is_stopped(query.name))
                    self._running.pop(query.name, None)
                if running is None or not running.paused:
                    if self.stopping or not _reads_other_runs(query):
                        raise
                    query = self._without_other_runs(query, error)
                    continue
                if running.failed:
                    with suppress(HeadwayError):  # a store that fails says so to who suspends it
                        self._tell_fallback(query.name, error)
            del running
            self._renew_frame(query)
            self._await_leave()  # only then is it known what was kept
            query = self._placed(self._left(query, key))
            if query.error is not None:
                raise query.error

    def _await_leave(self) -> None:
        """Until nobody holds the run."""
        while not self._may_go.wait(GO_INTERVAL):
            if self.stopping:
                break
        if self._suspending or not self._may_go.is_set():
            raise RunInterrupted("the query was interrupted")

    def _renew_frame(self, query: PlannedQuery) -> None:
        """A frame whose stages were cancelled remembers that, and fails for ever; and as long as it
        is known to anybody, Spark has to keep what it made for it."""
        from headway.spark.errors import named_error

        before = query.frame
        if before is None:
            return
        try:
            renewed = before.select("*")
        except Exception as error:
            raise named_error(error) from error
        for each in (query, self._queries.get(query.name)):
            if each is not None and each.frame is before:
                each.renew(renewed)

    def _left(self, query: PlannedQuery, key: str | None = None) -> PlannedQuery:
        """What is left of a query, or of the shared step with that key: of what an earlier driver
        did of it, or this one before a pause."""
        image = self._keeping.image_of(query.name, key)
        if image is None or not self._is_there(image):
            return query
        rows = {name: float(kept.rows) for name, kept in image.states.items()}
        observed = {**self._around.observed(), **known_rows(image.plan, rows)}
        wanted = self._settings.engine.name
        left = left_of(query, image.plan, image.states, observed, wanted)
        with self._lock:
            if query.name in self._queries:
                self._queries[query.name] = left
        return left

    def _is_there(self, image: QueryImage) -> bool:
        """Whether other runs still have what they had for it."""
        for kept in image.states.values():
            if kept.run is not None:
                try:
                    pieces = set(Run.open(self._run.store, kept.run).pieces())
                except HeadwayError:
                    return False
                if not pieces.issuperset(kept.pieces):
                    return False
        return True

    def _without_other_runs(self, query: PlannedQuery, error: HeadwayError) -> PlannedQuery:
        """The query from its tables: what another run had for it may be damaged, or gone."""
        assert query.imported is not None
        self._run.append("reuse_failed", query.name, error=error.name, message=error.message)
        plan, wanted = query.imported.plan, self._settings.engine.name
        statistics = statistics_of(query.imported)
        anew = replace(query, states={})
        return self._placed(with_engine(anew, plan, statistics, self._around.observed(), wanted))

    def _execute_once(self, query: PlannedQuery, key: str | None) -> KeptResult:
        """Rows that others share are written by the executors, in pieces that many can read."""

        def started(
            watch: QueryWatch | ExecutionWatch | StagingWatch, stop: Callable[[], None]
        ) -> None:
            behind = self._keeping.seconds_behind(query, key)
            running = Running(query, watch, stop, key, behind)
            with self._lock:
                self._running[query.name] = running
                running.paused = self._suspending or not self._may_go.is_set()
                stopped = running.stopped = self._is_stopped(query.name) or running.paused
            if stopped:  # after the query was told to run, and before it could be stopped
                stop()

        keep = self._settings.results.keep or key is not None
        if query.engine == PIPELINED:
            return self._around.pipelined.execute(query, self._run, keep=keep, started=started)
        limit = self._settings.results.collect_limit
        spark, opened = self._around.engine.spark, self._opened
        with frame_to_run(spark, self._run, query, opened) as frame:
            return self._stoppable(
                query.name,
                lambda: self._around.engine.execute(
                    frame,
                    self._run,
                    query.name,
                    large=key is not None or query.result_bytes > limit,
                    keep=keep,
                    started=started,
                ),
            )

    def _stoppable(self, name: str, work: Callable[[], KeptResult]) -> KeptResult:
        """Spark may never say that a query has ended, such as when the driver ran out of memory:
        one that was told to stop is left behind after a while."""
        result = start_daemons({name: work}, 1)[name]
        while not wait([result], timeout=STOP_INTERVAL).done:
            since = self._stopped_since(name)
            if since is not None and time.monotonic() > since + _STOP_PATIENCE:
                raise RunInterrupted("the query did not end when it was stopped")
        return result.result()

    def _tell_fallback(self, query: str | None, error: Exception, **data: Any) -> None:
        """Says in the run that something is done in another way, as the first one failed."""
        told = error.describe() if isinstance(error, HeadwayError) else repr(error)
        self._run.append(FALLBACK, query, error=told, **data)

    def _fail(self, query: PlannedQuery, error: HeadwayError, seconds: float) -> None:
        if self._suspending and query.error is None:
            told = _suspended(self.id)
            self._ended(query.name, status=QueryStatus.SUSPENDED, seconds=seconds, error=told)
            return
        interrupted = self._is_stopped(query.name) and query.error is None
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
            running = self._running.pop(name, None)
            if running is not None and isinstance(running.watch, ExecutionWatch):
                self._reports[name] = running.watch.report

    def _update(self, name: str, **changes: Any) -> None:
        with self._lock:
            self._progress[name] = replace(self._progress[name], **changes)


def _reads_other_runs(query: PlannedQuery) -> bool:
    return query.imported is not None and any(kept.run for kept in query.states.values())


def _suspended(run_id: str) -> RunSuspended:
    return RunSuspended(
        "the query was suspended", hint=f"go on with it anywhere: headway resume {run_id}"
    )
