"""What lineage and backups cost, and what pipelined and dynamic execution gain."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headway.bench.peers import geometric_mean, middle, run_in, timed
from headway.workloads import WORKLOADS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.bench.benchmark import BenchmarkOptions
    from headway.session import Session

QUERIES = ("q01", "q06", "q03", "q10", "q05", "q07", "q08", "q09")
"""Those of the paper: simple aggregations, simple joins, several pipelines of joins."""
_STATIC = ("8", "128")
_OFF = {"pipelined_protection": "none", "pipelined_control_store": "none"}
VARIANTS: dict[str, dict[str, str]] = {
    "off": _OFF,
    "on": {},
    "spool": {"pipelined_protection": "spool"},
    "blocking": {"pipelined_blocking": "true"},
    **{f"static_{count}": {"pipelined_inputs_per_task": count} for count in _STATIC},
}
"""The same engine on the same workers, with other settings."""


def measure_lineage(
    spark: SparkSession, options: BenchmarkOptions, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Every variant of every query in turn: one pass to warm up, `repeat` passes measured."""
    import headway

    workload = WORKLOADS["tpch"]
    folder = options.data / f"tpch-{options.scale:g}"
    workload.generate(options.scale, folder)
    texts = workload.queries()
    seconds: dict[str, dict[str, list[float]]] = {
        query: {variant: [] for variant in VARIANTS} for query in QUERIES
    }
    steps = (1 + options.repeat) * len(QUERIES)
    with TemporaryDirectory(prefix="headway-bench-") as store:
        common: dict[str, Any] = {
            "store_url": store,
            "statistics_observe": "false",
            "engine_name": "pipelined",
        }
        with headway.session(spark, **common) as base:
            base.tables(folder)
            sessions = {
                variant: headway.session(spark, workers=base.workers, **common, **settings)
                for variant, settings in VARIANTS.items()
            }
            for attempt in range(1 + options.repeat):
                for number, query in enumerate(QUERIES):
                    progress(query, attempt * len(QUERIES) + number, steps)
                    for variant, session in _turned(sessions, attempt):
                        took, _ = timed(partial(run_in, session, texts[query], query))
                        if attempt:
                            seconds[query][variant].append(took)
            for session in sessions.values():
                session.close()
    progress("done", steps, steps)
    return _report(seconds, options, spark.sparkContext.master)


def _turned(sessions: dict[str, Session], by: int) -> list[tuple[str, Session]]:
    """Every pass begins with another variant: none always runs behind the same one."""
    items = list(sessions.items())
    by %= len(items)
    return items[by:] + items[:by]


def _report(
    seconds: dict[str, dict[str, list[float]]], options: BenchmarkOptions, master: str
) -> dict[str, Any]:
    middles = {
        query: {variant: middle(each) for variant, each in variants.items()}
        for query, variants in seconds.items()
    }

    def ratio(variant: str, base: str) -> float:
        return geometric_mean(m[variant] / m[base] for m in middles.values()) or 1.0

    static = {count: ratio(f"static_{count}", "on") for count in _STATIC}
    return {
        "benchmark": "lineage",
        "scale": options.scale,
        "master": master,
        "repeat": options.repeat,
        "lineage_overhead": ratio("on", "off") - 1,
        "spool_overhead": ratio("spool", "off") - 1,
        "blocking_over_pipelined": ratio("blocking", "on"),
        "static_over_dynamic": geometric_mean(static.values()),
        "static_over_dynamic_by_inputs": static,
        "seconds": {
            query: {variant: round(value, 4) for variant, value in each.items()}
            for query, each in middles.items()
        },
    }
