"""What is told of a batch: its clock, its mini-batches, and why queries were late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.sharing.mini_batches import MiniBatch


@dataclass(frozen=True, slots=True)
class Lost:
    """What failures have cost."""

    executors: int = 0
    seconds: float = 0.0
    """That finished tasks of Spark had run for on executors that were lost meanwhile."""
    tasks: int = 0
    """Of workers, that were done again."""

    def __add__(self, other: Lost) -> Lost:
        return Lost(
            self.executors + other.executors,
            self.seconds + other.seconds,
            self.tasks + other.tasks,
        )


@dataclass(frozen=True, slots=True)
class MiniBatchReport:
    """What became of a mini-batch. Seconds are from the start of the batch."""

    number: int
    queries: tuple[str, ...]
    closed_by: str
    predicted: float
    began: float
    ended: float | None = None
    shared_steps: int = 0
    """That were done, those for a part of the queries after a failed one included."""
    rows_read_once: float = 0.0
    """Rows of large tables that were read for all members at once."""
    rows_read_alone: float = 0.0
    """What the same members would have read one by one."""
    lost: Lost = Lost()
    put_back: tuple[str, ...] = ()
    """Queries that were planned again after a loss, before anything was done of them."""

    def has(self, name: str) -> bool:
        """Whether a query was left to it."""
        return name in self.queries and name not in self.put_back


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """Where a batch stands, beside its queries."""

    deadline: float | None
    elapsed: float
    """Until now, or until it ended or was told to."""
    planning: float
    mini_batches: tuple[MiniBatchReport, ...] = ()
    doing: str = "planning"
    not_shared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    finished_at: Mapping[str, float] = field(default_factory=dict)
    """By query, when it was done."""
    deadlines: Mapping[str, float] = field(default_factory=dict)
    """By query that has one: its own deadline, or that of the batch."""
    began_at: Mapping[str, float] = field(default_factory=dict)
    """By query, when work on it began."""

    @property
    def remaining(self) -> float | None:
        return None if self.deadline is None else self.deadline - self.elapsed

    @property
    def lost(self) -> Lost:
        return sum((each.lost for each in self.mini_batches), Lost())

    def is_late(self, name: str) -> bool:
        """Whether its deadline came before it was done."""
        end, done = self.deadlines.get(name), self.finished_at.get(name)
        if end is None:
            return False
        return self.elapsed >= end if done is None else done > end

    def why_late(self, name: str) -> str:
        """Of a query that was not done by its deadline."""
        end = self.deadlines[name]
        done, began = self.finished_at.get(name), self.began_at.get(name)
        of = next((each for each in reversed(self.mini_batches) if each.has(name)), None)
        if done is not None and began is not None and began >= end:
            return f"no time was left for it; it was done {done - end:.1f} s late"
        if done is not None:
            return f"it was done {done - end:.1f} s late{_surprise(of)}"
        if began is not None and began < end:
            return f"it had run for {end - began:.1f} s at its deadline{_surprise(of)}"
        if of is not None and of.began < end:
            return f"shared work for it was under way at its deadline{_surprise(of)}"
        return "no time was left for it"


def _surprise(of: MiniBatchReport | None) -> str:
    """What a mini-batch came up against."""
    if of is None:
        return ""
    if of.lost.executors:
        return f"; its mini-batch lost {of.lost.executors} executors"
    took = None if of.ended is None else of.ended - of.began
    if took is not None and took > of.predicted > 0:
        return f"; its mini-batch took {took:.1f} s, and was expected to take {of.predicted:.1f} s"
    return ""


def report_of(number: int, batch: MiniBatch, began: float) -> MiniBatchReport:
    names = tuple(query.name for query in batch.queries)
    return MiniBatchReport(number, names, batch.closed_by, batch.seconds, began)
