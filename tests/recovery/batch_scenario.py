"""Executors of a local cluster are killed in the middle of batches.

Run as a process of its own: `batch_scenario.py <tables> <store> <seed>`. Prints what happened as
JSON.
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from typing import Any

from executor_scenario import EXECUTORS, remove_work_folder, start_cluster, wait_until
from pyspark.sql import SparkSession

import headway
from headway.bench.kills import kill_executor
from headway.spark.executors import list_executors
from headway.testing.dataflows import rows_of
from headway.workloads.batches import high_share, low_share, regular_share

KINDS = {"low": low_share, "high": high_share, "regular": regular_share}


def main(tables: str, store: str, seed: int) -> list[dict[str, Any]]:
    spark = start_cluster()
    application = spark.sparkContext.applicationId
    try:
        return [
            one_batch(spark, kind, engine, tables, store, seed)
            for kind in KINDS
            for engine in ("auto", "spark")
        ]
    finally:
        spark.stop()
        remove_work_folder(application)


def one_batch(
    spark: SparkSession, kind: str, engine: str, tables: str, store: str, seed: int
) -> dict[str, Any]:
    texts = KINDS[kind](seed=seed, count=12)
    with headway.session(spark, store_url=store, engine_name=engine) as session:
        session.tables(tables)
        expected = {name: Counter(rows_of(spark.sql(t).toArrow())) for name, t in texts.items()}
        wait_until(lambda: len(list_executors(spark)) == EXECUTORS)
        before = {each.id for each in list_executors(spark)}
        queries = [session.sql(text, name=name) for name, text in texts.items()]
        handle = session.batch(queries, deadline=600)
        wait_until(lambda: handle.batch().doing.startswith("mini-batch"))
        victim = random.Random(seed).choice(sorted(before))
        finished_before = handle.finished
        kill_executor(spark.sparkContext.applicationId, victim)
        handle.wait()
        found = {name: Counter(rows_of(handle.arrow(name))) for name in texts}
        wait_until(lambda: len(list_executors(spark)) == EXECUTORS)
        return {
            "batch": kind,
            "engine": engine,
            "killed_in_the_middle": not finished_before,
            "executor_is_gone": victim not in {each.id for each in list_executors(spark)},
            "shared": sum(each.shared_steps for each in handle.batch().mini_batches),
            "different": [name for name in texts if found[name] != expected[name]],
        }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
