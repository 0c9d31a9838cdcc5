"""What a benchmark is, and the list of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.bench.plan import measure_plan

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


@dataclass(frozen=True, slots=True)
class Benchmark:
    name: str
    doc: str
    scale: float
    """The scale of its data where none is asked for."""
    run: Callable[[SparkSession, BenchmarkOptions, Progress], dict[str, Any]]


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            "plan",
            "import and export of all TPC-H and TPC-DS queries, against Spark's own planning",
            0.01,
            measure_plan,
        ),
    )
}
