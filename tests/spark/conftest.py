"""Headway sessions on the Spark session of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headway.base.config import load_settings
from headway.session import Session
from headway.session import session as headway_session
from headway.session.workers import Workers


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
