"""One Spark session for all tests: starting it costs more than most of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headway.base.config import load_settings
from headway.session import Session
from headway.session import session as headway_session
from headway.session.workers import Workers
from headway.spark.tables import register_tables
from headway.workloads import WORKLOADS, find_tables

SCALE = 0.01


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("headway-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def workload_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a workload's tables, generated once."""
    root = tmp_path_factory.mktemp("data")

    def folder(name: str) -> Path:
        WORKLOADS[name].generate(SCALE, root / name)
        return root / name

    return folder


@pytest.fixture(scope="session")
def workload_session(
    spark: SparkSession, workload_data: Callable[[str], Path]
) -> Callable[[str], SparkSession]:
    """A Spark session that knows the tables of one workload, and no other's."""
    made: dict[str, SparkSession] = {}

    def session(name: str) -> SparkSession:
        if name not in made:
            made[name] = spark.newSession()
            register_tables(made[name], find_tables(workload_data(name)))
        return made[name]

    return session


@pytest.fixture
def headway(spark: SparkSession, tmp_path: Path) -> Iterator[Session]:
    """A Headway session on the spark engine with a store of its own."""
    store = str(tmp_path / "store")
    with headway_session(spark, store_url=store, engine_name="spark") as session:
        yield session


@pytest.fixture(scope="session")
def workers(spark: SparkSession) -> Iterator[Workers]:
    """The workers of the shared Spark session: one process, as in local mode."""
    found = Workers(spark, load_settings(environ={}))
    yield found
    found.close()


@pytest.fixture
def pipelined(spark: SparkSession, workers: Workers, tmp_path: Path) -> Iterator[Session]:
    """A Headway session that takes the pipelined engine where it can."""
    with headway_session(spark, workers=workers, store_url=str(tmp_path / "store")) as session:
        yield session
