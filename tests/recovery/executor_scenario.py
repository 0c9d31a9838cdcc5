"""Executors of a local cluster are killed in the middle of queries.

Run as a process of its own, since a process has one Spark: `executor_scenario.py <tables> <store>`.
Prints what happened as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import headway
from headway.bench.kills import kill_executor
from headway.session import Session
from headway.testing.dataflows import rows_of
from headway.workloads import WORKLOADS

EXECUTORS = 2
PROTECTION = {"q09": "backup", "q18": "spool"}


def start_cluster() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,1024]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.executor.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def main(tables: str, store: str) -> list[dict[str, Any]]:
    spark = start_cluster()
    application = spark.sparkContext.applicationId
    try:
        return [one_query(spark, name, tables, store) for name in PROTECTION]
    finally:
        spark.stop()
        remove_work_folder(application)


def one_query(spark: SparkSession, name: str, tables: str, store: str) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "engine_name": "pipelined",
        "pipelined_protection": PROTECTION[name],
        "pipelined_task_size": "40000",
        "pipelined_broadcast_limit": "100000",
    }
    with headway.session(spark, store_url=store, **settings) as session:
        session.tables(tables)
        text = WORKLOADS["tpch"].queries()[name]
        expected = rows_of(spark.sql(text).toArrow())
        told = killed(session, name, text, expected)
    told["left_processes"] = [pid for pid in told.pop("processes") if is_alive(pid)]
    return told


def killed(session: Session, name: str, text: str, expected: list[Any]) -> dict[str, Any]:
    session.workers.start()
    before = session.workers.executors
    processes = set(session.workers.processes.values())
    handle = session.run(session.sql(text, name=name))
    wait_until(lambda: (found := handle.report()) is not None and found.tasks >= 10)
    kill_executor(session.spark.sparkContext.applicationId, before[max(before)])
    finished_before = handle.finished
    handle.wait()
    report = handle.report()
    assert report is not None
    wait_until(lambda: len(session.workers.executors) == EXECUTORS)
    after = session.workers.executors
    again = session.run(session.sql(text, name=name))
    again.wait()
    return {
        "query": name,
        "killed_in_the_middle": not finished_before,
        "rows": len(expected),
        "rows_equal": rows_of(handle.arrow()) == expected,
        "rows_equal_with_the_replacement": rows_of(again.arrow()) == expected,
        "workers_lost": report.workers_lost,
        "redone": report.repeated + report.replayed,
        "executor_is_new": len(set(after.values()) - set(before.values())),
        "processes": sorted(processes | set(session.workers.processes.values())),
    }


def is_alive(pid: int) -> bool:
    deadline = time.monotonic() + 5.0
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return Path(f"/proc/{pid}").exists()


def remove_work_folder(application: str) -> None:
    """A local cluster keeps its executors' output in Spark's own folder, whatever it is told."""
    work = Path(pyspark.__file__).parent / "work"
    shutil.rmtree(work / application, ignore_errors=True)
    with suppress(OSError):  # another one's is in there
        work.rmdir()


def wait_until(condition: Callable[[], bool], patience: float = 90.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2])))
