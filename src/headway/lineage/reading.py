"""Who reads what of whom: the readers of an output, and the inputs of a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.records import Lineage, LineageRow
from headway.lineage.topology import Feed, Topology

Sizes = tuple[tuple[int, ...], ...]


class Slice(NamedTuple):
    """What one side of a channel gets of an output."""

    reader: ChannelId
    side: int
    output: TaskId


@dataclass(frozen=True, slots=True)
class Reading:
    """A side of a channel that reads another channel, and where its bytes stand in `sizes`."""

    reader: ChannelId
    side: int
    consumer: int
    position: int

    def size(self, sizes: Sizes) -> int:
        return sizes[self.consumer][self.position] if sizes else 0


class Layout:
    """The readers of every channel, worked out once for a topology."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.readings = {c: tuple(_readings(topology, c)) for c in topology.channels}
        self._by_reader = {
            (producer, reading.reader, reading.side): reading
            for producer, readings in self.readings.items()
            for reading in readings
        }

    def slices(self, output: TaskId, sizes: Sizes) -> list[Slice]:
        """The slices of an output that have rows."""
        return [
            Slice(reading.reader, reading.side, output)
            for reading in self.readings[output.of]
            if reading.size(sizes)
        ]

    def size(self, slice_: Slice, sizes: Sizes) -> int:
        return self._by_reader[slice_.output.of, slice_.reader, slice_.side].size(sizes)

    def inputs(
        self, reader: ChannelId, lineage: Lineage, rows: Mapping[TaskId, LineageRow]
    ) -> list[Slice]:
        """The slices with rows that a task of this lineage reads; none for a table."""
        side = self.topology.stages[reader.stage].sides[lineage.side]
        if side.feed is not Feed.EXCHANGE or not lineage.count:
            return []
        source = ChannelId(side.upstream, lineage.channel)
        reading = self._by_reader[source, reader, lineage.side]
        return [
            Slice(reader, lineage.side, output)
            for output in map(source.task, range(lineage.first, lineage.first + lineage.count))
            if reading.size(rows[output].sizes)
        ]

    def skippable(self, channel: ChannelId, lineage: Lineage) -> bool:
        """The task leaves no trace in its channel: without it the later ones come out the same,
        and it can be run at any later time."""
        stage = self.topology.stages[channel.stage]
        return stage.stateless or (not stage.sides[lineage.side].keeps and not lineage.ends)


def _readings(topology: Topology, producer: ChannelId) -> list[Reading]:
    return [
        Reading(reader, consumer.side, number, position)
        for number, consumer in enumerate(topology.consumers[producer.stage])
        for position, reader in enumerate(topology.readers(producer, consumer))
    ]
