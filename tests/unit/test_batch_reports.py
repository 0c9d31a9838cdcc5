"""What is told of a batch: which queries made it, why others did not, what was lost."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from headway.cli.batch import Outcome
from headway.cli.deadlines import batch_to_builtins, print_batch
from headway.session import QueryProgress, QueryStatus
from headway.session.batch_reports import BatchProgress, Lost, MiniBatchReport

FIRST = MiniBatchReport(1, ("a", "b", "c"), "", 20.0, 0.0, 55.0, lost=Lost(1, 12.5, 4))
SECOND = MiniBatchReport(2, ("d", "e"), "", 5.0, 55.0, 58.0, put_back=("e",))


def batch(**finished_at: float) -> BatchProgress:
    return BatchProgress(
        60.0,
        70.0,
        1.0,
        (FIRST, SECOND),
        finished_at=finished_at,
        deadlines={"a": 60.0, "b": 30.0, "c": 60.0, "d": 60.0, "e": 60.0, "f": 60.0},
        began_at={"a": 10.0, "b": 20.0, "d": 61.0},
    )


@pytest.mark.parametrize(
    ("name", "finished", "reason"),
    [
        ("a", {"a": 66.0}, "it was done 6.0 s late; its mini-batch lost 1 executors"),
        ("b", {}, "it had run for 10.0 s at its deadline; its mini-batch lost"),
        ("c", {}, "shared work for it was under way at its deadline"),
        ("d", {"d": 65.0}, "no time was left for it; it was done 5.0 s late"),
        ("e", {}, "no time was left for it"),
        ("f", {}, "no time was left for it"),
    ],
)
def test_why_a_query_is_late(name: str, finished: dict[str, float], reason: str) -> None:
    assert batch(**finished).why_late(name).startswith(reason)


def test_a_query_that_was_put_back_is_told_of_by_its_last_mini_batch() -> None:
    first = replace(FIRST, put_back=("c",))
    second = replace(SECOND, queries=("c",), ended=66.0, predicted=2.0)
    found = replace(batch(), mini_batches=(first, second))
    told = "shared work for it was under way at its deadline; its mini-batch took 11.0 s"
    assert found.why_late("c").startswith(told)
    assert replace(batch(), mini_batches=(first,)).why_late("c") == "no time was left for it"


def test_what_is_interrupted_before_its_deadline_is_not_late() -> None:
    statuses = {"a": QueryStatus.DONE, "b": QueryStatus.INTERRUPTED, "c": QueryStatus.INTERRUPTED}
    queries = tuple(QueryProgress(name, "spark", status) for name, status in statuses.items())
    outcome = Outcome("run", "url", queries, 20.0, replace(batch(a=9.0), elapsed=20.0))
    assert (outcome.late, outcome.status, outcome.exit_code) == ((), "interrupted", 130)
    outcome = replace(outcome, batch=replace(batch(a=9.0), elapsed=40.0))
    assert (outcome.late, outcome.exit_code) == (("b",), 130)
    outcome = replace(outcome, batch=batch(a=9.0))
    assert (outcome.late, outcome.exit_code) == (("b", "c"), 3)


def test_a_report_counts_what_was_done_in_time() -> None:
    statuses = {
        "a": QueryStatus.DONE,
        "b": QueryStatus.INTERRUPTED,
        "c": QueryStatus.SUSPENDED,
        "d": QueryStatus.DONE,
        "e": QueryStatus.FAILED,
    }
    queries = tuple(QueryProgress(name, "spark", status) for name, status in statuses.items())
    outcome = Outcome("run", "url", queries, 70.0, batch(a=40.0, d=65.0))
    told = io.StringIO()
    print_batch(outcome, Console(file=told, width=200))
    text = told.getvalue()
    assert "1 of 5 queries within" in text
    assert "late: b, it had run for 10.0 s" in text and "late: d, no time was left" in text
    assert "1 executor lost meanwhile, with 12.5 s of Spark's tasks and 4 tasks of w" in text
    found = batch_to_builtins(outcome)
    assert found["late"] == list(found["why_late"]) == ["b", "d"]
    assert found["lost"] == {"executors": 1, "seconds": 12.5, "tasks": 4}
