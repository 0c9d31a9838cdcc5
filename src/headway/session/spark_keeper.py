"""What Spark has done of a query that it is running: adaptive execution keeps the rows of every
finished stage."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.base.errors import PlanNotImportable
from headway.plan.nodes import QueryPlan, StateScan
from headway.session.history import StoreSpeed
from headway.session.keepers import LOOK_SECONDS, HeldState, Standing, state_prefix
from headway.session.planning import PlannedQuery
from headway.session.resuming import STATES, Origin, QueryImage, states_of
from headway.storage import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.spark.adaptive import QueryWatch
    from headway.spark.results import KeptResult
    from headway.spark.running import LiveState, RunningPlan

_EXTRACTED_TOGETHER = 4
_CLEANING = "spark.sql.classic.shuffleDependency.fileCleanup.enabled"
_COLLECTED_BYTES = 32 << 20
"""States up to here pass through the driver: executors would start Python processes for them."""
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
        self._hurried = threading.Event()

    def quiet(self, stop: Callable[[], None]) -> None:
        """What is finished stays, and its rows are read without tasks of the rest in the way;
        unless a subquery of the query is needed for that, or Spark is to remove the files of
        queries that have ended."""
        cleans = self._spark.conf.get(_CLEANING, "false") == "true"
        if not cleans and not any(s.waits for s in self._running_plan().states.values()):
            stop()

    def settle(self, until: float | None, ended: Callable[[], bool]) -> None:
        """The next pipelines have hardly begun then."""
        awaited: frozenset[int] = frozenset()
        while not ended():
            running = self._running_plan()
            if awaited and not awaited & running.running:
                return
            if until is not None:
                written = sum(state.bytes or 0 for state in running.states.values())
                if time.monotonic() + 2 * self._speed.seconds(written) >= until:
                    return
            # The last pipeline ends with the query; between two there is a moment without any.
            awaited = awaited or running.running
            time.sleep(LOOK_SECONDS)

    def stand(self, without: Collection[str] = ()) -> Standing | None:
        found = self._read(without)
        if found is None:
            return None
        running, plan, states = found
        held = {scan.state: self._held(scan.state, state) for scan, state in states.items()}
        for name in states_of(plan) - held.keys():
            former = self._query.states[name]
            held[name] = HeldState(former.rows, former.bytes, kept=True, seconds=0.0)
        return Standing(plan, held, running.finished, running.total, self._origins(states))

    def image(
        self,
        without: Collection[str] = (),
        *,
        origins: bool = False,
        until: float | None = None,
    ) -> QueryImage | None:
        began = time.monotonic()
        given_up = set(without)
        while True:
            found = self._read(given_up)
            if found is None:
                return None
            running, plan, states = found
            selected = time.monotonic()
            missing = {scan: live for scan, live in states.items() if scan.state not in self._kept}
            not_written = self._write(missing, until)
            if not not_written:
                break
            given_up |= not_written
        wanted = states_of(plan)
        # What no image has any more is removed, and would have to be written again.
        self._kept = {name: kept for name, kept in self._kept.items() if name in wanted}
        kept_states = {name: self._kept.get(name) or self._query.states[name] for name in wanted}
        made = self._origins(states) if origins else {}
        return QueryImage(
            plan,
            kept_states,
            running.finished,
            running.total,
            made,
            select_seconds=selected - began,
            extract_seconds=time.monotonic() - selected,
            transfer_seconds=max((self._kept[s.state].write_seconds for s in missing), default=0.0),
        )

    def hurry(self) -> None:
        self._hurried.set()
        for group in list(self._writing):
            self._spark.sparkContext.cancelJobGroup(group)

    def _write(self, states: Mapping[StateScan, LiveState], until: float | None) -> set[str]:
        """Keeps states, all at the same time; the names of those that cannot be kept: of a type
        that has no form in the store, not in time, or for want of a subquery."""
        from headway.spark.running import can_be_kept

        refused = {scan.state for scan, live in states.items() if not can_be_kept(live)}
        waiting = {scan.state for scan, live in states.items() if live.waits}
        missing = {scan: live for scan, live in states.items() if scan.state not in refused}
        if not missing:
            return refused
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            return refused | {scan.state for scan in missing}
        self._hurried.clear()
        clock = None if left is None else threading.Timer(left, self.hurry)
        if clock is not None:
            clock.start()
        began = time.monotonic()
        try:
            with ThreadPoolExecutor(_EXTRACTED_TOGETHER, "headway-extract") as pool:
                futures = {
                    scan.state: pool.submit(self._extract, scan, live)
                    for scan, live in missing.items()
                }
        finally:
            if clock is not None:
                clock.cancel()
        for name, future in futures.items():
            if future.exception() is None:
                self._kept[name] = future.result()
            elif self._hurried.is_set() or name in waiting:
                refused.add(name)
        failed = [f.exception() for n, f in futures.items() if n not in {*self._kept, *refused}]
        for error in failed:
            assert error is not None
            raise error
        size = sum(self._kept[name].bytes for name in futures if name in self._kept)
        self._speed.add(size, time.monotonic() - began)
        return refused

    def _read(
        self, without: Collection[str]
    ) -> tuple[RunningPlan, QueryPlan, dict[StateScan, LiveState]] | None:
        from headway.spark.running import read_running

        running = self._running_plan(without)
        assert self._query.frame is not None or self._query.plan is not None
        names = {number: self._name(state) for number, state in running.states.items()}
        try:
            plan, states = read_running(
                self._spark, running, names, self._columns(), self._settings()
            )
        except PlanNotImportable:
            return None
        return running, plan, states

    def _running_plan(self, without: Collection[str] = ()) -> RunningPlan:
        from headway.spark.running import running_plan

        with self._naming:
            passed_over = [state for name, state in self._named if name in without]
        return running_plan(self._watch.frame, passed_over, written=self._watch.written)

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
        made = None if state.task_seconds is None else state.task_seconds / cores
        shuffled = 0.0 if state.broadcast else (state.bytes or 0.0) / _SHUFFLED_BYTES_PER_SECOND
        return HeldState(state.rows, state.bytes, name in self._kept, made, shuffled / cores)

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
                node = read_origin(self._spark, state, self._settings())
                made = None if node is None else Origin(node, state.places, state.whole)
                self._known_origins[scan.state] = made
        found = {scan.state: self._known_origins[scan.state] for scan in states}
        return {name: origin for name, origin in found.items() if origin is not None}

    def _extract(self, scan: StateScan, state: LiveState) -> KeptResult:
        from headway.spark.engine import going_first
        from headway.spark.results import collect_result, write_result
        from headway.spark.running import state_frame

        group = f"headway-extract-{scan.state}"
        self._writing.add(group)
        try:
            with going_first(self._spark, group):
                frame = state_frame(self._spark, state, scan)
                small = state.bytes is not None and state.bytes <= _COLLECTED_BYTES
                keep = collect_result if small else write_result
                return replace(
                    keep(frame, self._run, scan.state, STATES), broadcast=state.broadcast
                )
        finally:
            self._writing.discard(group)
