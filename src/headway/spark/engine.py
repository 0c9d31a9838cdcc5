"""The spark engine: a query as Spark itself runs it, in a job group that can be stopped."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headway.spark.adaptive import QueryWatch
from headway.spark.errors import named_error
from headway.spark.results import (
    KeptResult,
    collect_result,
    discard_result,
    write_result,
)
from headway.spark.schemas import has_arrow_form
from headway.storage import Run

FIRST_POOL = "headway-first"
"""Of the fair scheduler, where Spark was started with it: jobs that take the next free core."""


@contextmanager
def job_group(spark: SparkSession, name: str) -> Iterator[None]:
    """The jobs of this thread in a group of their own."""
    context = spark.sparkContext
    context.setJobGroup(name, f"Headway: {name}", interruptOnCancel=True)
    try:
        yield
    finally:
        with suppress(Exception):
            context._jsc.clearJobGroup()


@contextmanager
def going_first(spark: SparkSession, name: str) -> Iterator[None]:
    """The same, ahead of the queries that are running."""
    context = spark.sparkContext
    with job_group(spark, name):
        context.setLocalProperty("spark.scheduler.pool", FIRST_POOL)
        try:
            yield
        finally:
            with suppress(Exception):
                context.setLocalProperty("spark.scheduler.pool", None)


def cancel_jobs(spark: SparkSession, group: str) -> None:
    """All of a group. A query is many jobs: those that it has not started yet are to stay away as
    well."""
    try:
        spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)
    except Exception as error:
        raise named_error(error) from error


class SparkEngine:
    """Runs frames on one session. Safe from several threads, one query in each."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        context = spark.sparkContext
        named = "PYSPARK_PYTHON" in os.environ or "spark.pyspark.python" in dict(
            context.getConf().getAll()
        )
        if not named and context.master.startswith("local"):
            # Spark would start whatever python3 is on the path, without our packages.
            context.pythonExec = sys.executable

    def execute(
        self,
        frame: DataFrame,
        run: Run,
        query: str,
        *,
        large: bool,
        keep: bool,
        started: Callable[[QueryWatch, Callable[[], None]], None],
    ) -> KeptResult:
        """Run the query to its end and keep its rows.

        `large` results are written by the executors. `started` gets a watch on the query and a
        function that stops it, before it begins. What Spark raises comes out named.
        """
        context = self.spark.sparkContext
        group = f"headway-{run.run_id}-{query}-{secrets.token_hex(2)}"
        try:
            context.setJobGroup(group, f"Headway run {run.run_id}: {query}", interruptOnCancel=True)
            watch = QueryWatch(frame, group)
            started(watch, lambda: cancel_jobs(self.spark, group))
            if not has_arrow_form(frame.schema):
                return discard_result(frame)
            if large and keep:
                return write_result(frame, run, query, running=watch.follow)
            return self._collect(frame, run, query, watch, keep=keep)
        except Exception as error:
            raise named_error(error) from error
        finally:
            with suppress(Py4JError):
                context._jsc.clearJobGroup()

    def _collect(
        self, frame: DataFrame, run: Run, query: str, watch: QueryWatch, *, keep: bool
    ) -> KeptResult:
        try:
            return collect_result(frame, run, query, keep=keep)
        except (Py4JError, PySparkException) as error:
            if not keep or "spark.driver.maxResultSize" not in str(error):
                raise
            # Larger than anybody thought, and than the driver takes.
            return write_result(frame, run, query, running=watch.follow)
