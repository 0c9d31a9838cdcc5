"""Each deliberate mistake in the core is caught by the simulation: it does look."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from headway.lineage.garbage import GarbageCollector
from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout, Slice
from headway.lineage.records import ChannelRow, LineageRow
from headway.lineage.recovery import _Planner
from headway.pipelined.core import committing, recovering, supplying
from headway.pipelined.core.coordinator import Coordinator
from headway.pipelined.core.effects import Arrived, Kept, Reception
from headway.pipelined.core.events import Command, Event, Write
from headway.pipelined.core.inbox import InboxIndex
from headway.pipelined.core.incarnation import Incarnation
from headway.pipelined.core.ledger import Ledger
from headway.pipelined.core.messages import Done, Holds, Input, Run
from headway.pipelined.core.progress import ChannelProgress, Progress
from headway.pipelined.core.state import QueryState
from headway.pipelined.core.supply import Supply
from headway.pipelined.core.worker import WorkerCore
from headway.testing.simulation import SimulationFailed, simulate

SEEDS = 400
RARE = {
    "takes slices for a former owner": 1_000,
    "a new owner goes on with the old state": 1_000,
}
"""Where seeds begin that show mistakes which matter once in thousands of queries."""

Broken = Callable[[], AbstractContextManager[Any]]
BROKEN: dict[str, Broken] = {}


def broken(make: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
    BROKEN[make.__name__.replace("_", " ")] = contextmanager(make)
    return make


# The write-ahead rule.


@broken
def says_done_before_its_output_was_delivered() -> Iterator[None]:
    original = WorkerCore._deliver

    def deliver(self: WorkerCore, incarnation: Incarnation) -> None:
        tasks = list(incarnation.unfinished)
        original(self, incarnation)
        for task in tasks:
            if task.delivering and task.delivered is None:
                task.delivered = task.run.destinations
                self._finish(incarnation, task)

    with patch.object(WorkerCore, "_deliver", deliver):
        yield


@broken
def sends_before_the_transaction_is_written() -> Iterator[None]:
    original = Coordinator.handle

    def handle(self: Coordinator, event: Event) -> list[Command]:
        return sorted(original(self, event), key=lambda command: isinstance(command, Write))

    with patch.object(Coordinator, "handle", handle):
        yield


@broken
def delivers_outputs_before_the_former_is_committed() -> Iterator[None]:
    with patch.object(Incarnation, "may_deliver", lambda self, task: True):
        yield


@broken
def commits_after_a_failed_backup() -> Iterator[None]:
    original = WorkerCore._note_kept

    def note_kept(self: WorkerCore, event: Kept) -> None:
        original(self, Kept(event.output, event.epoch, event.piece))

    with patch.object(WorkerCore, "_note_kept", note_kept):
        yield


@broken
def does_not_write_that_a_channel_has_ended() -> Iterator[None]:
    original = Ledger.take_changes

    def take_changes(self: Ledger) -> list[Any]:
        changes = original(self)
        for number, change in enumerate(changes):
            if isinstance(change.row, ChannelRow) and change.row.ended is not None:
                row = msgspec.structs.replace(change.row, ended=None)
                changes[number] = msgspec.structs.replace(change, row=row)
        return changes

    with patch.object(Ledger, "take_changes", take_changes):
        yield


# Epochs.


@broken
def accepts_done_of_a_former_owner() -> Iterator[None]:
    def is_expected(state: QueryState, worker: str, done: Done) -> bool:
        return done.task in state.tables.tasks

    with patch.object(committing, "is_expected", is_expected):
        yield


@broken
def believes_workers_that_were_declared_lost() -> Iterator[None]:
    original = Coordinator.handle

    def handle(self: Coordinator, event: Event) -> list[Command]:
        state = self._state
        with patch.object(state, "live", [*state.live]):
            worker = getattr(event, "worker", None)
            if hasattr(event, "message") and worker not in state.live:
                live = state.live
                live.append(worker)
                try:
                    return original(self, event)
                finally:
                    live.remove(worker)
        return original(self, event)

    with patch.object(Coordinator, "handle", handle):
        yield


def _receive_only_the_first_version(self: InboxIndex, arrived: Arrived) -> Reception:
    slice_ = Slice(arrived.channel, arrived.side, arrived.output)
    if slice_ in self._held.get(arrived.channel, {}):
        return Reception.HAVE
    return _RECEIVE(self, arrived)


_RECEIVE = InboxIndex.receive


@broken
def keeps_a_void_version_when_the_valid_one_arrives() -> Iterator[None]:
    with patch.object(InboxIndex, "receive", _receive_only_the_first_version):
        yield


@broken
def ignores_the_epochs_of_outputs() -> Iterator[None]:
    original = InboxIndex.take

    def take(self: InboxIndex, run: Run) -> Any:
        any_version = tuple(Input(each.output, 0) for each in run.inputs)
        return original(self, msgspec.structs.replace(run, inputs=any_version))

    first = patch.object(InboxIndex, "receive", _receive_only_the_first_version)
    with first, patch.object(InboxIndex, "take", take):
        yield


@broken
def takes_slices_for_a_former_owner() -> Iterator[None]:
    with patch.object(InboxIndex, "oldest", lambda self, channel: 0):
        yield


@broken
def counts_what_a_former_owner_of_the_reader_got() -> Iterator[None]:
    with patch.object(QueryState, "is_current", lambda self, destination: True):
        yield


@broken
def a_new_owner_goes_on_with_the_old_state() -> Iterator[None]:
    original = WorkerCore._assign

    def assign(self: WorkerCore, channel: ChannelId, epoch: int) -> None:
        former = self._channels.get(channel)
        if former is None or former.epoch >= epoch:
            original(self, channel, epoch)
        else:
            former.epoch = epoch
            self._inbox._oldest[channel] = epoch

    with patch.object(WorkerCore, "_assign", assign):
        yield


# Recovery.


@broken
def does_not_replay_what_was_delivered_and_not_yet_read() -> Iterator[None]:
    with patch.object(_Planner, "_unread", lambda self, channel: []):
        yield


@broken
def does_not_rewind_channels_that_have_ended() -> Iterator[None]:
    original = _Planner._visit

    def visit(self: _Planner, channel: ChannelId) -> None:
        if self._tables.channels[channel].ended is None:
            original(self, channel)

    with patch.object(_Planner, "_visit", visit):
        yield


@broken
def reads_backups_of_lost_workers() -> Iterator[None]:
    original = _Planner._require

    def require(self: _Planner, slices: Any) -> None:
        live, self._live = self._live, tuple(self._tables.workers)
        original(self, slices)
        self._live = live

    with patch.object(_Planner, "_require", require):
        yield


@broken
def leaves_the_side_out_of_the_lineage() -> Iterator[None]:
    original = _Planner._unread

    def unread(self: _Planner, channel: ChannelId) -> list[Slice]:
        read: dict[int, int] = {}
        for row in self._rows[channel]:
            line = row.lineage
            read[line.channel] = max(read.get(line.channel, 0), line.first + line.count)
        found = original(self, channel)
        return [s for s in found if s.output.sequence >= read.get(s.output.channel, 0)]

    with patch.object(_Planner, "_unread", unread):
        yield


@broken
def decides_anew_what_repeated_tasks_read() -> Iterator[None]:
    original = QueryState.repeated_run

    def repeated_run(self: QueryState, task: TaskId, needed: tuple[Slice, ...]) -> Run:
        run = original(self, task, needed)
        if len(run.inputs) < 2:
            return run
        lineage = msgspec.structs.replace(run.lineage, count=1)
        return msgspec.structs.replace(run, lineage=lineage, inputs=run.inputs[:1])

    with patch.object(QueryState, "repeated_run", repeated_run):
        yield


@broken
def leaves_out_tasks_that_have_a_trace_in_the_state() -> Iterator[None]:
    with patch.object(Layout, "skippable", lambda self, channel, lineage: not lineage.ends):
        yield


@broken
def gives_up_the_units_of_lost_tasks() -> Iterator[None]:
    with patch.object(Progress, "take_back", lambda self, channel, lineage: None):
        yield


@broken
def does_not_send_again_what_did_not_arrive() -> Iterator[None]:
    def provide(state: QueryState, slice_: Slice) -> None:
        return

    with patch.object(supplying, "provide", provide), patch.object(committing, "provide", provide):
        yield


@broken
def lets_go_of_an_ended_channel_before_its_outputs_are_there() -> Iterator[None]:
    original = Supply.repeat

    def repeat(self: Supply, task: TaskId, worker: str, counted: bool) -> None:
        original(self, task, worker, False)

    with patch.object(Supply, "repeat", repeat):
        yield


@broken
def trusts_its_memory_after_a_restart() -> Iterator[None]:
    original = recovering._resume

    def resume(state: QueryState, holds: Holds) -> None:
        inputs = tuple(
            (each.side, Input(each.output, 1 << 30))
            for each in state.progress.channels[holds.channel].missing
        )
        original(state, msgspec.structs.replace(holds, inputs=inputs))

    with patch.object(recovering, "_resume", resume):
        yield


# Garbage, sides and portions.


@broken
def forgets_outputs_as_soon_as_they_are_read() -> Iterator[None]:
    original = GarbageCollector.commit

    def commit(self: GarbageCollector, task: TaskId, row: LineageRow) -> list[TaskId]:
        garbage = original(self, task, row)
        self._release(task.of, [row.lineage], garbage)
        return garbage

    with patch.object(GarbageCollector, "commit", commit):
        yield


@broken
def forgets_the_inputs_of_channels_that_have_ended() -> Iterator[None]:
    original = GarbageCollector.end

    def end(self: GarbageCollector, channel: ChannelId) -> list[TaskId]:
        garbage = original(self, channel)
        self._release(channel, self._lineage[channel], garbage)
        return garbage

    with patch.object(GarbageCollector, "end", end):
        yield


@broken
def leaves_out_further_portions() -> Iterator[None]:
    original = Progress._close_side

    def close_side(self: Progress, state: ChannelProgress, row: LineageRow) -> None:
        original(self, state, msgspec.structs.replace(row, more=False))

    with patch.object(Progress, "_close_side", close_side):
        yield


@broken
def reads_a_side_before_those_that_it_waits_for_have_ended() -> Iterator[None]:
    from headway.pipelined.core import scheduling

    def may_read(state: ChannelProgress, side: Any, position: int) -> bool:
        return not state.sides[position].ending

    with patch.object(scheduling, "_may_read", may_read):
        yield


@broken
def runs_a_task_again_when_it_is_told_twice() -> Iterator[None]:
    def run(self: WorkerCore, message: Run) -> None:
        incarnation = self._incarnation_for(message)
        if incarnation is not None and incarnation.executing is None:
            incarnation.add(message)
            self._execute_next(incarnation)

    with patch.object(WorkerCore, "_run", run):
        yield


def _first_caught(first: int) -> SimulationFailed | None:
    for seed in range(first, first + SEEDS):
        try:
            simulate(seed)
        except SimulationFailed as failure:
            return failure
    return None


@pytest.mark.parametrize("mistake", BROKEN)
def test_the_mistake_is_caught(mistake: str) -> None:
    with BROKEN[mistake]():
        failure = _first_caught(RARE.get(mistake, 0))
    assert failure is not None, f"none of {SEEDS} seeds shows a core that {mistake}"
    print(f"{mistake}: {str(failure).splitlines()[0]}")


def test_there_are_at_least_twelve() -> None:
    assert len(BROKEN) >= 12
