"""What must hold at every step of a simulation, whatever fails."""

from __future__ import annotations

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout
from headway.lineage.records import Change, LineageRow, Tables
from headway.lineage.topology import Topology
from headway.pipelined.core.messages import Run
from headway.testing.simulated_queries import FakeOutput


class Checks:
    """Raises AssertionError. Everything is compared with what the store holds, not with what a
    core believes."""

    def __init__(self, topology: Topology, layout: Layout, tables: Tables) -> None:
        self._topology = topology
        self._layout = layout
        self._tables = tables
        self._owners: dict[tuple[ChannelId, int], str] = {}
        self._made: dict[tuple[TaskId, int], FakeOutput] = {}
        self._first: dict[TaskId, FakeOutput] = {}
        self._runs: dict[tuple[TaskId, int], Run] = {}
        self._needed: dict[TaskId, bool] = {}
        self.repeated = 0

    def open(self, worker: str, channel: ChannelId, epoch: int) -> None:
        owner = self._owners.setdefault((channel, epoch), worker)
        assert owner == worker, f"{channel} of {epoch} belongs to {owner}, not to {worker}"
        row = self._tables.channels[channel]
        assert row.epoch >= epoch, f"{channel} is run under epoch {epoch} that nobody wrote"

    def execute(self, run: Run) -> None:
        """Nothing is consumed without committed lineage."""
        for each in run.inputs:
            row = self._tables.lineage.get(each.output)
            assert row is not None, f"{run.task} reads {each.output}, which is not committed"
            assert each.epoch >= row.epoch, f"{run.task} reads a void version of {each.output}"
        if run.repeated:
            row = self._tables.lineage[run.task]
            assert run.lineage == row.lineage, f"{run.task} is not repeated as its lineage says"
        self._runs[run.task, run.epoch] = run

    def made(self, run: Run, output: FakeOutput) -> None:
        """A replayed output equals the first one."""
        former = self._made.setdefault((run.task, run.epoch), output)
        assert former == output, f"{run.task} of epoch {run.epoch} was made in two ways"
        row = self._tables.lineage.get(run.task)
        if row is not None and run.epoch >= row.epoch:
            assert output == self._first[run.task], f"{run.task} is not what it was at first"

    def deliver(self, output: TaskId) -> None:
        """Only the last output of a channel may be uncommitted."""
        for sequence in range(output.sequence):
            former = output.of.task(sequence)
            assert former in self._tables.lineage, f"{output} is sent before {former} is committed"

    def resend(self, worker: str, output: TaskId) -> None:
        row = self._tables.lineage.get(output)
        held = row is not None and row.holder == worker
        assert not held, f"{worker} should have {output} and does not"
        assert row is None or not self._can_be_needed(output), f"{output} is nowhere"

    def delete(self, worker: str, output: TaskId) -> None:
        row = self._tables.lineage.get(output)
        assert row is None or row.holder != worker, f"{worker} deletes {output} that it holds"

    def apply(self, changes: list[Change], gone: set[tuple[str, TaskId]], lost: set[str]) -> None:
        """A transaction. `gone` are backups that their disks have lost."""
        rows = {change.key: change.row for change in changes if change.table == "lineage"}
        given_up = []
        for output, row in rows.items():
            self._check_lineage(output, row)
            former = self._tables.lineage.get(output)
            holder = former.holder if former is not None else None
            if holder not in (None, row.holder, *lost) and (holder, output) not in gone:
                given_up.append(output)
        self._tables.apply(changes)
        self._needed.clear()
        for output in given_up:
            assert not self._can_be_needed(output), f"the backup of {output} can be needed"

    def _check_lineage(self, task: TaskId, row: LineageRow) -> None:
        former = self._tables.lineage.get(task)
        if former is not None:
            same = (former.lineage, former.epoch, former.sizes, former.piece)
            now = (row.lineage, row.epoch, row.sizes, row.piece)
            assert same == now, f"the lineage of {task} changed"
            return
        made = self._made.get((task, row.epoch))
        assert made is not None, f"{task} is committed and was never made"
        assert (made.sizes, made.more) == (row.sizes, row.more), f"{task} is not what was made"
        assert self._runs[task, row.epoch].lineage == row.lineage, f"{task} has other lineage"
        sequence = task.sequence
        assert not sequence or task.of.task(sequence - 1) in self._tables.lineage, "out of order"
        result = self._topology.stages[task.stage].result
        assert row.piece is not None or not (result and row.rows), f"{task} is in no piece"
        self._first[task] = made

    def _can_be_needed(self, output: TaskId) -> bool:
        """By its definition, without any bookkeeping but for the answers since the last change."""
        if output not in self._needed:
            self._needed[output] = any(
                not self._has_done_with(output, each.reader, each.side)
                for each in self._layout.slices(output, self._tables.lineage[output].sizes)
            )
        return self._needed[output]

    def _has_done_with(self, output: TaskId, reader: ChannelId, side: int) -> bool:
        if self._is_settled(reader):
            return True
        task = self._reader_of(output, reader, side)
        if task is None:
            return False
        lineage = self._tables.lineage[task].lineage
        return self._layout.skippable(reader, lineage) and self._is_safe(task)

    def _is_settled(self, reader: ChannelId) -> bool:
        ended = self._tables.channels[reader].ended
        return ended is not None and all(self._is_safe(reader.task(s)) for s in range(ended))

    def _is_safe(self, output: TaskId) -> bool:
        return self._tables.lineage[output].piece is not None or not self._can_be_needed(output)

    def _count(self, channel: ChannelId) -> int:
        count = 0
        while channel.task(count) in self._tables.lineage:
            count += 1
        return count

    def _reader_of(self, output: TaskId, reader: ChannelId, side: int) -> TaskId | None:
        for sequence in range(self._count(reader)):
            line = self._tables.lineage[reader.task(sequence)].lineage
            read = range(line.first, line.first + line.count)
            if (line.side, line.channel) == (side, output.channel) and output.sequence in read:
                return reader.task(sequence)
        return None
