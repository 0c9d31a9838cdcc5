"""What a worker's core has its process do, and what the process tells it in return."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from headway.lineage.names import ChannelId, TaskId
from headway.pipelined.core.messages import Destination, Input, Message, Run

# To be done by the process.


@dataclass(frozen=True, slots=True)
class Open:
    """Make the channel's state, empty."""

    channel: ChannelId
    epoch: int


@dataclass(frozen=True, slots=True)
class Close:
    """Drop the channel's state."""

    channel: ChannelId
    epoch: int


@dataclass(frozen=True, slots=True)
class Execute:
    """Run the task's operators; answered by Executed or ExecutionFailed. The output stays in
    memory until Drop. At most one is asked for at a time per channel and epoch. Its inputs are
    named in the versions that are there. A repeated task of a stateless stage needs no open
    channel, and may run beside another task of it."""

    run: Run


@dataclass(frozen=True, slots=True)
class Keep:
    """Write the output's backup, or its piece in the reliable store, as its stage asks; answered
    by Kept. Not asked for where the stage has no protection and is not the result, nor for an
    output without rows. Two versions of one output are two files."""

    output: TaskId
    epoch: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send the slices of an output in memory to their readers; answered by Delivered."""

    output: TaskId
    epoch: int
    destinations: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Resend:
    """Send the slices of an output from its backup or its piece; answered by Resent."""

    output: TaskId
    epoch: int
    destinations: tuple[Destination, ...]
    piece: str | None


@dataclass(frozen=True, slots=True)
class Drop:
    """The output is no longer needed in memory."""

    output: TaskId
    epoch: int


@dataclass(frozen=True, slots=True)
class Discard:
    """These slices, which arrived for that side of a channel, are no longer needed. To be done
    before the next slice is received."""

    channel: ChannelId
    side: int
    inputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class Delete:
    """The backups of these outputs, in these versions or earlier ones, are no longer needed."""

    outputs: tuple[Input, ...]


@dataclass(frozen=True, slots=True)
class Say:
    """Send to the coordinator."""

    message: Message


@dataclass(frozen=True, slots=True)
class Stop:
    """This worker cannot go on: its disk fails. It leaves as if it had died."""

    reason: str


Effect = Open | Close | Execute | Keep | Deliver | Resend | Drop | Discard | Delete | Say | Stop

# What the process answers.


class Reception(StrEnum):
    """What becomes of a slice that arrived."""

    TAKE = "take"
    """Store it; the sender hears that it was delivered."""
    HAVE = "have"
    """It is there already; the sender hears that it was delivered."""
    REFUSE = "refuse"
    """It is for an earlier owner of the channel; the sender hears that it was not delivered."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """A slice arrived for a channel of this worker. First `receive` says whether to store it, in
    the place of an earlier version; once it is stored the core is told with `handle`. Nothing
    else is asked of the core between `receive` and the storing."""

    channel: ChannelId
    side: int
    reader_epoch: int
    output: TaskId
    epoch: int


@dataclass(frozen=True, slots=True)
class Executed:
    """`sizes` as in LineageRow; one is 0 only where the slice has no rows."""

    task: TaskId
    epoch: int
    sizes: tuple[tuple[int, ...], ...]
    rows: int
    more: bool


@dataclass(frozen=True, slots=True)
class ExecutionFailed:
    task: TaskId
    epoch: int
    error: str
    message: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """`piece` is its name in the reliable store; `problem` says why it could not be written."""

    output: TaskId
    epoch: int
    piece: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Delivered:
    output: TaskId
    epoch: int
    delivered: tuple[Destination, ...]


@dataclass(frozen=True, slots=True)
class Resent:
    output: TaskId
    epoch: int
    delivered: tuple[Destination, ...]
    readable: bool


Answer = Arrived | Executed | ExecutionFailed | Kept | Delivered | Resent
