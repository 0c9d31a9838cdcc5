"""What a benchmark is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.bench.batch import measure_batch
from headway.bench.coverage import measure_coverage
from headway.bench.lineage import measure_lineage
from headway.bench.migrate import measure_migrate
from headway.bench.plan import measure_plan
from headway.bench.recovery import measure_recovery
from headway.bench.tpch import measure_tpch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, int, int], None]
"""Told of every step: what it is, how many are done, how many there are."""


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """`data` is a folder that keeps generated tables from one time to the next."""

    scale: float
    data: Path
    repeat: int = 1
    go_on: bool = False
    """From what was found before the benchmark was interrupted."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    doc: str
    scale: float
    """The scale of its data where none is asked for."""
    run: Callable[[SparkSession, BenchmarkOptions, Progress], dict[str, Any]]
    repeat: int = 1
    """Measured passes where no number is asked for."""
    master: str | None = None
    """The Spark that it wants where none is asked for."""
    can_go_on: bool = False
    """Whether it notes what it has found, and can be interrupted."""


_FOUR_WORKERS = "local-cluster[4,1,1024]"

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "plan",
            "import and export of all TPC-H and TPC-DS queries, against Spark's own planning",
            0.01,
            measure_plan,
        ),
        Benchmark(
            "tpch",
            "all TPC-H queries: Spark SQL, the pipelined engine and DuckDB on the same files",
            1.0,
            measure_tpch,
            repeat=3,
        ),
        Benchmark(
            "lineage",
            "the cost of lineage, backups and spooling; the gain of pipelines and dynamic tasks",
            1.0,
            measure_lineage,
            repeat=5,
            master=_FOUR_WORKERS,
        ),
        Benchmark(
            "recovery",
            "an executor killed in the middle of a query: here, on Spark, and with a restart",
            1.0,
            measure_recovery,
            repeat=2,
            master=_FOUR_WORKERS,
        ),
        Benchmark(
            "coverage",
            "how many TPC-DS queries the pipelined engine takes, with Spark's rows",
            0.01,
            measure_coverage,
        ),
        Benchmark(
            "batch",
            "queries done by a deadline, with and without failures: alone, shared, and as here",
            1.0,
            measure_batch,
            master=_FOUR_WORKERS,
            can_go_on=True,
        ),
        Benchmark(
            "migrate",
            "queries suspended and resumed: what is kept, what it costs, and when it pays",
            1.0,
            measure_migrate,
            can_go_on=True,
        ),
    )
}
