"""What a worker does for one query: messages and answers in, effects out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout, Slice
from headway.lineage.topology import Protection, Topology
from headway.pipelined.core.effects import (
    Answer,
    Arrived,
    Close,
    Delete,
    Deliver,
    Delivered,
    Drop,
    Effect,
    Execute,
    Executed,
    ExecutionFailed,
    Keep,
    Kept,
    Open,
    Reception,
    Resend,
    Resent,
    Say,
    Stop,
)
from headway.pipelined.core.inbox import InboxIndex
from headway.pipelined.core.incarnation import Incarnation, TaskProgress
from headway.pipelined.core.messages import (
    Assign,
    Committed,
    Done,
    Failed,
    Forget,
    Holds,
    Input,
    Message,
    Release,
    Replay,
    Replayed,
    Report,
    Run,
)


class WorkerCore:
    """`receive` and `handle` are never called at the same time."""

    def __init__(self, worker: str, topology: Topology) -> None:
        self.worker = worker
        self._topology = topology
        self._layout = Layout(topology)
        self._channels: dict[ChannelId, Incarnation] = {}
        self._errands: dict[tuple[ChannelId, int], Incarnation] = {}
        """Repeated tasks of stateless stages, whoever runs their channels."""
        self._inbox = InboxIndex()
        self._kept: dict[TaskId, int] = {}
        """The latest version of each output on this worker's disk."""
        self._closing: dict[tuple[TaskId, int], Incarnation] = {}
        """What is executing for channels that were released; they are closed when it is over."""
        self._stopped = False
        self._effects: list[Effect] = []

    def receive(self, arrived: Arrived) -> Reception:
        """What becomes of a slice that arrived."""
        return Reception.REFUSE if self._stopped else self._inbox.receive(arrived)

    def handle(self, event: Message | Answer) -> list[Effect]:
        if self._stopped:
            return []
        match event:
            case Assign(channel, epoch):
                self._assign(channel, epoch)
            case Release(channel, epoch):
                self._release(channel, epoch)
            case Run():
                self._run(event)
            case Committed(task, epoch):
                self._commit(task, epoch)
            case Replay():
                self._replay(event)
            case Forget(outputs):
                self._delete(outputs)
            case Report(channel, epoch):
                self._report(channel, epoch)
            case Arrived(channel):
                if channel in self._channels:
                    self._execute_next(self._channels[channel])
            case Executed():
                self._executed(event)
            case ExecutionFailed():
                self._execution_failed(event)
            case Kept():
                self._note_kept(event)
            case Delivered():
                self._note_delivered(event)
            case Resent():
                self._note_resent(event)
        effects, self._effects = self._effects, []
        return effects

    # Channels.

    def _assign(self, channel: ChannelId, epoch: int) -> None:
        current = self._channels.get(channel)
        if epoch < self._inbox.oldest(channel) or (current and current.epoch == epoch):
            return
        self._close(channel)
        self._effects += self._inbox.discard_before(channel, epoch)
        self._channels[channel] = Incarnation(channel, epoch)
        self._effects.append(Open(channel, epoch))

    def _release(self, channel: ChannelId, epoch: int) -> None:
        if epoch >= self._inbox.oldest(channel):
            self._close(channel)
            self._effects += self._inbox.discard_before(channel, epoch + 1)

    def _close(self, channel: ChannelId) -> None:
        """Drop the channel's state, when the task that runs in it is over."""
        incarnation = self._channels.pop(channel, None)
        if incarnation is None:
            return
        for task in incarnation.tasks.values():
            if task.executed is not None and not task.committed:
                self._effects.append(Drop(task.run.task, incarnation.epoch))
                if task.kept and not task.run.repeated:
                    self._delete_version(task.run.task, incarnation.epoch)
        if incarnation.executing is not None:
            executing = incarnation.executing.run.task
            self._closing[executing, incarnation.epoch] = incarnation
        else:
            self._effects.append(Close(channel, incarnation.epoch))

    def _report(self, channel: ChannelId, epoch: int) -> None:
        incarnation = self._channels.get(channel)
        if incarnation is None or incarnation.epoch != epoch:
            return
        ran = tuple(t.sequence for t, task in incarnation.tasks.items() if task.committed)
        self._say(Holds(channel, epoch, self._inbox.held(channel, epoch), ran))

    # Tasks.

    def _run(self, run: Run) -> None:
        incarnation = self._incarnation_for(run)
        if incarnation is None:
            return
        known = incarnation.tasks.get(run.task)
        if known is None or self._must_run_again(known, run):
            incarnation.add(run)
            self._execute_next(incarnation)
        elif known.done is not None:
            self._say(known.done)
        elif known.failed is not None:
            self._say(known.failed)

    def _incarnation_for(self, run: Run) -> Incarnation | None:
        channel = run.task.of
        if run.repeated and self._topology.stages[channel.stage].stateless:
            return self._errands.setdefault((channel, run.epoch), Incarnation(channel, run.epoch))
        incarnation = self._channels.get(channel)
        return incarnation if incarnation and incarnation.epoch == run.epoch else None

    def _must_run_again(self, known: TaskProgress, run: Run) -> bool:
        """Its output is wanted once more, and nothing was kept of it."""
        return (
            run.repeated
            and known.committed
            and run.task not in self._kept
            and self._layout.skippable(run.task.of, run.lineage)
        )

    def _execute_next(self, incarnation: Incarnation) -> None:
        if not incarnation.may_execute():
            return
        task = incarnation.waiting[0]
        inputs = self._inbox.take(task.run)
        if inputs is None:
            return
        incarnation.waiting.popleft()
        incarnation.executing = task
        self._effects.append(Execute(msgspec.structs.replace(task.run, inputs=inputs)))

    def _versions(self, task: TaskId, epoch: int) -> Iterator[tuple[Incarnation, TaskProgress]]:
        """What this worker knows of a task. As a repeated task of a stateless stage it comes
        first: what it did as a task of its channel was committed before."""
        for incarnation in (self._errands.get((task.of, epoch)), self._channels.get(task.of)):
            if incarnation is not None and incarnation.epoch == epoch:
                found = incarnation.tasks.get(task)
                if found is not None:
                    yield incarnation, found

    def _find(self, task: TaskId, epoch: int) -> tuple[Incarnation, TaskProgress] | None:
        return next(self._versions(task, epoch), None)

    def _executed(self, event: Executed) -> None:
        over = self._is_over(event.task, event.epoch)
        found = None if over else self._find(event.task, event.epoch)
        if found is None:
            self._effects.append(Drop(event.task, event.epoch))
            return
        incarnation, task = found
        incarnation.executing = None
        incarnation.unfinished.append(task)
        task.executed = event
        if self._is_kept(task):
            self._effects.append(Keep(event.task, event.epoch))
        else:
            task.kept = False
        self._deliver(incarnation)
        self._execute_next(incarnation)

    def _is_over(self, task: TaskId, epoch: int) -> bool:
        """The channel was released while this task ran: now its state can go."""
        incarnation = self._closing.pop((task, epoch), None)
        if incarnation is None:
            return False
        self._effects.append(Close(incarnation.channel, epoch))
        return True

    def _is_kept(self, task: TaskProgress) -> bool:
        stage = self._topology.stages[task.run.task.stage]
        assert task.executed is not None
        wanted = stage.result or stage.protection is not Protection.NONE
        return wanted and task.run.keeps and task.executed.rows > 0

    def _execution_failed(self, event: ExecutionFailed) -> None:
        over = self._is_over(event.task, event.epoch)
        found = None if over else self._find(event.task, event.epoch)
        if found is None:
            return
        _, task = found
        task.failed = Failed(
            event.task, event.epoch, event.error, event.message, event.hint, fatal=True
        )
        self._say(task.failed)

    def _deliver(self, incarnation: Incarnation) -> None:
        """Send what may be sent; what has nowhere to go is delivered at once."""
        for task in list(incarnation.unfinished):
            if task.delivering or not incarnation.may_deliver(task):
                continue
            assert task.executed is not None
            task.delivering = True
            sizes = task.executed.sizes
            destinations = tuple(
                d
                for d in task.run.destinations
                if self._layout.size(Slice(d.channel, d.side, task.run.task), sizes)
            )
            if destinations:
                self._effects.append(Deliver(task.run.task, incarnation.epoch, destinations))
            else:
                task.delivered = ()
            self._finish(incarnation, task)

    def _note_kept(self, event: Kept) -> None:
        found = self._find(event.output, event.epoch)
        if event.problem is not None:
            message = f"output {event.output} cannot be kept: {event.problem}"
            self._say(
                Failed(event.output, event.epoch, "WORKER_FAILED", message, None, fatal=False)
            )
            self._effects.append(Stop(message))
            self._stopped = True
            return
        if event.piece is None:
            self._kept[event.output] = max(self._kept.get(event.output, 0), event.epoch)
        if found is None or found[1].executed is None:
            self._delete_version(event.output, event.epoch)
            return
        incarnation, task = found
        task.kept, task.piece = True, event.piece
        self._finish(incarnation, task)

    def _note_delivered(self, event: Delivered) -> None:
        found = self._find(event.output, event.epoch)
        if found is None:
            return
        incarnation, task = found
        if task.done is not None:  # sent once more from memory
            self._say(Replayed(event.output, event.epoch, event.delivered, readable=True))
            return
        task.delivered = event.delivered
        self._finish(incarnation, task)

    def _finish(self, incarnation: Incarnation, task: TaskProgress) -> None:
        """Say that the task is done once its output is both kept and delivered."""
        if task.kept is None or task.delivered is None or task.done is not None:
            return
        assert task.executed is not None
        task.done = Done(
            task.run.task,
            incarnation.epoch,
            task.executed.sizes,
            task.executed.rows,
            task.executed.more,
            task.delivered,
            task.piece,
            retained=task.kept and task.piece is None,
        )
        incarnation.unfinished.remove(task)
        self._say(task.done)
        self._execute_next(incarnation)

    def _commit(self, task_id: TaskId, epoch: int) -> None:
        for incarnation, task in self._versions(task_id, epoch):
            if task.done is not None and not task.committed:
                incarnation.commit(task)
                self._effects.append(Drop(task_id, epoch))
                self._effects += self._inbox.discard_read(task.run)
                self._deliver(incarnation)
                self._execute_next(incarnation)

    # Copies.

    def _replay(self, replay: Replay) -> None:
        """From memory if it is still there, else from the disk or the reliable store."""
        output = replay.output
        made = self._in_memory(output, replay.epoch)
        if made is not None:
            self._effects.append(Deliver(output, made, replay.destinations))
        elif replay.piece is not None:
            self._effects.append(Resend(output, replay.epoch, replay.destinations, replay.piece))
        elif self._kept.get(output, -1) >= replay.epoch:
            kept = self._kept[output]
            self._effects.append(Resend(output, kept, replay.destinations, None))
        else:
            self._say(Replayed(output, replay.epoch, (), readable=False))

    def _note_resent(self, event: Resent) -> None:
        if not event.readable:
            self._delete_version(event.output, event.epoch)
        self._say(Replayed(event.output, event.epoch, event.delivered, event.readable))

    def _in_memory(self, output: TaskId, epoch: int) -> int | None:
        """The version of a task that is done and not committed."""
        for incarnation in (*self._channels.values(), *self._errands.values()):
            task = incarnation.tasks.get(output)
            if task is not None and task.done is not None and not task.committed:
                return incarnation.epoch if incarnation.epoch >= epoch else None
        return None

    def _delete(self, outputs: tuple[TaskId, ...]) -> None:
        there = [Input(o, self._kept.pop(o)) for o in outputs if o in self._kept]
        if there:
            self._effects.append(Delete(tuple(there)))

    def _delete_version(self, output: TaskId, epoch: int) -> None:
        if self._kept.get(output) == epoch:
            self._delete((output,))

    def _say(self, message: Message) -> None:
        self._effects.append(Say(message))
