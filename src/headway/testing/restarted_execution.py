"""A coordinator that is thrown away in the middle of a query; a new one goes on from the tables."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any, Literal

from headway.lineage.records import Change, Tables
from headway.pipelined.control.store import ControlStore
from headway.pipelined.core.coordinator import Coordinator
from headway.pipelined.core.events import (
    Command,
    Event,
    Fail,
    Finish,
    Received,
    Start,
    WorkerJoined,
    WorkerLost,
    Write,
)
from headway.pipelined.execution import Execution


class ReopenedStore:
    """A control store that can be closed and opened again in the middle."""

    def __init__(self, open_store: Callable[[], ControlStore]) -> None:
        self._open_store = open_store
        self._store = open_store()

    def reopen(self) -> None:
        self._store.close()
        self._store = self._open_store()

    def write(self, changes: list[Change]) -> None:
        self._store.write(changes)

    def load(self) -> Tables:
        return self._store.load()

    def delete(self) -> None:
        self._store.delete()

    def close(self) -> None:
        self._store.close()


class RestartedExecution(Execution):
    """Its store is a ReopenedStore. The coordinator fails at every transaction whose number is in
    `restart_at`: before it is written, or after that and before anything is said to the workers.
    What they have said meanwhile is lost with it."""

    restart_at: frozenset[int] = frozenset()
    when: Literal["before", "after"] = "after"

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._transactions = 0
        self._addresses: dict[str, str] = {}
        self.restarts = 0

    def _note(self, event: Event | Fail) -> None:
        super()._note(event)
        if isinstance(event, WorkerJoined):
            self._addresses[event.worker] = event.address

    def _carry_out(self, commands: list[Command]) -> Finish | None:
        changes = [c for each in commands if isinstance(each, Write) for c in each.changes]
        if changes:
            self._transactions += 1
        if not changes or self._transactions not in self.restart_at:
            return super()._carry_out(commands)
        if self.when == "after":
            self._store.write(changes)
        self.restarts += 1
        return super()._carry_out(self._restart())

    def _restart(self) -> list[Command]:
        assert isinstance(self._store, ReopenedStore)
        self._forget_what_was_said()
        self._store.reopen()
        former = self._coordinator._state
        tables = self._store.load()
        self._coordinator = Coordinator.load(former.topology, former.options, tables)
        # A new driver would find the workers that are there, and no others.
        lost = sorted(worker for worker, row in tables.workers.items() if row.alive)
        events: list[Event] = [WorkerLost(each) for each in lost if each not in self._workers]
        events += [WorkerJoined(each, self._addresses[each]) for each in sorted(self._workers)]
        return [
            command for event in (*events, Start()) for command in self._coordinator.handle(event)
        ]

    def _forget_what_was_said(self) -> None:
        kept = []
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                break
            if not isinstance(event, Received):
                kept.append(event)
        for event in kept:
            self._events.put(event)
