"""The executors of a Spark session: which there are, and what a worker on them may use."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.core.rdd import RDD
from pyspark.errors import PySparkException
from pyspark.serializers import UTF8Deserializer
from pyspark.sql import SparkSession

from headway.spark.machines import LEAST_MEMORY, free_memory

MEMORY_SHARE = 0.6
"""Of what is free on a machine; the rest is for Spark's own Python processes and the file cache."""
SPARK_GONE = (Py4JError, PySparkException, OSError)
"""What a call to a Spark that is being stopped, or whose JVM died, may raise."""

_LOOPBACK = "127.0.0.1"
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,.*\]")
_OVERHEAD_SHARE = 0.8
_LEAST_OVERHEAD = 384 << 20
_LET_GO = ("killed by driver", "scale down")
"""In the words with which Spark removes executors that it has no work for."""
_PERIOD = 0.02
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Executor:
    """`host` is the address that Spark knows it by."""

    id: str
    host: str
    cores: int


@dataclass(frozen=True, slots=True)
class DriverAddress:
    """Where the driver listens, and what executors call that place."""

    bind: str
    host: str


def is_local(spark: SparkSession) -> bool:
    """Whether the driver's own JVM is the only executor."""
    return bool(spark.sparkContext._jsc.sc().isLocal())


def is_gone(spark: SparkSession) -> bool:
    """Whether its context was stopped, or its JVM has died."""
    try:
        context = spark.sparkContext._jsc
        return context is None or bool(context.sc().isStopped())
    except SPARK_GONE:
        return True


def leaving_executors(spark: SparkSession) -> tuple[frozenset[str], bool]:
    """Those that were told that their machines are being taken away, and whether these are all
    that there are. Where only some were, what they have is made up for on the others."""
    executors = list_executors(spark)
    try:
        scheduler = spark.sparkContext._jsc.sc().taskScheduler()
        leaving = [
            e.id for e in executors if scheduler.getExecutorDecommissionState(e.id).isDefined()
        ]
    except SPARK_GONE:
        return frozenset(), False
    return frozenset(leaving), bool(executors) and len(leaving) == len(executors)


def list_executors(spark: SparkSession) -> tuple[Executor, ...]:
    """Those that can run tasks now, the longest known first; none once Spark was stopped."""
    context = spark.sparkContext._jsc
    if context is None:
        return ()
    found = context.sc().statusStore().executorList(True)
    executors = []
    for position in range(found.length()):
        each = found.apply(position)
        cores = int(each.totalCores())
        if cores and not each.isExcluded():  # a driver that is no executor has no cores
            host = re.sub(r":\d+$", "", str(each.hostPort()))
            executors.append((each.addTime().getTime(), Executor(str(each.id()), host, cores)))
    return tuple(executor for _, executor in sorted(executors, key=lambda found: found[0]))


def task_seconds(spark: SparkSession) -> dict[str, tuple[bool, float]]:
    """By executor, those that were lost included: whether it is there, and for how long its tasks
    have run by now. Those that Spark has let go of are left out."""
    return {
        str(executor.id()): (bool(executor.isActive()), executor.totalDuration() / 1000)
        for executor in _all_executors(spark)
        if not _was_let_go(executor)
    }


def _all_executors(spark: SparkSession) -> list[Any]:
    """What Spark knows of those that are there, and of those that are gone."""
    context = spark.sparkContext._jsc
    if context is None:
        return []
    found = context.sc().statusStore().executorList(False)
    each = (found.apply(position) for position in range(found.length()))
    return [executor for executor in each if int(executor.totalCores())]


def _was_let_go(executor: Any) -> bool:
    if executor.isActive() or not executor.removeReason().isDefined():
        return False
    reason = str(executor.removeReason().get())
    return any(words in reason for words in _LET_GO)


def await_executors(
    spark: SparkSession, count: int | None, patience: float
) -> tuple[Executor, ...]:
    """The executors, as soon as there are `count` of them or the patience is over.

    Spark returns a session before its executors are there. Without a count it is the number that
    the session asked for, or one.
    """
    wanted = count or _asked_for(spark)
    deadline = time.monotonic() + patience
    while True:
        executors = list_executors(spark)
        if len(executors) >= wanted or time.monotonic() >= deadline:
            return executors
        time.sleep(_PERIOD)


def executor_of_task(spark: SparkSession, stage: int, task: int) -> str | None:
    """The executor that runs a task which has just begun; a Python task does not know it."""
    store = spark.sparkContext._jsc.sc().statusStore()
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        tasks = store.taskList(stage, 0, 1_000)
        for position in range(tasks.length()):
            each = tasks.apply(position)
            if int(each.taskId()) == task:
                return str(each.executorId())
        time.sleep(_PERIOD)  # Spark's own books are a little behind
    return None


def one_task_on(context: SparkContext, executor: Executor) -> RDD[str]:
    """One partition with one text, which Spark runs on that executor unless it is busy for
    longer than spark.locality.wait."""
    jvm: Any = context._jvm
    # Spark's own notation for a block in the memory of an executor.
    places = [] if "_" in executor.host else [f"executor_{executor.host}_{executor.id}"]
    located = jvm.scala.Tuple2("", jvm.PythonUtils.toSeq(places))
    kind = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("java.lang.String"))
    made = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq([located]), kind)
    return RDD(made.toJavaRDD(), context, UTF8Deserializer())


def driver_address(spark: SparkSession) -> DriverAddress:
    """For a server in the driver that executors connect to."""
    if is_local(spark):
        return DriverAddress(_LOOPBACK, _LOOPBACK)
    conf = spark.sparkContext.getConf()
    host = str(conf.get("spark.driver.host", _LOOPBACK))
    return DriverAddress(str(conf.get("spark.driver.bindAddress", host)), host)


def bind_host(executor: Executor, driver: DriverAddress) -> str:
    """Where a worker on that executor listens to its peers: on the loopback where the driver
    does, since then there is only one machine."""
    if driver.host in (_LOOPBACK, "localhost", "::1"):
        return driver.host
    return executor.host


def worker_memory(spark: SparkSession) -> int:
    """What a worker may use by default, before its machine has a say.

    On YARN and Kubernetes: what the container has for other processes than the JVM. On a
    standalone master, which sets no limit: as much again as the executor's JVM. In local mode: a
    share of what is free when the JVM has grown to its full heap.
    """
    context = spark.sparkContext
    jvm: Any = context._jvm
    if is_local(spark):
        runtime = jvm.java.lang.Runtime.getRuntime()
        growth = int(runtime.maxMemory()) - int(runtime.totalMemory())
        return max(LEAST_MEMORY, int((free_memory() - growth) * MEMORY_SHARE))
    heap = int(context._jsc.sc().executorMemory()) << 20
    for_python = _memory_setting(context, "spark.executor.pyspark.memory")
    overhead = _memory_setting(context, "spark.executor.memoryOverhead")
    if for_python is None and overhead is None:
        if context.master.startswith(("spark:", "local-cluster")):
            return max(LEAST_MEMORY, heap)
        factor = float(str(context.getConf().get("spark.executor.memoryOverheadFactor", "0.1")))
        overhead = max(_LEAST_OVERHEAD, int(heap * factor))
    return max(LEAST_MEMORY, int((for_python or overhead or 0) * _OVERHEAD_SHARE))


def _memory_setting(context: SparkContext, name: str) -> int | None:
    text = context.getConf().get(name)
    if text is None:
        return None
    jvm: Any = context._jvm
    return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb(text)) << 20


def _asked_for(spark: SparkSession) -> int:
    context = spark.sparkContext
    cluster = _LOCAL_CLUSTER.fullmatch(context.master)
    if cluster is not None:
        return int(cluster[1])
    return max(1, int(str(context.getConf().get("spark.executor.instances", "1"))))
