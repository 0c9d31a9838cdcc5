"""Which backups can never be needed again.

A backup is needed as long as some reader might have to read the output once more. A reader does
not when it is settled: it has ended, and all of its own outputs are garbage or in the reliable
store. It does not either when the one task that read the output leaves no trace in its channel, and
what that task put out is itself garbage or in the reliable store. Garbage stays garbage: lineage
only grows.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout
from headway.lineage.records import Lineage, LineageRow, Tables
from headway.lineage.topology import Feed

_Reader = tuple[ChannelId, int]


class GarbageCollector:
    """Told of every commit in turn, it says which outputs became garbage by it. All work together
    is linear in the number of tasks and their inputs."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._needed_by: dict[TaskId, set[_Reader]] = {}
        self._lineage: dict[ChannelId, list[Lineage]] = {c: [] for c in layout.readings}
        self._needed_outputs = dict.fromkeys(layout.readings, 0)
        self._ended: set[ChannelId] = set()

    @classmethod
    def of(cls, layout: Layout, tables: Tables) -> GarbageCollector:
        """As if it had been told of everything in these tables."""
        collector = cls(layout)
        for task in sorted(tables.lineage):
            collector.commit(task, tables.lineage[task])
        for channel, row in tables.channels.items():
            if row.ended is not None:
                collector.end(channel)
        return collector

    def is_needed(self, output: TaskId) -> bool:
        """A backup of this committed output may still be needed."""
        return output in self._needed_by

    def commit(self, task: TaskId, row: LineageRow) -> list[TaskId]:
        self._lineage[task.of].append(row.lineage)
        slices = self._layout.slices(task, row.sizes) if row.piece is None else []
        if slices:
            self._needed_by[task] = {(each.reader, each.side) for each in slices}
            self._needed_outputs[task.of] += 1
            return []
        garbage: list[TaskId] = []
        if self._layout.skippable(task.of, row.lineage):
            self._release(task.of, [row.lineage], garbage)
        return garbage

    def end(self, channel: ChannelId) -> list[TaskId]:
        """The channel's last task is committed."""
        self._ended.add(channel)
        garbage: list[TaskId] = []
        if not self._needed_outputs[channel]:
            self._release(channel, self._lineage[channel], garbage)
        return garbage

    def _release(
        self, reader: ChannelId, lineages: Iterable[Lineage], garbage: list[TaskId]
    ) -> None:
        """The reader never again reads what these tasks of it read."""
        released = [(reader, lineage) for lineage in lineages]
        while released:
            reader, lineage = released.pop()
            for output in self._inputs(reader, lineage):
                needed_by = self._needed_by.get(output)
                if needed_by is None:
                    continue
                needed_by.discard((reader, lineage.side))
                if not needed_by:
                    garbage.append(output)
                    released += self._collect(output)

    def _collect(self, output: TaskId) -> list[tuple[ChannelId, Lineage]]:
        """The tasks whose inputs are released because this output is garbage."""
        channel = output.of
        del self._needed_by[output]
        self._needed_outputs[channel] -= 1
        if channel in self._ended and not self._needed_outputs[channel]:
            return [(channel, lineage) for lineage in self._lineage[channel]]
        lineage = self._lineage[channel][output.sequence]
        return [(channel, lineage)] if self._layout.skippable(channel, lineage) else []

    def _inputs(self, reader: ChannelId, lineage: Lineage) -> list[TaskId]:
        side = self._layout.topology.stages[reader.stage].sides[lineage.side]
        if side.feed is not Feed.EXCHANGE:
            return []
        source = ChannelId(side.upstream, lineage.channel)
        return [source.task(s) for s in range(lineage.first, lineage.first + lineage.count)]
