"""Processes killed and paused at every step of real queries: the rows are Spark's every time.

`make test` runs a part of each test, `make nightly` all of the rest.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Literal

import pytest

from headway.base.errors import WorkersLost
from headway.lineage.topology import Protection
from headway.pipelined.execution import Execution
from headway.testing.crew import SMALL_TASKS, Crew, Sample
from headway.testing.faulty_worker import Fault, Step

QUERIES = ("q03", "q05", "q09", "q18", "q21")
When = Literal["before", "after"]
WHENS: tuple[When, ...] = ("before", "after")
Samples = Callable[[str], Sample]

FIRST = Fault("say_done", "before", nth=8)  # a loss in the middle of a query


def late_loss(sample: Sample) -> Fault:
    """In the stage before the result, when a channel has read some of its inputs and has not put
    out anything: there is always something to be done again."""
    return Fault("execute", nth=4, stage=len(sample.dataflow(4).stages) - 2)


def cases(quick: set[tuple[str, ...]], *values: tuple[str, ...]) -> list[object]:
    """All combinations; those that are not quick are for the night."""
    combined: list[tuple[str, ...]] = [()]
    for each in values:
        combined = [(*before, value) for before in combined for value in each]
    assert quick <= set(combined)
    return [
        pytest.param(*case, id="-".join(case), marks=[] if case in quick else pytest.mark.nightly)
        for case in combined
    ]


@pytest.mark.parametrize("name", cases({("q03",), ("q05",), ("q18",), ("q21",)}, QUERIES))
def test_without_a_loss(name: str, crew: Crew, sample: Samples) -> None:
    """So that a difference elsewhere is due to the loss; and there is something to lose."""
    report = crew.check(sample(name)).report
    assert report.tasks > 80
    assert (report.workers_lost, report.repeated, report.replayed) == (0, 0, 0)


@pytest.mark.parametrize(
    ("name", "step", "when"),
    cases(
        {
            ("q03", "execute", "before"),
            ("q03", "keep", "after"),
            ("q18", "deliver", "before"),
            ("q03", "say_done", "after"),
            ("q05", "delete", "before"),
        },
        QUERIES,
        ("execute", "keep", "deliver", "say_done", "delete"),
        WHENS,
    ),
)
def test_killed_at_a_step_of_a_task(
    name: str, step: Step, when: When, crew: Crew, sample: Samples
) -> None:
    crew.check(sample(name), Fault(step, when, nth=1 if step == "delete" else 3))


@pytest.mark.parametrize(
    ("name", "step", "when"),
    cases(
        {("q03", "repeat", "before"), ("q18", "resend", "after")},
        QUERIES,
        ("repeat", "resend"),
        WHENS,
    ),
)
def test_killed_at_a_step_of_a_recovery(
    name: str, step: Step, when: When, crew: Crew, sample: Samples
) -> None:
    report = crew.check(sample(name), late_loss(sample(name)), Fault(step, when)).report
    assert report.workers_lost == 2
    assert report.repeated + report.replayed > 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", QUERIES)
def test_killed_again_and_again(name: str, crew: Crew, sample: Samples) -> None:
    """Three of four: the last one ends the query."""
    first = late_loss(sample(name))
    crew.check(sample(name), first, Fault("repeat", "after"), Fault("repeat", nth=2))


@pytest.mark.parametrize(
    ("name", "step", "when"),
    cases({("q03", "keep", "before")}, QUERIES, ("execute", "keep", "say_done"), WHENS),
)
def test_victims_in_every_stage(
    name: str, step: Step, when: When, crew: Crew, sample: Samples
) -> None:
    stages = len(sample(name).dataflow(4).stages)
    assert stages >= 4
    for stage in range(stages):
        crew.check(sample(name), Fault(step, when, stage=stage))


@pytest.mark.parametrize("name", cases({("q05",)}, QUERIES))
def test_two_at_the_same_moment(name: str, crew: Crew, sample: Samples) -> None:
    def started(execution: Execution) -> None:
        threading.Thread(target=kill_two, args=(execution,)).start()

    def kill_two(execution: Execution) -> None:
        while execution.report.tasks < 40:
            time.sleep(0.002)
        for pid in crew.pids[1:3]:
            os.kill(pid, signal.SIGKILL)

    outcome = crew.check(sample(name), started=started)
    assert outcome.report.workers_lost == 2
    assert list(outcome.exits.values()) == [-signal.SIGKILL] * 2


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["execute", "keep", "deliver", "say_done"])
@pytest.mark.parametrize("name", QUERIES)
def test_two_at_the_same_step(name: str, step: Step, crew: Crew, sample: Samples) -> None:
    crew.check(sample(name), Fault(step, nth=6), Fault(step, nth=6))


@pytest.mark.parametrize(
    ("name", "step"),
    cases({("q03", "deliver")}, QUERIES, ("execute", "keep", "deliver", "say_done")),
)
def test_paused_beyond_the_lease(name: str, step: Step, crew: Crew, sample: Samples) -> None:
    """It wakes up when its work is in other hands; nobody listens to it, and it leaves."""
    crew.check(sample(name), Fault(step, "after", nth=3, action="pause", seconds=3.5))
    worker, reason, _ = crew.session.lost[-1]
    print(worker, reason)


@pytest.mark.parametrize(
    ("name", "protection", "lost"),
    cases(
        {("q21", "spool", "once"), ("q05", "none", "in recovery")},
        QUERIES,
        ("spool", "none"),
        ("once", "twice", "in recovery"),
    ),
)
def test_other_protection(
    name: str, protection: str, lost: str, crew: Crew, sample: Samples
) -> None:
    again = Fault("resend" if protection == "spool" else "repeat")
    faults = {
        "once": (FIRST,),
        "twice": (FIRST, Fault("execute", nth=20)),
        "in recovery": (late_loss(sample(name)), again),
    }
    report = crew.check(sample(name), *faults[lost], protection=Protection(protection)).report
    if lost == "in recovery":
        assert report.repeated > 0


def test_without_a_control_store_workers_may_be_lost(crew: Crew, sample: Samples) -> None:
    crew.check(sample("q03"), FIRST, control="none")


def test_without_a_worker_there_are_no_rows(crew: Crew, sample: Samples) -> None:
    """The losses are real: when nobody is left to make up for them, the query fails."""
    fault = Fault("execute", nth=8)
    with pytest.raises(WorkersLost, match="all workers were lost"):
        crew.run(
            sample("q03").dataflow(4),
            fault,
            every=True,
            options=SMALL_TASKS,
            patience=0.5,
        )
    assert crew.pids == []
    crew.check(sample("q03"))
