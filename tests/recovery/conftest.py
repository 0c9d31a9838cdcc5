"""Queries with Spark's own rows, and workers without Spark that run them to their death."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headway.session.planning import PlannedQuery, with_plan
from headway.spark.catalyst import import_plan
from headway.spark.tables import register_tables
from headway.testing.crew import Crew, Sample
from headway.testing.dataflows import rows_of
from headway.workloads import WORKLOADS, find_tables

ROW_GROUP = 4_000


@pytest.fixture(scope="session")
def many_groups(
    workload_data: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The tables of TPC-H in small row groups, so that there are dozens of tasks."""
    folder = tmp_path_factory.mktemp("many-groups")
    for file in workload_data("tpch").glob("*/*.parquet"):
        (folder / file.parent.name).mkdir(exist_ok=True)
        pq.write_table(
            pq.read_table(file), folder / file.parent.name / file.name, row_group_size=ROW_GROUP
        )
    return folder


@pytest.fixture(scope="session")
def sample(spark: SparkSession, many_groups: Path) -> Callable[[str], Sample]:
    """A query of TPC-H as the session plans it, with the rows that Spark finds. Every one of them
    orders its rows, and no two of them alike."""
    session = spark.newSession()
    register_tables(session, find_tables(many_groups))

    @cache
    def make(name: str) -> Sample:
        text = WORKLOADS["tpch"].queries()[name]
        frame = session.sql(text)
        query = with_plan(PlannedQuery(name, text, frame), import_plan(frame), {}, "pipelined")
        assert query.plan is not None and query.estimates is not None, query.error
        return Sample(query.plan, query.estimates, rows_of(frame.toArrow()))

    return make


@pytest.fixture(scope="session")
def crew(many_groups: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    opened = Crew(tmp_path_factory.mktemp("crew"), readable=many_groups)
    yield opened
    opened.close()
    left = [str(each) for each in (opened.session.folder / "scratch").iterdir()]
    assert not left, left
