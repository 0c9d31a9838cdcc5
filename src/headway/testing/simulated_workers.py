"""A worker of the simulation: the real core, with a fake disk, inbox and kernels around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout
from headway.pipelined.core.effects import (
    Answer,
    Arrived,
    Close,
    Delete,
    Deliver,
    Delivered,
    Discard,
    Drop,
    Effect,
    Execute,
    Executed,
    Keep,
    Kept,
    Open,
    Reception,
    Resend,
    Resent,
    Say,
    Stop,
)
from headway.pipelined.core.messages import Destination, Message, Run
from headway.pipelined.core.worker import WorkerCore
from headway.testing.simulated_queries import FakeKernel, FakeOutput, Rows, SimulatedQuery


class World(Protocol):
    """What a worker needs of the world around it."""

    query: SimulatedQuery
    layout: Layout
    pieces: dict[str, FakeOutput]

    def later(self, action: Callable[..., None], *arguments: Any) -> None: ...
    def strikes(self, fault: str) -> bool: ...
    def report(self, worker: SimulatedWorker, message: Message) -> None: ...
    def push(
        self,
        sender: SimulatedWorker,
        output: TaskId,
        epoch: int,
        rows: dict[Destination, Rows],
        answer: Callable[[tuple[Destination, ...]], None],
    ) -> None: ...
    def leave(self, worker: SimulatedWorker) -> None: ...
    def check_open(self, worker: SimulatedWorker, channel: ChannelId, epoch: int) -> None: ...
    def check_execute(self, run: Run) -> None: ...
    def check_made(self, run: Run, output: FakeOutput) -> None: ...
    def check_deliver(self, output: TaskId, epoch: int) -> None: ...
    def check_resend(self, worker: SimulatedWorker, output: TaskId, found: bool) -> None: ...
    def check_delete(self, worker: SimulatedWorker, output: TaskId) -> None: ...


class SimulatedWorker:
    """What happens to it while it is paused happens when it wakes up."""

    def __init__(self, name: str, world: World, core: type[WorkerCore]) -> None:
        self.name = name
        self.crashed = False
        self.paused = False
        self.declared_lost = False
        self._world = world
        self._core = core(name, world.query.topology)
        self._asleep: list[Callable[[], None]] = []
        self._kernels: dict[tuple[ChannelId, int], FakeKernel] = {}
        self._inbox: dict[tuple[ChannelId, int, TaskId], tuple[int, Rows]] = {}
        self._outputs: dict[tuple[TaskId, int], FakeOutput] = {}
        self._backups: dict[TaskId, tuple[int, FakeOutput]] = {}
        self.rotten: set[TaskId] = set()
        """Backups that this disk has lost."""

    def when_awake(self, action: Callable[[], None]) -> None:
        if self.crashed:
            return
        if self.paused:
            self._asleep.append(action)
        else:
            action()

    def wake(self) -> None:
        self.paused = False
        asleep, self._asleep = self._asleep, []
        for action in asleep:
            self.when_awake(action)

    def handle(self, event: Message | Answer) -> None:
        self.when_awake(lambda: self._handle(event))

    def arrive(self, arrived: Arrived, rows: Rows) -> bool:
        """Whether the sender hears that it was delivered."""
        reception = self._core.receive(arrived)
        if reception is Reception.TAKE:
            newer = any(c == arrived.channel and e > arrived.reader_epoch for c, e in self._kernels)
            assert not newer, f"{self.name} takes {arrived} for an owner that is gone"
            self._inbox[arrived.channel, arrived.side, arrived.output] = (arrived.epoch, rows)
            self.handle(arrived)
        return reception is not Reception.REFUSE

    def _handle(self, event: Message | Answer) -> None:
        if not self.crashed:
            for effect in self._core.handle(event):
                self._begin(effect)

    def _begin(self, effect: Effect) -> None:
        match effect:
            case Open(channel, epoch):
                self._world.check_open(self, channel, epoch)
                kernel = FakeKernel(self._world.query, self._world.layout, channel)
                self._kernels[channel, epoch] = kernel
            case Close(channel, epoch):
                del self._kernels[channel, epoch]
            case Execute(run):
                self._world.check_execute(run)
                self._later(self._execute, run, self._inputs(run))
            case Keep(output, epoch):
                self._later(self._keep, output, epoch)
            case Deliver(output, epoch, destinations):
                self._world.check_deliver(output, epoch)
                self._deliver(output, epoch, destinations)
            case Resend(output, epoch, destinations, piece):
                self._later(self._resend, output, epoch, destinations, piece)
            case Drop(output, epoch):
                self._outputs.pop((output, epoch), None)
            case Discard(channel, side, inputs):
                for each in inputs:
                    del self._inbox[channel, side, each.output]
            case Delete(outputs):
                self._delete({each.output: each.epoch for each in outputs})
            case Say(message):
                self._world.report(self, message)
            case Stop():
                self._world.leave(self)

    def _later(self, action: Callable[..., None], *arguments: Any) -> None:
        self._world.later(self.when_awake, lambda: action(*arguments))

    def _inputs(self, run: Run) -> list[Rows]:
        found = []
        for each in run.inputs:
            epoch, rows = self._inbox[run.task.of, run.lineage.side, each.output]
            assert epoch == each.epoch, f"{run.task} gets {each.output} of {epoch}"
            found.append(rows)
        return found

    def _execute(self, run: Run, inputs: list[Rows]) -> None:
        key = (run.task.of, run.epoch)
        alone = FakeKernel(self._world.query, self._world.layout, run.task.of)
        made = self._kernels.get(key, alone).execute(run.lineage, inputs)
        self._world.check_made(run, made)
        self._outputs[run.task, run.epoch] = made
        self._handle(Executed(run.task, run.epoch, made.sizes, len(made.rows), made.more))

    def _keep(self, output: TaskId, epoch: int) -> None:
        made = self._outputs.get((output, epoch))
        if made is None:
            return
        if self._world.strikes("disk full"):
            self._handle(Kept(output, epoch, problem="no space left"))
            return
        stage = self._world.query.topology.stages[output.stage]
        piece = None
        if stage.result or stage.protection == "spool":
            piece = f"{output}-e{epoch}"
            self._world.pieces[piece] = made
        elif self._backups.get(output, (-1, None))[0] < epoch:
            self._backups[output] = (epoch, made)
        self._handle(Kept(output, epoch, piece))

    def _deliver(self, output: TaskId, epoch: int, destinations: tuple[Destination, ...]) -> None:
        def answer(delivered: tuple[Destination, ...]) -> None:
            self.handle(Delivered(output, epoch, delivered))

        made = self._outputs[output, epoch]
        self._world.push(self, output, epoch, self._slices(output, made, destinations), answer)

    def _resend(
        self,
        output: TaskId,
        epoch: int,
        destinations: tuple[Destination, ...],
        piece: str | None,
    ) -> None:
        def answer(delivered: tuple[Destination, ...]) -> None:
            self.handle(Resent(output, epoch, delivered, True))

        found = self._read(output, epoch, piece)
        if found is None:
            self._handle(Resent(output, epoch, (), readable=False))
        else:
            made_under, made = found
            slices = self._slices(output, made, destinations)
            self._world.push(self, output, made_under, slices, answer)

    def _read(self, output: TaskId, epoch: int, piece: str | None) -> tuple[int, FakeOutput] | None:
        if piece is not None:
            return epoch, self._world.pieces[piece]
        found = self._backups.get(output)
        if found is not None and self._world.strikes("unreadable"):
            self.rotten.add(output)
            del self._backups[output]
            found = None
        self._world.check_resend(self, output, found is not None)
        return found

    def _slices(
        self, output: TaskId, made: FakeOutput, destinations: tuple[Destination, ...]
    ) -> dict[Destination, Rows]:
        found = {}
        for each in destinations:
            for reading in self._world.layout.readings[output.of]:
                if (reading.reader, reading.side) == (each.channel, each.side):
                    found[each] = made.slices[reading.consumer][reading.position]
        return found

    def _delete(self, outputs: dict[TaskId, int]) -> None:
        for output, epoch in outputs.items():
            if output in self._backups and self._backups[output][0] <= epoch:
                self._world.check_delete(self, output)
                del self._backups[output]
