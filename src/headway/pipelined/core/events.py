"""What happens to a coordinator, and what it wants done."""

from __future__ import annotations

from dataclasses import dataclass

from headway.lineage.names import TaskId
from headway.lineage.records import Change
from headway.pipelined.core.messages import Message


@dataclass(frozen=True, slots=True)
class Options:
    """How tasks are cut and given out."""

    task_bytes: int = 64 << 20
    """A task reads about this much."""
    least_bytes: int = 8 << 20
    """A task waits until it can read this much, as long as more is to come."""
    inputs_per_task: int | None = None
    """How many outputs or units a task reads; None for as many as are there."""
    blocking: bool = False
    """One stage at a time."""
    ahead: int = 2
    """Tasks of a channel that are given out and not committed."""
    held_bytes: int = 256 << 20
    """A channel is held back while a reader of it has more than this waiting."""


# What happens.


@dataclass(frozen=True, slots=True)
class Start:
    """All workers there are have joined: begin, or go on from the tables."""


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    worker: str
    address: str


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """It died, or its lease ran out. Whatever it still says is refused."""

    worker: str


@dataclass(frozen=True, slots=True)
class Received:
    worker: str
    message: Message


@dataclass(frozen=True, slots=True)
class Tick:
    """Some time has passed, about a tenth of a second: what failed may be tried again."""


Event = Start | WorkerJoined | WorkerLost | Received | Tick

# What is to be done, in this order.


@dataclass(frozen=True, slots=True)
class Write:
    """One transaction of the control store, durable before anything after it is done."""

    changes: list[Change]


@dataclass(frozen=True, slots=True)
class Send:
    worker: str
    message: Message


@dataclass(frozen=True, slots=True)
class ResultPiece:
    """A part of the result in the reliable store."""

    task: TaskId
    piece: str
    rows: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The query is done; its rows are in these pieces, in this order."""

    pieces: tuple[ResultPiece, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """The query cannot be run."""

    error: str
    message: str
    hint: str | None = None


Command = Write | Send | Finish | Fail
