"""What a snapshot costs and saves: when one is taken of a running query, and of which states.

With failures at a rate r, a snapshot that costs c seconds is best taken every sqrt(2 c / r) seconds
(Young); the time lost to it and to failures is then sqrt(2 c r) of every second. An older state may
be smaller and cost less, but what was done since has to be done again after a failure: r times the
seconds of that are added. The state with the smallest sum is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headway.plan.cardinalities import Estimate
from headway.plan.nodes import Node, StateScan
from headway.session.history import StoreSpeed
from headway.session.keepers import Standing, StateKeeper
from headway.session.suspending import (
    Work,
    cheapest,
    moving_cost,
    reading_seconds,
    seconds_behind,
    writing_seconds,
)

_HOUR = 3600.0
EXPECTED_PER_HOUR = 1.0
"""Failures, before any was seen: whoever asks for snapshots expects some."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """What has become of a query, in seconds: the work behind it, what is left of it, what it costs
    to keep the states that are needed and to read them elsewhere, and what was done of pipelines
    that are not finished, which would be done again."""

    done: float
    left: float | None
    keeping: float
    reading: float
    dropped: float = 0.0

    @property
    def moving(self) -> float:
        """What it takes to go on elsewhere, beyond what is left to do here."""
        return self.keeping + self.reading + self.dropped

    @property
    def pays(self) -> bool:
        """Whether going on elsewhere is quicker than beginning anew."""
        return self.moving < self.done


def prospect(
    standing: Standing,
    elapsed: float,
    share_done: float,
    speed: StoreSpeed,
    before: float = 0.0,
) -> Prospect:
    """Of a query that has been running here for `elapsed` seconds, after what others did `before`:
    that share of its work here is behind its states."""
    seen = seconds_behind(standing)
    behind = elapsed if seen is None else min(elapsed, seen)
    dropped, done = elapsed - behind, before + elapsed
    whole = behind / share_done if share_done > 0.0 else None
    left = None if whole is None else max(0.0, whole - elapsed)
    if not standing.states:  # all would be done again
        return Prospect(done, left, 0.0, 0.0, done)
    writing, reading = writing_seconds(standing, speed), reading_seconds(standing, speed)
    return Prospect(done, left, writing, reading, dropped)


def work_of(nodes: Iterable[Node], estimates: Mapping[Node, Estimate]) -> float:
    """The rows that nodes read and put out: what there is to do, in a unit of its own. Reading a
    state is no work."""
    work = 0.0
    for node in nodes:
        if isinstance(node, StateScan):
            continue
        read = sum(estimates[child].rows for child in node.children if child in estimates)
        work += read + (estimates[node].rows if node in estimates else 0.0)
    return work


class SnapshotPolicy:
    """Decides for one query. `every` is a number of seconds, or "auto"."""

    def __init__(
        self,
        every: float | Literal["auto"],
        speed: StoreSpeed,
        failures_per_hour: float,
        began: float,
    ) -> None:
        self._every = every
        self._speed = speed
        self._rate = (failures_per_hour or EXPECTED_PER_HOUR) / _HOUR
        self._began = began
        self._last = began
        self._states: frozenset[str] = frozenset()
        self._looked_at = -1
        """How many pipelines were finished at the last look."""
        self._due = 0.0
        """When a snapshot is worth it, if no more are finished until then."""

    def passed_over(self, keeper: StateKeeper, work: Work, now: float) -> frozenset[str] | None:
        """The states that a snapshot is to be without; None when it is not the time for one."""
        since = now - self._last
        if since < (self._interval(0.0) if self._every == "auto" else self._every):
            return None
        finished = keeper.finished()
        if finished == self._looked_at and now < self._due:
            return None  # a look at all of the plan would tell nothing new
        self._looked_at, self._due = finished, math.inf
        newest = keeper.stand()
        if newest is None or not self._is_news(newest):
            return None
        if self._every != "auto":
            return cheapest(keeper, newest, moving_cost(newest, self._speed, work))
        without = cheapest(keeper, newest, self._cost(newest, work))
        chosen = keeper.stand(without) if without else newest
        if chosen is None or not self._is_news(chosen):
            return None
        self._due = self._last + self._interval(writing_seconds(chosen, self._speed))
        return without if now >= self._due else None

    def taken(self, states: Mapping[str, object], now: float) -> None:
        self._last, self._looked_at = now, -1
        self._states = frozenset(states)

    def given_up(self) -> None:
        """The one that was to be taken is still due."""
        self._looked_at = -1

    def _is_news(self, standing: Standing | None) -> bool:
        """Whether it holds something that the last snapshot did not; tables that the session has
        cached, and states that it began with, are nothing that the query has done."""
        if standing is None:
            return False
        made = {name for name, state in standing.states.items() if state.made}
        return not self._states.issuperset(made)

    def _interval(self, seconds: float) -> float:
        return math.sqrt(2.0 * max(seconds, self._speed.seconds(0.0)) / self._rate)

    def _cost(self, newest: Standing, work: Work) -> Callable[[Standing], float]:
        def cost(standing: Standing) -> float:
            lost = work.again(standing, newest) + reading_seconds(standing, self._speed)
            writing = writing_seconds(standing, self._speed)
            return math.sqrt(2.0 * writing * self._rate) + self._rate * lost

        return cost
