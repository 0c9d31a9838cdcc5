"""Random plans as dataflows: how many workers and how large the tasks changes no row."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.kernels import channel
from headway.pipelined.kernels.operators import explain_support
from headway.plan.cardinalities import estimate
from headway.plan.nodes import QueryPlan, Scan, Sort
from headway.testing.dataflows import rows_of, run_dataflow
from headway.testing.runnable_plans import runnable_plans, small_tables

SEED = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))
# To look for a smaller plan that fails takes minutes: ask for it with Phase.shrink.
QUICK = (Phase.explicit, Phase.reuse, Phase.generate)
CHOICES = (
    Choices(workers=1),
    Choices(workers=3),  # where every build side is small
    Choices(workers=3, replicate_bytes=0),
    Choices(workers=3, replicate_bytes=0, broadcast_bytes=0),
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scan, ...]:
    print(f"seed {SEED}")
    return small_tables(tmp_path_factory.mktemp("tables"), random.Random(SEED))


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs at the end of a side come in portions of a few rows, and tables are compacted."""
    monkeypatch.setattr(channel, "_FEWEST_ROWS", 5)
    monkeypatch.setattr(channel, "_OUTPUT_BYTES", 1)
    monkeypatch.setattr(channel, "_COMPACT_ROWS", 3)


@settings(max_examples=50, phases=QUICK, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rows_do_not_depend_on_workers_and_tasks(
    data: st.DataObject, tables: tuple[Scan, ...], small_portions: None
) -> None:
    plan = data.draw(runnable_plans(tables))
    assume(not explain_support(plan))
    seed = data.draw(st.integers(0, 1 << 32))
    estimates = estimate(plan)
    whole = rows_of(run_dataflow(compile_plan(plan, estimates)))
    choices, rng = data.draw(st.sampled_from(CHOICES)), random.Random(seed)
    dataflow = compile_plan(plan, estimates, choices)
    found = rows_of(run_dataflow(dataflow, task_bytes=rng.choice((1, 300)), order=rng))
    assert Counter(found) == Counter(whole)
    assert sort_values(plan, found) == sort_values(plan, whole)


def sort_values(plan: QueryPlan, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The values of the columns that the plan sorts by: rows that tie come in any order."""
    if not plan.is_ordered:
        return []
    node = plan.root
    while not isinstance(node, Sort):
        (node,) = node.children
    sorted_by = {key.expression.column for key in node.keys}
    positions = [i for i, name in enumerate(plan.root.column_names) if name in sorted_by]
    return [tuple(row[i] for i in positions) for row in rows]
