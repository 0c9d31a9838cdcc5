"""How many of the TPC-DS queries the pipelined engine takes, and whether their rows are Spark's."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headway.base.errors import HeadwayError
from headway.bench.peers import run_in, same_rows
from headway.workloads import WORKLOADS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.bench.benchmark import BenchmarkOptions


def measure_coverage(
    spark: SparkSession, options: BenchmarkOptions, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Every query is planned; those that the engine takes are run on it and on Spark."""
    import headway

    workload = WORKLOADS["tpcds"]
    folder = options.data / f"tpcds-{options.scale:g}"
    workload.generate(options.scale, folder)
    queries = workload.queries()
    taken: list[str] = []
    different: dict[str, str] = {}
    elsewhere: dict[str, list[str]] = {}
    with (
        TemporaryDirectory(prefix="headway-bench-") as store,
        headway.session(spark, store_url=store, statistics_observe="false") as session,
    ):
        session.tables(folder)
        for number, (name, text) in enumerate(queries.items()):
            progress(name, number, len(queries))
            (planned,) = session.plan(session.sql(text, name=name))
            if planned.engine != "pipelined":
                elsewhere[name] = [planned.not_imported or "", *planned.refusals]
                continue
            taken.append(name)
            try:
                if not same_rows(run_in(session, text, name), spark.sql(text).toArrow()):
                    different[name] = "other rows than Spark's"
            except HeadwayError as error:
                different[name] = error.describe()
    progress("done", len(queries), len(queries))
    return {
        "benchmark": "coverage",
        "scale": options.scale,
        "queries": len(queries),
        "tpcds_on_engine": len(taken),
        "rows_equal": not different,
        "elsewhere": elsewhere,
        "problems": different,
    }
