"""Which results of a batch are worth keeping in the reliable store, and what failures cost.

A stage's result is worth as much as the queries that depend on it and the time that it took; it
costs what writing it takes. The best are taken until the budget is spent. The shared result that
queries are finished from is always kept: they read it from there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import exp

BUDGET_SHARE = 0.25
"""Of the deadline, for checkpoints."""
_BYTES_PER_SECOND = 100e6
_SECONDS_PER_CHECKPOINT = 0.3
"""A plan that is cut runs as two."""
_HOUR = 3600.0
DETECTION_SECONDS = 6.0
"""From a loss until its tasks run again: what Spark takes to notice, and to start them."""


@dataclass(frozen=True, slots=True)
class StageChoice:
    """A place where a shared plan can be cut. `seconds` is what it takes to get there, `rest` what
    comes after it until the queries that depend on it are done."""

    step: str
    position: int
    queries: int
    seconds: float
    rest: float
    bytes: float

    @property
    def cost(self) -> float:
        """Seconds to write the result and to read it again."""
        return _SECONDS_PER_CHECKPOINT + 2 * self.bytes / _BYTES_PER_SECOND

    def saving(self, failures_per_hour: float) -> float:
        """Seconds that a failure after it would otherwise cost, times how likely one is."""
        return self.seconds * likelihood(failures_per_hour, self.rest)

    def score(self, failures_per_hour: float) -> float:
        """Work saved for the queries that depend on it, per second that it takes."""
        return self.queries * self.saving(failures_per_hour) / self.cost


def choose_checkpoints(
    stages: Iterable[StageChoice], budget: float, failures_per_hour: float
) -> list[StageChoice]:
    """The stages with the highest scores that the budget of seconds pays for. One whose loss would
    cost less than keeping it is never taken, whatever is left of the budget."""
    chosen: list[StageChoice] = []
    ranked = sorted(stages, key=lambda s: s.score(failures_per_hour), reverse=True)
    for stage in ranked:
        if stage.cost <= budget and stage.saving(failures_per_hour) > stage.cost:
            chosen.append(stage)
            budget -= stage.cost
    return chosen


def likelihood(failures_per_hour: float, seconds: float) -> float:
    """That at least one failure happens in that time."""
    return 1 - exp(-failures_per_hour * max(0.0, seconds) / _HOUR)


def seconds_with_failures(
    seconds: float, failures_per_hour: float, workers: int, *, kept: float = 0.0
) -> float:
    """How long work takes with the failures that are expected meanwhile.

    A failure is noticed and its tasks are started again, which takes a while; what they had done is
    done again by all workers together: on average half of what one of them had to do since the
    last checkpoint, `kept` being the part of the work that lies before one.
    """
    expected = failures_per_hour * seconds / _HOUR
    lost = seconds * (1 - kept) / 2 / max(1, workers)
    return seconds + expected * (DETECTION_SECONDS + lost)
