"""All that a coordinator knows, and the messages that it is about to send."""

from __future__ import annotations

from headway.lineage.garbage import GarbageCollector
from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout, Slice
from headway.lineage.records import ChannelRow, Lineage, Tables
from headway.lineage.topology import Topology
from headway.pipelined.core.events import Command, Fail, Finish, Options, Send, Write
from headway.pipelined.core.ledger import Ledger
from headway.pipelined.core.messages import Destination, Holds, Input, Message, Replay, Run
from headway.pipelined.core.progress import Progress
from headway.pipelined.core.supply import Supply


class QueryState:
    """The tables and what follows from them, and beside it what workers were told and have said."""

    def __init__(self, topology: Topology, options: Options, tables: Tables) -> None:
        self.topology = topology
        self.options = options
        self.tables = tables
        self.layout = Layout(topology)
        self.ledger = Ledger(tables)
        self.progress = Progress(self.layout, tables)
        self.garbage = GarbageCollector.of(self.layout, tables)
        self.supply = Supply()
        self.live = [worker for worker, row in tables.workers.items() if row.alive]
        self.open_channels = [stage.channels for stage in topology.stages]
        for channel, state in self.progress.channels.items():
            self.open_channels[channel.stage] -= state.ended
        self.dirty: set[ChannelId] = set()
        """Channels that may have something to do."""
        self.lacking = False
        """Something is needed that nobody sends: a recovery has to be planned."""
        self.asked: set[ChannelId] = set()
        """Channels whose workers have been asked what they have."""
        self.holds: dict[ChannelId, Holds] = {}
        self.outcome: Finish | Fail | None = None
        self._sends: list[Send] = []
        self._replays: dict[tuple[str, TaskId], list[Slice]] = {}

    def send(self, worker: str, message: Message) -> None:
        if worker in self.live:
            self._sends.append(Send(worker, message))

    def ask_for(self, slice_: Slice, worker: str) -> None:
        """Have the worker send the slice again, unless somebody is about to."""
        if not self.supply.is_replaying(slice_):
            self.supply.replays.setdefault(slice_.output, {})[slice_] = worker
            self._replays.setdefault((worker, slice_.output), []).append(slice_)

    def owner(self, channel: ChannelId) -> ChannelRow:
        return self.tables.channels[channel]

    def is_current(self, destination: Destination) -> bool:
        row = self.owner(destination.channel)
        return (row.worker, row.epoch) == (destination.worker, destination.epoch)

    def is_missing(self, slice_: Slice) -> bool:
        return slice_ in self.progress.channels[slice_.reader].missing

    def inputs(self, channel: ChannelId, lineage: Lineage) -> list[Slice]:
        return self.layout.inputs(channel, lineage, self.tables.lineage)

    def new_run(self, task: TaskId) -> Run:
        """A task that was given out; its output goes to all readers."""
        row = self.tables.tasks[task]
        slices = [Slice(r.reader, r.side, task) for r in self.layout.readings[task.of]]
        return Run(
            task, row.epoch, row.lineage, self._inputs_of(task, row.lineage), self._places(slices)
        )

    def repeated_run(self, task: TaskId, needed: tuple[Slice, ...]) -> Run:
        """A committed task once more; its output goes where it is needed."""
        row = self.tables.lineage[task]
        return Run(
            task,
            self.owner(task.of).epoch,
            row.lineage,
            self._inputs_of(task, row.lineage),
            self._places(list(needed)),
            repeated=True,
            keeps=self.garbage.is_needed(task) and row.holder not in self.live,
        )

    def take_commands(self) -> list[Command]:
        """Everything since the last call: first the transaction, then the messages."""
        commands: list[Command] = []
        changes = self.ledger.take_changes()
        if changes:
            commands.append(Write(changes))
        commands += self._sends
        for (worker, output), slices in self._replays.items():
            asked = self.supply.replays.get(output, {})
            slices = [each for each in dict.fromkeys(slices) if asked.get(each) == worker]
            if slices:
                commands.append(Send(worker, self._replay(output, slices)))
        self._sends, self._replays = [], {}
        if self.outcome is not None:
            commands.append(self.outcome)
        return commands

    def _replay(self, output: TaskId, slices: list[Slice]) -> Replay:
        row = self.tables.lineage.get(output)
        if row is None:  # done, but only in its maker's memory and therefore not committed
            return Replay(output, self.tables.tasks[output].epoch, self._places(slices))
        return Replay(output, row.epoch, self._places(slices), row.piece)

    def _inputs_of(self, task: TaskId, lineage: Lineage) -> tuple[Input, ...]:
        rows = self.tables.lineage
        return tuple(Input(s.output, rows[s.output].epoch) for s in self.inputs(task.of, lineage))

    def _places(self, slices: list[Slice]) -> tuple[Destination, ...]:
        owners = ((each, self.owner(each.reader)) for each in slices)
        return tuple(Destination(s.reader, s.side, row.epoch, row.worker) for s, row in owners)
