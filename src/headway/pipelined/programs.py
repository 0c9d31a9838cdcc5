"""What the channels of a stage do, as data: SQL texts over state tables and arriving batches.

A channel has tables, which are its state. For every batch of a side it runs the side's `batch`
statements, in which the table "#batch" stands for the batch; when the side has ended, it runs the
`end` statements, which read the state alone. A program travels to the workers as MessagePack.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

import msgspec

from headway.lineage.topology import Feed, Partitioning, Protection, Side, Stage, Topology

BATCH = '"#batch"'
ROW_NUMBER = "file_row_number"
"""What DuckDB calls the numbers of the rows in a file."""


class Action(StrEnum):
    """What becomes of the rows of a statement."""

    APPEND = "append"
    """They are added to a state table."""
    EMIT = "emit"
    """They are the output of the task."""
    COMPACT = "compact"
    """They replace the rows of a state table, once it has grown enough to be worth it."""
    DROP = "drop"
    """There are none: the side needs a state table no longer, which goes when no side does."""


class ColumnType(msgspec.Struct, frozen=True, array_like=True):
    """A column as DuckDB declares it."""

    name: str
    type: str


class Statement(msgspec.Struct, frozen=True):
    action: Action
    sql: str = ""
    table: str | None = None


class FileRange(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive rows of a Parquet file, or all of them. A column that is `missing` in the file,
    which is older than the column or younger, is null."""

    path: str
    first: int
    rows: int
    whole: bool
    missing: tuple[str, ...] = ()


class NumberRange(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Numbers from `start` to `end`, exclusive."""

    start: int
    end: int
    step: int


class StoredPiece(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A piece of a run in the reliable store, as an Arrow stream."""

    run: str
    name: str


class TableInput(msgspec.Struct, frozen=True):
    """A table in units, and how its columns are read: (column's text, column's name)."""

    columns: tuple[tuple[str, str], ...]
    files: tuple[FileRange, ...] = ()
    numbers: tuple[NumberRange, ...] = ()
    pieces: tuple[StoredPiece, ...] = ()
    bytes: tuple[int, ...] = ()
    """The size of each unit."""
    name: str = ""


class SideProgram(msgspec.Struct, frozen=True):
    """What a channel does with one of its inputs."""

    feed: Feed
    columns: tuple[ColumnType, ...]
    table: TableInput | None = None
    upstream: int = -1
    partitioning: Partitioning | None = None
    keys: tuple[str, ...] = ()
    """For a hash partitioning: what is hashed, over the columns of the upstream's output."""
    after: tuple[int, ...] = ()
    batch: tuple[Statement, ...] = ()
    end: tuple[Statement, ...] = ()

    @property
    def keeps(self) -> bool:
        return any(statement.action is not Action.EMIT for statement in (*self.batch, *self.end))


class StageProgram(msgspec.Struct, frozen=True):
    """Operators between exchanges. `about` says for people what it does."""

    channels: int
    sides: tuple[SideProgram, ...]
    tables: dict[str, tuple[ColumnType, ...]]
    output: tuple[ColumnType, ...]
    protection: Protection = Protection.BACKUP
    about: tuple[str, ...] = ()
    begin: tuple[Statement, ...] = ()
    """What needs no input, such as constants in a table; done before any."""


class Held(msgspec.Struct, frozen=True, array_like=True):
    """State that has the rows of a node of the plan once these sides of its stage have ended in
    every channel: `sql` selects them. `copied`: in every channel all of them, else a part in each.
    `node` is its place in a walk through the plan."""

    node: int
    stage: int
    sides: tuple[int, ...]
    sql: str
    columns: tuple[ColumnType, ...]
    copied: bool = False


class Dataflow(msgspec.Struct, frozen=True, dict=True):
    """All stages of a query; the last one makes its result. `names` are the result's columns as the
    user called them; `ordered` says that the order of its rows is part of it."""

    stages: tuple[StageProgram, ...]
    names: tuple[str, ...]
    ordered: bool = False
    held: tuple[Held, ...] = ()
    """For whoever wants to keep what is done of the query."""

    @cached_property
    def topology(self) -> Topology:
        last = len(self.stages) - 1
        return Topology(
            tuple(
                Stage(
                    tuple(map(_side, stage.sides)),
                    stage.channels,
                    stage.protection,
                    result=number == last,
                )
                for number, stage in enumerate(self.stages)
            )
        )

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


def decode_dataflow(payload: bytes) -> Dataflow:
    return msgspec.msgpack.decode(payload, type=Dataflow)


def _side(side: SideProgram) -> Side:
    return Side(
        side.feed,
        side.table.bytes if side.table is not None else (),
        side.upstream,
        side.partitioning,
        frozenset(side.after),
        side.keeps,
    )
