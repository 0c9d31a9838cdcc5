"""Random batches: what every query gets of the shared work is what it gets alone."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.kernels.operators import explain_support
from headway.plan.cardinalities import estimate
from headway.plan.nodes import QueryPlan
from headway.testing.dataflows import rows_of, run_dataflow
from headway.testing.random_batches import make_star, random_batch
from headway.testing.shared_batches import run_shared

SEED = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))
BATCHES = int(os.environ.get("HEADWAY_TEST_BATCHES", 20))


def rows_alone(plan: QueryPlan) -> Counter[tuple[object, ...]]:
    return Counter(rows_of(run_dataflow(compile_plan(plan, estimate(plan)))))


@pytest.mark.parametrize("number", range(BATCHES))
def test_shared_rows_are_the_rows_of_the_query_alone(number: int, tmp_path: Path) -> None:
    seed = SEED + number
    print(f"HEADWAY_TEST_SEED={seed} HEADWAY_TEST_BATCHES=1")
    rng = random.Random(seed)
    star = make_star(tmp_path, rng)
    plans = random_batch(star, rng, rng.choice((1, 3, 8, 20)))
    plans = {name: plan for name, plan in plans.items() if not explain_support(plan)}
    run = run_shared(plans, choices=Choices(workers=rng.choice((1, 1, 3))))
    for name, plan in plans.items():
        assert Counter(rows_of(run.tables[name])) == rows_alone(plan), (name, plan.explain())
