"""How much the import of a plan adds to Spark's own planning, and whether the plans are right."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from headway.base.errors import HeadwayError
from headway.plan.serialize import plan_from_json, plan_to_json
from headway.workloads import WORKLOADS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.bench.benchmark import BenchmarkOptions


def measure_plan(
    spark: SparkSession, options: BenchmarkOptions, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Every query: Spark plans it, we import it; it goes through JSON and back to Spark, and both
    are run and compared.

    The first pass warms the JVM up and compares rows, the passes after it are measured.
    """
    from headway.spark.tables import register_tables
    from headway.workloads.tables import find_tables

    queries: list[_Measured] = []
    steps = (1 + options.repeat) * sum(len(w.queries()) for w in WORKLOADS.values())
    done = 0
    for workload in WORKLOADS.values():
        folder = options.data / f"{workload.name}-{options.scale:g}"
        workload.generate(options.scale, folder)
        register_tables(spark, find_tables(folder))
        measured = [_Measured(f"{workload.name} {n}", t) for n, t in workload.queries().items()]
        for attempt in range(1 + options.repeat):
            for query in measured:
                progress(query.name, done, steps)
                query.measure(spark, compare=attempt == 0)
                done += 1
        queries += measured
    progress("done", steps, steps)
    return _report(queries, options)


class _Measured:
    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.spark_seconds: list[float] = []
        self.import_seconds: list[float] = []
        self.export_seconds: list[float] = []
        self.imported = False
        self.equal = False
        self.rows = 0
        self.reason: str | None = None

    def measure(self, spark: SparkSession, *, compare: bool) -> None:
        from headway.spark.catalyst import import_plan
        from headway.spark.compare import same_result
        from headway.spark.frames import frame_of

        began = time.perf_counter()
        frame = spark.sql(self.text)
        frame._jdf.queryExecution().executedPlan()
        planned = time.perf_counter()
        try:
            imported = import_plan(frame)
            read = time.perf_counter()
            self.imported = True
            plan = plan_from_json(plan_to_json(imported.plan))
            written = time.perf_counter()
            back = frame_of(spark, plan, session_frames=imported.frames)
            exported = time.perf_counter()
        except HeadwayError as error:
            self.reason = error.describe()
            return
        if compare:
            verdict = same_result(frame, back)
            self.equal, self.rows, self.reason = verdict.equal, verdict.rows, verdict.difference
        else:
            self.spark_seconds.append(planned - began)
            self.import_seconds.append(read - planned)
            self.export_seconds.append(exported - written)


def _report(queries: list[_Measured], options: BenchmarkOptions) -> dict[str, Any]:
    """Times are over the TPC-DS queries, whose plans are the larger ones."""
    tpcds = [q for q in queries if q.name.startswith("tpcds") and q.import_seconds]
    return {
        "benchmark": "plan",
        "scale": options.scale,
        "queries": len(queries),
        "queries_imported": sum(query.imported for query in queries),
        "queries_equal": sum(query.equal for query in queries),
        "queries_with_rows": sum(query.rows > 0 for query in queries),
        "import_seconds_median": _median(q.import_seconds for q in tpcds),
        "import_seconds_p95": _p95(q.import_seconds for q in tpcds),
        "spark_planning_seconds_median": _median(q.spark_seconds for q in tpcds),
        "spark_planning_seconds_p95": _p95(q.spark_seconds for q in tpcds),
        "export_seconds_median": _median(q.export_seconds for q in tpcds),
        "problems": {query.name: query.reason for query in queries if query.reason},
    }


def _median(seconds: Iterable[list[float]]) -> float | None:
    """Over queries, of each query's own median; None when nothing was measured."""
    medians = [statistics.median(measured) for measured in seconds]
    return statistics.median(medians) if medians else None


def _p95(seconds: Iterable[list[float]]) -> float | None:
    medians = [statistics.median(measured) for measured in seconds]
    return statistics.quantiles(medians, n=20)[-1] if len(medians) > 1 else None
