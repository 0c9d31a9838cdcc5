"""All 22 TPC-H and 99 TPC-DS queries as dataflows of one worker and of three, against plain Spark.

The plans are those that the engine would run: after all rules, with settings that make them apply
to small tables too.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.kernels.operators import explain_support
from headway.plan import reduction
from headway.plan.cardinalities import estimate
from headway.plan.join_order import order_joins
from headway.plan.nodes import QueryPlan, Sort
from headway.plan.reduction import reduce_by_joins
from headway.plan.sides import choose_build_sides
from headway.spark.catalyst import import_plan
from headway.testing.dataflows import rows_of, run_dataflow
from headway.workloads import WORKLOADS

SEED = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))
QUERIES = [
    pytest.param(
        workload.name,
        text,
        id=f"{workload.name}-{name}",
        marks=[pytest.mark.nightly] if workload.name == "tpcds" else [],
    )
    for workload in WORKLOADS.values()
    for name, text in workload.queries().items()
]
CHOICES = (
    Choices(workers=1),
    # So that some tables are read by all, some are broadcast, and the largest are partitioned.
    Choices(workers=3, replicate_bytes=16 << 10, broadcast_bytes=128 << 10),
)


@pytest.mark.parametrize(("workload", "text"), QUERIES)
def test_the_dataflow_gives_the_rows_of_spark(
    workload: str,
    text: str,
    workload_session: Callable[[str], SparkSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    print(f"seed {SEED}")
    monkeypatch.setattr(reduction, "_FEWEST_ROWS", 100.0)
    frame = workload_session(workload).sql(text)
    plan = import_plan(frame).plan
    assert explain_support(plan) == []
    expected = frame.toArrow()
    wanted = rows_of(expected)
    for rule in (order_joins, reduce_by_joins):
        plan = rule(plan)
    plan = choose_build_sides(plan, estimate(plan))
    for choices in CHOICES:
        dataflow = compile_plan(plan, estimate(plan), choices)
        result = run_dataflow(dataflow, order=random.Random(SEED))
        assert result.schema.types == expected.schema.types
        found = rows_of(result)
        assert Counter(found) == Counter(wanted), choices
        assert _sort_values(plan, found) == _sort_values(plan, wanted), choices


def _sort_values(plan: QueryPlan, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The values of the columns that the query sorts by: rows that tie come in any order."""
    if not plan.is_ordered:
        return []
    node = plan.root
    while not isinstance(node, Sort):
        node = node.children[0]
    sorted_by = {key.expression.column for key in node.keys}
    positions = [i for i, name in enumerate(plan.root.column_names) if name in sorted_by]
    return [tuple(row[i] for i in positions) for row in rows]
