"""A run under way: its queries in worker threads, its story in the store."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.base.daemons import start_daemons
from headway.base.errors import (
    HeadwayError,
    PlanNotResumable,
    QueryFailed,
    RunInterrupted,
    RunSuspended,
    StoreConflict,
    WorkerNotStarted,
    WrongUsage,
)
from headway.pipelined.execution import Report
from headway.session.attending import Attendant, Holder
from headway.session.keeping import Around, Keeping, Running, Stand
from headway.session.losses import LossWatch
from headway.session.opening import frame_to_run
from headway.session.pipelined import ExecutionWatch
from headway.session.planning import (
    PIPELINED,
    SPARK,
    PlannedQuery,
    is_portable,
    statistics_of,
    with_engine,
)
from headway.session.progress import UNDER_WAY, QueryProgress, QueryStatus
from headway.session.resuming import QueryImage, Resumed, kept_data, known_rows, left_of
from headway.session.suspending import Suspension
from headway.storage import QUERY_DONE, QUERY_FAILED, RESULTS, EndStatus, Run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headway.spark.adaptive import QueryWatch
    from headway.spark.results import KeptResult

QUERY_STARTED = "query_started"
HALTING = "halting"
FALLBACK = "fallback"
SWEPT = "swept"
_STOP_INTERVAL = 0.3
_GO_INTERVAL = 0.1
_STOP_PATIENCE = 10.0


class RunHandle:
    """A run that was started. Waiting, asking and cancelling work from any thread."""

    def __init__(
        self,
        run: Run,
        queries: list[PlannedQuery],
        around: Around,
        resumed: Resumed | None = None,
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
        self._let_go = threading.Event()
        self._halting = threading.Lock()
        """Of whoever halts the queries or lets them go on."""
        self._may_go = threading.Event()
        self._may_go.set()
        self._holders: list[Holder] = []
        """Those for whom it is paused."""
        self._stopped_at: float | None = None
        """Since when queries are told to stop."""
        self._lock = threading.Lock()
        self._progress = {q.name: QueryProgress(q.name, q.engine) for q in queries}
        self._started: dict[str, float] = {}
        self._results: dict[str, KeptResult] = {}
        self._reports: dict[str, Report] = {}
        self._began = 0.0
        self._cancelled = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name=f"headway-{run.run_id}")
        self._thread.daemon = True
        self._attendant = Attendant(self, run, around.engine.spark, around.settings)
        self._at_end: list[Callable[[], None]] = []

    def start(self) -> RunHandle:
        self._began = time.monotonic()
        self._thread.start()
        self._attendant.start()
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
        """Whether this process has nothing more to do for the run."""
        return not self._thread.is_alive() and (not self._suspending or self._let_go.is_set())

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; False when `timeout` seconds passed first."""
        self.join(timeout)
        if not self.finished:
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end without asking how it went."""
        until = None if timeout is None else time.monotonic() + timeout
        self._thread.join(timeout)
        if self._suspending:
            self._let_go.wait(None if until is None else max(0.0, until - time.monotonic()))

    def progress(self) -> tuple[QueryProgress, ...]:
        """Every query of the run, in its order."""
        with self._lock:
            shown = list(self._progress.values())
            watches = {name: running.watch for name, running in self._running.items()}
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
        if kept.kept:
            return open_result(self._around.engine.spark, self._run, kept)
        frame = self._queries[name].frame
        if frame is None:
            raise QueryFailed(
                f"the rows of query {name} were not kept by the driver that ran it",
                hint="run it again with results.keep=true",
            )
        return frame

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
            running = self._running.get(name)
            known = self._reports.get(name)
        if running is not None and isinstance(running.watch, ExecutionWatch):
            return running.watch.report
        return known

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
            self._stopped_at = self._stopped_at or time.monotonic()
        if not asked_before:
            threading.Thread(target=self._stop_queries, daemon=True).start()

    def _stop_queries(self) -> None:
        """Again and again until all is still: a stage that Spark submits just after a cancel,
        because none was running at that moment, is not stopped by it."""
        while self._thread.is_alive():
            with self._lock:
                running = list(self._running.values())
            for each in running:
                with suppress(HeadwayError):  # it is asked again as long as the query runs
                    each.stop()
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

    def suspend(self, how: Suspension = Suspension()) -> Mapping[str, QueryImage]:  # noqa: B008
        """Stop what is running and keep what is done of it, for whoever resumes the run: what is
        left of every query that had begun. Returns when the run is free to be resumed. Where that
        cannot be kept, the queries go on."""
        until = how.until()
        if until is not None:
            self._keeping.hurry()  # a snapshot that is being taken
        with self._halting:
            self._keeping.calm()
            self._check_travels(self._could_travel)
            was_paused = self.paused
            self._halt(how.wait, until)
            try:
                self._check_travels(lambda name: self._keeping.image_of(name) is not None)
                if all(status not in UNDER_WAY for status in self._statuses()):
                    self._let_them_go()
                    self._thread.join()
                    return {}  # it has come to its end meanwhile
                images = self._keeping.write(self._done())
            except BaseException:
                if not was_paused:
                    self._let_them_go()
                raise
            with self._lock:
                self._suspending = True
            try:
                self._thread.join()
                self._run.suspend()
            except HeadwayError as error:  # the image is there for whoever finds the run lost
                self._failure = error
                raise
            finally:
                self._let_go.set()
            return images

    def snapshot(self) -> Mapping[str, QueryImage]:
        """Keep what is done of the queries that are running, which go on: should this process be
        lost, the run is resumed from there."""
        with self._halting:
            if self.stopping or self.paused or not self._thread.is_alive():
                raise WrongUsage(
                    f"run {self.id} is not running: there is nothing to keep",
                    hint="`headway runs` shows how runs stand",
                )
            return self._keeping.snapshot_now(self._running_now(), self._done())

    def snapshot_if_due(self) -> None:
        """As `snapshot`, where it pays, and where nobody else keeps it all at this moment."""
        if self.stopping or self.paused or not self._halting.acquire(blocking=False):
            return
        try:
            if not self.stopping and not self.paused:
                self._keeping.snapshot(self._running_now(), self._done())
        finally:
            self._halting.release()

    def pause(self, holder: Holder = None) -> None:
        """Stop what is running, and keep what is done of it for this process to go on with: once
        everybody who holds it has let go, or is a process that has ended."""
        with self._halting:
            if self.paused:
                self._holders.append(holder)
                return
            self._halt(wait=False)
            try:
                self._keeping.write(self._done())
                self._run.pause()
            except BaseException:
                self._let_them_go()
                raise
            self._holders.append(holder)

    def go_on(self, holder: Holder = None) -> None:
        """After a pause: where nobody else holds it, or without a holder in any case."""
        with self._halting:
            others = [] if holder is None else [each for each in self._holders if each != holder]
            if self.paused and not others:
                self._run.go_on()
                self._let_them_go()
            self._holders = others

    def let_go(self, holder: Holder) -> None:
        """As `go_on`, for one who does not wait for it: where the store fails, it is tried again
        until that works."""
        try:
            self.go_on(holder)
        except HeadwayError:
            self._attendant.until_done(lambda: self.go_on(holder))

    @property
    def paused(self) -> bool:
        return not self._may_go.is_set() and not self.stopping and self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether it was told to end, or is being suspended."""
        return self._cancelled or self._suspending

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Those for whom it is paused."""
        return tuple(self._holders)

    def preempted(self) -> None:
        """The machine is about to be taken away: suspend in what time is left, or stop, as the
        settings say."""
        settings = self._settings.suspension
        if settings.on_preemption == "suspend":
            try:
                self.suspend(Suspension(wait=False, within=settings.grace))
            except WrongUsage:
                return  # it has ended meanwhile
        else:
            self.cancel()

    def standings(self) -> Mapping[str, Stand]:
        """Of the queries that are running: what is done, what is held for the rest, what is left,
        and what it would cost to move them."""
        found = {name: self._keeping.stand(each) for name, each in self._running_now().items()}
        return {name: stand for name, stand in found.items() if stand is not None}

    def at_end(self, act: Callable[[], None]) -> None:
        """Have something done when the run has ended, in its own thread."""
        self._at_end.append(act)

    def _halt(self, wait: bool, until: float | None = None) -> None:
        """Nothing of the queries is under way after this, and what is known of them is kept; they
        wait to go on."""
        with self._lock:
            if self.stopping or not self._thread.is_alive():
                raise WrongUsage(
                    f"run {self.id} is not running: there is nothing to suspend",
                    hint="`headway runs` shows how runs stand",
                )
            was_paused = self.paused
            self._may_go.clear()
        try:
            self._announce()
            with self._lock:  # only what is stopped now is begun again when it ends
                running = dict(self._running)
                for each in running.values():
                    each.paused = True
            self._keeping.stop(running, wait, until, self._is_over)
            self._stopped_at = time.monotonic()
            while any(not self._is_over(name, each) for name, each in running.items()):
                for each in running.values():
                    with suppress(HeadwayError):
                        each.stop()
                time.sleep(_GO_INTERVAL)
        except BaseException:
            if not was_paused:
                self._let_them_go()
            raise

    def _check_travels(self, image_known: Callable[[str], bool]) -> None:
        """A DataFrame that reads data of its session alone, and of which no image can be made,
        could be resumed by nobody: it is not suspended."""
        with self._lock:
            left = [n for n, each in self._progress.items() if each.status in UNDER_WAY]
        bound = [n for n in left if not self._queries[n].travels and not image_known(n)]
        if bound:
            raise PlanNotResumable(
                f"{', '.join(bound)} is a DataFrame over data of its session alone: run {self.id} "
                "could not be resumed",
                hint="pause the run, wait for its end, or give it data that is in files",
            )

    def _could_travel(self, name: str) -> bool:
        """Whether an image can be made of a query as it stands, or there is one."""
        with self._lock:
            running = self._running.get(name)
        stand = None if running is None else self._keeping.stand(running)
        if stand is not None and is_portable(stand.standing.plan):
            return True
        return self._keeping.image_of(name) is not None

    def _announce(self) -> None:
        """A store that cannot be written to is noticed before anything is stopped."""
        try:
            self._run.append(HALTING)
        except StoreConflict as error:
            if any(status in UNDER_WAY for status in self._statuses()):
                raise
            raise WrongUsage(
                f"run {self.id} has just ended", hint=f"`headway show {self.id}` shows how"
            ) from error

    def _running_now(self) -> dict[str, Running]:
        with self._lock:
            return dict(self._running)

    def _let_them_go(self) -> None:
        self._stopped_at = None
        self._holders.clear()
        self._may_go.set()

    def _is_over(self, name: str, running: Running) -> bool:
        with self._lock:
            return self._running.get(name) is not running

    def _done(self) -> set[str]:
        """The names of what nobody needs to go on with."""
        with self._lock:
            return set(self._results)

    def _statuses(self) -> list[QueryStatus]:
        with self._lock:
            return [progress.status for progress in self._progress.values()]

    def _take_over_done(self) -> list[str]:
        """The queries that are left when those are taken over that an earlier driver has done."""
        left = []
        for name in self._queries:
            kept = self._resumed.results.get(name)
            if kept is None:
                left.append(name)
                continue
            with self._lock:
                self._results[name] = kept
            self._ended(name, status=QueryStatus.DONE, rows=kept.rows)
        return left

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

    def _work(self) -> None:
        names = self._take_over_done()
        losses = LossWatch(self._around)
        losses.begin()
        self._side_by_side(
            lambda query: self._run_query(self._left(query)),
            [self._queries[name] for name in names],
            self._settings.run.parallel_queries,
        )
        losses.end()
        self._end()

    def _end(self) -> None:
        """After the last query. Where something is kept of a query that is not done, whoever
        resumes the run goes on with that."""
        self._attendant.close()
        if self._settings.suspension.snapshot_every is not None:
            self._around.lost_drivers.add(0, time.monotonic() - self._began)
        try:
            if not self._suspending:  # whoever suspends says what became of the run
                status = self._final_status()
                self._sweep_results()
                if self._keeping.close(self._done(), status == "done") or self._is_to_go_on():
                    self._run.stop(status)
                else:
                    self._run.end(status)
        except HeadwayError as error:
            self._failure = self._failure or error
        for act in self._at_end:
            with suppress(HeadwayError):  # those whom it concerns may have ended as well
                act()

    def _is_to_go_on(self) -> bool:
        """Whether it is worth resuming, though nothing is kept of its queries that are not done."""
        return False

    def _sweep_results(self) -> None:
        """Removes what attempts of queries that were stopped have written."""
        known = {piece for kept in self._results.values() for piece in kept.pieces}
        left = {
            piece
            for piece in set(self._run.piece_sizes(RESULTS)) - known
            if piece.split("/")[1] in self._queries
        }
        if left:
            # Another driver may have taken the run over: it is the one to say what is left.
            self._run.append(SWEPT, None, pieces=len(left))
            self._run.remove_pieces(left)

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

    def _final_status(self) -> EndStatus:
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

    def _run_query(self, query: PlannedQuery, instead: PlannedQuery | None = None) -> None:
        """`instead` is run where the query fails: the whole of what this one is the rest of."""
        if self._suspending:
            self._ended(query.name, status=QueryStatus.SUSPENDED, error=_suspended(self.id))
            return
        query = self._placed(query)
        began = time.monotonic()
        with self._lock:
            self._started[query.name] = began
        try:
            if self._is_stopped(query.name):
                raise RunInterrupted("the run was interrupted before the query began")
            if query.error is not None:
                raise query.error
            self._update(query.name, status=QueryStatus.RUNNING, engine=query.engine)
            states = sorted(query.states)
            self._run.append(QUERY_STARTED, query.name, engine=query.engine, states=states)
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
        if not self._keeping.snapshots:  # reading states counts their rows again
            self._around.observe(query, kept)

    def _tell_fallback(self, query: str | None, error: Exception, **data: Any) -> None:
        """Says in the run that something is done in another way, as the first one failed."""
        told = error.describe() if isinstance(error, HeadwayError) else repr(error)
        self._run.append(FALLBACK, query, error=told, **data)

    def _execute(self, query: PlannedQuery, key: str | None = None) -> KeptResult:
        """The rows of a query, or of the shared step with that key; after a pause from what is
        left of it."""
        self._await_leave()
        while True:
            try:
                return self._execute_once(query, key)
            except HeadwayError as error:
                with self._lock:
                    running = self._running.pop(query.name, None)
                if running is None or not running.paused:
                    if self.stopping or not _reads_other_runs(query):
                        raise
                    query = self._without_other_runs(query, error)
                    continue
            self._await_leave()  # only then is it known what was kept
            query = self._placed(self._left(query, key))
            if query.error is not None:
                raise query.error
            if query.frame is not None and not query.states:
                # A frame whose stages were cancelled remembers that, and fails for ever.
                query = replace(query, frame=query.frame.select("*"))

    def _without_other_runs(self, query: PlannedQuery, error: HeadwayError) -> PlannedQuery:
        """The query from its tables: what another run had for it may be damaged, or gone."""
        assert query.imported is not None
        self._run.append("reuse_failed", query.name, error=error.name, message=error.message)
        plan, wanted = query.imported.plan, self._settings.engine.name
        statistics = statistics_of(query.imported)
        anew = replace(query, states={})
        return self._placed(with_engine(anew, plan, statistics, self._around.observed(), wanted))

    def _await_leave(self) -> None:
        """Until nobody holds the run."""
        while not self._may_go.wait(_GO_INTERVAL):
            if self.stopping:
                raise RunInterrupted("the query was interrupted")

    def _execute_once(self, query: PlannedQuery, key: str | None) -> KeptResult:
        """Rows that others share are written by the executors, in pieces that many can read."""

        def started(watch: QueryWatch | ExecutionWatch, stop: Callable[[], None]) -> None:
            behind = self._keeping.seconds_behind(query, key)
            running = Running(query, watch, stop, key, behind)
            with self._lock:
                self._running[query.name] = running
                running.paused = not self._may_go.is_set()
                stopped = self._is_stopped(query.name) or running.paused
            if stopped:  # after the query was told to run, and before it could be stopped
                stop()

        keep = self._settings.results.keep or key is not None
        if query.engine == PIPELINED:
            return self._around.pipelined.execute(query, self._run, keep=keep, started=started)
        limit = self._settings.results.collect_limit
        with frame_to_run(self._around.engine.spark, self._run, query) as frame:
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
        while not wait([result], timeout=_STOP_INTERVAL).done:
            since = self._stopped_since(name)
            if since is not None and time.monotonic() > since + _STOP_PATIENCE:
                raise RunInterrupted("the query did not end when it was stopped")
        return result.result()

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
