"""A dataflow run to its end in one process, without workers: for tests of what its stages compute.

Every output is checked to have the columns that its stage declares.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headway.base.errors import InternalError
from headway.lineage.names import ChannelId
from headway.lineage.records import Lineage
from headway.lineage.topology import Feed
from headway.pipelined.kernels.channel import ChannelKernel, Output, QueryKernels, ReadPiece
from headway.pipelined.kernels.types import arrow_type, spark_type
from headway.pipelined.programs import ColumnType, Dataflow

ALL_AT_ONCE = 1 << 60


def run_dataflow(
    dataflow: Dataflow,
    *,
    task_bytes: int = ALL_AT_ONCE,
    order: random.Random | None = None,
    read_piece: ReadPiece | None = None,
) -> pa.Table:
    """The query's result; one without columns has a column of nulls, for the number of its rows.

    A task reads units of a table up to `task_bytes`, or one that is larger. Without `order` one
    channel runs after the other, and a task takes all that is there. With it, chance says which
    channel is next, who reads which unit, and how many inputs a task takes.
    """
    kernels = QueryKernels(dataflow.encode(), read_piece=read_piece)
    try:
        return _Driver(kernels, task_bytes, order).run()
    finally:
        kernels.close()


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows, to be compared: exact, but for the last digits of doubles, which depend on the
    order in which they were added."""
    columns = (map(_comparable, column.to_pylist()) for column in table.columns)
    return list(zip(*columns, strict=True))


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value:.11g}")
    return value


@dataclass
class _SideState:
    """What a channel has yet to read of a side. `inputs` are those of each upstream channel."""

    units: deque[int] = field(default_factory=deque)
    inputs: dict[ChannelId, deque[pa.Table]] = field(default_factory=dict)
    open_sources: set[ChannelId] = field(default_factory=set)
    ended: bool = False

    @property
    def has_rows(self) -> bool:
        return bool(self.units) or any(self.inputs.values())

    @property
    def is_complete(self) -> bool:
        """All that will ever come has been read."""
        return not self.open_sources and not self.has_rows


class _Driver:
    def __init__(self, kernels: QueryKernels, task_bytes: int, order: random.Random | None) -> None:
        self._dataflow = kernels.dataflow
        self._topology = kernels.topology
        self._kernels = kernels
        self._task_bytes = task_bytes
        self._order = order
        self._open: dict[ChannelId, ChannelKernel] = {}
        self._sides = {
            channel: [_SideState() for _ in self._topology.stages[channel.stage].sides]
            for channel in self._topology.channels
        }
        self._result: list[pa.Table] = []
        self._share_out()

    def run(self) -> pa.Table:
        while ready := list(self._ready()):
            channel, side = ready[0] if self._order is None else self._order.choice(ready)
            self._step(channel, side)
        if not all(side.ended for sides in self._sides.values() for side in sides):
            raise InternalError("the channels of a dataflow wait for each other")
        return pa.concat_tables([self._no_rows(), *self._result])

    def _share_out(self) -> None:
        """Units go to the channels that will read them, exchanges know their sources."""
        for number, stage in enumerate(self._topology.stages):
            for position, side in enumerate(stage.sides):
                states = [
                    self._sides[ChannelId(number, c)][position] for c in range(stage.channels)
                ]
                for unit in range(len(side.units)):
                    readers = states
                    if side.feed is Feed.SHARED:
                        readers = [states[self._reader(unit, len(side.units), len(states))]]
                    for state in readers:
                        state.units.append(unit)
                if side.feed is Feed.EXCHANGE:
                    for channel, state in enumerate(states):
                        sources = self._topology.sources(ChannelId(number, channel), position)
                        state.open_sources = set(sources)
                        state.inputs = {source: deque() for source in sources}

    def _reader(self, unit: int, units: int, channels: int) -> int:
        if self._order is not None:
            return self._order.randrange(channels)
        return unit * channels // units

    def _ready(self) -> Iterator[tuple[ChannelId, int]]:
        for channel, states in self._sides.items():
            sides = self._topology.stages[channel.stage].sides
            for position, (side, state) in enumerate(zip(sides, states, strict=True)):
                behind = all(states[other].ended for other in side.after)
                if behind and not state.ended and (state.has_rows or state.is_complete):
                    yield channel, position

    def _step(self, channel: ChannelId, side: int) -> None:
        state = self._sides[channel][side]
        lineage, inputs = self._task(side, state, self._sizes(channel, side))
        if state.is_complete and (not lineage.count or self._at_once()):
            lineage = Lineage(side, lineage.channel, lineage.first, lineage.count, ends=True)
        output = self._run(channel, lineage, inputs)
        while output.more:
            lineage = Lineage(side, ends=True, portion=lineage.portion + 1)
            output = self._run(channel, lineage, [])
        if lineage.ends:
            state.ended = True
            self._close_if_done(channel)

    def _at_once(self) -> bool:
        """Whether the last rows of a side are read by the task that ends it."""
        return self._order is None or self._order.random() < 0.5

    def _sizes(self, channel: ChannelId, side: int) -> tuple[int, ...]:
        return self._topology.stages[channel.stage].sides[side].units

    def _task(
        self, side: int, state: _SideState, sizes: tuple[int, ...]
    ) -> tuple[Lineage, list[pa.Table]]:
        if state.units:
            first = last = state.units.popleft()
            size = sizes[first]
            while state.units and state.units[0] == last + 1:
                size += sizes[last + 1]
                if size > self._task_bytes:
                    break
                last = state.units.popleft()
            return Lineage(side, -1, first, last - first + 1), []
        sources = [source for source, tables in state.inputs.items() if tables]
        if not sources:
            return Lineage(side), []
        source = sources[0] if self._order is None else self._order.choice(sources)
        tables = state.inputs[source]
        count = len(tables) if self._order is None else self._order.randint(1, len(tables))
        return Lineage(side, source.channel, 0, count), [tables.popleft() for _ in range(count)]

    def _run(self, channel: ChannelId, lineage: Lineage, inputs: list[pa.Table]) -> Output:
        if self._runs_alone(channel, lineage):
            kernel = self._kernels.open(channel)
            output = kernel.execute(lineage, inputs)
            kernel.close()
        else:
            if channel not in self._open:
                self._open[channel] = self._kernels.open(channel)
            output = self._open[channel].execute(lineage, inputs)
        self._deliver(channel, output)
        return output

    def _runs_alone(self, channel: ChannelId, lineage: Lineage) -> bool:
        """A task of a stage without state may run anywhere."""
        stateless = self._topology.stages[channel.stage].stateless and not lineage.ends
        return stateless and self._order is not None and self._order.random() < 0.5

    def _deliver(self, channel: ChannelId, output: Output) -> None:
        if output.rows:
            _check_columns(self._dataflow, channel, output.table)
        if self._topology.stages[channel.stage].result:
            if output.rows:
                self._result.append(output.table)
            return
        consumers = self._topology.consumers[channel.stage]
        for consumer, slices in zip(consumers, output.slices, strict=True):
            readers = self._topology.readers(channel, consumer)
            for reader, table in zip(readers, slices, strict=True):
                if table.num_rows:
                    self._sides[reader][consumer.side].inputs[channel].append(table)

    def _close_if_done(self, channel: ChannelId) -> None:
        if not all(state.ended for state in self._sides[channel]):
            return
        if channel in self._open:
            self._open.pop(channel).close()
        for states in self._sides.values():
            for state in states:
                state.open_sources.discard(channel)

    def _no_rows(self) -> pa.Table:
        output = self._dataflow.stages[-1].output
        names = self._dataflow.names or [column.name for column in output]
        fields = [pa.field(n, _arrow_type(c)) for n, c in zip(names, output, strict=True)]
        return pa.schema(fields).empty_table()


def _check_columns(dataflow: Dataflow, channel: ChannelId, table: pa.Table) -> None:
    wanted = [_arrow_type(column) for column in dataflow.stages[channel.stage].output]
    if table.schema.types != wanted:
        raise InternalError(
            f"channel {channel} puts out columns of other types than its stage declares",
            story=(f"{table.schema.types} instead of {wanted}",),
        )


def _arrow_type(column: ColumnType) -> pa.DataType:
    return arrow_type(spark_type(column.type))
