"""A Spark session for the command line: quiet, on the loopback, leaving nothing behind."""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headway.base.config import Settings
from headway.base.errors import SparkNotStarted
from headway.spark.defaults import spark_defaults
from headway.spark.engine import FIRST_POOL
from headway.spark.errors import named_error
from headway.spark.java import find_java

_LOCAL = re.compile(r"local(?:-cluster)?(?:\[\s*([\d*]+).*\])?")
_MOST_PARTITIONS = 8
_PATIENCE = 5.0
_NICE = 10
_NOISE = re.compile(r"^(WARNING|Using |Setting |To adjust |\s+at |\d\d/)|^$")
_POOLS = f"""<?xml version="1.0"?>
<allocations>
  <pool name="{FIRST_POOL}"><minShare>1000000</minShare></pool>
</allocations>
"""
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def running_spark(
    settings: Settings, launching: AbstractContextManager[object] | None = None
) -> Iterator[SparkSession]:
    """A session to work with. Only what was started here is stopped: a Spark that already runs in
    this process serves with a session of its own, and goes on after it."""
    with _quiet_loggers():
        running = SparkSession.getActiveSession()
        if running is not None:
            yield running.newSession()
            return
        started = start_spark(settings, launching)
        try:
            yield started.session
        except KeyboardInterrupt:
            started.kill()  # it may have struck inside a call, and no later call would work
            raise
        except BaseException:
            started.stop()
            raise
        started.stop()


@dataclass(frozen=True, slots=True)
class StartedSpark:
    """A session, the process of its JVM, and the folder of all that it writes by itself."""

    session: SparkSession
    process: subprocess.Popen[bytes]
    folder: Path

    def stop(self) -> None:
        """Stops Spark in order, and its JVM with it."""
        with suppress(Py4JError, PySparkException, OSError):
            self.session.stop()
        with suppress(OSError):
            cast(Any, self.process.stdin).close()  # the JVM ends with whoever holds this
        _see_off(self.process, self.folder)

    def kill(self) -> None:
        """Ends the JVM without asking it anything."""
        self.process.terminate()
        _see_off(self.process, self.folder)


def start_spark(
    settings: Settings, launching: AbstractContextManager[object] | None = None
) -> StartedSpark:
    """Starts Spark with the master and memory of the settings; JavaNotFound or SparkNotStarted.

    `launching` is entered while the JVM comes up and should hold signals back: PySpark, interrupted
    there, leaves behind a JVM that nobody knows and that never ends. All that Spark logs goes to a
    file in its folder. A process starts it once.
    """
    os.environ["JAVA_HOME"] = str(find_java(os.environ))
    if _LOCAL.fullmatch(settings.spark.master):
        # Spark would start whatever python3 is on the path, without our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(tempfile.mkdtemp(prefix="headway-spark-"))
    log = folder / "spark.log"
    pools = folder / "pools.xml"
    pools.write_text(_POOLS, encoding="utf-8")
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list(_configuration(settings, folder, pools, spark_defaults(os.environ)).items()))
    process = None
    try:
        with log.open("wb") as sink, launching or nullcontext():
            # A session of its own: a signal to our group is ours to answer, not the JVM's.
            options = {"stdout": sink, "stderr": sink, "start_new_session": True}
            gateway = launch_gateway(conf=conf, popen_kwargs=options)
            process = cast("subprocess.Popen[bytes]", gateway.proc)
        _let_workers_go_first(process)
        SparkContext(conf=conf, gateway=gateway)
        return StartedSpark(SparkSession.builder.getOrCreate(), process, folder)
    except BaseException as error:
        reason = _reason(error, log)
        if process is not None:
            process.terminate()
        _see_off(process, folder)
        if not isinstance(error, PySparkException | Py4JError | OSError):
            raise
        raise SparkNotStarted(
            f"Spark does not start: {reason}",
            hint="check the settings spark.master and spark.driver_memory; "
            "`headway config` says where they come from",
        ) from error


def _let_workers_go_first(process: subprocess.Popen[bytes]) -> None:
    """On a machine that they share, an executor that starts in the place of a lost one would take
    the processors from the workers that go on. Alone, Spark has all of them as before."""
    with suppress(OSError):  # Linux has groups by session, if it is set up for them
        Path(f"/proc/{process.pid}/autogroup").write_text(str(_NICE))


def _see_off(process: subprocess.Popen[bytes] | None, folder: Path) -> None:
    if process is not None:
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _configuration(
    settings: Settings, folder: Path, pools: Path, defaults: Mapping[str, str]
) -> dict[str, str]:
    """What the settings say, and what suits a command line where spark-defaults.conf is silent."""
    master = settings.spark.master
    suits = {
        "spark.app.name": "headway",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",  # with a pool that goes first; within a pool, as always
        "spark.scheduler.allocation.file": pools.as_uri(),
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    local = _LOCAL.fullmatch(master)
    if local is not None:
        suits |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.shuffle.partitions": str(min(_MOST_PARTITIONS, 2 * _cores(local[1]))),
        }
    return {name: value for name, value in suits.items() if name not in defaults} | {
        "spark.master": master,
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.ui.showConsoleProgress": "false",
    }


def _cores(text: str | None) -> int:
    if text is None:
        return 1
    return int(text) if text.isdigit() else os.cpu_count() or 1


def _reason(error: BaseException, log: Path) -> str:
    """What the JVM said last where it never came up, and else what the call to it raised."""
    if not isinstance(error, Exception):
        return type(error).__name__
    if isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED":
        said = log.read_text(encoding="utf-8", errors="replace").splitlines()
        telling = [line.strip() for line in said if not _NOISE.match(line)]
        if telling:
            return telling[-1]
    return named_error(error).message


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    """PySpark logs every wrong query as JSON with its stack, and py4j every lost connection."""
    loggers = [logging.getLogger("py4j"), *map(PySparkLogger.getLogger, _QUERY_LOGGERS)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
