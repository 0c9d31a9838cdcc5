"""How many queries of a batch are done by a deadline: one by one, with plain sharing, and as here.

The deadline of a workload is the time in which a third of its queries is done one by one: the mean
of two passes, before and after the shortest first, as Spark gets faster with every query. Goodput
is the number of queries done by then; all techniques run on the same executors. Queries one by one
and Datapath run on Spark, as they do elsewhere; Datapath also runs on the engine that is used here,
to tell what the engine gives from what the planning gives. The shortest first goes by what the cost
model expects of each query on Spark, as in the paper.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from headway.base.errors import HeadwayError
from headway.bench.kills import kill_executor
from headway.bench.notes import Notes
from headway.bench.peers import same_rows
from headway.workloads import WORKLOADS
from headway.workloads.batches import high_share, low_share, regular_share

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headway.bench.benchmark import BenchmarkOptions
    from headway.session import BatchHandle, Policy, Session

WORKLOAD_TEXTS: Mapping[str, Callable[[], dict[str, str]]] = {
    "low": low_share,
    "high": high_share,
    "regular": regular_share,
}
_DATAPATH_SIZE = 16
"""Queries in a mini-batch of Datapath, as in the paper."""
_FAILURES = (1, 2, 3, 4)
_DEADLINES = (0.25, 0.5, 2.0, 4.0)
"""Beside the whole one, over that."""
_LONGER = 1.2
"""For how many times the first pass the shortest first goes on, until the deadline is known."""
_ABLATION_FAILURES = 3
_EXECUTORS = 4
_PATIENCE = 60.0
SHORTEST_FIRST, DATAPATH, OURS = "shortest_first", "datapath", "ours"
DATAPATH_HERE, OURS_ON_SPARK = "datapath_on_our_engine", "ours_on_spark"
_ON_SPARK = (DATAPATH, OURS_ON_SPARK)
_TECHNIQUES = (DATAPATH, OURS_ON_SPARK, OURS, DATAPATH_HERE)
"""Beside the shortest first."""
_PLANNED_TIMES = 5
"""Batches whose planning is measured: other work on a machine makes it several times as long."""


@dataclass
class _Workload:
    name: str
    texts: dict[str, str]
    deadline: float = 0.0
    passes: list[float] = field(default_factory=list)
    """Seconds of a third of the queries, one at a time: before and after the shortest first."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By query, alone on Spark."""
    expected: dict[str, float] = field(default_factory=dict)
    """By query, alone on Spark, before it was run."""
    shortest_first: int = 0
    """Queries done by the deadline."""
    rows: dict[str, pa.Table] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Run:
    """What became of a batch."""

    finished_at: list[float]
    """Of each query that was done, in seconds from the start."""
    failures: int
    different: list[str]
    """Queries that had other rows."""
    planning: float | None = None
    """The share of the deadline that planning took; of batches as a user has them."""
    struck: int | None = None
    """Of the failures, those that came before the batch was at its end; None where nobody
    counted."""

    def done(self, seconds: float) -> int:
        return sum(at <= seconds for at in self.finished_at)


def measure_batch(
    spark: SparkSession, options: BenchmarkOptions, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    import headway

    folder = options.data / f"tpcds-{options.scale:g}"
    WORKLOADS["tpcds"].generate(options.scale, folder)
    workloads = [_Workload(name, texts()) for name, texts in WORKLOAD_TEXTS.items()]
    with TemporaryDirectory(prefix="headway-bench-", dir=options.data) as store:
        common: dict[str, Any] = {"store_url": store, "statistics_observe": "false"}
        with (
            headway.session(spark, **common) as session,
            headway.session(spark, workers=session.workers, engine_name="spark", **common) as plain,
        ):
            session.tables(folder)
            told = {"scale": options.scale, "master": spark.sparkContext.master}
            notes = Notes(options.data / "goodput.json", told, go_on=options.go_on)
            bench = _Bench(session, plain, progress, notes)
            for workload in workloads:
                bench.prepare(workload)
            bench.calibrate()
            return bench.measure(workloads, options)


class _Bench:
    def __init__(
        self,
        session: Session,
        plain: Session,
        progress: Callable[[str, int, int], None],
        notes: Notes,
    ) -> None:
        """Every run is noted, for who looks at it before the end, or goes on with it."""
        self._notes = notes
        self._session = session
        self._plain = plain
        self._spark = session.spark
        self._progress = progress
        self._steps = 0
        self._runs: dict[str, _Run] = {}
        """By part."""
        self._struck: Counter[str] = Counter()
        """By technique: executors that were killed while it ran, as a user has it."""
        session.workers.start()

    def _tell(self, what: str) -> None:
        self._progress(what, self._steps, self._steps + 1)
        self._steps += 1

    def calibrate(self) -> None:
        """Both engines learn beforehand how long shared work takes here."""
        for session in (self._session, self._plain):
            session.calibrate(lambda what, done, total: self._tell(f"calibration: {what}"))

    def prepare(self, workload: _Workload) -> None:
        """Every query alone on Spark: its rows, and how long it takes."""
        for name, text in workload.texts.items():
            self._tell(f"{workload.name}: {name} alone")
            began = time.monotonic()
            workload.rows[name] = self._spark.sql(text).toArrow()
            workload.seconds[name] = time.monotonic() - began

    def set_deadline(self, workload: _Workload) -> None:
        """With the shortest first between the two passes, which is told by that deadline then."""
        workload.expected = self._plain.expected_seconds(
            [self._plain.sql(text, name=name) for name, text in workload.texts.items()]
        )
        first = self._third_of(workload, "first")
        shortest = self._done(workload, SHORTEST_FIRST, 0, _LONGER * first, None)
        workload.passes = [first, self._third_of(workload, "second")]
        workload.deadline = statistics.mean(workload.passes)
        workload.shortest_first = shortest.done(workload.deadline)

    def _third_of(self, workload: _Workload, which: str) -> float:
        """Seconds until so much is done; of the last query a part."""

        def measure() -> dict[str, Any]:
            self._await_executors()
            whole, part = divmod(len(workload.texts), 3)
            seconds = 0.0
            third = islice(workload.texts.items(), whole + bool(part))
            for number, (name, text) in enumerate(third):
                self._tell(f"{workload.name}: {name}, {which} pass")
                began = time.monotonic()
                self._spark.sql(text).toArrow()
                seconds += (time.monotonic() - began) * (1 if number < whole else part / 3)
            return {"seconds": seconds}

        found = self._notes.once(f"{workload.name}: {which} pass", measure)
        return float(found["seconds"])

    def measure(self, workloads: list[_Workload], options: BenchmarkOptions) -> dict[str, Any]:
        calm: dict[str, dict[str, int]] = {}
        planning: dict[str, list[float]] = {}
        for workload in workloads:
            self.set_deadline(workload)
            found = {each: self.goodput(workload, each) for each in _TECHNIQUES}
            calm[workload.name] = {SHORTEST_FIRST: workload.shortest_first, **found}
            planning[workload.name] = self._planning_of(workload)
        failing = {
            workload.name: {
                str(count): {
                    technique: self.goodput(workload, technique, failures=count)
                    for technique in (SHORTEST_FIRST, DATAPATH, OURS)
                }
                for count in _FAILURES
            }
            for workload in workloads
        }
        by_deadline = self._by_deadline(workloads[-1])
        by_deadline["1"] = {each: calm[workloads[-1].name][each] for each in by_deadline["2"]}
        without = {
            workload.name: {
                part: self.goodput(workload, OURS, policy=policy, deadline=workload.deadline / 4)
                for part, policy in _ablations().items()
            }
            for workload in workloads
        }
        checkpoints = {
            workload.name: {
                kind: self.goodput(
                    workload,
                    OURS,
                    policy=policy,
                    deadline=workload.deadline / 2,
                    failures=_ABLATION_FAILURES,
                )
                for kind, policy in _checkpoint_policies().items()
            }
            for workload in workloads
        }
        measured = self._report(workloads, calm, failing, by_deadline, options)
        measured["planning_share"] = max(map(statistics.median, planning.values()))
        measured["planning_shares"] = planning
        measured["goodput_without"] = without
        measured["goodput_by_checkpoints"] = checkpoints
        return measured

    def _planning_of(self, workload: _Workload) -> list[float]:
        """The share of the deadline that planning takes, several times."""
        runs = (
            self._done(workload, OURS, 0, workload.deadline, None, again=number)
            for number in range(_PLANNED_TIMES)
        )
        return [round(run.planning or 0.0, 4) for run in runs]

    def _by_deadline(self, workload: _Workload) -> dict[str, dict[str, int]]:
        """What the shortest first does does not depend on the deadline: it is run once."""
        longest = max(_DEADLINES) * workload.deadline
        shortest = self._done(workload, SHORTEST_FIRST, 0, longest, None)
        return {
            f"{share:g}": {
                SHORTEST_FIRST: shortest.done(share * workload.deadline),
                **{
                    technique: self.goodput(workload, technique, deadline=share * workload.deadline)
                    for technique in (DATAPATH, DATAPATH_HERE, OURS)
                },
            }
            for share in _DEADLINES
        }

    def goodput(
        self,
        workload: _Workload,
        technique: str,
        *,
        failures: int = 0,
        deadline: float | None = None,
        policy: Policy | None = None,
    ) -> int:
        """Queries done by the deadline, with so many executors killed at regular times."""
        seconds = deadline or workload.deadline
        return self._done(workload, technique, failures, seconds, policy).done(seconds)

    def _done(
        self,
        workload: _Workload,
        technique: str,
        failures: int,
        seconds: float,
        policy: Policy | None,
        again: int = 0,
    ) -> _Run:
        of = seconds / workload.deadline if workload.deadline else 0.0
        how = "" if policy is None else f" with {policy}"
        how += f", time {again + 1}" if again else ""
        part = f"{workload.name}: {technique}, {failures} failures, {of:g} of the deadline{how}"
        if self._notes.known(part) is None:
            self._tell(part)
            self._await_executors()
            run = self._run(workload, technique, failures, seconds, policy)
            is_usual = technique == OURS and policy is None and of == 1
            self._notes.note(part, run if is_usual else replace(run, planning=None))
        run = msgspec.convert(self._notes.known(part), _Run)
        if policy is None and part not in self._runs:
            self._struck[technique] += run.struck or 0
        self._runs[part] = run
        return run

    def _run(
        self,
        workload: _Workload,
        technique: str,
        failures: int,
        seconds: float,
        policy: Policy | None,
    ) -> _Run:
        planning = None
        for session in (self._session, self._plain):
            session.forget_plans()  # as those of a batch that comes for the first time
        with self._killing(failures, seconds) as killed:
            if technique == SHORTEST_FIRST:
                done, rows = self._shortest_first(workload, seconds)
            else:
                handle = self._shared(workload, technique, seconds, policy)
        if technique != SHORTEST_FIRST:
            batch = handle.batch()
            done = {name: at for name, at in batch.finished_at.items() if at <= seconds}
            rows = {name: handle.arrow(name) for name in done}
            planning = batch.planning / seconds
        different = _different(workload, rows)
        return _Run(list(done.values()), failures, different, planning, len(killed))

    def _shortest_first(
        self, workload: _Workload, seconds: float
    ) -> tuple[dict[str, float], dict[str, pa.Table]]:
        """By query: when it was done, and its rows."""
        names = sorted(workload.texts, key=lambda name: workload.expected[name])
        began = time.monotonic()
        at: dict[str, float] = {}
        done: dict[str, pa.Table] = {}
        over = threading.Event()

        def stop() -> None:
            over.set()
            self._spark.sparkContext.cancelAllJobs()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            for name in names:
                with suppress(Exception):
                    rows = self._spark.sql(workload.texts[name]).toArrow()
                    if over.is_set():
                        break
                    done[name] = rows
                    at[name] = time.monotonic() - began
                if over.is_set():
                    break
        finally:
            timer.cancel()
            timer.join()
        return at, done

    def _shared(
        self, workload: _Workload, technique: str, seconds: float, policy: Policy | None
    ) -> BatchHandle:
        from headway.session import Policy

        session = self._plain if technique in _ON_SPARK else self._session
        if technique in (DATAPATH, DATAPATH_HERE):
            policy = Policy(
                shuffle=False,
                shared_costs=False,
                fixed_size=_DATAPATH_SIZE,
                checkpoints="none",
            )
        queries = [session.sql(text, name=name) for name, text in workload.texts.items()]
        handle = session.batch(queries, deadline=seconds, policy=policy)
        with suppress(HeadwayError):
            handle.wait()
        return handle

    @contextmanager
    def _killing(self, count: int, seconds: float) -> Iterator[list[str]]:
        """Executors are killed at regular times, each of those that are there then; those that
        were killed."""
        killed: list[str] = []
        timers = [
            threading.Timer(seconds * (number + 1) / (count + 1), self._kill_one, (killed,))
            for number in range(count)
        ]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            yield killed
        finally:
            for timer in timers:
                timer.cancel()
            for timer in timers:
                timer.join()

    def _kill_one(self, killed: list[str]) -> None:
        from headway.spark.executors import list_executors

        executors = list_executors(self._spark)
        if executors:
            with suppress(HeadwayError):
                kill_executor(self._spark.sparkContext.applicationId, executors[-1].id)
                killed.append(executors[-1].id)

    def _await_executors(self) -> None:
        """All executors and their workers are there before a measurement begins."""
        from headway.spark.executors import list_executors

        patience = time.monotonic() + _PATIENCE
        while time.monotonic() < patience:
            workers = len(self._session.workers.executors)
            if len(list_executors(self._spark)) >= _EXECUTORS and workers >= _EXECUTORS:
                break
            time.sleep(0.1)
        self._spark.range(0, 1000, 1, 2 * _EXECUTORS).selectExpr("sum(id)").collect()

    def _report(
        self,
        workloads: list[_Workload],
        calm: dict[str, dict[str, int]],
        failing: dict[str, dict[str, dict[str, int]]],
        by_deadline: dict[str, dict[str, int]],
        options: BenchmarkOptions,
    ) -> dict[str, Any]:
        failed = [counts for of in failing.values() for counts in of.values()]
        runs = [*calm.values(), *failed, *by_deadline.values()]
        lowest = min(_over(counts, base) for counts in runs for base in (SHORTEST_FIRST, DATAPATH))
        different = Counter(name for run in self._runs.values() for name in run.different)
        return {
            "benchmark": "batch",
            "scale": options.scale,
            "master": self._spark.sparkContext.master,
            "queries": {workload.name: len(workload.texts) for workload in workloads},
            "deadlines": {workload.name: round(workload.deadline, 2) for workload in workloads},
            "seconds_of_a_third": {
                w.name: [round(each, 2) for each in w.passes] for w in workloads
            },
            "over_shortest_first": _mean(calm.values(), SHORTEST_FIRST),
            "over_datapath": _mean(calm.values(), DATAPATH),
            "over_datapath_on_our_engine": _mean(calm.values(), DATAPATH_HERE),
            "on_spark_over_datapath": _mean(calm.values(), DATAPATH, OURS_ON_SPARK),
            "on_spark_over_shortest_first": _mean(calm.values(), SHORTEST_FIRST, OURS_ON_SPARK),
            "over_shortest_first_with_failures": _mean(failed, SHORTEST_FIRST),
            "over_datapath_with_failures": _mean(failed, DATAPATH),
            "kills_that_struck": dict(self._struck),
            "lowest_ratio": lowest,
            "lowest_ratio_to_datapath_on_our_engine": min(
                _over(counts, DATAPATH_HERE) for counts in (*calm.values(), *by_deadline.values())
            ),
            "rows_equal": not different,
            "different": dict(different),
            "planning_share_with_failures": max(
                run.planning or 0.0 for run in self._runs.values() if run.failures
            ),
            **self._notes.sittings(),
            "seconds_alone": {w.name: round(sum(w.seconds.values()), 2) for w in workloads},
            "goodput": calm,
            "goodput_with_failures": failing,
            "goodput_by_deadline": by_deadline,
        }


def _different(workload: _Workload, rows: Mapping[str, pa.Table]) -> list[str]:
    return [name for name, found in rows.items() if not same_rows(found, workload.rows[name])]


def _ablations() -> dict[str, Policy]:
    from headway.session import Policy

    return {
        "nothing left out": Policy(),
        "shuffling": Policy(shuffle=False),
        "shared costs": Policy(shared_costs=False),
        "dynamic mini-batches": Policy(fixed_size=_DATAPATH_SIZE),
        "sharing": Policy(share=False),
    }


def _checkpoint_policies() -> dict[str, Policy]:
    from headway.session import Policy

    return {
        "selective": Policy(),
        "all": Policy(checkpoints="all"),
        "none": Policy(checkpoints="none"),
    }


def _over(counts: Mapping[str, int], base: str, technique: str = OURS) -> float:
    return counts[technique] / max(1, counts[base])


def _mean(runs: Any, base: str, technique: str = OURS) -> float:
    return statistics.mean(_over(counts, base, technique) for counts in runs)
