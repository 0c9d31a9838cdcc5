"""The coordinator of one query: events in, commands out.

The tables are its durable state. What it says depends only on them and on what workers have said
since it was started; one that is started again from the tables goes on with the query.
"""

from __future__ import annotations

import msgspec

from headway.lineage.names import ChannelId
from headway.lineage.records import ChannelRow, Tables, WorkerRow
from headway.lineage.topology import Topology
from headway.pipelined.core.committing import is_awaited, look_again, note_done
from headway.pipelined.core.dispatching import dispatch
from headway.pipelined.core.events import (
    Command,
    Event,
    Fail,
    Finish,
    Options,
    Received,
    ResultPiece,
    Start,
    Tick,
    WorkerJoined,
    WorkerLost,
)
from headway.pipelined.core.messages import Assign, Done, Failed, Holds, Message, Replayed
from headway.pipelined.core.placement import even_out, first_places
from headway.pipelined.core.recovering import (
    ask_workers,
    move,
    note_holds,
    recover,
    resume_when_told,
)
from headway.pipelined.core.state import QueryState
from headway.pipelined.core.supplying import ask_the_stuck, note_held, note_replayed, try_again


class Coordinator:
    """`handle` says what is to be done, in order. It does nothing itself and has no clock.

    The workers that are there join first, then comes Start; others may join later. After Finish
    or Fail it has nothing more to say.
    """

    def __init__(
        self, topology: Topology, options: Options | None = None, tables: Tables | None = None
    ) -> None:
        self._state = QueryState(topology, options or Options(), tables or Tables())
        self._started = False
        self._paused = False

    @classmethod
    def load(cls, topology: Topology, options: Options | None, tables: Tables) -> Coordinator:
        """Goes on from the tables, which are its own from now on, once Start is handled."""
        return cls(topology, options, tables)

    @property
    def tables(self) -> Tables:
        """As they are when all that was said to be written is; for reading only."""
        return self._state.tables

    def pause(self) -> None:
        """No further task is given out; those that are go on."""
        self._paused = True

    def go_on(self) -> None:
        """After a pause, from the next event on."""
        self._paused = False

    def ended_sides(self) -> frozenset[tuple[int, int]]:
        """Stage and position of the sides that have ended in every channel, and whose rows all of
        them have. A channel that was moved has them when its tasks are repeated; of one that had
        ended only those tasks are that somebody needs."""
        state = self._state
        if state.lacking or state.asked or not state.tables.channels:
            return frozenset()
        all_sides: set[tuple[int, int]] = set()
        open_sides: set[tuple[int, int]] = set()
        for channel, progress in state.progress.channels.items():
            for position, side in enumerate(progress.sides):
                all_sides.add((channel.stage, position))
                if not side.ended or self._is_partial(channel):
                    open_sides.add((channel.stage, position))
        return frozenset(all_sides - open_sides)

    def begun_sides(self) -> frozenset[tuple[int, int]]:
        """Stage and position of those that some channel has begun to read, and has not ended."""
        return frozenset(
            (channel.stage, position)
            for channel, progress in self._state.progress.channels.items()
            for position, side in enumerate(progress.sides)
            if side.begun and not side.ended
        )

    def open_sides(self) -> frozenset[tuple[int, int]]:
        """Stage and position of those that some channel has not read to the end, or is reading
        once more; all of them as long as it is not known what a lost worker has taken along."""
        state = self._state
        unknown = bool(state.lacking or state.asked)
        return frozenset(
            (channel.stage, position)
            for channel, progress in state.progress.channels.items()
            for position, side in enumerate(progress.sides)
            if unknown or not side.ended or channel in state.supply.repeating
        )

    def _is_partial(self, channel: ChannelId) -> bool:
        row = self._state.tables.channels[channel]
        return channel in self._state.supply.repeating or bool(row.epoch and row.ended is not None)

    def owners(self) -> dict[ChannelId, tuple[str, int]]:
        """The worker of every channel that has one, and the channel's epoch there: one that begins
        anew has another."""
        channels = self._state.tables.channels
        return {channel: (row.worker, row.epoch) for channel, row in channels.items()}

    def handle(self, event: Event) -> list[Command]:
        state = self._state
        if state.outcome is not None:
            return []
        match event:
            case Start():
                self._start()
            case WorkerJoined(worker, address):
                self._join(worker, address)
            case WorkerLost(worker):
                self._lose(worker)
            case Received(worker, message):
                if worker in state.live and self._started:
                    self._receive(worker, message)
            case Tick():
                if self._is_ready():
                    try_again(state)
                    look_again(state)
                    ask_the_stuck(state)
        if self._is_ready() and state.outcome is None:
            self._go_on()
        return state.take_commands()

    def _is_ready(self) -> bool:
        state = self._state
        return self._started and bool(state.live) and not state.asked

    def _go_on(self) -> None:
        state = self._state
        if state.lacking:
            recover(state)
            look_again(state)
        if not self._paused:
            dispatch(state)
        results = [n for n, stage in enumerate(state.topology.stages) if stage.result]
        if not any(state.open_channels[number] for number in results):
            state.outcome = _result(state)

    def _start(self) -> None:
        self._started = True
        if self._state.tables.channels:
            ask_workers(self._state)
        elif self._state.live:
            self._place()

    def _place(self) -> None:
        state = self._state
        for channel, worker in first_places(state.topology, state.live).items():
            state.ledger.set_channel(channel, ChannelRow(worker))
            state.send(worker, Assign(channel, 0))
            state.dirty.add(channel)

    def _join(self, worker: str, address: str) -> None:
        state = self._state
        if worker in state.tables.workers:
            return
        state.ledger.set_worker(worker, WorkerRow(address))
        state.live.append(worker)
        if self._started and not state.tables.channels:
            self._place()
        elif self._is_ready():
            stateless = {
                channel: row.worker
                for channel, row in state.tables.channels.items()
                if row.ended is None and state.topology.stages[channel.stage].stateless
            }
            move(state, dict.fromkeys(even_out(stateless, worker, state.live), worker))

    def _lose(self, worker: str) -> None:
        state = self._state
        if worker not in state.live:
            return
        state.live.remove(worker)
        row = state.tables.workers[worker]
        state.ledger.set_worker(worker, msgspec.structs.replace(row, alive=False))
        state.supply.lose(worker)
        state.lacking = True
        gone = {channel for channel in state.asked if state.owner(channel).worker == worker}
        if gone:
            state.asked -= gone
            resume_when_told(state)

    def _receive(self, worker: str, message: Message) -> None:
        state = self._state
        if isinstance(message, Holds) and state.asked:
            note_holds(state, worker, message)
        elif state.asked:
            return  # it is said once more when everybody has answered
        elif isinstance(message, Holds):
            note_held(state, worker, message)
        elif isinstance(message, Done):
            note_done(state, worker, message)
        elif isinstance(message, Replayed):
            note_replayed(state, worker, message)
            if message.delivered and message.output in state.supply.in_memory:
                look_again(state)
        elif isinstance(message, Failed) and not message.fatal:
            self._lose(worker)
        elif isinstance(message, Failed) and is_awaited(state, worker, message):
            state.outcome = Fail(message.error, message.message, message.hint)


def _result(state: QueryState) -> Finish:
    """By channel and sequence, which is the order of the rows."""
    found = []
    for task in sorted(state.tables.lineage):
        row = state.tables.lineage[task]
        if state.topology.stages[task.stage].result and row.piece is not None and row.rows:
            found.append(ResultPiece(task, row.piece, row.rows))
    return Finish(tuple(found))
