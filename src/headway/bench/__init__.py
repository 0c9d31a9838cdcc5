"""Benchmarks: each measures one promise and answers with one JSON object."""

from headway.bench.benchmark import BENCHMARKS, Benchmark, BenchmarkOptions

__all__ = ["BENCHMARKS", "Benchmark", "BenchmarkOptions"]
