"""What is known durably about a query under way: typed rows, by table and key.

The tables together are all that a coordinator must know. A change is a row under its key, or None
where the row goes; a list of changes is one transaction.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headway.lineage.names import ChannelId, TaskId


class Lineage(msgspec.Struct, frozen=True, array_like=True):
    """What a task reads of one side: outputs of one upstream channel, or units of a table.

    `count` of them from `first`; `channel` is the upstream channel, and -1 for a table. A task that
    `ends` its side reads the last of it and does what the operators do at the end of it; what
    that puts out may come in several portions, each a task of its own that reads nothing more.
    """

    side: int
    channel: int = -1
    first: int = 0
    count: int = 0
    ends: bool = False
    portion: int = 0


class ChannelRow(msgspec.Struct, frozen=True, array_like=True):
    """Who runs a channel. The epoch rises whenever that changes: a late word of an old one is
    refused. `ended` is the number of its tasks, once the last is committed."""

    worker: str
    epoch: int = 0
    ended: int | None = None


class LineageRow(msgspec.Struct, frozen=True, array_like=True):
    """A committed task: what it read, and what it made.

    `epoch` is that of its channel when the task was first committed. `sizes` has the bytes of each
    slice, by consumer in the order of the topology and by reader; `more` says that the same side
    has a further portion; `piece` is its name in the reliable store, `holder` the worker with
    the backup.
    """

    lineage: Lineage
    epoch: int
    sizes: tuple[tuple[int, ...], ...] = ()
    rows: int = 0
    more: bool = False
    piece: str | None = None
    holder: str | None = None


class TaskRow(msgspec.Struct, frozen=True, array_like=True):
    """A task that was given out and is not committed."""

    lineage: Lineage
    epoch: int


class WorkerRow(msgspec.Struct, frozen=True, array_like=True):
    """A worker that joined. One that was lost never comes back under the same name."""

    address: str
    alive: bool = True


class Tables(msgspec.Struct):
    """All rows, by table and key."""

    workers: dict[str, WorkerRow] = {}
    channels: dict[ChannelId, ChannelRow] = {}
    lineage: dict[TaskId, LineageRow] = {}
    tasks: dict[TaskId, TaskRow] = {}

    def apply(self, changes: list[Change]) -> None:
        for change in changes:
            table = getattr(self, change.table)
            if change.row is None:
                table.pop(change.key, None)
            else:
                table[change.key] = change.row


class Change(msgspec.Struct, frozen=True):
    """One row of one table, set or removed."""

    table: str
    key: Any
    row: Any
