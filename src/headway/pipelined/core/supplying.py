"""Getting slices to readers that miss them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headway.lineage.names import TaskId
from headway.lineage.reading import Slice
from headway.pipelined.core.messages import Destination, Holds, Replayed, Report
from headway.pipelined.core.state import QueryState
from headway.pipelined.core.supply import InMemory

_PATIENT_TICKS = 10


def note_delivered(state: QueryState, output: TaskId, delivered: Iterable[Destination]) -> None:
    """Readers have a committed output in memory. What a former owner of one got does not count."""
    for each in delivered:
        slice_ = Slice(each.channel, each.side, output)
        if state.is_current(each) and state.is_missing(slice_):
            state.progress.deliver(slice_)
            state.dirty.add(each.channel)


def provide(state: QueryState, slice_: Slice) -> None:
    """Have a missing slice sent again; if nobody has it, a recovery must be planned."""
    row = state.tables.lineage[slice_.output]
    reader = state.owner(slice_.reader).worker
    if reader not in state.live:
        return  # it is about to be rewound, and then needs all anew
    if row.piece is not None:
        state.ask_for(slice_, reader)
    elif row.holder is not None and row.holder in state.live:
        state.ask_for(slice_, row.holder)
    elif slice_.output not in state.supply.repeats:
        state.lacking = True


def note_replayed(state: QueryState, worker: str, message: Replayed) -> None:
    output = message.output
    asked = state.supply.answer(output, worker)
    waiting = state.supply.in_memory.get(output)
    if waiting is not None and waiting.worker == worker:
        delivered = tuple(dict.fromkeys((*waiting.done.delivered, *message.delivered)))
        done = msgspec.structs.replace(waiting.done, delivered=delivered)
        state.supply.in_memory[output] = InMemory(worker, done)
        return
    row = state.tables.lineage.get(output)
    if row is None:
        return
    note_delivered(state, output, message.delivered)
    left = [each for each in asked if state.is_missing(each)]
    if message.readable:
        state.supply.failed.update(left)
        return
    if row.holder == worker and row.piece is None:
        state.ledger.set_lineage(output, msgspec.structs.replace(row, holder=None))
    for each in left:
        provide(state, each)


def ask_the_stuck(state: QueryState) -> None:
    """A slice that a task has read may be wanted once more, for the same task to be repeated. That
    it was delivered may then be old news: channels that do not get on are asked what they have."""
    for channel in state.supply.tick(_PATIENT_TICKS):
        owner = state.owner(channel)
        state.send(owner.worker, Report(channel, owner.epoch))


def note_held(state: QueryState, worker: str, message: Holds) -> None:
    """What a channel has in memory, as an answer to that."""
    channel, owner = message.channel, state.owner(message.channel)
    if (owner.worker, owner.epoch) != (worker, message.epoch):
        return
    held = {Slice(channel, side, each.output): each.epoch for side, each in message.inputs}
    for task in [task for task in state.supply.repeats if task.of == channel]:
        for each in state.inputs(channel, state.tables.lineage[task].lineage):
            if held.get(each, -1) < state.tables.lineage[each.output].epoch:
                state.progress.withdraw(each)
                provide(state, each)


def try_again(state: QueryState) -> None:
    """Slices that did not arrive, such as when a connection broke."""
    failed, state.supply.failed = state.supply.failed, set()
    for each in sorted(failed):
        if state.is_missing(each):
            provide(state, each)
