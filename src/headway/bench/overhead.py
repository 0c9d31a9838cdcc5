"""What it costs that a query could be suspended, while nobody asks for it.

Runs in turn with all that looks after them, and without. What is to be found is a hundredth, and a
run takes some hundredths more or less each time: so every query shows how much it varies, and then
those run again and again that tell most in the same time. Each counts by how closely it is known.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from headway.bench.copies import linked_tables
from headway.bench.peers import middle_half, run_in, timed
from headway.workloads import WORKLOADS

if TYPE_CHECKING:
    from headway.session import Session

_COPIES = {"spark": 3, "pipelined": 16}
"""Of the largest table, for queries that take some seconds: what looks after a run does so every
half of one, and shorter queries are over before."""
_QUERIES = {"spark": ("q04", "q09", "q17"), "pipelined": ("q01", "q09", "q17", "q19")}
"""Of TPC-H, which take from two to six seconds then."""
_UNIFORM = "select sum(xxhash64(xxhash64(id)) % 7) as s from range(0, 800000000, 1, 16)"
"""Nothing of Spark's is as steady as work that reads nothing and leaves nothing to collect."""
_STEADIEST = 3
_PAIRS = 4
"""Of runs, before the next query."""
_LEAST_PAIRS = 12
"""Of each query: fewer do not tell how much it varies."""
_MOST_SECONDS = 180.0
"""In each pass, on each engine; or until the difference is known to within this."""
_ERROR = 0.002
_SEED = 7


def measure_idle_overhead(
    sessions: Mapping[str, Session],
    tables: Path,
    scratch: Path,
    repeat: int,
    progress: Callable[[str, int, int], None],
) -> dict[str, Any]:
    """By engine, over the `tables` of TPC-H; larger ones are made in `scratch`."""
    found: dict[str, dict[str, Any]] = {}
    for number, (engine, session) in enumerate(sessions.items()):
        progress(f"overhead on {engine}", number, len(sessions))
        session.tables(linked_tables(tables, scratch, _COPIES[engine]))
        queries = WORKLOADS["tpch"].queries()
        texts = {name: queries[name] for name in _QUERIES[engine]}
        if engine == "spark":
            texts["uniform"] = _UNIFORM
        found[engine] = _Overhead(session, texts).measure(repeat)
    return {
        "idle_overhead": max(each["overhead"] for each in found.values()),
        "idle_overhead_by_engine": found,
    }


class _Overhead:
    """On one engine."""

    def __init__(self, session: Session, texts: Mapping[str, str]) -> None:
        self._session = session
        self._texts = texts
        self._chance = Random(_SEED)

    def measure(self, repeat: int) -> dict[str, Any]:
        seconds = {name: self._seconds(name) for name in self._texts}
        logs = {name: self._overheads(name) for name in seconds}
        needed = {name: statistics.variance(each) * seconds[name] for name, each in logs.items()}
        steadiest = sorted(needed, key=lambda name: needed[name])[:_STEADIEST]
        logs = {name: logs[name] for name in steadiest}
        until = time.monotonic() + repeat * _MOST_SECONDS
        while min(map(len, logs.values())) < _LEAST_PAIRS or (
            together(logs)[1] > _ERROR and time.monotonic() < until
        ):
            for name in steadiest:
                logs[name] += self._overheads(name)
        overhead, error = together(logs)
        return {
            "overhead": math.expm1(overhead),
            "standard_error": error,
            "pairs": sum(map(len, logs.values())),
            "by_query": {
                name: {
                    "seconds": round(seconds[name], 2),
                    "overhead": math.expm1(middle_half(each)[0]),
                    "standard_error": middle_half(each)[1],
                }
                for name, each in logs.items()
            },
        }

    def _seconds(self, name: str) -> float:
        """Of its second run."""
        work = partial(run_in, self._session, self._texts[name], name)
        work()
        return timed(work)[0]

    def _overheads(self, name: str) -> list[float]:
        """The logarithms of the ratios of runs right after one another, so that a machine that gets
        slower or faster meanwhile is so for both; which comes first is left to chance."""
        work = partial(run_in, self._session, self._texts[name], name)
        logs: list[float] = []
        for _ in range(_PAIRS):
            seconds: dict[bool, float] = {}
            first = self._chance.random() < 0.5
            for looked_after in (first, not first):
                with _looked_after(looked_after):
                    seconds[looked_after], _ = timed(work)
            logs.append(math.log(seconds[True] / seconds[False]))
        return logs


def together(logs: Mapping[str, list[float]]) -> tuple[float, float]:
    """What all of them tell, each by how closely it is known, and its standard error."""
    known = [middle_half(each) for each in logs.values()]
    weights = [1.0 / max(error, 1e-6) ** 2 for _, error in known]
    mean = sum(weight * value for weight, (value, _) in zip(weights, known, strict=True))
    return mean / sum(weights), 1.0 / math.sqrt(sum(weights))


@contextmanager
def _looked_after(wanted: bool) -> Iterator[None]:
    """Without it, nothing is done beside a run: it listens to nobody and gives no sign of life."""
    from headway.session.requests import Routines

    every = Routines.every
    if not wanted:
        Routines.every = lambda self, seconds, act: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Routines.every = every  # type: ignore[method-assign]
