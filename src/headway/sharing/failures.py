"""How long shared work takes with the failures that are expected meanwhile, stage by stage.

A stage takes as long as the longest of its tasks: what that takes by itself, and for every failure
that is expected meanwhile the time to notice it and to make up for what was lost. What a lost
worker had done is lost back to the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil

from headway.sharing.costs import Work
from headway.sharing.global_plan import PlannedChain

_HOUR = 3600.0
DETECTION_SECONDS = 6.0
"""From a loss until its tasks run again: what Spark takes to notice, and to start them."""
_ROWS_PER_TASK = 500_000


@dataclass(frozen=True, slots=True)
class Failures:
    """What is expected of the time to come."""

    per_hour: float = 0.0
    workers: int = 1


NEVER = Failures()


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of shared work, up to a place where its result could be kept."""

    step: str
    position: int
    seconds: float
    """By itself, without failures."""
    tasks: int
    queries: int
    """Those that a loss of its result would keep waiting: all that the step works for."""
    bytes: float
    """Of its result; the last stage of a step has one that is kept anyway."""
    last: bool = False


def stages_of(step: str, planned: PlannedChain, rates: Work, failures: Failures) -> list[Stage]:
    """A chain from one join to the next. Rates are seconds per unit of work."""
    chain = planned.chain
    root = planned.expected[0].rows[chain.seats[0].shape.root]
    fields = max(e.fields[s.shape.root] for s, e in zip(chain.seats, planned.expected, strict=True))
    tasks = max(failures.workers, ceil(root / _ROWS_PER_TASK))
    stages: list[Stage] = []
    before, everyone = 0.0, len(planned.queries)
    for position, reached in enumerate(planned.reached):
        until = reached.work.times(rates)
        size = reached.rows * 8 * (fields + position + 2)
        stages.append(Stage(step, position, until - before, tasks, everyone, size))
        before = until
    rest = planned.work.times(rates) - before
    stages.append(Stage(step, len(stages), rest, tasks, everyone, 0.0, last=True))
    return stages


def seconds_with_failures(
    stages: Sequence[Stage], failures: Failures, kept: Collection[tuple[str, int]] = ()
) -> float:
    """Of stages one after the other; `kept` says by step and position which results are kept."""
    per_second = failures.per_hour / _HOUR
    total = since = 0.0
    for stage in stages:
        task = stage.seconds / ceil(stage.tasks / max(1, failures.workers))
        lost = since + stage.seconds / 2
        # The others share what one had done; the longest of them has one task or more to repeat.
        again = max(min(task, lost), lost / max(1, failures.workers - 1))
        total += stage.seconds + per_second * stage.seconds * (DETECTION_SECONDS + again)
        is_kept = stage.last or (stage.step, stage.position) in kept
        since = 0.0 if is_kept else since + stage.seconds
    return total
