"""Giving out tasks."""

from __future__ import annotations

from collections import Counter

from headway.lineage.names import ChannelId
from headway.lineage.records import TaskRow
from headway.pipelined.core.scheduling import next_lineage
from headway.pipelined.core.state import QueryState


def dispatch(state: QueryState) -> None:
    """Give out what can be done. Channels whose readers are behind are held back, unless nothing
    else could be done at all."""
    channels = sorted(state.dirty, key=lambda channel: _turn(state, channel))
    held = [channel for channel in channels if _is_held_back(state, channel)]
    state.dirty = set(held)
    busy = Counter(state.owner(task.of).worker for task in state.tables.tasks)
    for channel in channels:
        if channel not in state.dirty:
            _give(state, channel, busy)
    if held and not state.tables.tasks and not state.supply.repeats:
        for channel in held:
            _give(state, channel, busy)


def _turn(state: QueryState, channel: ChannelId) -> tuple[int, int]:
    """The last stages first, to free memory. Small tables have work for few channels: let it not
    always be the same."""
    count = state.topology.stages[channel.stage].channels
    return -channel.stage, (channel.channel - channel.stage) % count


def _is_held_back(state: QueryState, channel: ChannelId) -> bool:
    if state.options.blocking:
        return False
    limit = state.options.held_bytes
    readers = {reading.reader for reading in state.layout.readings[channel]}
    return any(state.progress.channels[reader].unread_bytes > limit for reader in readers)


def _give(state: QueryState, channel: ChannelId, busy: Counter[str]) -> None:
    progress, owner = state.progress.channels[channel], state.owner(channel)
    stage = state.topology.stages[channel.stage]
    while _has_room(state, channel, busy):
        lineage = next_lineage(stage, channel, state.progress, state.options)
        if lineage is None:
            return
        task = channel.task(progress.committed + len(progress.outstanding))
        state.ledger.set_task(task, TaskRow(lineage, owner.epoch))
        state.progress.give(task, lineage)
        state.send(owner.worker, state.new_run(task))
        busy[owner.worker] += 1


def _has_room(state: QueryState, channel: ChannelId, busy: Counter[str]) -> bool:
    """A task that ends its side may be followed by further portions of it: nothing is given out
    before that is known. A channel that repeats its log is dynamic again when it is done. A second
    task keeps a worker from waiting for its next, where there is no other."""
    progress = state.progress.channels[channel]
    if progress.ended or channel in state.supply.repeating:
        return False
    if state.options.blocking and any(state.open_channels[: channel.stage]):
        return False
    tasks = progress.outstanding
    if not tasks:
        return True
    if state.tables.tasks[tasks[-1]].lineage.ends:
        return False
    ahead = state.options.ahead
    return len(tasks) < ahead and busy[state.owner(channel).worker] < ahead
