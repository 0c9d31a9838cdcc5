"""Workers on a cluster of two executors with one core each, through losses, to the end.

Run as a process of its own, since a process has one Spark: `hosting_scenario.py <master>`.
Prints what happened as JSON.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyspark
from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.sql import SparkSession

from headway.spark import rounds
from headway.spark.executors import Executor, list_executors, one_task_on
from headway.spark.hosting import HostedWorker, WorkerHost, WorkerPlan
from headway.spark.launching import Order
from headway.storage.processes import is_gone
from headway.testing.idle_worker import IdleDriver

EXECUTORS = 2


def main(master: str) -> dict[str, Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.executor.memory", "1g")
        .config("spark.executor.cores", "1")
        .config("spark.cores.max", str(EXECUTORS))
        .config("spark.executor.instances", str(EXECUTORS))
        .getOrCreate()
    )
    application = spark.sparkContext.applicationId
    try:
        told = scenario(spark)
        told["misplaced"] = misplaced(spark)
        told["left_after_spark"] = stopped_after_spark(spark)
        return told
    finally:
        spark.stop()
        remove_work_folder(application)


def remove_work_folder(application: str) -> None:
    """A local cluster keeps its executors' output in Spark's own folder, whatever it is told."""
    work = Path(pyspark.__file__).parent / "work"
    shutil.rmtree(work / application, ignore_errors=True)
    with suppress(OSError):  # another one's is in there
        work.rmdir()


def scenario(spark: SparkSession) -> dict[str, Any]:
    told: dict[str, Any] = {}
    driver = IdleDriver()
    host = WorkerHost(spark, WorkerPlan(driver.address, "secret", "headway.testing.idle_worker"))
    arrived: list[HostedWorker] = []
    told["start_seconds"] = seconds(host.start)
    everybody = list(host.workers)
    told["executors"] = sorted(worker.executor.id for worker in host.workers)
    told["workers"] = sorted(driver.reports)
    told["jvms"] = len({report["watch"][0] for report in driver.reports.values()})
    told["bind_hosts"] = sorted({report["bind_host"] for report in driver.reports.values()})
    told["memory"] = [worker.memory for worker in host.workers]
    told["slots_free"] = all_slots(spark)

    host.watch(arrived.append)
    victim = host.workers[0]
    os.kill(driver.reports[victim.id]["watch"][0], signal.SIGKILL)
    told["death_seconds"] = seconds(lambda: wait_until(lambda: victim.id in driver.closed))
    wait_until(lambda: is_gone(victim.process), 5.0)
    told["replacement_seconds"] = seconds(lambda: wait_until(lambda: len(arrived) == 1))
    told["replacement_executor_is_new"] = arrived[0].executor.id not in told["executors"]

    crashed = host.workers[0]
    os.kill(crashed.process.pid, signal.SIGKILL)
    wait_until(lambda: crashed.id in driver.closed)
    host.lost(crashed.id)
    told["crash_seconds"] = seconds(lambda: wait_until(lambda: len(arrived) == 2))
    told["same_executor"] = arrived[1].executor == crashed.executor

    paused = host.workers[0]
    os.kill(paused.process.pid, signal.SIGSTOP)
    host.lost(paused.id)
    wait_until(lambda: len(arrived) == 3)
    told["paused_is_ended"] = is_gone(paused.process)
    told["slots_free_again"] = all_slots(spark)

    everybody += arrived
    stubborn = host.workers[0]
    driver.close(but=stubborn.id)
    told["stop_seconds"] = seconds(lambda: host.stop(patience=1.0))
    told["left_processes"] = [w.id for w in everybody if not is_gone(w.process)]
    told["left_by_living_executors"] = [
        worker.id for worker in everybody[1:] if Path(worker.scratch).exists()
    ]
    return told


def misplaced(spark: SparkSession) -> list[int | str | None]:
    """A round whose first task lands on an executor with nothing to do: the jobs it took, and
    what became of the order."""
    elsewhere, wanted = list_executors(spark)
    sent: list[Executor] = []

    def send(context: SparkContext, executor: Executor) -> RDD[str]:
        sent.append(executor)
        return one_task_on(context, executor if len(sent) > 1 else elsewhere)

    with patch.object(rounds, "one_task_on", send):
        outcomes = rounds.Round(spark, {wanted: Order()}).run(30.0)
    assert all_slots(spark)
    return [len(sent), outcomes[wanted.id].problem]


def stopped_after_spark(spark: SparkSession) -> list[str]:
    """The processes that outlive both Spark and the host: one of two executors has a worker, and
    its driver never lets it go."""
    driver = IdleDriver()
    host = WorkerHost(spark, WorkerPlan(driver.address, "secret", "headway.testing.idle_worker"))
    workers = host.start(1)
    assert len(workers) == 1
    host.watch()
    spark.stop()
    host.stop(patience=5.0)
    return [worker.id for worker in workers if not is_gone(worker.process)]


def all_slots(spark: SparkSession) -> bool:
    """A barrier stage begins only when every one of its tasks has a slot."""
    rows = spark.sparkContext.parallelize(range(EXECUTORS), EXECUTORS).barrier()
    return rows.mapPartitions(lambda part: [sum(1 for _ in part)]).collect() == [1] * EXECUTORS


def seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return round(time.monotonic() - began, 3)


def wait_until(condition: Callable[[], bool], patience: float = 90.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
