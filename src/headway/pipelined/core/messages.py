"""What the coordinator and the workers say to each other about one query."""

from __future__ import annotations

import msgspec

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.records import Lineage


class Message(msgspec.Struct, frozen=True, tag=True):
    """Anything that is said."""


class Destination(msgspec.Struct, frozen=True, array_like=True):
    """A reader of outputs: the side of a channel, as run by a worker under an epoch."""

    channel: ChannelId
    side: int
    epoch: int
    worker: str


class Input(msgspec.Struct, frozen=True, array_like=True):
    """An output in the version that was made under this epoch; a task may also read a later
    version, which is the same rows made again."""

    output: TaskId
    epoch: int


# From the coordinator to a worker.


class Assign(Message, frozen=True):
    """Run this channel from now on, from its empty state. One of an older epoch is dropped."""

    channel: ChannelId
    epoch: int


class Release(Message, frozen=True):
    """Run this channel no longer, and drop what arrived for it."""

    channel: ChannelId
    epoch: int


class Run(Message, frozen=True):
    """Run this task after all that the channel was told before.

    `inputs` are its inputs that are not empty; they have arrived. Its output goes to
    `destinations`. One that is `repeated` was committed before: its output is made again, from
    the same inputs, and goes only where it is needed. A task of a stateless stage may be sent to
    a worker that does not run its channel. `keeps`: the output is also kept, as its stage asks.
    """

    task: TaskId
    epoch: int
    lineage: Lineage
    inputs: tuple[Input, ...] = ()
    destinations: tuple[Destination, ...] = ()
    repeated: bool = False
    keeps: bool = True


class Committed(Message, frozen=True):
    """The task is committed, and what it read is no longer needed in memory."""

    task: TaskId
    epoch: int


class Replay(Message, frozen=True):
    """Send an output that you hold (or that the reliable store holds, as `piece`) once more."""

    output: TaskId
    epoch: int
    destinations: tuple[Destination, ...]
    piece: str | None = None


class Forget(Message, frozen=True):
    """Nobody can need the backups of these outputs any more."""

    outputs: tuple[TaskId, ...]


class Report(Message, frozen=True):
    """Say what you have of this channel: the coordinator was started again, or the channel does
    not get on. Answered by Holds."""

    channel: ChannelId
    epoch: int


# From a worker to the coordinator.


class Done(Message, frozen=True):
    """A task has run, its output was sent, and its backup or its piece is written.

    A size is 0 only where a slice has no rows: nobody waits for such a slice. `delivered` are the
    destinations that have it. `retained` says that the worker keeps a copy that it can replay.
    """

    task: TaskId
    epoch: int
    sizes: tuple[tuple[int, ...], ...]
    rows: int
    more: bool
    delivered: tuple[Destination, ...]
    piece: str | None = None
    retained: bool = True


class Failed(Message, frozen=True):
    """A task cannot be run. `fatal`: it would fail anywhere, as for a division by zero; if not,
    the worker is at fault (a full disk), and does not go on."""

    task: TaskId
    epoch: int
    error: str
    message: str
    hint: str | None
    fatal: bool


class Replayed(Message, frozen=True):
    """The end of a replay: what arrived, and whether the copy itself could be read."""

    output: TaskId
    epoch: int
    delivered: tuple[Destination, ...]
    readable: bool


class Holds(Message, frozen=True):
    """What a worker has of a channel: the slices that wait in memory, as pairs of side and output,
    and the tasks that it ran and knows to be committed, by sequence."""

    channel: ChannelId
    epoch: int
    inputs: tuple[tuple[int, Input], ...]
    ran: tuple[int, ...]
