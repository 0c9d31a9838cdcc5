"""Which results of a batch are worth keeping in the reliable store.

A stage's result is worth what failures would cost without it, times the queries that would wait; it
costs what writing it takes. The best are taken until the budget is spent. The shared result that
queries are finished from is always kept: they read it from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from headway.sharing.failures import Failures, Stage, seconds_with_failures

BUDGET_SHARE = 0.25
"""Of the deadline, for checkpoints."""
_LATENCY = 0.3
"""A plan that is cut runs as two."""
_BYTES_PER_SECOND = 100e6
Cut = tuple[str, int]
"""A step, and the stage after which it is cut."""


def usual_cost(size: float) -> float:
    """Seconds to write so many bytes, or to read them again, where nothing was measured."""
    return _LATENCY + size / _BYTES_PER_SECOND


def choose_checkpoints(
    stages: Sequence[Stage],
    budget: float,
    failures: Failures,
    cost: Callable[[float], float] = usual_cost,
) -> set[Cut]:
    """The stages with the highest scores that the budget of seconds pays for, over all steps
    together; `cost` is of so many bytes. One whose loss would cost less than keeping it is never
    taken, whatever is left of the budget."""
    chosen: set[Cut] = set()
    if failures.per_hour <= 0:
        return chosen
    steps = {step: list(each) for step, each in groupby(stages, lambda stage: stage.step)}
    while True:
        best: tuple[float, float, Cut] | None = None
        for step in steps.values():
            before = seconds_with_failures(step, failures, chosen)
            for stage in step:
                cut = (stage.step, stage.position)
                price = 2 * cost(stage.bytes)
                if stage.last or cut in chosen or price > budget:
                    continue
                saving = before - seconds_with_failures(step, failures, {*chosen, cut})
                score = stage.queries * saving / price
                if saving > price and (best is None or score > best[0]):
                    best = (score, price, cut)
        if best is None:
            return chosen
        chosen.add(best[2])
        budget -= best[1]


def seconds_of(
    stages: Sequence[Stage],
    failures: Failures,
    budget: float,
    cost: Callable[[float], float] = usual_cost,
) -> float:
    """How long the stages take with failures and with the checkpoints that are worth it."""
    chosen = choose_checkpoints(stages, budget, failures, cost)
    writing = sum(2 * cost(s.bytes) for s in stages if (s.step, s.position) in chosen)
    return seconds_with_failures(stages, failures, chosen) + writing
