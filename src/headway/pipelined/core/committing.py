"""What becomes of a task that is done."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Slice
from headway.lineage.records import LineageRow
from headway.pipelined.core.events import Fail
from headway.pipelined.core.messages import Committed, Destination, Done, Failed, Forget, Release
from headway.pipelined.core.state import QueryState
from headway.pipelined.core.supply import InMemory
from headway.pipelined.core.supplying import note_delivered, provide


def note_done(state: QueryState, worker: str, done: Done) -> None:
    row = state.tables.lineage.get(done.task)
    if row is not None and done.epoch >= row.epoch:
        _note_repeated(state, worker, done, row)
    elif is_expected(state, worker, done):
        _note_new(state, worker, done)
    else:
        state.send(worker, Release(done.task.of, done.epoch))


def is_expected(state: QueryState, worker: str, said: Done | Failed) -> bool:
    """The task was given to this worker under this epoch, and is not committed."""
    row = state.tables.tasks.get(said.task)
    owner = state.owner(said.task.of)
    return (
        row is not None
        and row.epoch == said.epoch
        and (owner.worker, owner.epoch) == (worker, said.epoch)
    )


def is_awaited(state: QueryState, worker: str, failed: Failed) -> bool:
    """What a former owner of a channel could not do is of no interest."""
    return state.supply.repeats.get(failed.task) == worker or is_expected(state, worker, failed)


def is_unprotected(done: Done) -> bool:
    """There is no copy of the output but the one in memory."""
    return not done.retained and done.piece is None


def _note_new(state: QueryState, worker: str, done: Done) -> None:
    slices = state.layout.slices(done.task, done.sizes)
    there = {(d.channel, d.side) for d in done.delivered if state.is_current(d)}
    absent = [each for each in slices if (each.reader, each.side) not in there]
    if absent and is_unprotected(done):
        _wait_in_memory(state, worker, done, absent)
    else:
        commit(state, worker, done)


def commit(state: QueryState, worker: str, done: Done) -> None:
    """The lineage, the end of the task and of its channel: one transaction, together with the
    tasks that it makes possible."""
    task, channel = done.task, done.task.of
    lineage = state.tables.tasks[task].lineage
    row = LineageRow(
        lineage,
        done.epoch,
        done.sizes,
        done.rows,
        done.more,
        done.piece,
        worker if done.retained else None,
    )
    state.supply.in_memory.pop(task, None)
    state.ledger.set_lineage(task, row)
    state.ledger.remove_task(task)
    state.progress.commit(task, row)
    state.progress.consume(state.inputs(channel, lineage))
    state.send(worker, Committed(task, done.epoch))
    _supply_readers(state, task, row, done.delivered)
    state.dirty.add(channel)
    garbage = state.garbage.commit(task, row)
    garbage += _end_channel(state, channel)
    _forget(state, garbage)


def _supply_readers(
    state: QueryState, task: TaskId, row: LineageRow, delivered: Iterable[Destination]
) -> None:
    note_delivered(state, task, delivered)
    for each in state.layout.slices(task, row.sizes):
        state.dirty.add(each.reader)
        if state.is_missing(each):
            provide(state, each)


def _end_channel(state: QueryState, channel: ChannelId) -> list[TaskId]:
    """Ends the channel if that was its last task; the outputs that became garbage by it."""
    progress = state.progress.channels[channel]
    if progress.outstanding or progress.owed or not all(s.ended for s in progress.sides):
        return []
    owner = state.owner(channel)
    state.ledger.set_channel(channel, msgspec.structs.replace(owner, ended=progress.committed))
    state.progress.end(channel)
    state.supply.reached[channel] = progress.committed - 1
    _release_ended(state, channel)
    state.open_channels[channel.stage] -= 1
    state.dirty.update(reading.reader for reading in state.layout.readings[channel])
    if state.options.blocking and not state.open_channels[channel.stage]:
        state.dirty.update(state.topology.channels)
    return state.garbage.end(channel)


def _forget(state: QueryState, garbage: Iterable[TaskId]) -> None:
    """The backups of these outputs can go."""
    by_holder: dict[str, list[TaskId]] = {}
    for output in garbage:
        row = state.tables.lineage[output]
        if row.holder is not None:
            by_holder.setdefault(row.holder, []).append(output)
            state.ledger.set_lineage(output, msgspec.structs.replace(row, holder=None))
    for holder, outputs in by_holder.items():
        state.send(holder, Forget(tuple(outputs)))


def _note_repeated(state: QueryState, worker: str, done: Done, row: LineageRow) -> None:
    """An output that was committed before has been made once more."""
    task = done.task
    if (done.rows, done.more) != (row.rows, row.more):
        message = f"task {task} made {row.rows} rows, and {done.rows} when it was repeated"
        state.outcome = Fail("INTERNAL_ERROR", message)
        return
    note_delivered(state, task, done.delivered)
    missing = [s for s in state.layout.slices(task, row.sizes) if state.is_missing(s)]
    if missing and is_unprotected(done) and row.piece is None and row.holder not in state.live:
        _wait_in_memory(state, worker, done, missing)
        return
    state.supply.in_memory.pop(task, None)
    if done.retained and row.holder != worker:
        if row.holder not in state.live and state.garbage.is_needed(task):
            state.ledger.set_lineage(task, msgspec.structs.replace(row, holder=worker))
        else:
            state.send(worker, Forget((task,)))
    state.send(worker, Committed(task, done.epoch))
    if state.supply.repeats.get(task) == worker:
        state.supply.repeated(task)
        state.progress.consume(state.inputs(task.of, row.lineage))
    for each in missing:
        provide(state, each)
    state.dirty.add(task.of)
    _release_ended(state, task.of)


def _release_ended(state: QueryState, channel: ChannelId) -> None:
    """An ended channel is let go when all that it repeats for others is there."""
    if channel in state.supply.reached and channel not in state.supply.repeating:
        del state.supply.reached[channel]
        owner = state.owner(channel)
        state.send(owner.worker, Release(channel, owner.epoch))


def _wait_in_memory(state: QueryState, worker: str, done: Done, absent: list[Slice]) -> None:
    """Without a copy, the output must reach its readers before the worker may drop it."""
    state.supply.in_memory[done.task] = InMemory(worker, done)
    for each in absent:
        state.ask_for(each, worker)


def look_again(state: QueryState) -> None:
    """At the outputs that wait in memory: their readers may be elsewhere by now."""
    for waiting in list(state.supply.in_memory.values()):
        note_done(state, waiting.worker, waiting.done)
