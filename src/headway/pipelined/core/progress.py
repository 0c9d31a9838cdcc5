"""How far every channel has come: what it read, what waits for it, what it lacks.

All of it follows from the tables, except for what has been delivered to whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout, Slice
from headway.lineage.records import Lineage, LineageRow, Tables
from headway.lineage.topology import Feed


@dataclass(slots=True)
class Stream:
    """The outputs of one upstream channel on their way to one side of a reader.

    `entries` are the committed ones that have rows for it, as sequence and bytes. Those before
    `head` were given to tasks; those before `ready` have been delivered. `bytes_taken` is what
    all tasks were given of it.
    """

    source: ChannelId
    taken: int = 0
    bytes_taken: int = 0
    entries: list[tuple[int, int]] = field(default_factory=list)
    head: int = 0
    ready: int = 0

    @property
    def waiting(self) -> int:
        return len(self.entries) - self.head

    def ready_entries(self) -> list[tuple[int, int]]:
        return self.entries[self.head : self.ready]


@dataclass(slots=True)
class SideProgress:
    """`ending`: a task that ends it was given out; `ended`: the last of these is committed."""

    streams: dict[int, Stream] = field(default_factory=dict)
    open_sources: int = 0
    next_unit: int = 0
    ending: bool = False
    ended: bool = False

    @property
    def begun(self) -> bool:
        return self.next_unit > 0 or any(stream.taken for stream in self.streams.values())

    @property
    def waiting(self) -> int:
        return sum(stream.waiting for stream in self.streams.values())

    @property
    def bytes_taken(self) -> int:
        return sum(stream.bytes_taken for stream in self.streams.values())


@dataclass(slots=True)
class ChannelProgress:
    """`owed` is the further portion that its last committed task announced. `delivered` are the
    slices in its memory, `missing` those that it needs and does not have."""

    sides: tuple[SideProgress, ...]
    committed: int = 0
    outstanding: list[TaskId] = field(default_factory=list)
    owed: Lineage | None = None
    ended: bool = False
    delivered: set[Slice] = field(default_factory=set)
    missing: set[Slice] = field(default_factory=set)
    unread_bytes: int = 0


class Pool:
    """The units of a shared table: those in `free` are no task's, in order. `uneven` when workers
    came or went since the first were given out."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.free = [range(len(sizes))] if sizes else []
        self.total_bytes = self.free_bytes = sum(sizes)
        self.uneven = False

    def take(self, units: range) -> None:
        parts = (
            part
            for free in self.free
            for part in (
                range(free.start, min(free.stop, units.start)),
                range(max(free.start, units.stop), free.stop),
            )
        )
        self.free = [part for part in parts if part]
        self.free_bytes -= sum(self.sizes[units.start : units.stop])

    def put_back(self, units: range) -> None:
        self.free = sorted([*self.free, units], key=lambda free: free.start)
        self.free_bytes += sum(self.sizes[units.start : units.stop])


class Progress:
    """The progress of all channels, kept in step with the tables by its caller."""

    def __init__(self, layout: Layout, tables: Tables) -> None:
        self._layout = layout
        self._topology = layout.topology
        self._tables = tables
        self.channels: dict[ChannelId, ChannelProgress] = {}
        self.pools: dict[tuple[int, int], Pool] = {}
        for number, stage in enumerate(self._topology.stages):
            for position, side in enumerate(stage.sides):
                if side.feed is Feed.SHARED:
                    self.pools[number, position] = Pool(side.units)
        self._load()

    def _load(self) -> None:
        for channel in self._topology.channels:
            self.channels[channel] = self._fresh(channel)
        for task in sorted(self._tables.lineage):
            self.channels[task.of].committed += 1
        for channel, row in self._tables.channels.items():
            self.channels[channel].ended = row.ended is not None
        tasks: dict[ChannelId, list[TaskId]] = {}
        for task in sorted(self._tables.tasks):
            tasks.setdefault(task.of, []).append(task)
        for channel in self._topology.channels:
            self.rebuild(channel, tasks.get(channel, []))
        for channel, state in self.channels.items():
            for number in range(state.committed + len(state.outstanding)):
                self._take_units(channel, self._lineage(channel.task(number)))

    def rebuild(self, channel: ChannelId, outstanding: Sequence[TaskId] = ()) -> None:
        """Begin again with an empty memory, after the committed and these outstanding tasks."""
        former = self.channels[channel]
        state = self._fresh(channel)
        self.channels[channel] = state
        state.ended = former.ended
        for sequence in range(former.committed):
            row = self._tables.lineage[channel.task(sequence)]
            self._skip_to(state, row.lineage)
            self._close_side(state, row)
        state.committed = former.committed
        state.outstanding = list(outstanding)
        for task in outstanding:
            state.owed = None
            self._skip_to(state, self._tables.tasks[task].lineage)
        for position, side in enumerate(state.sides):
            for stream in side.streams.values():
                self._refill(channel, position, stream)

    def commit(self, task: TaskId, row: LineageRow) -> None:
        """The first of the channel's outstanding tasks is committed."""
        state = self.channels[task.of]
        state.outstanding.remove(task)
        state.committed += 1
        self._close_side(state, row)
        for reading in self._layout.readings[task.of]:
            size = reading.size(row.sizes)
            if size:
                reader = self.channels[reading.reader]
                stream = reader.sides[reading.side].streams[task.channel]
                stream.entries.append((task.sequence, size))
                reader.unread_bytes += size
                reader.missing.add(Slice(reading.reader, reading.side, task))

    def end(self, channel: ChannelId) -> None:
        """The channel has no further task."""
        self.channels[channel].ended = True
        for reading in self._layout.readings[channel]:
            self.channels[reading.reader].sides[reading.side].open_sources -= 1

    def give(self, task: TaskId, lineage: Lineage) -> None:
        """A task with this lineage is given out."""
        state = self.channels[task.of]
        state.outstanding.append(task)
        if lineage.portion:
            state.owed = None
            return
        side = state.sides[lineage.side]
        side.ending = side.ending or lineage.ends
        self._take_units(task.of, lineage)
        if lineage.channel < 0:
            side.next_unit += lineage.count
            return
        stream = side.streams[lineage.channel]
        stream.taken = lineage.first + lineage.count
        while stream.head < len(stream.entries) and stream.entries[stream.head][0] < stream.taken:
            size = stream.entries[stream.head][1]
            state.unread_bytes -= size
            stream.bytes_taken += size
            stream.head += 1

    def unsettle(self, channel: ChannelId) -> None:
        """The channel is run by another worker: shares that were equal are no longer done at the
        same time."""
        for (stage, _), pool in self.pools.items():
            if stage == channel.stage:
                pool.uneven = True

    def take_back(self, channel: ChannelId, lineage: Lineage) -> None:
        """The task with this lineage is not to be: any channel may have its units."""
        pool = self.pools.get((channel.stage, lineage.side))
        if pool is not None and lineage.count:
            pool.put_back(range(lineage.first, lineage.first + lineage.count))

    def deliver(self, slice_: Slice) -> None:
        """The slice is in the reader's memory."""
        state = self.channels[slice_.reader]
        state.delivered.add(slice_)
        state.missing.discard(slice_)
        stream = state.sides[slice_.side].streams[slice_.output.channel]
        while stream.ready < len(stream.entries):
            output = stream.source.task(stream.entries[stream.ready][0])
            if Slice(slice_.reader, slice_.side, output) not in state.delivered:
                break
            stream.ready += 1

    def require(self, slices: Iterable[Slice]) -> None:
        """Repeated tasks of their readers read these."""
        for each in slices:
            state = self.channels[each.reader]
            if each not in state.delivered:
                state.missing.add(each)

    def withdraw(self, slice_: Slice) -> None:
        """It turns out not to be in its reader's memory, where a repeated task needs it."""
        state = self.channels[slice_.reader]
        state.delivered.discard(slice_)
        state.missing.add(slice_)

    def consume(self, slices: Iterable[Slice]) -> None:
        """They are no longer in their readers' memory, nor wanted there: the task that read them
        is committed. That they were delivered may be heard of only later."""
        for each in slices:
            self.channels[each.reader].delivered.discard(each)
            self.channels[each.reader].missing.discard(each)

    def _fresh(self, channel: ChannelId) -> ChannelProgress:
        sides = []
        for position, side in enumerate(self._topology.stages[channel.stage].sides):
            progress = SideProgress()
            if side.feed is Feed.EXCHANGE:
                sources = self._topology.sources(channel, position)
                progress.streams = {source.channel: Stream(source) for source in sources}
                rows = (self._tables.channels.get(source) for source in sources)
                progress.open_sources = sum(row is None or row.ended is None for row in rows)
            sides.append(progress)
        return ChannelProgress(tuple(sides))

    def _skip_to(self, state: ChannelProgress, lineage: Lineage) -> None:
        side = state.sides[lineage.side]
        side.ending = side.ending or lineage.ends
        if lineage.channel < 0:
            side.next_unit += lineage.count
        else:
            side.streams[lineage.channel].taken = lineage.first + lineage.count

    def _close_side(self, state: ChannelProgress, row: LineageRow) -> None:
        line = row.lineage
        state.owed = None
        if row.more:
            state.owed = Lineage(line.side, ends=True, portion=line.portion + 1)
        elif line.ends:
            state.sides[line.side].ended = True

    def _refill(self, channel: ChannelId, position: int, stream: Stream) -> None:
        state = self.channels[channel]
        for sequence in range(self.channels[stream.source].committed):
            slice_ = Slice(channel, position, stream.source.task(sequence))
            size = self._layout.size(slice_, self._tables.lineage[slice_.output].sizes)
            if sequence < stream.taken:
                stream.bytes_taken += size
            elif size:
                stream.entries.append((sequence, size))
                state.unread_bytes += size
                state.missing.add(slice_)

    def _take_units(self, channel: ChannelId, lineage: Lineage) -> None:
        pool = self.pools.get((channel.stage, lineage.side))
        if pool is not None and lineage.count:
            pool.take(range(lineage.first, lineage.first + lineage.count))

    def _lineage(self, task: TaskId) -> Lineage:
        row = self._tables.lineage.get(task)
        return row.lineage if row is not None else self._tables.tasks[task].lineage
