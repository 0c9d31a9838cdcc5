"""Predicts how long work takes, and learns from how long it took."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from headway.sharing.costs import Work

_MOST_OBSERVATIONS = 64
_TRUST = 0.3
"""How much an observation weighs against what was believed before: 1 is as much as all of it."""
_FADING = 0.9
"""What an observation weighs against the one after it: the last ones are most like what comes."""
_LEAST_MARGIN = 0.1
_FIRST_MARGIN = 0.35

# Seconds per unit on two cores, before anything was observed.
SPARK_RATES = Work(
    steps=0.5,
    values_read=1.2e-8,
    conditions=1.0e-8,
    rows_built=1.5e-6,
    rows_probed=6.0e-8,
    rows_passed=6.0e-8,
    rows_routed=2.5e-8,
    rows_grouped=4.0e-7,
    rows_kept=1.5e-6,
    rows_read=1.5e-6,
    queries=0.35,
)
PIPELINED_RATES = Work(
    steps=0.1,
    values_read=4.0e-9,
    conditions=4.0e-9,
    rows_built=1.0e-7,
    rows_probed=6.0e-9,
    rows_passed=3.0e-8,
    rows_routed=5.0e-9,
    rows_grouped=8.0e-8,
    rows_kept=4.0e-7,
    rows_read=6.0e-8,
    queries=0.06,
)


@dataclass(frozen=True, slots=True)
class Observation:
    """`error` is how far what was predicted then fell short, as a part of it: 0 where it did not.
    None of a prediction by rates that nothing had been learned for."""

    work: Work
    seconds: float
    error: float | None = None


@dataclass
class CostModel:
    """Rates start from `prior` and follow what is observed; `margin` is how far predictions were
    below what came, as a part of them. It is added to a prediction so that it is rarely too low."""

    prior: Work
    rates: Work = field(init=False)
    margin: float = field(init=False, default=_FIRST_MARGIN)
    _seen: deque[Observation] = field(init=False)

    def __post_init__(self) -> None:
        self.rates = self.prior
        self._seen = deque(maxlen=_MOST_OBSERVATIONS)

    def predict(self, work: Work) -> float:
        return work.times(self.rates)

    def cautious(self, work: Work) -> float:
        """A prediction with the margin."""
        return self.predict(work) * (1 + self.margin)

    def observe(self, work: Work, seconds: float) -> None:
        predicted = self.predict(work)
        if predicted <= 0 or seconds <= 0:
            return
        # That the rates of another machine are wrong here is no reason for doubt later on.
        error = max(0.0, seconds / predicted - 1) if self._seen else None
        self.recall([Observation(work, seconds, error)])

    def recall(self, observations: Iterable[Observation]) -> None:
        """Learn from what was observed, by an earlier model perhaps."""
        self._seen.extend(observations)
        self.rates = fitted(self.prior, self._seen)
        errors = np.array([each.error for each in self._seen if each.error is not None])
        if not len(errors):
            return
        weights = _weights(len(errors))
        mean = np.average(errors, weights=weights)
        deviation = np.average((errors - mean) ** 2, weights=weights) ** 0.5
        # With few observations what was believed at first still counts.
        doubt = _FIRST_MARGIN / (1 + len(errors))
        self.margin = float(max(_LEAST_MARGIN, mean + deviation) + doubt)

    @property
    def observations(self) -> tuple[Observation, ...]:
        return tuple(self._seen)


def _weights(count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.power(_FADING, np.arange(count)[::-1])


def fitted(prior: Work, seen: Iterable[Observation]) -> Work:
    """The rates that explain the observations best, none far from the prior without need.

    Least squares over factors of the prior's rates: each observation says that its work, weighed by
    the factors, takes as long as it did; and every factor would rather be what all have in common.
    """
    observations = list(seen)
    if not observations:
        return prior
    known = np.array(prior.values())
    amounts = np.array([o.work.values() for o in observations])
    seconds = np.array([o.seconds for o in observations])
    parts = amounts * known / seconds[:, None]
    weights = _weights(len(observations))
    logs = np.log(np.maximum(parts.sum(axis=1), 1e-9))
    start = float(np.exp(-np.average(logs, weights=weights)))
    trust = _TRUST * (weights.sum() * weights) ** 0.5
    rows = np.vstack([parts * trust[:, None], np.eye(len(known))])
    wanted = np.concatenate([trust, np.full(len(known), start)])
    factors, *_ = np.linalg.lstsq(rows, wanted, rcond=None)
    return Work(*map(float, known * np.clip(factors, 0.1 * start, 10 * start)))
