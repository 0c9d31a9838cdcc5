"""An executor is killed in the middle of a query: what that costs here, on Spark, and on a restart.

Each query is given enough rows to take the time that is asked for (`copies.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headway.base.errors import HeadwayError, InternalError
from headway.bench.copies import linked_tables
from headway.bench.kills import kill_executor
from headway.bench.lineage import QUERIES
from headway.bench.peers import geometric_mean, middle, same_rows, timed
from headway.workloads import WORKLOADS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from headway.bench.benchmark import BenchmarkOptions
    from headway.session import Session

WORKERS = 4
_SHORTEST = 5.0
_MOST_COPIES = 64
_KILL_AT = 0.5
_CASE_STUDY = "q09"
_CASE_POINTS = (0.1, 0.3, 0.5, 0.7, 0.9)
_REPLACED_SECONDS = 60.0
_ATTEMPTS = 5


@dataclass
class _Query:
    name: str
    text: str
    copies: int = 1
    ours: list[float] = field(default_factory=list)
    spark: list[float] = field(default_factory=list)
    ours_killed: list[float] = field(default_factory=list)
    spark_killed: float = 0.0
    restarted: float = 0.0
    redone: dict[str, int] = field(default_factory=dict)
    equal: bool = True

    @property
    def ours_ratio(self) -> float:
        return middle(self.ours_killed) / middle(self.ours)

    @property
    def spark_ratio(self) -> float:
        return self.spark_killed / middle(self.spark)

    @property
    def restart_ratio(self) -> float:
        return self.restarted / middle(self.ours)


def measure_recovery(
    spark: SparkSession, options: BenchmarkOptions, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Each of the paper's queries without a failure, and with a SIGKILL at half of that time."""
    import headway

    workload = WORKLOADS["tpch"]
    folder = options.data / f"tpch-{options.scale:g}"
    workload.generate(options.scale, folder)
    texts = workload.queries()
    queries = [_Query(name, texts[name]) for name in QUERIES]
    steps = len(queries) + len(_CASE_POINTS)
    case: dict[str, float] = {}
    with TemporaryDirectory(prefix="headway-bench-", dir=options.data) as scratch:
        settings: dict[str, Any] = {"statistics_observe": "false", "engine_name": "pipelined"}
        with headway.session(spark, store_url=f"{scratch}/store", **settings) as session:
            bench = _Bench(session, folder, Path(scratch) / "tables")
            for number, query in enumerate(queries):
                progress(query.name, number, steps)
                bench.measure(query, options.repeat)
            studied = next(query for query in queries if query.name == _CASE_STUDY)
            bench.use(studied.copies)
            for number, point in enumerate(_CASE_POINTS):
                progress(f"{_CASE_STUDY} at {point:.0%}", len(queries) + number, steps)
                took, equal, _ = bench.killed(studied, point)
                case[f"{point:.0%}"] = took / middle(studied.ours)
                studied.equal = studied.equal and equal
    progress("done", steps, steps)
    return _report(queries, case, options, spark.sparkContext.master)


class _Bench:
    def __init__(self, session: Session, folder: Path, tables: Path) -> None:
        self._session = session
        self._folder = folder
        self._tables = tables
        self._expected: dict[str, pa.Table] = {}
        self._workers = session.workers.start()

    def use(self, copies: int) -> None:
        """Register the tables, the largest one so many times over."""
        self._session.tables(linked_tables(self._folder, self._tables, copies))

    def measure(self, query: _Query, repeat: int) -> None:
        """Runs without a failure are between those with one."""
        self._choose_copies(query)
        for _ in range(2):
            took, expected = timed(lambda: self._session.spark.sql(query.text).toArrow())
            query.spark.append(took)
        self._expected[query.name] = expected
        self._run_freely(query)
        for _ in range(repeat):
            self._run_freely(query)
            took, equal, query.redone = self.killed(query, _KILL_AT)
            query.ours_killed.append(took)
            query.equal = query.equal and equal
        query.restarted = self._restarted(query)
        query.spark_killed = self._spark_killed(query)

    def _run_freely(self, query: _Query) -> None:
        took, rows = timed(lambda: self._run(query))
        query.ours.append(took)
        query.equal = query.equal and same_rows(rows, self._expected[query.name])

    def _choose_copies(self, query: _Query) -> None:
        """As many that the query takes long enough; twice, since the first guess is a line."""
        self.use(query.copies)
        self._run(query)
        for _ in range(3):
            took, _ = timed(lambda: self._run(query))
            if took >= 1.15 * _SHORTEST or query.copies >= _MOST_COPIES:
                return
            wanted = max(query.copies + 1, int(query.copies * _SHORTEST * 1.3 / took) + 1)
            query.copies = min(wanted, _MOST_COPIES)
            self.use(query.copies)
            self._run(query)

    def _run(self, query: _Query) -> pa.Table:
        handle = self._session.run(self._session.sql(query.text, name=query.name))
        handle.wait()
        return handle.arrow()

    def killed(self, query: _Query, point: float) -> tuple[float, bool, dict[str, int]]:
        """The time with a kill at that share of the usual time, and whether the rows are right.
        Late kills may come too late: then once more."""
        for _ in range(_ATTEMPTS):
            found = self._try_to_kill(query, point)
            if found is not None:
                return found
        raise InternalError(f"{query.name} ended before an executor was killed")

    def _try_to_kill(
        self, query: _Query, point: float
    ) -> tuple[float, bool, dict[str, int]] | None:
        with self._all_workers_after():
            began = time.perf_counter()
            handle = self._session.run(self._session.sql(query.text, name=query.name))
            with _at(point * middle(query.ours) - (time.perf_counter() - began), self._kill_one):
                handle.wait()
                rows = handle.arrow()
                took = time.perf_counter() - began
        report = handle.report()
        if report is None or not report.workers_lost:
            return None
        redone = {"repeated": report.repeated, "replayed": report.replayed, "tasks": report.tasks}
        return took, same_rows(rows, self._expected[query.name]), redone

    def _restarted(self, query: _Query) -> float:
        """Without recovery: what was done is lost, and the query starts over on the others."""
        with self._all_workers_after():
            began = time.perf_counter()
            handle = self._session.run(self._session.sql(query.text, name=query.name))
            time.sleep(max(0.0, _KILL_AT * middle(query.ours) - (time.perf_counter() - began)))
            handle.cancel()
            self._kill_one()
            with suppress(HeadwayError):
                handle.wait()
            self._await(WORKERS - 1, exactly=True)
            self._run(query)
            return time.perf_counter() - began

    def _spark_killed(self, query: _Query) -> float:
        with (
            self._all_workers_after(),
            _at(_KILL_AT * middle(query.spark), self._kill_one),
        ):
            took, rows = timed(lambda: self._session.spark.sql(query.text).toArrow())
        query.equal = query.equal and same_rows(rows, self._expected[query.name])
        return took

    def _kill_one(self) -> None:
        executors = self._session.workers.executors
        application = self._session.spark.sparkContext.applicationId
        kill_executor(application, executors[max(executors)])

    @contextmanager
    def _all_workers_after(self) -> Iterator[None]:
        """The next measurement begins with all workers again, and a Spark that has settled."""
        yield
        self._await(WORKERS)
        self._session.spark.range(0, 1000, 1, 2 * WORKERS).selectExpr("sum(id)").collect()

    def _await(self, count: int, *, exactly: bool = False) -> None:
        deadline = time.monotonic() + _REPLACED_SECONDS
        while time.monotonic() < deadline:
            there = len(self._session.workers.executors)
            if there == count or (there > count and not exactly):
                return
            time.sleep(0.02)
        raise InternalError(f"there are not {count} workers after {_REPLACED_SECONDS:.0f} s")


@contextmanager
def _at(seconds: float, work: Callable[[], None]) -> Iterator[None]:
    """Do something so many seconds from now, beside what goes on inside."""
    timer = threading.Timer(max(0.0, seconds), work)
    timer.start()
    try:
        yield
    finally:
        timer.join()


def _report(
    queries: list[_Query], case: dict[str, float], options: BenchmarkOptions, master: str
) -> dict[str, Any]:
    return {
        "benchmark": "recovery",
        "scale": options.scale,
        "master": master,
        "kill_at": _KILL_AT,
        "ours_ratio": geometric_mean(query.ours_ratio for query in queries),
        "spark_ratio": geometric_mean(query.spark_ratio for query in queries),
        "restart_ratio": geometric_mean(query.restart_ratio for query in queries),
        "rows_equal": all(query.equal for query in queries),
        "better_than_spark": sum(q.ours_ratio < q.spark_ratio for q in queries),
        "shortest_failure_free_seconds": min(middle(query.ours) for query in queries),
        "queries": {
            query.name: {
                "lineitem_copies": query.copies,
                "ours": round(middle(query.ours), 3),
                "spark": round(middle(query.spark), 3),
                "ours_ratio": round(query.ours_ratio, 3),
                "spark_ratio": round(query.spark_ratio, 3),
                "restart_ratio": round(query.restart_ratio, 3),
                **query.redone,
            }
            for query in queries
        },
        f"{_CASE_STUDY}_ratio_by_kill": {point: round(ratio, 3) for point, ratio in case.items()},
    }
