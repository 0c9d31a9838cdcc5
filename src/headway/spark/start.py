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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from headway.base.config import Settings
from headway.base.errors import SparkNotStarted
from headway.spark.defaults import spark_defaults
from headway.spark.errors import named_error
from headway.spark.java import find_java

_LOCAL = re.compile(r"local(?:-cluster)?(?:\[\s*([\d*]+).*\])?")
_MOST_PARTITIONS = 8
_PATIENCE = 5.0
_NOISE = re.compile(r"^(WARNING|Using |Setting |To adjust |\s+at |\d\d/)|^$")
_LOGGERS = ("py4j", "SQLQueryContextLogger", "DataFrameQueryContextLogger")


@contextmanager
def running_spark(settings: Settings) -> Iterator[SparkSession]:
    """A session to work with. Only what was started here is stopped: a Spark that already runs in
    this process serves with a session of its own, and goes on after it."""
    running = SparkSession.getActiveSession()
    if running is not None:
        with _quiet_loggers():
            yield running.newSession()
        return
    spark = start_spark(settings)
    try:
        yield spark
    except KeyboardInterrupt:
        kill_spark()  # it may have struck in the middle of a call, and no other call would work
        raise
    except BaseException:
        stop_spark(spark)
        raise
    else:
        stop_spark(spark)


def start_spark(settings: Settings) -> SparkSession:
    """Starts Spark with the master and memory of the settings; JavaNotFound or SparkNotStarted.

    All that Spark logs goes to a file in its temporary folder, which is gone when it stops.
    """
    for name in _LOGGERS:
        _logger(name).setLevel(logging.CRITICAL + 1)
    os.environ["JAVA_HOME"] = str(find_java(os.environ))
    if _LOCAL.fullmatch(settings.spark.master):
        # Spark would start whatever python3 is on the path, without our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(tempfile.mkdtemp(prefix="headway-spark-"))
    log = folder / "spark.log"
    try:
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(_configuration(settings, folder, spark_defaults(os.environ)).items()))
        with log.open("wb") as sink:
            # A session of its own: a signal to our group is ours to answer, not the JVM's.
            options = {"stdout": sink, "stderr": sink, "start_new_session": True}
            gateway = launch_gateway(conf=conf, popen_kwargs=options)
        gateway.headway_folder = folder
        SparkContext(conf=conf, gateway=gateway)
        return SparkSession.builder.getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise _not_started(error, log) from error
    except BaseException:
        kill_spark()
        shutil.rmtree(folder, ignore_errors=True)
        raise


def stop_spark(spark: SparkSession) -> None:
    """Stops Spark in order, and its JVM with it."""
    gateway = SparkContext._gateway
    with suppress(Py4JError, PySparkException, OSError):
        spark.stop()
    _end(gateway, lambda process: process.stdin.close())


def kill_spark() -> None:
    """Ends the JVM without asking it anything; it still removes its own temporary files."""
    _end(SparkContext._gateway, lambda process: process.terminate())


def _end(gateway: Any, ask: Any) -> None:
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    with suppress(OSError):
        ask(process)
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
    SparkContext._gateway = None
    SparkContext._jvm = None
    shutil.rmtree(getattr(gateway, "headway_folder", ""), ignore_errors=True)


def _configuration(settings: Settings, folder: Path, defaults: Mapping[str, str]) -> dict[str, str]:
    """What the settings say, and what suits a command line where spark-defaults.conf is silent."""
    master = settings.spark.master
    suits = {
        "spark.app.name": "headway",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
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


def _not_started(error: Exception, log: Path) -> SparkNotStarted:
    """The reason is what the JVM said last, or else what the call to it raised."""
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip() for line in said.splitlines() if not _NOISE.match(line)]
    gone = isinstance(error, PySparkException) and error.getCondition() == "JAVA_GATEWAY_EXITED"
    reason = lines[-1] if gone and lines else named_error(error).message
    kill_spark()
    return SparkNotStarted(
        f"Spark does not start: {reason}",
        hint="check the settings spark.master and spark.driver_memory; "
        "`headway config` says where they come from",
    )


def _logger(name: str) -> logging.Logger:
    """PySpark's JSON loggers set their own level when they are made: make them first."""
    if name == "py4j":
        return logging.getLogger(name)
    from pyspark.logger import PySparkLogger

    return PySparkLogger.getLogger(name)


@contextmanager
def _quiet_loggers() -> Iterator[None]:
    loggers = [_logger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
