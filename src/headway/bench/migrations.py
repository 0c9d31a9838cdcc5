"""Single queries stopped at a point and resumed, and what is reported of all of them.

What comes after that point is a migration: stopping, keeping the state, and running the rest of the
plan from what is in the store. A restart is the whole query. Both are measured on the same Spark,
so that neither has to start one, and for long queries both compile their code: Spark knows that of
queries it has run before, and none of what is left of one, while a driver elsewhere has seen
neither. Of a long query a restart is measured before each stop, and what is compared with is the
median of them: single ones differ by a third.

Long queries are stopped in the paper's way, after the pipelines that are running; in the middle
also as the command does it by itself, and at once. Where finishing a query is quicker than moving
it, the command lets it come to its end, and so does whoever waits for its last pipeline: that is no
migration, but an answer to whoever asked for one, and compared with a restart like the others.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from headway.base.errors import WrongUsage
from headway.bench.peers import middle, run_in, same_rows
from headway.storage import Run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headway.session import RunHandle, Session
    from headway.session.resuming import QueryImage
    from headway.spark.results import KeptResult

Way = Literal["after pipelines", "cheapest", "at once"]
"""How a query is stopped."""

LONG = 3.0
"""Seconds from which on a query is a long one."""
HALF = 0.5
_STOPS: tuple[tuple[float, Way], ...] = (
    *((point, "after pipelines") for point in (0.1, 0.3, HALF, 0.7, 0.9)),
    (HALF, "cheapest"),
    (HALF, "at once"),
)
"""Of a long query: after which part of its time, and how."""
_GENERATOR = "org.apache.spark.sql.catalyst.expressions.codegen.CodeGenerator$"
LOOK_SECONDS = 0.003
_PARTS = ("select", "extract", "transfer", "suspend", "fetch", "rest", "total", "alone")
_SIZES = (1 << 16, 1 << 20, 10 << 20, 50 << 20, 100 << 20, 1 << 30)
_SIZE_NAMES = ("< 64 KiB", "< 1 MiB", "< 10 MiB", "< 50 MiB", "< 100 MiB", "< 1 GiB", ">= 1 GiB")


@dataclass
class MeasuredQuery:
    """By engine: the seconds of the whole query, and its pipelines."""

    workload: str
    name: str
    text: str
    rows: pa.Table | None = None
    alone: dict[str, float] = field(default_factory=dict)
    pipelines: dict[str, int] = field(default_factory=dict)

    def warm_up(self, session: Session) -> None:
        """The first time, on Spark itself, for the rows that are the right ones."""
        if self.rows is None:
            self.rows = session.spark.sql(self.text).toArrow()
        else:
            run_in(session, self.text, self.name)

    def measure_alone(self, session: Session) -> None:
        """Of a long query, with new code."""
        engine = session.settings.engine.name
        self.alone[engine] = self._whole(session)
        if self.alone[engine] >= LONG:
            self.alone[engine] = self.restart(session)

    def restart(self, session: Session) -> float:
        """The seconds of the whole query, with new code."""
        forget_code(session.spark)
        return self._whole(session)

    def _whole(self, session: Session) -> float:
        began = time.perf_counter()
        handle = session.run(session.sql(self.text, name=self.name))
        handle.wait()
        handle.arrow()
        seconds = time.perf_counter() - began
        self.pipelines[session.settings.engine.name] = max(1, handle.progress()[0].pipelines_total)
        return seconds

    def has(self, rows: pa.Table) -> bool:
        assert self.rows is not None
        return same_rows(rows, self.rows)


@dataclass(frozen=True, slots=True)
class Migration:
    """One query, stopped once. Seconds: `select` finds the state, `extract` reads and writes it,
    `transfer` is the store's part of that, `suspend` is all until the run is free, `fetch` reads
    the state, `rest` is all from resuming to the last row, with its fetch."""

    engine: str
    query: str
    point: float | None
    """Of a long query: the part of its time after which it was to be stopped."""
    passed: float
    """Seconds that the query had been running."""
    pipelines_done: int
    pipelines: int
    alone: float
    select: float
    extract: float
    transfer: float
    suspend: float
    fetch: float
    rest: float
    states: tuple[tuple[str, int], ...]
    """Of each, the operator that it stands for, and its bytes."""
    equal: bool
    way: Way

    @property
    def progress(self) -> float:
        """Of the time of the whole query."""
        return min(1.0, self.passed / self.alone)

    @property
    def pipeline_progress(self) -> float:
        return min(1.0, self.pipelines_done / self.pipelines)

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.states)

    @property
    def total(self) -> float:
        return self.suspend + self.rest

    @property
    def ratio(self) -> float:
        """Against a restart."""
        return self.total / self.alone

    @property
    def execution_overhead(self) -> float:
        """Finding and reading the state, as a part of the whole."""
        return (self.select + self.extract - self.transfer) / (self.passed + self.total)

    @property
    def store_overhead(self) -> float:
        return (self.transfer + self.fetch) / (self.passed + self.total)


@dataclass
class Stopped:
    """What came of stopping one query on one engine."""

    engine: str
    query: str
    alone: float
    pipelines: int
    migrations: list[Migration] = field(default_factory=list)
    ended_first: dict[str, int] = field(default_factory=dict)
    """By point: how often it came to its end before it was stopped, or while it was waited for."""
    ended_at_half: dict[Way, float] = field(default_factory=dict)
    """Where it came to its end while it was waited for: the seconds of that, against a restart."""
    equal: bool = True
    """Whether it had its rows where it came to its end."""

    def compare_with(self, restart: float) -> None:
        """So many seconds."""
        for way, ratio in self.ended_at_half.items():
            self.ended_at_half[way] = ratio * self.alone / restart
        self.migrations = [replace(each, alone=restart) for each in self.migrations]
        self.alone = restart


def stop_everywhere(session: Session, query: MeasuredQuery) -> Stopped:
    """A short query after each of its pipelines, a long one at five points of its time."""
    engine = session.settings.engine.name
    alone, pipelines = query.alone[engine], query.pipelines[engine]
    stopped = Stopped(engine, f"{query.workload} {query.name}", alone, pipelines)
    if alone >= LONG:
        restarts = [alone]
        for point, way in _STOPS:
            restarts.append(query.restart(session))
            passed = point * statistics.median(restarts)
            _stop(session, query, _after_seconds(passed), stopped, point, way)
        stopped.compare_with(statistics.median(restarts))
    else:
        for count in range(1, pipelines):
            _stop(session, query, _after_pipelines(count), stopped, None, "at once")
    return stopped


def _stop(
    session: Session,
    query: MeasuredQuery,
    is_time: Callable[[RunHandle, float], bool],
    stopped: Stopped,
    point: float | None,
    way: Way,
) -> None:
    from headway.session.suspending import Suspension

    how = Suspension(wait=way != "at once", cheaper=way == "cheapest")
    anew = point is not None
    if anew:
        forget_code(session.spark)
    began = time.perf_counter()
    handle = session.run(session.sql(query.text, name=query.name))
    while not handle.finished and not is_time(handle, time.perf_counter() - began):
        time.sleep(LOOK_SECONDS)
    passed = time.perf_counter() - began
    done = handle.progress()[0].pipelines_done
    asked = True
    try:
        images = handle.suspend(how)
    except WrongUsage:  # it had ended
        images, asked = {}, False
    suspended = time.perf_counter() - began - passed
    if Run.open(session.store, handle.id).summary().status != "suspended":
        handle.wait()
        stopped.equal = query.has(handle.arrow()) and stopped.equal
        ended = time.perf_counter() - began - passed
        where = "after a pipeline" if point is None else f"{point:.0%}, {way}"
        stopped.ended_first[where] = stopped.ended_first.get(where, 0) + 1
        if asked and point == HALF:
            stopped.ended_at_half[way] = ended / stopped.alone
        return
    image = images.get(query.name)
    # They were just written: reading them once more makes no later reading quicker.
    fetch = 0.0 if image is None else _fetch(session, handle.id, image.states.values())
    if anew:
        forget_code(session.spark)
    began = time.perf_counter()
    resumed = session.resume(handle.id)
    resumed.wait()
    rows = resumed.arrow()
    rest = time.perf_counter() - began
    stopped.migrations.append(
        Migration(
            stopped.engine,
            stopped.query,
            point,
            passed,
            done,
            stopped.pipelines,
            stopped.alone,
            0.0 if image is None else image.select_seconds,
            0.0 if image is None else image.extract_seconds,
            0.0 if image is None else image.transfer_seconds,
            suspended,
            fetch,
            rest,
            () if image is None else tuple(_sizes(image)),
            query.has(rows),
            way,
        )
    )


def forget_code(spark: SparkSession) -> None:
    """Have Spark compile what it runs next, as if it had not run it before."""
    jvm: Any = spark._jvm
    generator = jvm.org.apache.spark.util.Utils.classForName(_GENERATOR, True, False)
    known = generator.getDeclaredField("cache")
    known.setAccessible(True)
    known.get(None).invalidateAll()


def _sizes(image: QueryImage) -> Iterator[tuple[str, int]]:
    for name, state in image.states.items():
        yield image.operators.get(name, "State"), state.bytes


def _fetch(session: Session, run_id: str, states: Iterable[KeptResult]) -> float:
    """How long the states take to be read, one after the other."""
    run = Run.open(session.store, run_id)
    began = time.perf_counter()
    for state in states:
        for piece in state.pieces:
            run.read_piece(piece)
    return time.perf_counter() - began


def _after_seconds(seconds: float) -> Callable[[RunHandle, float], bool]:
    return lambda handle, passed: passed >= seconds


def _after_pipelines(count: int) -> Callable[[RunHandle, float], bool]:
    return lambda handle, passed: handle.progress()[0].pipelines_done >= count


def report_of(queries: Iterable[Stopped]) -> dict[str, Any]:
    asked = list(queries)
    migrations = [migration for each in asked for migration in each.migrations]
    ended_first: Counter[str] = Counter()
    for each in asked:
        ended_first.update(each.ended_first)
    different = {m.query for m in migrations if not m.equal}
    different |= {each.query for each in asked if not each.equal}
    sums = [migration.bytes for migration in migrations]
    single = [size for migration in migrations for _, size in migration.states]
    long_ones = [m for m in migrations if m.point is not None and m.way == "after pipelines"]
    past_half = [m for m in long_ones if m.progress >= 0.5]
    return {
        "migrations": len(migrations),
        "migrations_by_engine": {
            engine: sum(m.engine == engine for m in migrations) for engine in ("spark", "pipelined")
        },
        "rows_equal": not different,
        "different": sorted(different),
        **_at_half(asked),
        "ended_before_they_were_stopped": dict(ended_first),
        "faster_than_restart_past_half": (
            1.0 - statistics.mean(m.ratio for m in past_half) if past_half else None
        ),
        "state_bytes_median": statistics.median(sums) if sums else 0,
        "state_bytes_mean": statistics.mean(sums) if sums else 0,
        "state_bytes_max": max(sums, default=0),
        "single_state_bytes_median": statistics.median(single) if single else 0,
        "single_state_bytes_mean": statistics.mean(single) if single else 0,
        "single_state_bytes_max": max(single, default=0),
        "state_bytes_by_operator": _by_operator(migrations),
        "states_by_size": _by_size(migrations, len),
        "state_bytes_by_progress": _by_tenth(migrations, "pipeline_progress", _quartiles),
        "execution_overhead_by_size": _by_size(
            migrations, lambda found: statistics.mean(m.execution_overhead for m in found)
        ),
        "store_overhead_by_size": _by_size(
            migrations, lambda found: statistics.mean(m.store_overhead for m in found)
        ),
        "ratio_to_restart_by_progress": _by_tenth(
            long_ones, "progress", lambda found: middle([m.ratio for m in found])
        ),
        "beats_restart_by_progress": _by_tenth(
            long_ones, "progress", lambda found: _share(m.ratio < 1.0 for m in found)
        ),
        "seconds": {
            part: round(middle([getattr(m, part) for m in migrations]), 4)
            for part in _PARTS
            if migrations
        },
        "slowest": [
            {"query": m.query, "engine": m.engine, "ratio": m.ratio, "states": m.states}
            for m in sorted((m for m in long_ones if m.point == HALF), key=lambda m: -m.ratio)[:5]
        ],
    }


def _at_half(queries: list[Stopped]) -> dict[str, Any]:
    """By way: how many queries were asked at half of their time, and how many moved; the share of
    those for which what came after that took less than a restart, and of those that moved alone.
    The first share is that of the command as it is used."""
    ways: dict[str, dict[str, Any]] = {}
    for way in get_args(Way):
        moved = [
            m.ratio for each in queries for m in each.migrations if (m.point, m.way) == (HALF, way)
        ]
        ended = [each.ended_at_half[way] for each in queries if way in each.ended_at_half]
        ways[way] = {
            "asked": len(moved) + len(ended),
            "moved": len(moved),
            "beat_restart": _share(ratio < 1.0 for ratio in [*moved, *ended]),
            "moved_beat_restart": _share(ratio < 1.0 for ratio in moved),
            "ratio_of_moved": middle(moved) if moved else None,
        }
    used = ways["cheapest"]
    return {
        "beats_restart_share": used["beat_restart"],
        "beats_restart_share_of_moved": used["moved_beat_restart"],
        "moved_at_half": used["moved"],
        "at_half": ways,
    }


def _by_operator(migrations: list[Migration]) -> dict[str, dict[str, float]]:
    """How many states each operator left, and their bytes."""
    found: dict[str, list[int]] = {}
    for migration in migrations:
        for operator, size in migration.states:
            found.setdefault(operator, []).append(size)
    return {
        operator: {
            "states": len(sizes),
            "median": statistics.median(sizes),
            "mean": round(statistics.mean(sizes)),
            "max": max(sizes),
        }
        for operator, sizes in sorted(found.items())
    }


def _share(outcomes: Iterable[bool]) -> float | None:
    found = list(outcomes)
    return sum(found) / len(found) if found else None


def _quartiles(migrations: list[Migration]) -> list[int]:
    """The least, the quarters and the most of the bytes of all states of a migration."""
    sizes = sorted(migration.bytes for migration in migrations)
    return [sizes[round(part * (len(sizes) - 1) / 4)] for part in range(5)]


def _by_size(
    migrations: list[Migration], measure: Callable[[list[Migration]], float]
) -> dict[str, float]:
    """By the bytes of all states together."""
    groups: dict[int, list[Migration]] = {}
    for migration in migrations:
        groups.setdefault(sum(migration.bytes >= limit for limit in _SIZES), []).append(migration)
    return {_SIZE_NAMES[group]: measure(groups[group]) for group in sorted(groups)}


def _by_tenth(
    migrations: list[Migration], progress: str, measure: Callable[[list[Migration]], Any]
) -> dict[str, Any]:
    groups: dict[int, list[Migration]] = {}
    for migration in migrations:
        tenth = min(9, int(getattr(migration, progress) * 10))
        groups.setdefault(tenth, []).append(migration)
    return {f"{10 * tenth}%": measure(groups[tenth]) for tenth in sorted(groups)}
