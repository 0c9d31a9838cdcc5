"""What is kept of the queries of one run while they are under way: images and snapshots."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from headway.base.clock import Until, whenever
from headway.base.config import Settings
from headway.base.errors import HeadwayError
from headway.plan.canonical import row_keys
from headway.plan.cardinalities import estimate
from headway.plan.graph import walk
from headway.session.history import FailureHistory, StoreSpeed
from headway.session.keepers import NothingKept, Standing, StateKeeper
from headway.session.pipelined import ExecutionWatch, PipelinedEngine, StagingWatch
from headway.session.pipelined_keeper import PipelinedKeeper
from headway.session.planning import PlannedQuery, is_portable, statistics_of, tables_in
from headway.session.resuming import (
    QueryImage,
    Resumed,
    drop_images,
    has_images,
    known_rows,
    with_origins,
    write_image,
)
from headway.session.reusing import ReusableStates
from headway.session.snapshots import EXPECTED_PER_HOUR, Prospect, SnapshotPolicy, prospect, work_of
from headway.session.spark_keeper import SparkKeeper
from headway.session.suspending import Deadline, Haste, Suspension, Work, in_time, suspend
from headway.storage import Run

if TYPE_CHECKING:
    from headway.spark.adaptive import QueryWatch
    from headway.spark.engine import SparkEngine
    from headway.spark.results import KeptResult


_HARDLY_SECONDS = 5.0
"""A query that has been running for less has not much behind it, whatever that is."""


@dataclass(frozen=True, slots=True)
class Around:
    """What the session gives to every run."""

    engine: SparkEngine
    pipelined: PipelinedEngine
    settings: Settings
    observe: Callable[[PlannedQuery, KeptResult], None]
    observed: Callable[[], Mapping[str, float]]
    failures: FailureHistory
    lost_drivers: FailureHistory
    """Of runs with snapshots."""
    speed: StoreSpeed
    reusable: ReusableStates


@dataclass(eq=False)
class Running:
    """A query under way, or a shared step of a batch, which has a key."""

    query: PlannedQuery
    watch: QueryWatch | ExecutionWatch | StagingWatch
    stop: Callable[[], None]
    key: str | None = None
    behind: float = 0.0
    """Seconds of work that it goes on from."""
    began: float = field(default_factory=time.monotonic)
    paused: bool = False
    stopped: bool = False
    """Whether it was told to stop, for the image that is made of it."""
    failed: bool = False
    """Whether it ended by itself, and without its rows, while that was to be done."""
    keeper: StateKeeper | None = None
    policy: SnapshotPolicy | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


@dataclass(frozen=True, slots=True)
class Stand:
    """Where a query stands, and what it would take to move it."""

    standing: Standing
    share_done: float
    prospect: Prospect


class Keeping:
    """One image is made at a time. Safe from several threads."""

    def __init__(
        self,
        run: Run,
        around: Around,
        resumed: Resumed,
        under_way: Callable[[], Mapping[str, Running]],
    ) -> None:
        """`under_way` tells what is running, and needs the states that it reads."""
        self._run = run
        self._around = around
        self._under_way = under_way
        self._images = resumed.images()
        self._stored = dict(self._images)
        """Those that are in the store."""
        self._stopped: set[str] = set()
        self._offered = set(resumed.offered)
        self._lock = threading.RLock()
        self._making = threading.Lock()
        """Of a keeper: whoever asks where a query stands does not wait for an image."""
        self._haste = Haste()
        self._snapping: StateKeeper | None = None
        """Who is writing a snapshot."""
        self._closed = False
        settings = around.settings.suspension
        self._every: float | Literal["auto"] | None = settings.snapshot_every
        self._reuse = settings.reuse
        self.snapshots = 0

    def image_of(self, name: str, key: str | None = None) -> QueryImage | None:
        """What is known of a query, or of the shared step with that key."""
        if key is None:
            return self._images.get(name)
        return next((i for i in list(self._images.values()) if i.key == key), None)

    def images(self) -> tuple[QueryImage, ...]:
        """All that are known."""
        return tuple(self._images.values())

    def seconds_behind(self, query: PlannedQuery, key: str | None) -> float:
        """What a query that is begun now had been running for before."""
        image = self.image_of(query.name, key) if query.states else None
        return 0.0 if image is None else image.seconds

    def stop(
        self,
        running: Mapping[str, Running],
        how: Suspension,
        until: float | None,
        ended: Callable[[str, Running], bool],
    ) -> None:
        """Ends queries, each with its image; `suspend` tells how."""
        from headway.spark.errors import named_error

        def one(name: str) -> QueryImage | None:
            under_way = running[name]

            def stop() -> None:
                under_way.stopped = True
                under_way.stop()

            try:
                return suspend(
                    keepers[name],
                    how,
                    until,
                    self._around.speed,
                    self._work(under_way),
                    stop,
                    lambda: ended(name, under_way),
                    self._haste,
                    room=self._run.store.room,
                    failed=lambda: under_way.failed,
                    origins=self._reuse,
                )
            except Exception as error:
                raise named_error(error) from error

        with self._lock:
            keepers = {name: self._keeper(each) for name, each in running.items()}
            with (
                self._around.speed.writing(len(running)),
                ThreadPoolExecutor(max(1, len(running)), "headway-suspend") as pool,
            ):
                futures = {name: pool.submit(one, name) for name in running}
            self._stopped |= {n for n, each in running.items() if each.stopped and each.key is None}
            failures = [f.exception() for f in futures.values() if f.exception() is not None]
            for name, future in futures.items():
                if future.exception() is None:
                    self._keep(name, running[name], future.result())
            for failure in failures:
                assert failure is not None
                raise failure

    def hurry(self, until: float | None) -> object:
        """Somebody needs the machine, `until` then if he said so: a snapshot that is under way is
        given up, and none is taken until `calm` is called with what this returns; who is waiting
        for pipelines stops that."""
        demand = self._haste.ask(until)
        if writing := self._snapping:  # and not an image that its queries wait for
            writing.hurry()
        return demand

    def calm(self, demand: object) -> None:
        """It is the turn of whoever was in haste."""
        self._haste.withdraw(demand)

    def write(self, done: Collection[str]) -> Mapping[str, QueryImage]:
        """Makes what is known of the queries that are not done the image of the run; `done` are
        their names, and the keys of shared steps."""
        with self._lock:
            if self._closed:
                return {}
            self._images = _left(self._images, done)
            if self._reuse:
                self._offered |= self._around.reusable.offer(self._run, self._images.values())
            reading = self._under_way().values()
            needed = {name for running in reading for name in running.query.states}
            not_kept = self._stopped - {*self._images, *done}
            write_image(self._run, self._images, self._offered, needed, not_kept)
            self._stored = dict(self._images)
            held = {name for image in self._images.values() for name in image.states}
            for running in reading:
                if running.keeper is not None:
                    running.keeper.keep_only(held | needed | self._offered)
            return dict(self._images)

    def close(self, done: Collection[str], whole: bool) -> bool:
        """The run is at its end: nothing more is kept for it. Whether something is left to go on
        with, of queries that are not done; of a run that is done as a `whole`, nothing is, and
        nobody waits for a snapshot of it."""
        demand = self.hurry(None) if whole else None
        with self._lock:
            self.calm(demand)
            self._closed = True
            left = {} if whole else _left(self._stored, done)
            if any(image.states for image in left.values()):
                return True
            if self._stored or has_images(self._run):
                drop_images(self._run, self._offered)
            return False

    def snapshot(self, running: Mapping[str, Running], done: Collection[str]) -> None:
        """Keeps what is done of those queries for which it is time."""
        if self._every is None:
            return
        for name, under_way in running.items():
            with self._lock:
                if not self._closed and not self._haste.asked:
                    self._snapshot_one(name, under_way, done)

    def snapshot_now(
        self,
        running: Mapping[str, Running],
        done: Collection[str],
        until: float | None = None,
    ) -> Mapping[str, QueryImage]:
        """Keeps what is done of these queries, of each as soon as it is written; what is kept of
        the run then. What is not written `until` then is left."""
        from headway.spark.errors import named_error

        with self._lock:
            if self._closed:
                return {}
            try:
                # Of queries that are about to go on, all that is known is there.
                kept: Mapping[str, QueryImage] = {} if running else self.write(done)
                for name, under_way in running.items():
                    image = self._image(under_way, Deadline(until, self._haste, self._around.speed))
                    if self._haste.asked:
                        break
                    self._keep(name, under_way, image)
                    kept = self.write(done)
                    self.snapshots += 1
            except Exception as error:
                raise named_error(error) from error
            return kept

    def _image(self, running: Running, deadline: Deadline) -> QueryImage | None:
        keeper = self._keeper(running)
        newest = keeper.stand()
        if newest is None:
            return None
        without = in_time(keeper, newest, deadline(), self._around.speed, self._work(running))
        return self._snapped(keeper, without, deadline)

    def _snapped(
        self, keeper: StateKeeper, without: Collection[str], until: Until = whenever
    ) -> QueryImage | None:
        """None when it was given up."""
        self._snapping = keeper
        try:
            return keeper.image(
                without,
                origins=self._reuse,
                until=until,
                given_up=lambda: self._haste.asked,
            )
        finally:
            self._snapping = None

    def _snapshot_one(self, name: str, running: Running, done: Collection[str]) -> None:
        assert self._every is not None
        speed, keeper = self._around.speed, self._keeper(running)
        if running.policy is None:
            failures = self._around.lost_drivers.per_hour(EXPECTED_PER_HOUR)
            running.policy = SnapshotPolicy(self._every, speed, failures, running.began)

        try:
            without = running.policy.passed_over(keeper, self._work(running), time.monotonic())
            if without is None:
                return
            image = self._snapped(keeper, without)
            if image is None:
                running.policy.given_up()
                return
            self._keep(name, running, image)
            self.write(done)
            self.snapshots += 1
            running.policy.taken(image.states, time.monotonic())
        except Exception as error:  # noqa: BLE001 - the query goes on; the next one may succeed
            running.policy.taken({}, time.monotonic())
            if self._under_way().get(name) is running:  # else what it was to be made of is gone
                self._tell_failed(name, error)

    def _tell_failed(self, name: str, error: Exception) -> None:
        from headway.spark.errors import named_error

        named = named_error(error)
        try:
            self._run.append("snapshot_failed", name, error=named.name, message=named.message)
        except HeadwayError:
            return  # the store fails: whoever needs it will say so

    def _keep(self, name: str, running: Running, image: QueryImage | None) -> None:
        if image is None:
            return
        if running.key is not None:  # an earlier driver may have had another name for the step
            self._images = {n: i for n, i in self._images.items() if i.key != running.key}
        tables = tables_in([image.plan]) if running.query.imported is None else ()
        seconds = running.behind + running.seconds
        self._images[name] = replace(image, key=running.key, tables=tables, seconds=seconds)

    def stand(self, running: Running) -> Stand | None:
        """Where a query stands; None when that cannot be told."""
        standing = self._keeper(running).stand()
        if standing is None:
            return None
        share, speed = self._share_done(running.query, standing), self._around.speed
        costs = prospect(standing, running.seconds, share, speed, before=running.behind)
        return Stand(standing, share, costs)

    def keeps(self, running: Running) -> bool:
        """Whether a query could go on from where it stands; one that has hardly begun may begin
        anew."""
        keeper = self._keeper(running)
        if isinstance(keeper, NothingKept):
            return True
        standing = keeper.stand()
        if standing is None or not is_portable(standing.plan):
            return False
        made = any(state.kept or state.made for state in standing.states.values())
        return made or running.seconds < _HARDLY_SECONDS

    def _work(self, running: Running) -> Work:
        query = running.query
        plan = query.whole_plan
        portable = plan is not None and is_portable(plan)
        return Work(running.began, lambda standing: self._share_done(query, standing), portable)

    def _share_done(self, query: PlannedQuery, standing: Standing) -> float:
        """The work behind the states, of the work of the whole plan, both by the same estimates."""
        whole, places = with_origins(standing.plan, standing.origins)
        rows = {name: state.rows for name, state in standing.states.items()}
        keys = row_keys(whole.root)
        known = {**self._around.observed(), **known_rows(whole, rows)}
        for name, place in places.items():
            if (count := rows.get(name)) is not None:
                known[keys[place]] = count
        estimates = estimate(whole, statistics_of(query.imported), known)
        behind = {node for name in places for node in walk(standing.origins[name].node)}
        done = work_of(behind, estimates)
        all_of_it = work_of(walk(whole.root), estimates)
        return done / all_of_it if all_of_it > 0 else 0.0

    def _keeper(self, running: Running) -> StateKeeper:
        with self._making:
            if running.keeper is None:
                running.keeper = self._new_keeper(running.query, running.watch)
            return running.keeper

    def _new_keeper(
        self, query: PlannedQuery, watch: QueryWatch | ExecutionWatch | StagingWatch
    ) -> StateKeeper:
        if isinstance(watch, StagingWatch):
            return NothingKept()
        if isinstance(watch, ExecutionWatch):
            return PipelinedKeeper(query, watch, self._around.speed)
        spark = self._around.engine.spark
        return SparkKeeper(spark, self._run, query, watch, self._around.speed)


def _left(images: Mapping[str, QueryImage], done: Collection[str]) -> dict[str, QueryImage]:
    """Those of queries and shared steps that are not done."""
    return {n: image for n, image in images.items() if n not in done and image.key not in done}
