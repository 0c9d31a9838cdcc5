"""All TPC-H queries on Spark SQL, on the pipelined engine with lineage on, and on DuckDB alone."""

from __future__ import annotations

from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headway.base.errors import HeadwayError
from headway.bench.peers import DuckDb, geometric_mean, middle, run_in, same_rows, timed
from headway.workloads import WORKLOADS
from headway.workloads.tables import find_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.bench.benchmark import BenchmarkOptions
    from headway.session import Session


def measure_tpch(
    spark: SparkSession, options: BenchmarkOptions, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """From the text of a query to its rows in the driver, for each of the three in turn.

    One pass warms all three up and compares their rows; `repeat` passes are measured.
    """
    import headway

    workload = WORKLOADS["tpch"]
    folder = options.data / f"tpch-{options.scale:g}"
    workload.generate(options.scale, folder)
    queries = [_Query(name, text) for name, text in workload.queries().items()]
    steps = (1 + options.repeat) * len(queries)
    cores = spark.sparkContext.defaultParallelism
    with TemporaryDirectory(prefix="headway-bench-") as store:
        session = headway.session(spark, store_url=store, statistics_observe="false")
        duck = DuckDb({name: folder / name for name in find_tables(folder)}, cores)
        with session:
            session.tables(folder)
            for attempt in range(1 + options.repeat):
                for number, query in enumerate(queries):
                    progress(query.name, attempt * len(queries) + number, steps)
                    query.measure(session, duck, warm_up=attempt == 0)
        duck.close()
    progress("done", steps, steps)
    return _report(queries, options, cores)


class _Query:
    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.engine = ""
        self.equal = False
        self.problem: str | None = None
        self.spark: list[float] = []
        self.ours: list[float] = []
        self.duckdb: list[float] = []

    def measure(self, session: Session, duck: DuckDb, *, warm_up: bool) -> None:
        spark_seconds, theirs = timed(lambda: session.spark.sql(self.text).toArrow())
        try:
            our_seconds, ours = timed(lambda: run_in(session, self.text, self.name))
        except HeadwayError as error:
            self.problem = error.describe()
            return
        duck_seconds, _ = timed(lambda: duck.run(self.text))
        if warm_up:
            (planned,) = session.plan(session.sql(self.text, name=self.name))
            self.engine, self.equal = planned.engine, same_rows(ours, theirs)
            return
        self.spark.append(spark_seconds)
        self.ours.append(our_seconds)
        self.duckdb.append(duck_seconds)

    @property
    def spark_over_ours(self) -> float:
        return middle(self.spark) / middle(self.ours)

    @property
    def ours_over_duckdb(self) -> float:
        return middle(self.ours) / middle(self.duckdb)


def _report(queries: list[_Query], options: BenchmarkOptions, cores: int) -> dict[str, Any]:
    measured = [query for query in queries if query.ours]
    return {
        "benchmark": "tpch",
        "scale": options.scale,
        "cores": cores,
        "repeat": options.repeat,
        "queries": len(queries),
        "queries_on_engine": sum(query.engine == "pipelined" for query in queries),
        "rows_equal": all(query.equal for query in queries),
        "spark_over_ours": geometric_mean(q.spark_over_ours for q in measured),
        "ours_over_duckdb": geometric_mean(q.ours_over_duckdb for q in measured),
        "lowest_spark_over_ours": min((q.spark_over_ours for q in measured), default=None),
        "seconds": {
            query.name: {
                "spark": round(middle(query.spark), 4),
                "ours": round(middle(query.ours), 4),
                "duckdb": round(middle(query.duckdb), 4),
                "spark_over_ours": round(query.spark_over_ours, 3),
            }
            for query in measured
        },
        "problems": {query.name: query.problem for query in queries if query.problem},
    }
