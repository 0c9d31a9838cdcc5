"""The workers of a session, and the queries that they run."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from itertools import count

from headway.base.clock import Until, whenever
from headway.base.errors import WorkerNotStarted
from headway.pipelined.control.store import ControlStore
from headway.pipelined.core.coordinator import Coordinator
from headway.pipelined.core.events import (
    Fail,
    Options,
    Received,
    ResultPiece,
    Start,
    WorkerJoined,
    WorkerLost,
)
from headway.pipelined.core.messages import Message
from headway.pipelined.execution import Execution
from headway.pipelined.programs import Dataflow
from headway.pipelined.transport import (
    EndQuery,
    Extract,
    Extracted,
    Hello,
    QueryRefused,
    StartQuery,
    WorkerHub,
)

_PATIENCE = 60.0
_LOOK_SECONDS = 0.05


class Cluster:
    """The driver's end of all workers. They connect to its `port` and show `token`."""

    execution: type[Execution] = Execution

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        lease_seconds: float = 2.0,
        on_lost: Callable[[str, str], None] | None = None,
    ) -> None:
        self.token = secrets.token_hex(32)
        self._on_lost = on_lost
        self._changed = threading.Condition()
        self._queries: dict[str, tuple[Execution, StartQuery]] = {}
        self._turns = count()
        self._extractions: dict[str, tuple[str, Future[Extracted]]] = {}
        self._hub = WorkerHub(self, host=host, token=self.token, lease_seconds=lease_seconds)

    @property
    def port(self) -> int:
        return int(self._hub.port)

    @property
    def workers(self) -> dict[str, Hello]:
        return self._hub.workers

    def await_workers(self, count: int, seconds: float) -> None:
        """Until so many are there; WorkerNotStarted when the time is over."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while len(self._hub.workers) < count:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    there = len(self._hub.workers)
                    raise WorkerNotStarted(f"{there} of {count} workers came in {seconds:.0f} s")

    def execute(
        self,
        dataflow: Dataflow,
        query: str,
        *,
        store: ControlStore,
        store_url: str,
        run_id: str,
        options: Options | None = None,
        patience: float = _PATIENCE,
        started: Callable[[Execution], None] = lambda execution: None,
    ) -> tuple[ResultPiece, ...]:
        """Run a dataflow to its end; its result is in pieces of the run, in their order."""
        topology = dataflow.topology
        execution = self.execution(
            Coordinator(topology, options),
            store,
            lambda worker, message: self._hub.send(worker, query, message),
            sides=sum(len(stage.sides) * stage.channels for stage in topology.stages),
            patience=patience,
        )
        start = StartQuery(query, topology, dataflow.encode(), store_url, run_id)
        started(execution)
        with self._changed:
            self._queries[query] = (execution, start)
            hellos = list(self._hub.workers.values())
            # What one worker does alone begins with another one every time.
            first = next(self._turns) % max(1, len(hellos))
            for hello in hellos[first:] + hellos[:first]:
                self._begin(execution, start, hello)
        execution.post(Start())
        try:
            return execution.run()
        finally:
            with self._changed:
                del self._queries[query]
                self._hub.tell_all(EndQuery(query))
            store.delete()
            store.close()

    def extract(
        self, asked: Iterable[tuple[str, Extract]], until: Until = whenever
    ) -> list[Extracted]:
        """Have workers write state into pieces; their answers, in the same order. What is not there
        `until` then is given up."""
        requests = list(asked)
        futures: list[Future[Extracted]] = [Future() for _ in requests]
        with self._changed:
            for (worker, each), future in zip(requests, futures, strict=True):
                self._extractions[each.piece] = (worker, future)
        for worker, each in requests:
            if worker in self._hub.workers:
                self._hub.tell(worker, each)
            else:
                self.extracted(worker, Extracted(each.piece, problem="its worker is lost"))
        while wait(futures, _LOOK_SECONDS).not_done:
            end = until()
            if end is not None and time.monotonic() >= end:
                break
        self.give_up(each.piece for _, each in requests)
        return [future.result() for future in futures]

    def give_up(self, pieces: Iterable[str]) -> None:
        """Wait no longer for those that are not there yet."""
        for piece in pieces:
            self.extracted("", Extracted(piece, problem="it was given up"))

    def close(self) -> None:
        self._hub.close()

    # What the hub tells.

    def joined(self, hello: Hello) -> None:
        with self._changed:
            for execution, start in self._queries.values():
                self._begin(execution, start, hello)
            self._changed.notify_all()

    def received(self, worker: str, query: str, message: Message) -> None:
        found = self._queries.get(query)
        if found is not None:
            found[0].post(Received(worker, message))

    def refused(self, worker: str, refusal: QueryRefused) -> None:
        found = self._queries.get(refusal.query)
        if found is not None:
            found[0].post(Fail(refusal.error, refusal.message, refusal.hint))

    def extracted(self, worker: str, answer: Extracted) -> None:
        with self._changed:
            _, future = self._extractions.pop(answer.piece, (worker, None))
        if future is not None:
            future.set_result(answer)

    def lost(self, worker: str, reason: str) -> None:
        with self._changed:
            gone = [piece for piece, (by, _) in self._extractions.items() if by == worker]
        for piece in gone:
            self.extracted(worker, Extracted(piece, problem="its worker was lost"))
        with self._changed:
            executions = [execution for execution, _ in self._queries.values()]
        for execution in executions:
            execution.post(WorkerLost(worker))
        if self._on_lost is not None:
            self._on_lost(worker, reason)

    def _begin(self, execution: Execution, start: StartQuery, hello: Hello) -> None:
        self._hub.tell(hello.worker, start)
        execution.post(WorkerJoined(hello.worker, hello.address))
