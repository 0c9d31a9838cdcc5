"""What Spark has done of a query that it is running: adaptive execution keeps the rows of every
finished stage."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headway.base.clock import Until, whenever
from headway.base.daemons import start_daemons
from headway.base.errors import HeadwayError, PlanNotImportable, RunInterrupted
from headway.plan.nodes import QueryPlan, StateScan
from headway.session.history import StoreSpeed
from headway.session.keepers import BEGIN_SECONDS, LOOK_SECONDS, HeldState, Standing, state_prefix
from headway.session.planning import PlannedQuery
from headway.session.resuming import STATES, Origin, QueryImage, states_of
from headway.storage import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.spark.adaptive import QueryWatch
    from headway.spark.operators import FileSources
    from headway.spark.results import KeptResult
    from headway.spark.running import LiveState, RunningPlan, Stages

_EXTRACTED_TOGETHER = 4
_CLEANING = "spark.sql.classic.shuffleDependency.fileCleanup.enabled"
_COLLECTED_BYTES = 32 << 20
"""States up to here pass through the driver: executors would start Python processes for them."""
_READ_HERE_BYTES = 128 << 20
"""States up to here pass through the driver where no executor takes tasks any more."""
_LOOK_SECONDS = 0.05
_STOP_SECONDS = 0.2
"""How long a write that is stopped may take to end."""
_SHUFFLED_BYTES_PER_SECOND = 60e6
"""Of one core."""


class SparkKeeper:
    """Keeps the states of one query. Safe from several threads, but for making two images."""

    def __init__(
        self,
        spark: SparkSession,
        run: Run,
        query: PlannedQuery,
        watch: QueryWatch,
        speed: StoreSpeed,
    ) -> None:
        self._spark = spark
        self._run = run
        self._query = query
        self._watch = watch
        self._speed = speed
        self._prefix = state_prefix(query.name)
        self._naming = threading.Lock()
        self._named: list[tuple[str, LiveState]] = []
        self._kept: dict[str, KeptResult] = {}
        self._known_origins: dict[str, Origin | None] = {}
        self._writing: set[str] = set()
        """Job groups."""
        self._stopped = False
        self._file_sources: FileSources = {}

    def quiet(self, stop: Callable[[], None]) -> None:
        """What is finished stays, and its rows are read without tasks of the rest in the way;
        unless a subquery of the query is needed for that, or Spark is to remove the files of
        queries that have ended."""
        cleans = self._spark.conf.get(_CLEANING, "false") == "true"
        if not cleans and not any(state.waits for state in self._live_states()):
            self._stopped = True
            stop()

    def go_on(self) -> bool:
        return not self._stopped

    def settle(self, until: float | None, ended: Callable[[], bool], *, to_its_end: bool) -> None:
        """The next pipelines have hardly begun then."""
        awaited: frozenset[int] = frozenset()
        patience = time.monotonic() + BEGIN_SECONDS
        while not ended():
            stages = self._stages()
            at_last = stages.total == stages.finished  # one that is no stage is left
            if awaited and not awaited & stages.unfinished:
                return
            if not awaited and (not to_its_end if at_last else time.monotonic() > patience):
                return
            if until is not None:
                written = sum(state.bytes or 0 for state in self._live_states())
                if time.monotonic() + 2 * self._speed.seconds(written) >= until:
                    return
            # Between two pipelines there is a moment without any.
            awaited = awaited or stages.running
            time.sleep(LOOK_SECONDS)

    def finished(self) -> int:
        return self._stages().finished

    def stand(self, without: Collection[str] = ()) -> Standing | None:
        found = self._read(without)
        if found is None:
            return None
        running, plan, states = found
        held = {scan.state: self._held(scan.state, state) for scan, state in states.items()}
        for name in states_of(plan) - held.keys():
            former = self._query.states[name]
            held[name] = HeldState(former.rows, former.bytes, kept=True, steps={})
        return Standing(plan, held, running.finished, running.total + 1, self._origins(states))

    def image(
        self,
        without: Collection[str] = (),
        *,
        origins: bool = False,
        until: Until = whenever,
        given_up: Callable[[], bool] = lambda: False,
    ) -> QueryImage | None:
        with self._watch.kept() as is_there:
            return self._image(without, origins, until, given_up) if is_there else None

    def _image(
        self, without: Collection[str], origins: bool, until: Until, given_up: Callable[[], bool]
    ) -> QueryImage | None:
        began = time.monotonic()
        passed_over = set(without)
        while True:
            found = self._read(passed_over)
            if found is None:
                return None
            running, plan, states = found
            selected = time.monotonic()
            missing = {scan: live for scan, live in states.items() if scan.state not in self._kept}
            not_written = self._write(missing, until, given_up)
            if given_up():
                return None
            if not not_written:
                break
            passed_over |= not_written
        wanted = states_of(plan)
        kept_states = {name: self._kept.get(name) or self._query.states[name] for name in wanted}
        made = self._origins(states) if origins else {}
        return QueryImage(
            plan,
            kept_states,
            running.finished,
            running.total + 1,
            made,
            select_seconds=selected - began,
            extract_seconds=time.monotonic() - selected,
            transfer_seconds=max((self._kept[s.state].write_seconds for s in missing), default=0.0),
            operators={scan.state: live.operator for scan, live in states.items()},
        )

    def hurry(self) -> None:
        for group in list(self._writing):
            self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)

    def keep_only(self, states: Collection[str]) -> None:
        self._kept = {name: kept for name, kept in self._kept.items() if name in states}

    def _write(
        self,
        states: Mapping[StateScan, LiveState],
        until: Until,
        given_up: Callable[[], bool],
    ) -> set[str]:
        """Keeps states, several at the same time; the names of those that cannot be kept: of a
        type that has no form in the store, not in time, or for want of a subquery."""
        from headway.spark.executors import leaving_executors
        from headway.spark.running import can_be_kept

        refused = {scan.state for scan, live in states.items() if not can_be_kept(live)}
        without_tasks = leaving_executors(self._spark)[1]  # none of them would begin one
        if without_tasks:
            refused |= {s.state for s, live in states.items() if not _can_be_read_here(live)}
        waiting = {scan.state for scan, live in states.items() if live.waits}
        missing = {scan: live for scan, live in states.items() if scan.state not in refused}
        if not missing:
            return refused
        began = time.monotonic()

        def stopped() -> bool:
            end = until()
            return given_up() or (end is not None and time.monotonic() >= end)

        futures = self._extract_all(missing, stopped, without_tasks=without_tasks)
        late = stopped()
        failed: list[BaseException] = []
        for name, future in futures.items():
            error = future.exception() if future.done() and not future.cancelled() else None
            if future.done() and not future.cancelled() and error is None:
                self._kept[name] = future.result()
            elif error is None or late or name in waiting:
                refused.add(name)
            else:
                failed.append(error)
        for each in failed:
            raise each
        if all(name in self._kept for name in futures):
            size = sum(self._kept[name].bytes for name in futures)
            self._speed.add(size, time.monotonic() - began)
        return refused

    def _extract_all(
        self,
        states: Mapping[StateScan, LiveState],
        stopped: Callable[[], bool],
        *,
        without_tasks: bool,
    ) -> dict[str, Future[KeptResult]]:
        """All of them, or what was written when it was stopped: a write that hangs is left to
        itself, and nobody asks for what it has written."""
        extract = partial(self._extract, stopped=stopped, without_tasks=without_tasks)
        futures = start_daemons(
            {scan.state: partial(extract, scan, live) for scan, live in states.items()},
            _EXTRACTED_TOGETHER,
        )
        while wait(futures.values(), _LOOK_SECONDS).not_done:
            if stopped():
                self.hurry()
                wait(futures.values(), _STOP_SECONDS)
                break
        for future in futures.values():
            future.cancel()
        return futures

    def _read(
        self, without: Collection[str]
    ) -> tuple[RunningPlan, QueryPlan, dict[StateScan, LiveState]] | None:
        """None for a plan that has no form here, whatever reading it trips over."""
        from headway.spark.executors import is_gone
        from headway.spark.running import read_running

        assert self._query.frame is not None or self._query.plan is not None
        try:
            running = self._running_plan(without)
            names = {number: self._name(state) for number, state in running.states.items()}
            plan, states = read_running(
                self._spark,
                running,
                names,
                self._columns(),
                self._settings(),
                self._file_sources,
            )
        except PlanNotImportable:
            return None
        except HeadwayError:
            raise
        except Exception:
            if is_gone(self._spark):
                raise
            return None
        imported = self._query.imported
        if imported is not None and imported.plan.is_ordered and not plan.is_ordered:
            return None  # Spark found its rows in order already: on another engine they may not be
        return running, plan, states

    def _live_states(self) -> Collection[LiveState]:
        """None for a plan that nobody can read."""
        from headway.spark.executors import is_gone

        try:
            return self._running_plan().states.values()
        except Exception:
            if is_gone(self._spark):
                raise
            return ()

    def _running_plan(self, without: Collection[str] = ()) -> RunningPlan:
        from headway.spark.running import running_plan

        with self._naming:
            passed_over = [state for name, state in self._named if name in without]
        return running_plan(self._watch.frame, passed_over, written=self._watch.written)

    def _stages(self) -> Stages:
        from headway.spark.running import stages_of

        return stages_of(self._watch.frame)

    def _columns(self) -> tuple[str, ...]:
        if self._query.frame is not None:
            return tuple(self._query.frame.columns)
        assert self._query.plan is not None
        return self._query.plan.names

    def _settings(self) -> dict[str, str]:
        from headway.spark.catalyst import session_settings

        if self._query.plan is not None:
            return dict(self._query.plan.settings)
        return session_settings(self._watch.frame.sparkSession)

    def _held(self, name: str, state: LiveState) -> HeldState:
        """Rows that were shuffled are so again when they are read from the store."""
        cores = self._spark.sparkContext.defaultParallelism
        shuffled = 0.0 if state.broadcast else (state.bytes or 0.0) / _SHUFFLED_BYTES_PER_SECOND
        return HeldState(state.rows, state.bytes, name in self._kept, state.steps, shuffled / cores)

    def _name(self, state: LiveState) -> str:
        """The one that it had the last time, or a new one."""
        with self._naming:
            for name, known in self._named:
                if known.is_same(state):
                    return name
            name = f"{self._prefix}-{len(self._named)}"
            self._named.append((name, state))
            return name

    def _origins(self, states: Mapping[StateScan, LiveState]) -> dict[str, Origin]:
        from headway.spark.running import read_origin

        for scan, state in states.items():
            if scan.state not in self._known_origins:
                node = read_origin(self._spark, state, self._settings(), self._file_sources)
                made = None if node is None else Origin(node, state.places, state.whole)
                self._known_origins[scan.state] = made
        found = {scan.state: self._known_origins[scan.state] for scan in states}
        return {name: origin for name, origin in found.items() if origin is not None}

    def _extract(
        self,
        scan: StateScan,
        state: LiveState,
        stopped: Callable[[], bool],
        *,
        without_tasks: bool,
    ) -> KeptResult:
        from headway.spark.engine import going_first
        from headway.spark.results import collect_result, keep_table, write_result
        from headway.spark.running import rows_here, state_frame

        if (without_tasks or _is_at_hand(state)) and not stopped():
            table, schema = rows_here(state, scan)
            kept = keep_table(table, schema, self._run, scan.state, STATES)
            return replace(kept, broadcast=state.broadcast)
        group = f"headway-extract-{scan.state}-{secrets.token_hex(4)}"
        self._writing.add(group)
        try:
            if stopped():
                raise RunInterrupted(f"{scan.state} is not kept: there is no time for it")
            with going_first(self._spark, group):
                # Under the settings that the query itself runs under.
                frame = state_frame(self._watch.frame.sparkSession, state, scan)
                keep = collect_result if _is_small(state) else write_result
                return replace(
                    keep(frame, self._run, scan.state, STATES), broadcast=state.broadcast
                )
        finally:
            self._writing.discard(group)


def _is_small(state: LiveState) -> bool:
    return state.bytes is not None and state.bytes <= _COLLECTED_BYTES


def _can_be_read_here(state: LiveState) -> bool:
    """Whether the driver may read it as a task would: nothing that it would need tasks for, and
    nothing that only executors have."""
    small = state.bytes is not None and state.bytes <= _READ_HERE_BYTES
    return small and (state.broadcast or not (state.waits or state.operator == "InMemoryRelation"))


def _is_at_hand(state: LiveState) -> bool:
    """Whether the driver has its rows, and may copy them."""
    return state.broadcast and _is_small(state)
