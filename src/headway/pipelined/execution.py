"""One query on the workers: the coordinator's commands carried out, in the thread that waits."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from headway.base.errors import QueryFailed, RunInterrupted, WorkersLost
from headway.lineage.records import Change
from headway.pipelined.control.store import ControlStore
from headway.pipelined.core.coordinator import Coordinator
from headway.pipelined.core.events import (
    Command,
    Event,
    Fail,
    Finish,
    Received,
    ResultPiece,
    Send,
    Tick,
    WorkerJoined,
    WorkerLost,
    Write,
)
from headway.pipelined.core.messages import Done, Message, Replay, Run

_TICK_SECONDS = 0.1
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Report:
    """What a query took. `repeated` tasks and `replayed` outputs are what losses cost."""

    tasks: int = 0
    repeated: int = 0
    replayed: int = 0
    workers_lost: int = 0
    sides_done: int = 0
    sides_total: int = 0


class _Question:
    """Something that another thread wants to know of the coordinator."""

    def __init__(self, question: Callable[[Coordinator], Any]) -> None:
        self._question = question
        self.answer: Any = None
        self.answered = threading.Event()

    def put_to(self, coordinator: Coordinator) -> None:
        self.answer = self._question(coordinator)
        self.answered.set()


class Execution:
    """Runs the coordinator of one query. `post` may be called from any thread."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: ControlStore,
        send: Callable[[str, Message], None],
        *,
        sides: int,
        patience: float,
    ) -> None:
        self._coordinator = coordinator
        self._store = store
        self._send = send
        self._patience = patience
        self._events: queue.SimpleQueue[Event | Fail | _Question | None] = queue.SimpleQueue()
        self._over = False
        self._workers: set[str] = set()
        self._alone_since: float | None = None
        self._lock = threading.Lock()
        self._report = Report(sides_total=sides)

    @property
    def report(self) -> Report:
        with self._lock:
            return self._report

    def post(self, event: Event | Fail) -> None:
        self._events.put(event)

    def cancel(self) -> None:
        self._events.put(None)

    def ask(self, question: Callable[[Coordinator], _T]) -> _T | None:
        """The answer of the coordinator between two events; None when the query has ended."""
        asked = _Question(question)
        self._events.put(asked)
        while not asked.answered.wait(_TICK_SECONDS):
            if self._over:
                return None
        answer: _T | None = asked.answer
        return answer

    def run(self) -> tuple[ResultPiece, ...]:
        """Until the query is done: the pieces of its result."""
        try:
            return self._run()
        finally:
            self._over = True

    def _run(self) -> tuple[ResultPiece, ...]:
        next_tick = time.monotonic() + _TICK_SECONDS
        while True:
            events = self._next(max(0.0, next_tick - time.monotonic()))
            if time.monotonic() >= next_tick:
                events.append(Tick())
                next_tick = time.monotonic() + _TICK_SECONDS
            commands: list[Command] = []
            for event in events:
                self._note(event)
                commands += [event] if isinstance(event, Fail) else self._coordinator.handle(event)
            finished = self._carry_out(commands)
            if finished is not None:
                return finished.pieces
            self._check_workers()

    def _next(self, seconds: float) -> list[Event | Fail]:
        """Everything that has happened; their changes are one transaction."""
        events: list[Event | Fail] = []
        try:
            event = self._events.get(timeout=seconds) if seconds else self._events.get_nowait()
            while True:
                if event is None:
                    raise RunInterrupted("the query was interrupted")
                if isinstance(event, _Question):
                    event.put_to(self._coordinator)
                else:
                    events.append(event)
                event = self._events.get_nowait()
        except queue.Empty:
            return events

    def _carry_out(self, commands: list[Command]) -> Finish | None:
        changes: list[Change] = []
        for command in commands:
            if isinstance(command, Write):
                changes += command.changes
        if changes:
            self._store.write(changes)
        for command in commands:
            if isinstance(command, Send):
                self._count(command.message)
                self._send(command.worker, command.message)
            elif isinstance(command, Fail):
                raise QueryFailed(command.message, hint=command.hint)
            elif isinstance(command, Finish):
                return command
        return None

    def _note(self, event: Event | Fail) -> None:
        if isinstance(event, WorkerJoined):
            self._workers.add(event.worker)
        elif isinstance(event, WorkerLost):
            self._workers.discard(event.worker)
            self._add(workers_lost=1)
        elif isinstance(event, Received) and isinstance(event.message, Done):
            self._add(tasks=1)

    def _count(self, message: Message) -> None:
        if isinstance(message, Run):
            if message.repeated:
                self._add(repeated=1)
            elif message.lineage.ends and not message.lineage.portion:
                self._add(sides_done=1)
        elif isinstance(message, Replay):
            self._add(replayed=1)

    def _add(self, **counts: int) -> None:
        with self._lock:
            known = {name: getattr(self._report, name) + more for name, more in counts.items()}
            self._report = replace(self._report, **known)

    def _check_workers(self) -> None:
        """Spark may replace the workers that were lost; not for ever."""
        if self._workers:
            self._alone_since = None
            return
        now = time.monotonic()
        self._alone_since = self._alone_since or now
        if now - self._alone_since > self._patience:
            raise WorkersLost(
                f"all workers were lost, and for {self._patience:.0f} s none took their place",
                hint="look at the executors' logs, or run with --set engine.name=spark",
            )
