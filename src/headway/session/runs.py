"""A run under way: its queries in worker threads, its story in the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.base.collecting import collect_now_and_then
from headway.base.config import Settings
from headway.base.errors import (
    HeadwayError,
    PlanNotResumable,
    QueryFailed,
    StoreConflict,
    TableChanged,
    WrongUsage,
)
from headway.pipelined.execution import Report
from headway.session.attending import Attendant, Holder
from headway.session.executing import STOP_INTERVAL, QueryRunner
from headway.session.keeping import Around, Running, Stand
from headway.session.losses import LossWatch
from headway.session.pipelined import ExecutionWatch, StagingWatch
from headway.session.planning import PlannedQuery, is_portable
from headway.session.present_tables import known_tables, present_tables, refuse_changed
from headway.session.progress import UNDER_WAY, QueryProgress, QueryStatus
from headway.session.resuming import QueryImage, Resumed
from headway.session.suspending import Suspension
from headway.storage import RESULTS, EndStatus, Run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from headway.spark.adaptive import QueryWatch
    from headway.spark.results import KeptResult

HALTING = "halting"
SWEPT = "swept"
_OVER_INTERVAL = 0.01
"""Between two looks at queries that were stopped."""


class RunHandle(QueryRunner):
    """A run that was started. Waiting, asking and cancelling work from any thread."""

    def __init__(
        self,
        run: Run,
        queries: list[PlannedQuery],
        around: Around,
        resumed: Resumed | None = None,
    ) -> None:
        super().__init__(run, queries, around, resumed)
        self._let_go = threading.Event()
        self._halting = threading.Lock()
        """Of whoever halts the queries or lets them go on."""
        self._holders: list[Holder] = []
        """Those for whom it is paused."""
        self._began = 0.0
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
    def url(self) -> str:
        """Where the run is kept."""
        return self._run.url

    @property
    def settings(self) -> Settings:
        """Those that it runs under: one that was resumed keeps what it was begun with for the case
        that it is stopped or lost."""
        return self._settings

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
        self, progress: QueryProgress, watch: QueryWatch | ExecutionWatch | StagingWatch | None
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
            self._thread.join(STOP_INTERVAL)

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
        hurried = until is not None or not how.wait
        demand = self._keeping.hurry(until) if hurried else None  # whoever is at it
        with self._halting:
            self._keeping.calm(demand)
            self._check_travels(self._could_travel)
            was_paused = self.paused
            self._halt(how, until)
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
            self._may_go.set()  # to their end
            try:
                self._thread.join()
                self._run.suspend()
            except HeadwayError as error:  # the image is there for whoever finds the run lost
                self._failure = error
                raise
            finally:
                self._let_go.set()
            return images

    def snapshot(self, until: float | None = None) -> Mapping[str, QueryImage]:
        """Keep what is done of the queries that are running, which go on: should this process be
        lost, the run is resumed from there. What is not written `until` then is not in it."""
        with self._halting:
            if self.stopping or self.paused or not self._thread.is_alive():
                raise WrongUsage(
                    f"run {self.id} is not running: there is nothing to keep",
                    hint="`headway runs` shows how runs stand",
                )
            return self._keeping.snapshot_now(self._running_now(), self._done(), until)

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
        everybody who holds it has let go, or is a process that has ended. For the sake of such a
        one, nothing is stopped that would have to begin anew."""
        demand = self._keeping.hurry(None)
        with self._halting:
            self._keeping.calm(demand)
            if self.paused:
                self._holders.append(holder)
                return
            if holder is not None:
                self._check_keeps()
            self._halt(Suspension(wait=False))
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
                self._check_unchanged()
                self._run.go_on()
                self._let_them_go()
            self._holders = others

    def let_go(self, holder: Holder) -> None:
        """As `released`, for one who does not wait for it: where the store fails, it is tried again
        until that works."""
        try:
            self.released(holder)
        except HeadwayError:
            self._attendant.until_done(lambda: self.released(holder))

    def released(self, holder: Holder) -> None:
        """As `go_on`, by itself: where tables have changed meanwhile, there is nobody to put that
        right, and the run ends."""
        try:
            self.go_on(holder)
        except TableChanged as error:
            self._give_up_all(error)

    @property
    def paused(self) -> bool:
        return not self._may_go.is_set() and not self.stopping and self._thread.is_alive()

    @property
    def holders(self) -> tuple[Holder, ...]:
        """Those for whom it is paused."""
        return tuple(self._holders)

    def preempted(self) -> None:
        """The machine is about to be taken away: suspend in what time is left, or stop, as the
        settings say."""
        settings = self._settings.suspension
        if settings.on_preemption == "suspend":
            with suppress(WrongUsage):  # it has ended meanwhile
                how = Suspension(wait=False, within=settings.grace)
                until = how.until()
                try:
                    self.suspend(how)
                except PlanNotResumable:  # of one query, and the others may have much behind them
                    self.snapshot(until)
        else:
            self.cancel()

    def overtaken(self) -> None:
        """Another process drives the run by now: nothing more is done for it here."""
        if self.stopping or not self._thread.is_alive():
            return  # it has let go of it
        self._give_up_all(
            StoreConflict(
                f"another process has taken over run {self.id}",
                hint="`headway runs` shows how it goes on there",
            )
        )

    def _give_up_all(self, error: HeadwayError) -> None:
        """Whoever waits for the run is told why."""
        with self._lock:
            self._failure = self._failure or error
        self.cancel()

    def standings(self) -> Mapping[str, Stand]:
        """Of the queries that are running: what is done, what is held for the rest, what is left,
        and what it would cost to move them."""
        found = {name: self._keeping.stand(each) for name, each in self._running_now().items()}
        return {name: stand for name, stand in found.items() if stand is not None}

    def at_end(self, act: Callable[[], None]) -> None:
        """Have something done when the run has ended, in its own thread."""
        self._at_end.append(act)

    def _halt(self, how: Suspension, until: float | None = None) -> None:
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
        running: dict[str, Running] = {}
        try:
            self._announce()
            with self._lock:  # only what is stopped now is begun again when it ends
                running = dict(self._running)
                for each in running.values():
                    each.paused = True
            self._keeping.stop(running, how, until, self._is_over)
            self._stopped_at = time.monotonic()
            while any(not self._is_over(name, each) for name, each in running.items()):
                for each in running.values():
                    with suppress(HeadwayError):
                        each.stop()
                time.sleep(_OVER_INTERVAL)
            for each in running.values():
                each.watch.let_go()
        except BaseException:
            for each in running.values():
                each.paused = each.stopped  # what goes on all the same is not begun again
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

    def _check_keeps(self) -> None:
        """What is running can be gone on with after a pause."""
        for name, running in self._running_now().items():
            if not self._keeping.keeps(running):
                raise PlanNotResumable(
                    f"nothing can be kept of {name} in run {self.id}: it would begin anew",
                    hint=f"`headway pause {self.id}` pauses the run all the same",
                )

    def _check_unchanged(self) -> None:
        """What is kept of queries is of the rows that their tables had: others may have written to
        them since."""
        with self._lock:
            left = [self._queries[n] for n, p in self._progress.items() if p.status in UNDER_WAY]
        images = self._keeping.images()
        known = known_tables(self._run, self._run.events(), self._resumed)
        of_images = (table for image in images for table in image.tables)
        now = present_tables(self._run, left, [image.plan for image in images])
        refuse_changed(self._run, (*known, *of_images), now)

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

    def _let_them_go(self) -> None:
        with self._lock:
            if not self._cancelled:
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

    def _work(self) -> None:
        # Commands are done, and cannot be done again: whoever resumes the run must know that.
        names = sorted(self._take_over_done(), key=lambda name: not self._queries[name].command)
        losses = LossWatch(self._around)
        losses.begin()
        self._side_by_side(
            lambda query: self._run_query(self._left(query)),
            [self._queries[name] for name in names],
            self._settings.run.parallel_queries,
        )
        losses.end()
        self._end()
        collect_now_and_then()

    def _end(self) -> None:
        """After the last query. Where something is kept of a query that is not done, whoever
        resumes the run goes on with that."""
        self._attendant.close()
        if self._settings.suspension.snapshot_every is not None:
            self._around.lost_drivers.add(0, time.monotonic() - self._began)
        try:
            if not self._suspending:  # whoever suspends says what became of the run
                status = self._final_status()
                kept = self._keeping.close(self._done(), status == "done")
                goes_on = kept or self._is_to_go_on()
                self._sweep_results(self._wanted(goes_on))
                if goes_on:
                    self._run.stop(status)
                else:
                    self._run.end(status)
        except HeadwayError as error:
            self._failure = self._failure or error
        for act in self._at_end:
            with suppress(HeadwayError):  # those whom it concerns may have ended as well
                act()
        self._let_frames_go()

    def _let_frames_go(self) -> None:
        """Spark keeps what it made for a frame, such as tables that were broadcast, as long as
        anybody knows the frame: only rows that were not kept need theirs."""
        with self._lock:
            not_kept = {name for name, kept in self._results.items() if not kept.kept}
            for name in self._queries.keys() - not_kept:
                self._queries[name] = replace(self._queries[name], given=None)

    def _is_to_go_on(self) -> bool:
        """Whether it is worth resuming, though nothing is kept of its queries that are not done."""
        return False

    def _wanted(self, goes_on: bool) -> set[str]:
        """The rows that somebody may still read; where the run `goes_on`, its next driver too."""
        known = (*self._resumed.results.values(), *self._results.values())
        return {piece for kept in known for piece in kept.pieces}

    def _sweep_results(self, wanted: set[str]) -> None:
        """Removes what else there is, such as what attempts that were stopped have written."""
        left = set(self._run.piece_sizes(RESULTS)) - wanted
        if left:
            # Another driver may have taken the run over: it is the one to say what is left.
            self._run.append(SWEPT, None, pieces=len(left))
            self._run.remove_pieces(left)

    def _final_status(self) -> EndStatus:
        statuses = {progress.status for progress in self._progress.values()}
        if QueryStatus.INTERRUPTED in statuses:
            return "interrupted"
        return "failed" if QueryStatus.FAILED in statuses else "done"
