"""Random batches: what every query gets of the shared work is what it gets alone."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.kernels.operators import explain_support
from headway.plan.cardinalities import estimate
from headway.plan.nodes import QueryPlan
from headway.session.uniqueness import is_unique_key
from headway.testing.dataflows import rows_of, run_dataflow
from headway.testing.random_batches import SIZES, make_star, random_batch
from headway.testing.shared_batches import run_shared

SEED = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))
BATCHES = int(os.environ.get("HEADWAY_TEST_BATCHES", 20))


def rows_alone(plan: QueryPlan) -> Counter[tuple[object, ...]]:
    return Counter(rows_of(run_dataflow(compile_plan(plan, estimate(plan)))))


@pytest.fixture(scope="module")
def shared() -> Iterator[Counter[str]]:
    """What was shared over all batches: tests that share nothing show nothing."""
    counts: Counter[str] = Counter()
    yield counts
    if counts["batches"] >= 10:
        assert counts["members"] > counts["chains"] > 0
        assert counts["members"] > counts["queries"] / 2
        assert counts["tables with passing members"] > 0


@pytest.mark.parametrize("number", range(BATCHES))
def test_shared_rows_are_the_rows_of_the_query_alone(
    number: int, tmp_path: Path, shared: Counter[str]
) -> None:
    seed = SEED + number
    print(f"HEADWAY_TEST_SEED={seed} HEADWAY_TEST_BATCHES=1")
    rng = random.Random(seed)
    star = make_star(tmp_path, rng)
    plans = random_batch(star, rng, SIZES[number % len(SIZES)])
    refused = {name for name, plan in plans.items() if explain_support(plan)}
    assert len(refused) <= len(plans) / 4
    plans = {name: plan for name, plan in plans.items() if name not in refused}
    # Keys that are unique are joined in a shorter way; both have to be right.
    unique = is_unique_key if rng.random() < 0.5 else lambda source, fields: False
    run = run_shared(
        plans,
        is_unique=unique,
        dropping=rng.random() < 0.5,
        choices=Choices(workers=rng.choice((1, 1, 3))),
    )
    shared.update(batches=1, queries=len(plans), members=run.members, chains=run.chains)
    shared["tables with passing members"] += run.passed
    for name, plan in plans.items():
        assert Counter(rows_of(run.tables[name])) == rows_alone(plan), (name, plan.explain())
