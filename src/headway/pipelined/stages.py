"""Stages under construction: sides, state tables, and statements that find their place at the end.

A statement over a side's batches runs with every batch. A statement over state alone runs when the
last side that fed this state has ended. Sides are put into an order in which that works.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from headway.base.errors import InternalError
from headway.lineage.topology import Feed, Partitioning, Protection
from headway.pipelined.kernels.typed import quoted
from headway.pipelined.programs import (
    BATCH,
    Action,
    ColumnType,
    Held,
    SideProgram,
    StageProgram,
    Statement,
    TableInput,
)


@dataclass(eq=False)
class SideDraft:
    """An input that a stage will have."""

    feed: Feed
    columns: tuple[ColumnType, ...]
    table: TableInput | None = None
    upstream: StageDraft | None = None
    partitioning: Partitioning | None = None
    keys: tuple[str, ...] = ()
    after: set[SideDraft] = field(default_factory=set)


@dataclass(frozen=True)
class Stream:
    """Rows as a SELECT: over a side's batches, or over state that is complete after `needs`."""

    sql: str
    side: SideDraft | None = None
    needs: frozenset[SideDraft] = frozenset()

    @property
    def complete_after(self) -> frozenset[SideDraft]:
        return self.needs if self.side is None else self.needs | {self.side}

    def with_sql(self, sql: str, needs: Iterable[SideDraft] = ()) -> Stream:
        return Stream(sql, self.side, self.needs | frozenset(needs))


@dataclass(frozen=True)
class _Placed:
    """A statement with the side whose batches it reads, or else the sides that it waits for."""

    statement: Statement
    side: SideDraft | None
    needs: frozenset[SideDraft]


@dataclass(frozen=True)
class HeldDraft:
    """A table that has the rows of a node once its sides have ended."""

    node: int
    table: Stream
    columns: tuple[ColumnType, ...]
    copied: bool


@dataclass(eq=False)
class StageDraft:
    """Operators between exchanges, before they have a number."""

    channels: int
    protection: Protection = Protection.BACKUP
    sides: list[SideDraft] = field(default_factory=list)
    tables: dict[str, tuple[ColumnType, ...]] = field(default_factory=dict)
    output: tuple[ColumnType, ...] = ()
    about: list[str] = field(default_factory=list)
    held: list[HeldDraft] = field(default_factory=list)
    _placed: list[_Placed] = field(default_factory=list)

    def read_table(self, table: TableInput, columns: tuple[ColumnType, ...], feed: Feed) -> Stream:
        side = SideDraft(feed, columns, table)
        self.sides.append(side)
        return Stream(f"SELECT * FROM {BATCH}", side)

    def read_stage(
        self, upstream: StageDraft, partitioning: Partitioning, keys: tuple[str, ...] = ()
    ) -> Stream:
        side = SideDraft(Feed.EXCHANGE, upstream.output, None, upstream, partitioning, keys)
        self.sides.append(side)
        return Stream(f"SELECT * FROM {BATCH}", side)

    def collect(
        self,
        name: str,
        columns: tuple[ColumnType, ...],
        streams: Iterable[Stream],
        compact: str | None = None,
    ) -> Stream:
        """Add the rows of the streams to a state table; the table's rows as a stream.

        `compact` is a SELECT over the table that stands for its rows in fewer of them.
        """
        self.tables[name] = columns
        needs: frozenset[SideDraft] = frozenset()
        for stream in streams:
            self._add(Statement(Action.APPEND, stream.sql, name), stream)
            if compact is not None and stream.side is not None:
                self._add(Statement(Action.COMPACT, compact, name), stream)
            needs |= stream.complete_after
        return Stream(quoted(name), None, needs)

    def emit(self, streams: Iterable[Stream], columns: tuple[ColumnType, ...]) -> None:
        """The rows of the streams are what the stage puts out."""
        self.output = columns
        for stream in streams:
            self._add(Statement(Action.EMIT, stream.sql), stream)

    @property
    def passes_on(self) -> StageDraft | None:
        """The stage that this one only reads, so far."""
        if len(self.sides) == 1 and not self._placed:
            return self.sides[0].upstream
        return None

    def absorb(self, other: StageDraft) -> None:
        """Take over all that the other stage does."""
        if other is self:
            return
        if other.channels != self.channels:
            raise InternalError("stages of different numbers of channels cannot be one")
        self.sides += other.sides
        self.tables.update(other.tables)
        self.about += other.about
        self.held += other.held
        self._placed += other._placed

    def _add(self, statement: Statement, stream: Stream) -> None:
        statement = msgspec.structs.replace(statement, sql=_selected(statement.sql))
        self._placed.append(_Placed(statement, stream.side, stream.needs))
        if stream.side is not None:
            stream.side.after |= stream.needs - {stream.side}

    def finish(self, numbers: dict[StageDraft, int]) -> StageProgram:
        """The stage as a program; `numbers` has those of the stages that it reads."""
        if not self.sides:  # constants alone: an empty side gives them a moment to run
            self.sides.append(SideDraft(Feed.SHARED, (), TableInput(())))
        self._order_local_statements()
        order = _ordered(self.sides)
        position = {side: number for number, side in enumerate(order)}
        batch: dict[SideDraft, list[Statement]] = {side: [] for side in order}
        end: dict[SideDraft, list[Statement]] = {side: [] for side in order}
        begin: list[Statement] = []
        for placed in self._placed:
            if placed.side is not None:
                batch[placed.side].append(placed.statement)
            elif not placed.needs and placed.statement.action is Action.APPEND:
                begin.append(placed.statement)
            else:
                end[_last(placed.needs, order, position)].append(placed.statement)
        _drop_unneeded(self.tables, order, batch, end)
        return StageProgram(
            self.channels,
            tuple(
                SideProgram(
                    side.feed,
                    side.columns,
                    side.table,
                    -1 if side.upstream is None else numbers[side.upstream],
                    side.partitioning,
                    side.keys,
                    tuple(sorted(position[other] for other in side.after)),
                    tuple(batch[side]),
                    tuple(end[side]),
                )
                for side in order
            ),
            self.tables,
            self.output,
            self.protection,
            tuple(self.about),
            tuple(begin),
        )

    def finish_held(self, number: int) -> tuple[Held, ...]:
        """After `finish`."""
        position = {side: place for place, side in enumerate(_ordered(self.sides))}
        return tuple(
            Held(
                each.node,
                number,
                tuple(sorted(position[side] for side in each.table.needs)),
                _selected(each.table.sql),
                each.columns,
                each.copied,
            )
            for each in self.held
        )

    def _order_local_statements(self) -> None:
        """What runs at the end of one side needs the others that it waits for to be at theirs."""
        position = {side: number for number, side in enumerate(_ordered(self.sides))}
        for placed in self._placed:
            if placed.side is None and len(placed.needs) > 1:
                last = max(placed.needs, key=position.__getitem__)
                last.after |= placed.needs - {last}


def _selected(sql: str) -> str:
    """A table by its name, as a SELECT."""
    return f"SELECT * FROM {sql}" if sql.startswith('"') else sql


def _ordered(sides: list[SideDraft]) -> list[SideDraft]:
    """Each side behind those that it waits for, otherwise as they were made."""
    done: list[SideDraft] = []
    waiting = list(sides)
    while waiting:
        side = next((s for s in waiting if s.after <= set(done)), None)
        if side is None:
            raise InternalError("the sides of a stage wait for each other")
        waiting.remove(side)
        done.append(side)
    return done


def _last(
    needs: frozenset[SideDraft], order: list[SideDraft], position: dict[SideDraft, int]
) -> SideDraft:
    return max(needs, key=position.__getitem__) if needs else order[0]


def _drop_unneeded(
    tables: dict[str, tuple[ColumnType, ...]],
    order: list[SideDraft],
    batch: dict[SideDraft, list[Statement]],
    end: dict[SideDraft, list[Statement]],
) -> None:
    """Every side gives up at its end the tables that it reads, or fills.

    A table that rows only stream past stays as long as the channel: after a loss, a task of that
    side may be run once more, by itself.
    """
    streaming = [
        side for side in order if all(s.action is Action.EMIT for s in (*batch[side], *end[side]))
    ]
    for name in tables:
        users = [
            side
            for side in order
            if any(s.table == name or quoted(name) in s.sql for s in (*batch[side], *end[side]))
        ]
        if not any(side in streaming for side in users):
            for side in users:
                end[side].append(Statement(Action.DROP, table=name))
