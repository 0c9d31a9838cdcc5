"""Executors of a local cluster are killed in the middle of batches.

Run as a process of its own: `batch_scenario.py <TPC-DS tables> <TPC-H tables> <store> <seed>`.
Prints what happened as JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from executor_scenario import EXECUTORS, remove_work_folder, start_cluster, wait_until
from pyspark.sql import SparkSession

import headway
from headway.bench.kills import kill_executor
from headway.plan.spark_sql import to_spark_sql
from headway.session import BatchHandle, Policy, Session
from headway.session.pipelined import ExecutionWatch
from headway.spark.executors import list_executors
from headway.testing.dataflows import rows_of
from headway.testing.random_batches import make_star, random_batch
from headway.workloads import WORKLOADS
from headway.workloads.batches import high_share, low_share, regular_share

KINDS = {"low": low_share, "high": high_share, "regular": regular_share}
RANDOM_BATCHES = 12
SIZE = 6
"""Queries in a mini-batch, so that there is more than one."""
TASKS = 4
"""Of the workers, before one is killed."""
Register = Callable[[Session], object]


def main(tpcds: str, tpch: str, store: str, seed: int) -> list[dict[str, Any]]:
    spark = start_cluster()
    application = spark.sparkContext.applicationId
    try:
        return [
            found
            for name, register, texts in batches(tpcds, tpch, Path(store), seed)
            for found in on_both_engines(spark, name, register, texts, store, seed)
        ]
    finally:
        spark.stop()
        remove_work_folder(application)


def batches(
    tpcds: str, tpch: str, folder: Path, seed: int
) -> Iterator[tuple[str, Register, dict[str, str]]]:
    """By name: what makes its tables known, and its texts."""
    for kind, texts in KINDS.items():
        yield kind, lambda session: session.tables(tpcds), texts(seed=seed)
    yield "tpch", lambda session: session.tables(tpch), WORKLOADS["tpch"].queries()
    for number in range(RANDOM_BATCHES):
        rng = random.Random(seed + number)
        tables = folder.with_name(f"star-{number}")
        tables.mkdir()
        star = make_star(tables, rng, rows=20_000)
        plans = random_batch(star, rng, 12)
        texts = {
            name: to_spark_sql(plan, lambda scan: scan.source.table) for name, plan in plans.items()
        }
        yield f"random {number}", lambda session, tables=tables: views(session, tables), texts


def views(session: Session, tables: Path) -> None:
    for folder in tables.iterdir():
        session.spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)


def on_both_engines(
    spark: SparkSession,
    name: str,
    register: Register,
    texts: dict[str, str],
    store: str,
    seed: int,
) -> Iterator[dict[str, Any]]:
    expected: dict[str, Counter[Any]] = {}
    for engine in ("auto", "spark"):
        yield one_batch(spark.newSession(), name, engine, register, texts, expected, store, seed)


def one_batch(
    spark: SparkSession,
    name: str,
    engine: str,
    register: Register,
    texts: dict[str, str],
    expected: dict[str, Counter[Any]],
    store: str,
    seed: int,
) -> dict[str, Any]:
    """`expected` are the rows of the queries by themselves, which are found once."""
    settings = {"engine_name": engine, "pipelined_task_size": "40000"}  # many small tasks
    with headway.session(spark, store_url=store, **settings) as session:
        register(session)
        for query, text in texts.items():
            if query not in expected:
                expected[query] = Counter(rows_of(spark.sql(text).toArrow()))
        wait_until(lambda: len(list_executors(spark)) == EXECUTORS)
        before = {each.id for each in list_executors(spark)}
        queries = [session.sql(text, name=name) for name, text in texts.items()]
        handle = session.batch(queries, deadline=600, policy=Policy(fixed_size=SIZE))
        wait_until(lambda: handle.finished or is_at_work(handle, spark))
        victim = random.Random(seed).choice(sorted(busy(spark) or before))
        struck = is_at_work(handle, spark)
        kill_executor(spark.sparkContext.applicationId, victim)
        done_before = len(handle.batch().finished_at)
        handle.wait()
        found = {name: Counter(rows_of(handle.arrow(name))) for name in texts}
        wait_until(lambda: len(list_executors(spark)) == EXECUTORS)
        batch = handle.batch()
        return {
            "batch": name,
            "engine": engine,
            "killed_in_the_middle": done_before < len(texts),
            "struck": struck,
            "executor_is_gone": victim not in {each.id for each in list_executors(spark)},
            "executors_lost": batch.lost.executors,
            "seconds_lost": batch.lost.seconds,
            "tasks_done_again": batch.lost.tasks,
            "planned_again": sorted(n for each in batch.mini_batches for n in each.put_back),
            "shared": sum(each.shared_steps for each in batch.mini_batches),
            "different": [name for name in texts if found[name] != expected[name]],
        }


def is_at_work(handle: BatchHandle, spark: SparkSession) -> bool:
    """Whether a shared step is under way, and has done something that can be lost."""
    for running in handle._running_now().values():
        if running.key is not None and isinstance(running.watch, ExecutionWatch):
            return running.watch.report.tasks >= TASKS
        if running.key is not None:
            return bool(busy(spark))
    return False


def busy(spark: SparkSession) -> list[str]:
    """The executors that Spark's tasks are running on."""
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    each = (found.apply(position) for position in range(found.length()))
    return [str(e.id()) for e in each if int(e.activeTasks()) and str(e.id()) != "driver"]


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:4], int(sys.argv[4]))))
