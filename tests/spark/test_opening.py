"""Kept states as rows of Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headway.plan.expressions import Column, column_reference
from headway.plan.nodes import Aggregate, AggregateCall, Named, QueryPlan, StateScan
from headway.session.opening import OpenStates, frame_to_run
from headway.session.planning import PlannedQuery
from headway.spark.results import collect_result
from headway.storage import Run, new_manifest, open_store

K, V, TOTAL = Column("k", "bigint"), Column("v", "bigint"), Column("total", "bigint")


@pytest.mark.parametrize("many", [True, False])
def test_few_rows_for_many_queries_are_not_shuffled(
    many: bool, spark: SparkSession, tmp_path: Path
) -> None:
    run = Run.create(open_store(str(tmp_path / "store")), new_manifest([], (), {}))
    rows = spark.range(0, 100, 1, 4).selectExpr("id % 7 AS k", "id AS v")
    kept = collect_result(rows, run, "shared")
    root = Aggregate(
        StateScan("batch", "shared", (K, V)),
        (Named("k", column_reference(K)),),
        (AggregateCall(TOTAL, "sum", (column_reference(V),)),),
    )
    plan = QueryPlan(root, ("k", "total"))
    query = PlannedQuery("q", "", None, plan=plan, states={"shared": kept})
    states = OpenStates(spark, run, many=many)
    with frame_to_run(spark, run, query, states) as frame:
        physical = frame._jdf.queryExecution().executedPlan().toString()
        assert ("Exchange" in physical) is not many, physical
        found = {(row.k, row.total) for row in frame.collect()}
    states.close()
    wanted = rows.groupBy("k").agg({"v": "sum"}).collect()
    assert found == {tuple(row) for row in wanted}
