"""Carrying out the plan of a recovery, and going on from the tables alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.lineage.names import ChannelId
from headway.lineage.reading import Slice
from headway.lineage.records import ChannelRow
from headway.lineage.recovery import Recovery, Repeat, Surviving, plan_recovery
from headway.pipelined.core.messages import Assign, Committed, Holds, Release, Report
from headway.pipelined.core.state import QueryState


def recover(state: QueryState) -> None:
    """Everything that is needed is there afterwards, or on its way."""
    state.lacking = False
    supply = state.supply
    surviving = Surviving(
        {channel: each.delivered for channel, each in state.progress.channels.items()},
        frozenset(supply.repeats),
        supply.reached,
        supply.replaying() | supply.failed,
    )
    plan = plan_recovery(state.topology, state.tables, frozenset(), state.live, surviving)
    carry_out(state, plan)


def carry_out(state: QueryState, plan: Recovery) -> None:
    places = {each.channel: each.worker for each in plan.rewinds}
    restart(state, places | {each.channel: each.worker for each in plan.moves})
    for rewind in plan.rewinds:
        _repeat_in_channel(state, rewind.channel, rewind.repeats)
    for repeat in plan.again:
        _repeat_in_channel(state, repeat.task.of, [repeat])
    for each in plan.input_tasks:
        state.supply.repeat(each.repeat.task, each.worker, counted=False)
        state.send(each.worker, state.repeated_run(each.repeat.task, each.repeat.needed))
    for supplied in plan.replays:
        reader = state.owner(supplied.slice.reader).worker
        state.ask_for(supplied.slice, supplied.holder or reader)
    state.dirty.update(state.topology.channels)


def move(state: QueryState, places: Mapping[ChannelId, str]) -> None:
    """Stateless channels go on elsewhere."""
    restart(state, places)
    state.dirty.update(state.topology.channels)


def restart(state: QueryState, places: Mapping[ChannelId, str]) -> None:
    """Give the channels to these workers, under a new epoch and with an empty state."""
    stateless = frozenset(c for c in places if state.topology.stages[c.stage].stateless)
    state.supply.restart(places, stateless)
    for channel, worker in places.items():
        former = state.owner(channel)
        if former.worker != worker:
            state.send(former.worker, Release(channel, former.epoch))
        state.ledger.set_channel(channel, ChannelRow(worker, former.epoch + 1, former.ended))
        state.send(worker, Assign(channel, former.epoch + 1))
        _take_back(state, channel)
        state.progress.rebuild(channel)
        state.progress.unsettle(channel)


def _take_back(state: QueryState, channel: ChannelId) -> None:
    """The tasks that were given out and not committed: what to read is decided anew, of shared
    tables by whichever channel comes first."""
    for task in state.progress.channels[channel].outstanding:
        state.progress.take_back(channel, state.tables.tasks[task].lineage)
        state.ledger.remove_task(task)


def _repeat_in_channel(state: QueryState, channel: ChannelId, repeats: Iterable[Repeat]) -> None:
    owner = state.owner(channel)
    for repeat in repeats:
        task, lineage = repeat.task, state.tables.lineage[repeat.task].lineage
        state.supply.repeat(task, owner.worker, counted=True)
        state.progress.require(state.inputs(channel, lineage))
        if owner.ended is not None:
            reached = state.supply.reached.setdefault(channel, -1)
            if not state.layout.skippable(channel, lineage):
                state.supply.reached[channel] = max(reached, task.sequence)
        state.send(owner.worker, state.repeated_run(task, repeat.needed))


# After a start from the tables.


def ask_workers(state: QueryState) -> None:
    """What they have in memory stands in no table."""
    for channel, owner in state.tables.channels.items():
        if owner.worker not in state.live:
            state.lacking = True
        elif owner.ended is not None:
            for task in map(channel.task, range(owner.ended)):
                if state.tables.lineage[task].epoch == owner.epoch:
                    state.send(owner.worker, Committed(task, owner.epoch))
            state.send(owner.worker, Release(channel, owner.epoch))
        else:
            state.asked.add(channel)
            state.send(owner.worker, Assign(channel, owner.epoch))
            state.send(owner.worker, Report(channel, owner.epoch))
    resume_when_told(state)


def note_holds(state: QueryState, worker: str, message: Holds) -> None:
    owner = state.owner(message.channel)
    if (owner.worker, owner.epoch) == (worker, message.epoch) and message.channel in state.asked:
        state.asked.discard(message.channel)
        state.holds[message.channel] = message
        resume_when_told(state)


def resume_when_told(state: QueryState) -> None:
    """Once all have answered, say again what they may not have heard."""
    if state.asked:
        return
    for holds in state.holds.values():
        if state.owner(holds.channel).worker in state.live:
            _resume(state, holds)
    state.holds.clear()
    state.lacking = True
    state.dirty.update(state.topology.channels)


def _resume(state: QueryState, holds: Holds) -> None:
    channel, epoch, rows = holds.channel, holds.epoch, state.tables.lineage
    ran = set(holds.ran)
    repeats = []
    for sequence in range(state.progress.channels[channel].committed):
        task = channel.task(sequence)
        if sequence in ran:
            continue
        if rows[task].epoch == epoch:
            state.send(state.owner(channel).worker, Committed(task, epoch))
        elif not state.layout.skippable(channel, rows[task].lineage):
            repeats.append(Repeat(task))
    outstanding = state.progress.channels[channel].outstanding
    for task in outstanding:
        state.progress.require(state.inputs(channel, state.tables.tasks[task].lineage))
    _repeat_in_channel(state, channel, repeats)
    for task in outstanding:
        state.send(state.owner(channel).worker, state.new_run(task))
    for side, found in holds.inputs:
        slice_ = Slice(channel, side, found.output)
        row = rows.get(found.output)
        if row is not None and found.epoch >= row.epoch and state.is_missing(slice_):
            state.progress.deliver(slice_)
