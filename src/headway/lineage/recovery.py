"""What must be done again after a loss, worked out from the tables alone.

Stages are visited from the last to the first. A channel that lost its state is rewound and follows
its log; what it reads again is replayed from a copy that survives, or made again by its producer,
which is thereby visited with a demand. Nothing is ever read from a worker that is lost.

The plan holds at any moment: losing more workers while it is carried out only means planning again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout, Slice
from headway.lineage.records import LineageRow, Tables
from headway.lineage.topology import Feed, Topology


@dataclass(frozen=True, slots=True)
class Surviving:
    """What the workers that are left have and are doing."""

    delivered: Mapping[ChannelId, Set[Slice]] = field(default_factory=dict)
    """The slices in a channel's memory."""
    pending: Set[TaskId] = frozenset()
    """Committed tasks that are being repeated. Their outputs will be there again."""
    reached: Mapping[ChannelId, int] = field(default_factory=dict)
    """For an ended channel that is being repeated: the last task it was told that has a trace in
    its state. An ended channel that is not in here has no state any more."""
    replaying: Set[Slice] = frozenset()
    """Slices that are on their way from a copy."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """A committed task to be run again as its lineage says, and who needs what it makes."""

    task: TaskId
    needed: tuple[Slice, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewind:
    """A channel that begins again from its empty state, and the tasks that it repeats first."""

    channel: ChannelId
    worker: str
    epoch: int
    repeats: tuple[Repeat, ...]


@dataclass(frozen=True, slots=True)
class Move:
    """A stateless channel that goes on elsewhere with its next task."""

    channel: ChannelId
    worker: str
    epoch: int


@dataclass(frozen=True, slots=True)
class InputTask:
    """A task of a stateless stage to be repeated by any worker."""

    worker: str
    repeat: Repeat


@dataclass(frozen=True, slots=True)
class Resupply:
    """A slice to be sent again: by the worker that holds a copy, or from the reliable store."""

    slice: Slice
    holder: str | None = None
    piece: str | None = None


@dataclass(frozen=True, slots=True)
class Recovery:
    """`again` are tasks that a channel repeats in the state it has."""

    rewinds: tuple[Rewind, ...] = ()
    moves: tuple[Move, ...] = ()
    input_tasks: tuple[InputTask, ...] = ()
    again: tuple[Repeat, ...] = ()
    replays: tuple[Resupply, ...] = ()


def plan_recovery(
    topology: Topology,
    tables: Tables,
    lost: Set[str],
    live: Sequence[str],
    surviving: Surviving | None = None,
) -> Recovery:
    """The plan that gives every channel a live worker, and every one of them all that it needs.

    `live` is in the order in which workers are preferred, and has at least one.
    """
    usable = tuple(worker for worker in live if worker not in lost)
    return _Planner(Layout(topology), tables, usable, surviving or Surviving()).plan()


class _Planner:
    def __init__(
        self, layout: Layout, tables: Tables, live: Sequence[str], surviving: Surviving
    ) -> None:
        self._layout = layout
        self._tables = tables
        self._live = live
        self._surviving = surviving
        self._rows = rows_by_channel(layout.topology, tables)
        self._pending: dict[ChannelId, list[TaskId]] = defaultdict(list)
        for task in sorted(surviving.pending):
            self._pending[task.of].append(task)
        self._demands: dict[ChannelId, dict[int, list[Slice]]] = defaultdict(dict)
        self._rewound: list[tuple[ChannelId, tuple[Repeat, ...]]] = []
        self._moved: list[ChannelId] = []
        self._input_tasks: list[Repeat] = []
        self._again: list[Repeat] = []
        self._replays: list[Resupply] = []

    def plan(self) -> Recovery:
        for channel in reversed(self._layout.topology.channels):
            if self._layout.topology.stages[channel.stage].stateless:
                self._visit_stateless(channel)
            else:
                self._visit(channel)
        return self._placed()

    def _visit(self, channel: ChannelId) -> None:
        demanded = self._demands[channel]
        row = self._tables.channels[channel]
        gone = row.worker not in self._live and (row.ended is None or bool(demanded))
        unforeseen = [s for s in demanded if channel.task(s) not in self._surviving.pending]
        if gone or self._is_past(channel, unforeseen):
            repeats = self._repeats_from(channel, 0, demanded)
            self._rewound.append((channel, repeats))
            self._require(self._wanted(channel, [each.task for each in repeats]))
            return
        repeats = ()
        if unforeseen:
            start = self._next_kept(channel)
            repeats = self._repeats_from(channel, start, {s: demanded[s] for s in unforeseen})
        self._again += repeats
        if row.worker in self._live:
            wanted = self._wanted(channel, [*self._pending[channel], *(r.task for r in repeats)])
            there = self._surviving.delivered.get(channel, frozenset())
            self._require(
                s for s in wanted if s not in there and s not in self._surviving.replaying
            )

    def _visit_stateless(self, channel: ChannelId) -> None:
        row = self._tables.channels[channel]
        if row.worker not in self._live and row.ended is None:
            self._moved.append(channel)
        for sequence, needed in sorted(self._demands[channel].items()):
            if channel.task(sequence) not in self._surviving.pending:
                self._input_tasks.append(Repeat(channel.task(sequence), tuple(needed)))

    def _is_past(self, channel: ChannelId, sequences: Iterable[int]) -> bool:
        """Its state has gone beyond what these tasks began with, or is dropped."""
        lineages = [(s, self._rows[channel][s].lineage) for s in sequences]
        if not lineages:
            return False
        if self._tables.channels[channel].ended is not None:
            if channel not in self._surviving.reached:
                return True
            start = self._surviving.reached[channel] + 1
        else:
            start = len(self._rows[channel])
        return any(s < start and not self._layout.skippable(channel, line) for s, line in lineages)

    def _next_kept(self, channel: ChannelId) -> int:
        """Tasks from here on have not yet left their trace in the channel's state."""
        if self._tables.channels[channel].ended is None:
            return len(self._rows[channel])
        return self._surviving.reached[channel] + 1

    def _repeats_from(
        self, channel: ChannelId, start: int, demanded: Mapping[int, list[Slice]]
    ) -> tuple[Repeat, ...]:
        """The demanded tasks, and those from `start` on that they build on. A channel that goes on
        afterwards needs all that have a trace in its state."""
        rows = self._rows[channel]
        ended = self._tables.channels[channel].ended is not None
        end = max(demanded, default=-1) + 1 if ended else len(rows)
        traced = {
            s for s in range(start, end) if not self._layout.skippable(channel, rows[s].lineage)
        }
        repeated = sorted(traced | set(demanded))
        return tuple(Repeat(channel.task(s), tuple(demanded.get(s, ()))) for s in repeated)

    def _wanted(self, channel: ChannelId, repeated: Iterable[TaskId]) -> list[Slice]:
        """What the channel reads for these tasks, and what no committed task of it has read."""
        rows = self._tables.lineage
        wanted = [
            each
            for task in repeated
            for each in self._layout.inputs(channel, rows[task].lineage, rows)
        ]
        if self._tables.channels[channel].ended is None:
            wanted += self._unread(channel)
        return wanted

    def _unread(self, channel: ChannelId) -> list[Slice]:
        """Committed outputs for the channel that stand in no lineage row of it."""
        read: dict[tuple[int, int], int] = {}
        for row in self._rows[channel]:
            line = row.lineage
            read[line.side, line.channel] = line.first + line.count
        found = []
        for number, side in enumerate(self._layout.topology.stages[channel.stage].sides):
            if side.feed is not Feed.EXCHANGE:
                continue
            for source in self._layout.topology.sources(channel, number):
                rows = self._rows[source]
                start = read.get((number, source.channel), 0)
                slices = (Slice(channel, number, source.task(s)) for s in range(start, len(rows)))
                found += [s for s in slices if self._layout.size(s, rows[s.output.sequence].sizes)]
        return found

    def _require(self, slices: Iterable[Slice]) -> None:
        for each in slices:
            row = self._tables.lineage[each.output]
            if row.piece is not None:
                self._replays.append(Resupply(each, piece=row.piece))
            elif row.holder in self._live:
                self._replays.append(Resupply(each, holder=row.holder))
            else:
                demands = self._demands[each.output.of]
                demands.setdefault(each.output.sequence, []).append(each)

    def _placed(self) -> Recovery:
        places = _Places(self._live, self._tables)
        rewinds = [
            Rewind(channel, places.take(), self._tables.channels[channel].epoch + 1, repeats)
            for channel, repeats in sorted(self._rewound)
        ]
        moves = [
            Move(channel, places.take(), self._tables.channels[channel].epoch + 1)
            for channel in sorted(self._moved)
        ]
        tasks = _Places(self._live, self._tables)
        input_tasks = [
            InputTask(tasks.take(), each)
            for each in sorted(self._input_tasks, key=lambda each: each.task)
        ]
        return Recovery(
            tuple(rewinds),
            tuple(moves),
            tuple(input_tasks),
            tuple(self._again),
            tuple(self._replays),
        )


class _Places:
    """Gives out workers in turn, and among those with equal shares the one that runs least."""

    def __init__(self, live: Sequence[str], tables: Tables) -> None:
        self._given = dict.fromkeys(live, 0)
        self._running = dict.fromkeys(live, 0)
        for row in tables.channels.values():
            if row.ended is None and row.worker in self._running:
                self._running[row.worker] += 1

    def take(self) -> str:
        worker = min(self._given, key=lambda w: (self._given[w], self._running[w]))
        self._given[worker] += 1
        return worker


def rows_by_channel(topology: Topology, tables: Tables) -> dict[ChannelId, list[LineageRow]]:
    """The committed tasks of every channel in their order."""
    rows: dict[ChannelId, list[LineageRow]] = {channel: [] for channel in topology.channels}
    for task in sorted(tables.lineage):
        rows[task.of].append(tables.lineage[task])
    return rows
