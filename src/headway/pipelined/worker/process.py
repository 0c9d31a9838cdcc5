"""A worker: one control connection, one exchange server, and the queries that it takes part in."""

from __future__ import annotations

import os
import socket
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa

from headway.base.errors import HeadwayError, WrongUsage
from headway.base.ids import check_id
from headway.pipelined.core.effects import Arrived
from headway.pipelined.core.messages import Message
from headway.pipelined.transport import (
    DriverLink,
    EndQuery,
    Extract,
    Extracted,
    Fenced,
    Hello,
    Ordered,
    QueryRefused,
    Shutdown,
    StartQuery,
    ToWorker,
)
from headway.pipelined.transport import Peers as PeersMessage
from headway.pipelined.worker.config import WorkerConfig
from headway.pipelined.worker.exchange import ExchangeServer, Peers, PutHeader, SliceHeader
from headway.pipelined.worker.interfaces import StartKernels
from headway.pipelined.worker.query import QueryWork
from headway.pipelined.worker.scratch import Scratch, sweep
from headway.pipelined.worker.threads import Threads

_SWEEP_AFTER_SECONDS = 0.5
_MOVING_THREADS = 16  # most of the time they wait for a disk or a peer


class Worker:
    """Runs in a process of its own, or in a thread of a test. `ended` is called once, with the
    reason, when it has to leave: by then the driver knows it as lost."""

    query_work: type[QueryWork] = QueryWork

    def __init__(
        self, config: WorkerConfig, start_kernels: StartKernels, ended: Callable[[str], None]
    ) -> None:
        """Connected when this returns. DriverUnreachable when there is no driver."""
        self.worker = config.worker
        self.put_seconds = config.put_seconds
        self._config = config
        self._start_kernels = start_kernels
        self._ended = ended
        self._left = threading.Event()
        self._changed = threading.Condition()  # of the queries
        self._queries: dict[str, QueryWork | None] = {}  # None for one that is over
        self._scratch = Scratch(Path(config.scratch))
        self.computing = Threads(config.cores, "compute", self.leave)
        self.repeating = Threads(config.cores, "repeat", self.leave)
        self.moving = Threads(_MOVING_THREADS, "move", self.leave)
        self.peers = Peers(config.token, silence_seconds=config.put_seconds, failed=self.leave)
        self._server = ExchangeServer(config.bind_host, config.token, self)
        try:
            self._link = self._connect()
        except HeadwayError:
            self._scratch.remove()
            raise
        self._link.start()

    def leave(self, reason: str, *, tell: bool = True) -> None:
        """Nothing is said or done for the driver from now on."""
        with self._changed:
            if self._left.is_set():
                return
            self._left.set()
        self._link.close(reason=reason if tell else None)
        self._ended(reason)

    def close(self) -> None:
        """Frees everything, after `leave` or instead of it."""
        self._left.set()
        self._link.close()
        self.peers.close()
        self.computing.close()
        self.repeating.close()
        for query in tuple(self._queries):
            self._end_query(query)
        self.moving.close()
        threading.Thread(target=self._server.shutdown, daemon=True).start()
        self._scratch.remove()

    def remove_scratch(self) -> None:
        """Also those of workers that were killed."""
        self._scratch.remove()
        sweep(self._scratch.folder.parent)

    # For the queries.

    def report(self, query: str, message: Message) -> None:
        self._link.report(query, message)

    # For the exchange server.

    def room(
        self, query: str, wanted: int, still_waiting: Callable[[], None]
    ) -> AbstractContextManager[None]:
        found = self._find(query, wait_seconds=self.put_seconds)
        return nullcontext() if found is None else found.room(wanted, still_waiting)

    def arrive(self, header: PutHeader, slice_header: SliceHeader, table: pa.Table) -> bool:
        found = self._find(header.query)
        if found is None:
            return False
        channel, side, epoch = slice_header.channel, slice_header.side, slice_header.reader_epoch
        return found.arrive(Arrived(channel, side, epoch, header.output, header.epoch), table)

    def _find(self, query: str, wait_seconds: float = 0.0) -> QueryWork | None:
        """A peer may have heard of a query a moment earlier."""
        with self._changed:
            self._changed.wait_for(lambda: query in self._queries, wait_seconds)
            return self._queries.get(query)

    # From the driver.

    def _received(self, message: ToWorker) -> None:
        try:
            self._take(message)
        except Exception:  # noqa: BLE001  (our own bug: a worker that has one must not go on)
            self.leave(f"a bug: {traceback.format_exc()}")

    def _take(self, message: ToWorker) -> None:
        match message:
            case Ordered(query, about):
                found = self._find(query)
                if found is not None:
                    found.post(about)
            case PeersMessage(addresses):
                self._meet({n: a for n, a in addresses.items() if n != self.worker})
            case StartQuery():
                self._start_query(message)
            case Extract():
                self.moving.submit(lambda: self._extract(message))
            case EndQuery(query):
                self._end_query(query)
            case Fenced(reason):
                self.leave(f"declared lost: {reason}", tell=False)
            case Shutdown():
                self.leave("the session ended", tell=False)

    def _meet(self, addresses: dict[str, str]) -> None:
        if self.peers.update(addresses):
            # Nobody else may come to remove what a killed one left.
            self.moving.submit(self._sweep)

    def _sweep(self) -> None:
        # The connections of a process that was killed may close before its lock does.
        self._left.wait(_SWEEP_AFTER_SECONDS)
        sweep(self._scratch.folder.parent)

    def _start_query(self, start: StartQuery) -> None:
        if start.query in self._queries:
            if self._queries[start.query] is None:
                message = f"a query {start.query} was run before"
                self._link.tell(QueryRefused(start.query, WrongUsage.name, message))
            return
        folder = self._scratch.folder / check_id(start.query, "query id")
        work: QueryWork | None = None
        try:
            folder.mkdir(mode=0o700)
            kernels = self._start_kernels(self._config, start, folder)
            limits = self._config.inbox_limit, self._config.backup_limit
            work = self.query_work(start, kernels, self, folder, *limits)
        except HeadwayError as error:
            self._link.tell(QueryRefused(start.query, error.name, error.message, error.hint))
        except OSError as error:
            return self.leave(f"the scratch folder fails: {error}")
        except Exception:  # noqa: BLE001  (our own bug: it ends the query and tells its story)
            story = traceback.format_exc()
            self._link.tell(QueryRefused(start.query, "INTERNAL_ERROR", story))
        with self._changed:
            self._queries[start.query] = work
            self._changed.notify_all()

    def _extract(self, asked: Extract) -> None:
        found = self._find(asked.query)
        problem = Extracted(asked.piece, problem="the query is over")
        self._link.tell(problem if found is None else found.extract(asked))

    def _end_query(self, query: str) -> None:
        with self._changed:
            work = self._queries.get(query)
            self._queries[query] = None
            self._changed.notify_all()
        if work is not None:
            self.moving.submit(work.end)

    def _connect(self) -> DriverLink:
        return DriverLink(
            self._config.driver_host,
            self._config.driver_port,
            token=self._config.token,
            hello=self._hello(),
            received=self._received,
            closed=partial(self.leave, "the driver's connection closed", tell=False),
            heartbeat_seconds=self._config.heartbeat_seconds,
        )

    def _hello(self) -> Hello:
        return Hello(
            self.worker,
            self._server.address,
            self._config.cores,
            os.getpid(),
            self._config.executor,
            socket.gethostname(),
        )
