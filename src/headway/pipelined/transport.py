"""The control connections between the driver and its workers.

A worker connects to the driver's hub, shows the session's token in its first frame and says who it
is. From then on both sides send tagged msgpack. A connection that closes is noticed at once, a
silent one when its lease ends; either way the worker is lost, for good.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

import msgspec

from headway.lineage.names import ChannelId
from headway.lineage.topology import Topology
from headway.pipelined.core.messages import (
    Assign,
    Committed,
    Done,
    Failed,
    Forget,
    Holds,
    Message,
    Release,
    Replay,
    Replayed,
    Report,
    Run,
)
from headway.pipelined.wire import FRAME_LIMIT, Link, connect, listen

_FIRST_FRAME_LIMIT = 1 << 16
_FIRST_FRAME_SECONDS = 5.0
_FLUSH_SECONDS = 0.5

# From a worker to the driver.


class Hello(msgspec.Struct, frozen=True, tag=True):
    """Who a worker is. `address` is where its peers reach it."""

    worker: str
    address: str
    cores: int
    pid: int
    executor: str
    host: str


class Join(msgspec.Struct, frozen=True, tag=True):
    """The first frame of a connection."""

    token: str
    hello: Hello


class Heartbeat(msgspec.Struct, frozen=True, tag=True):
    """Still there."""


class QueryRefused(msgspec.Struct, frozen=True, tag=True):
    """The worker cannot take part in a query: its program is not readable or not runnable."""

    query: str
    error: str
    message: str
    hint: str | None = None


class Extracted(msgspec.Struct, frozen=True, tag=True):
    """State of a channel is in a piece, unless there was a problem. `seconds` is what the store
    took to write it."""

    piece: str
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    problem: str | None = None
    not_written: bool = False
    """The state is there, and the store did not take it."""


class Leaving(msgspec.Struct, frozen=True, tag=True):
    """The worker gives up, and says why before it closes the connection."""

    reason: str


class Reported(msgspec.Struct, frozen=True, tag=True):
    """A word about one query, for its coordinator."""

    query: str
    message: Done | Failed | Replayed | Holds


# From the driver to a worker.


class Peers(msgspec.Struct, frozen=True, tag=True):
    """The addresses of all workers there are. Comes before anything that names one of them; one
    that is no longer in it is lost."""

    addresses: dict[str, str]


class StartQuery(msgspec.Struct, frozen=True, tag=True):
    """Take part in a query. `program` is what the kernels run; pieces go to the run `run_id` in the
    store at `store_url`."""

    query: str
    topology: Topology
    program: bytes
    store_url: str
    run_id: str


class Extract(msgspec.Struct, frozen=True, tag=True):
    """Write state of a channel into a piece: the rows that `sql` selects, under these names and of
    these types. The channel goes on as if nothing had been asked. With `only_sizes`, nothing is
    written: how many rows there are, and about how many bytes."""

    query: str
    channel: ChannelId
    sql: str
    columns: tuple[tuple[str, str], ...]
    piece: str
    only_sizes: bool = False


class EndQuery(msgspec.Struct, frozen=True, tag=True):
    """Nothing more will be asked about a query: drop all of it."""

    query: str


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """The session ends."""


class Fenced(msgspec.Struct, frozen=True, tag=True):
    """You were declared lost, and others do your work: leave."""

    reason: str


class Ordered(msgspec.Struct, frozen=True, tag=True):
    """A word of a query's coordinator."""

    query: str
    message: Assign | Release | Run | Committed | Replay | Forget | Report


ToDriver = Heartbeat | QueryRefused | Leaving | Reported | Extracted
ToWorker = Peers | StartQuery | EndQuery | Extract | Shutdown | Fenced | Ordered

_ENCODER = msgspec.msgpack.Encoder()
_JOIN = msgspec.msgpack.Decoder(Join)
_TO_DRIVER: msgspec.msgpack.Decoder[ToDriver] = msgspec.msgpack.Decoder(ToDriver)
_TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


class HubEvents(Protocol):
    """What the driver learns. The calls about one worker come one after the other, from a thread of
    its own: `joined` first, `lost` last."""

    def joined(self, hello: Hello) -> None: ...

    def received(self, worker: str, query: str, message: Message) -> None: ...

    def refused(self, worker: str, refusal: QueryRefused) -> None: ...

    def extracted(self, worker: str, answer: Extracted) -> None: ...

    def lost(self, worker: str, reason: str) -> None: ...


class _Member:
    def __init__(self, hello: Hello, link: Link) -> None:
        self.hello = hello
        self.link = link
        self.lost_because: str | None = None


class WorkerHub:
    """The driver's end: accepts workers and carries messages. Close it at the end."""

    def __init__(
        self,
        events: HubEvents,
        *,
        host: str,
        token: str,
        heartbeat_seconds: float = 0.3,
        lease_seconds: float = 2.0,
    ) -> None:
        self._events = events
        self._token = token.encode()
        self._heartbeat = heartbeat_seconds
        self._lease = lease_seconds
        self._lock = threading.Lock()
        self._members: dict[str, _Member] = {}
        self._seen: set[str] = set()
        self._strangers: set[Link] = set()
        self._closed = threading.Event()
        self._listening = listen(host)
        self.host, self.port = self._listening.getsockname()[:2]
        self._threads = [
            _start("hub-accept", self._accept),
            _start("hub-leases", self._watch_leases),
        ]

    @property
    def workers(self) -> dict[str, Hello]:
        with self._lock:
            return {name: member.hello for name, member in self._members.items()}

    def send(self, worker: str, query: str, message: Any) -> None:
        """A message of a query's coordinator; nothing happens when the worker is lost."""
        self.tell(worker, Ordered(query, message))

    def tell(self, worker: str, message: ToWorker) -> None:
        """A message about the session; nothing happens when the worker is lost."""
        with self._lock:
            member = self._members.get(worker)
        if member is not None:
            member.link.send(_ENCODER.encode(message))

    def tell_all(self, message: ToWorker) -> None:
        frame = _ENCODER.encode(message)
        with self._lock:
            members = tuple(self._members.values())
        for member in members:
            member.link.send(frame)

    def expel(self, worker: str, reason: str) -> None:
        """Declare a worker lost. It is told, and never heard again; `lost` follows."""
        with self._lock:
            member = self._members.get(worker)
        if member is None or member.lost_because is not None:
            return
        member.lost_because = reason
        member.link.send(_ENCODER.encode(Fenced(reason)))
        member.link.stop_receiving()

    def close(self) -> None:
        """Workers are told to leave. What `lost` would say of them is not said any more."""
        self._closed.set()
        self.tell_all(Shutdown())
        with suppress(OSError):
            self._listening.shutdown(2)
        self._listening.close()
        with self._lock:
            members, strangers = tuple(self._members.values()), tuple(self._strangers)
        for member in members:
            member.link.close(flush_seconds=_FLUSH_SECONDS)
        for link in strangers:
            link.close()
        for thread in tuple(self._threads):
            if thread is not threading.current_thread():
                thread.join(timeout=2.0)

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            thread = _start("hub-worker", partial(self._serve, Link(connection)))
            self._threads = [each for each in self._threads if each.is_alive()] + [thread]

    def _serve(self, link: Link) -> None:
        with self._lock:
            self._strangers.add(link)
        member = self._admit(link)
        with self._lock:
            self._strangers.discard(link)
        if member is None:
            link.close()
            return
        worker = member.hello.worker
        self._events.joined(member.hello)
        reason = self._listen_to(member)
        with self._lock:
            del self._members[worker]
        link.close(flush_seconds=_FLUSH_SECONDS if member.lost_because else 0.0)
        if self._closed.is_set():
            return
        self._announce()
        self._events.lost(worker, member.lost_because or reason)

    def _admit(self, link: Link) -> _Member | None:
        """None for a stranger, a name that was used before, or one who does not speak."""
        link.limit = _FIRST_FRAME_LIMIT
        link.set_timeout(_FIRST_FRAME_SECONDS)
        frame = link.receive()
        if frame is None:
            return None
        try:
            join = _JOIN.decode(frame)
        except msgspec.DecodeError:
            return None
        if not hmac.compare_digest(join.token.encode(), self._token):
            return None
        link.limit = FRAME_LIMIT
        link.set_timeout(None)
        member = _Member(join.hello, link)
        with self._lock:
            if join.hello.worker in self._seen or self._closed.is_set():
                return None
            self._seen.add(join.hello.worker)
            self._members[join.hello.worker] = member
        self._announce()
        return member

    def _announce(self) -> None:
        # Under the lock, so that the lists go out in the order in which they were true.
        with self._lock:
            addresses = {name: member.hello.address for name, member in self._members.items()}
            frame = _ENCODER.encode(Peers(addresses))
            for member in self._members.values():
                member.link.send(frame)

    def _listen_to(self, member: _Member) -> str:
        """Until the connection ends; says why."""
        worker = member.hello.worker
        reason = "its connection closed"
        while (frame := member.link.receive()) is not None and member.lost_because is None:
            try:
                message = _TO_DRIVER.decode(frame)
            except msgspec.DecodeError as error:
                return f"it sent what cannot be read: {error}"
            match message:
                case Reported(query, about):
                    self._events.received(worker, query, about)
                case QueryRefused():
                    self._events.refused(worker, message)
                case Extracted():
                    self._events.extracted(worker, message)
                case Leaving(reason):
                    pass
                case Heartbeat():
                    pass
        return reason

    def _watch_leases(self) -> None:
        step = min(self._heartbeat, self._lease / 4)
        looked_at = time.monotonic()
        while not self._closed.wait(step):
            now = time.monotonic()
            late = max(0.0, now - looked_at - 2 * step)
            looked_at = now
            with self._lock:
                members = tuple(self._members.values())
            for member in members:
                # Time in which this process stood still says nothing about the workers.
                member.link.heard_at += late
                if now - member.link.heard_at > self._lease:
                    self.expel(member.hello.worker, f"no sign of life for {self._lease:g} s")


class DriverLink:
    """A worker's end. `received` gets every message in order, from one thread; `closed` is called
    once, when the connection ends before `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: str,
        hello: Hello,
        received: Callable[[ToWorker], None],
        closed: Callable[[], None],
        heartbeat_seconds: float = 0.3,
    ) -> None:
        self._received = received
        self._closed = closed
        self._heartbeat = heartbeat_seconds
        self._ended = threading.Event()
        self._link = connect(host, port, timeout=_FIRST_FRAME_SECONDS)
        self._join = _ENCODER.encode(Join(token, hello))

    def start(self) -> None:
        """Join the session. Messages come from now on."""
        self._link.send(self._join)
        _start("driver-link", self._listen)
        _start("driver-heartbeat", self._beat)

    def report(self, query: str, message: Any) -> None:
        self.tell(Reported(query, message))

    def tell(self, message: ToDriver) -> None:
        self._link.send(_ENCODER.encode(message))

    def close(self, *, reason: str | None = None) -> None:
        self._ended.set()
        if reason is not None:
            self.tell(Leaving(reason))
        self._link.close(flush_seconds=_FLUSH_SECONDS if reason is not None else 0.0)

    def _listen(self) -> None:
        while (frame := self._link.receive()) is not None:
            try:
                message = _TO_WORKER.decode(frame)
            except msgspec.DecodeError:  # a driver of another release, as good as none
                break
            self._received(message)
        if not self._ended.is_set():
            self._ended.set()
            self._closed()

    def _beat(self) -> None:
        frame = _ENCODER.encode(Heartbeat())
        while not self._ended.wait(self._heartbeat):
            self._link.send(frame)


def _start(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread
