"""What a batch was asked for: its deadlines, and its clock when another driver goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from headway.cli.deadlines import batch_from
from headway.session.batch_options import batch_age, options_left, record_batch
from headway.session.batch_planning import BatchOptions, Policy
from headway.session.planning import PlannedQuery
from headway.session.resuming import resumed_from
from headway.storage import QUERY_DONE, ReliableStore, Run, new_manifest


def query(name: str, deadline: float | None = None) -> PlannedQuery:
    return PlannedQuery(name, "SELECT 1", None, deadline=deadline)


def test_deadlines_of_queries_alone_make_a_batch() -> None:
    asked = batch_from(["a", "b"], None, "stop", ["a=2m"], ["b=1"], None)
    assert asked.is_batch and asked.deadlines == {"a": 120.0} and asked.priorities == {"b": 1.0}
    assert not batch_from(["a", "b"], None, "stop", None, None, None).is_batch


def test_checkpoints_may_take_a_part_of_the_latest_deadline() -> None:
    queries = [query("a", 40.0), query("b", 80.0), query("c")]
    alone = BatchOptions(0.0, checkpoint_share=0.25)
    assert alone.latest(queries) == 80.0 and alone.checkpoint_budget(queries) == 20.0
    assert BatchOptions(0.0, 60.0).latest(queries) == 60.0
    assert alone.latest([query("c")]) is None and alone.checkpoint_budget([query("c")]) == 0.0


def test_the_clock_of_a_batch_begins_before_its_plans(
    make_store: Callable[[str], ReliableStore],
) -> None:
    """Whoever goes on with it does not get the time back that planning took."""

    def make(began: float, deadline: float | None, after: Any, *_: object) -> BatchOptions:
        return BatchOptions(began, deadline, after, Policy())

    run = Run.create(make_store("local"), new_manifest([query("a").record()], (), {}))
    asked_for = time.monotonic() - 30.0
    record_batch(run, [query("a")], BatchOptions(asked_for, 100.0), None)
    run.append(QUERY_DONE, "a", rows=1, bytes=1, kept=True, pieces=[], schema="", engine="spark")
    for _ in range(2):  # and the one after that neither
        resumed = resumed_from(run, run.events())
        assert batch_age(run, resumed.options) == pytest.approx(30.0, abs=10.0)
        assert resumed.done_at["a"] == pytest.approx(30.0, abs=10.0)
        options = options_left(run, resumed.options, None, make)
        assert options.deadline == pytest.approx(100.0)
        assert options.began == pytest.approx(asked_for, abs=1.0)
        record_batch(run, [query("a")], options, None)
