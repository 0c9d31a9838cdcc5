"""Outputs between workers, over Arrow Flight.

One put carries all slices of an output for one worker. Its command names the slices; large ones are
sent only when the receiver has room and says so. The receiver answers which slices it accepted.
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyarrow import flight

from headway.lineage.names import ChannelId, TaskId
from headway.pipelined.worker.slices import batches
from headway.pipelined.worker.threads import Threads

_UNASKED_BYTES = 32 << 10
"""So much may be sent before the receiver says that it has room: the connection buffers it."""
_PATIENCE = 12  # times the silence that is borne, for a whole put
_PUTS_PER_PEER = 2
_PAUSE_SECONDS = 0.05  # after a put that failed at once, before somebody tries again
_CLIENT_OPTIONS = [
    ("grpc.enable_http_proxy", 0),  # peers are reached directly, whatever the environment says
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
]


class SliceHeader(msgspec.Struct, frozen=True, array_like=True):
    """A slice of a put: whose it is, which batches of the put, and how many rows they have."""

    channel: ChannelId
    side: int
    reader_epoch: int
    first: int
    count: int
    rows: int


class PutHeader(msgspec.Struct, frozen=True, array_like=True):
    """The command of a put."""

    query: str
    output: TaskId
    epoch: int
    bytes: int
    slices: tuple[SliceHeader, ...]


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """Of the receiver: that it is there, that it has room, or which slices it took."""

    ready: bool = False
    accepted: tuple[bool, ...] | None = None


_HEADER = msgspec.msgpack.Decoder(PutHeader)
_ANSWER = msgspec.msgpack.Decoder(_Answer)
_encode = msgspec.msgpack.encode


class Receiver(Protocol):
    """What a server does with a put."""

    def room(
        self, query: str, wanted: int, still_waiting: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Waits until there is room for so many bytes."""
        ...

    def arrive(self, header: PutHeader, slice_header: SliceHeader, table: pa.Table) -> bool:
        """Whether the slice was accepted."""
        ...


class ExchangeServer(flight.FlightServerBase):  # type: ignore[misc]
    """Takes puts of the session's workers, on a free port of the host."""

    def __init__(self, host: str, token: str, receiver: Receiver) -> None:
        super().__init__(f"grpc://{_bracketed(host)}:0", middleware={"token": _TokenCheck(token)})
        self._receiver = receiver
        self.address = f"grpc://{_bracketed(host)}:{self.port}"

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        header = _HEADER.decode(descriptor.command)

        def still_waiting() -> None:
            writer.write(_encode(_Answer()))

        with self._receiver.room(header.query, header.bytes, still_waiting):
            if header.bytes > _UNASKED_BYTES:
                writer.write(_encode(_Answer(ready=True)))
            received = [chunk.data for chunk in reader]
            tables = [_table(received, each, reader.schema) for each in header.slices]
            # The stream of a sender that died in the middle ends like any other, only earlier.
            if any(t.num_rows != each.rows for t, each in zip(tables, header.slices, strict=True)):
                raise flight.FlightServerError("the put was cut short")
            accepted = tuple(
                self._receiver.arrive(header, each, table)
                for each, table in zip(header.slices, tables, strict=True)
            )
        writer.write(_encode(_Answer(accepted=accepted)))


class _TokenCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Every call, of whatever kind, shows the session's token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = _bearer(token)

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        shown = next(iter(headers.get("authorization", ())), "")
        if not hmac.compare_digest(shown.encode(), self._expected):
            raise flight.FlightUnauthenticatedError("the session's token is missing or wrong")


class _Pulse:
    """When a peer last gave a sign of life."""

    def __init__(self) -> None:
        self.felt_at = 0.0

    def feel(self) -> None:
        self.felt_at = time.monotonic()


class Attempt:
    """One put under way, or over."""

    def __init__(self, header: PutHeader, tables: list[pa.Table]) -> None:
        self.header = header
        self.tables = tables
        """The distinct ones, in the order of their batches."""
        self.pulse = _Pulse()
        self._over = threading.Event()
        self._accepted: tuple[bool, ...] = ()

    def finish(self, accepted: tuple[bool, ...]) -> None:
        """The first call counts."""
        if not self._over.is_set():
            self._accepted = accepted
            self._over.set()

    def wait(self, silence_seconds: float) -> tuple[bool, ...]:
        """Which slices were accepted; empty when the peer failed, left, or fell silent."""
        while not self._over.is_set():
            rest = self.pulse.felt_at + silence_seconds - time.monotonic()
            if rest <= 0:
                self.finish(())
            self._over.wait(rest)
        return self._accepted


class Peers:
    """The other workers of the session, and the connections to them."""

    def __init__(
        self, token: str, *, silence_seconds: float, failed: Callable[[str], None]
    ) -> None:
        self._failed = failed
        self._options = [(b"authorization", _bearer(token))]
        self._silence = silence_seconds
        self._lock = threading.Lock()
        self._peers: dict[str, _Peer] = {}

    def update(self, addresses: dict[str, str]) -> bool:
        """The workers there are. Puts to one that is no longer among them are over; returns whether
        there was such a one."""
        with self._lock:
            gone = [self._peers.pop(name) for name in set(self._peers) - set(addresses)]
            for name in set(addresses) - set(self._peers):
                self._peers[name] = _Peer(
                    addresses[name], self._options, self._silence, self._failed
                )
        for peer in gone:
            peer.close()
        return bool(gone)

    def put(self, worker: str, query: str, output: TaskId, epoch: int, slices: Any) -> Attempt:
        """`slices` has (channel, side, reader's epoch, table) of each; the same table in two of
        them is sent once."""
        attempt = _attempt(query, output, epoch, slices)
        with self._lock:
            peer = self._peers.get(worker)
        if peer is None:
            attempt.finish(())
        else:
            peer.submit(attempt)
        return attempt

    def close(self) -> None:
        self.update({})


class _Peer:
    """Connections to one worker, with threads of its own: a silent one holds up nobody else."""

    def __init__(
        self, address: str, headers: Any, silence: float, failed: Callable[[str], None]
    ) -> None:
        self._address = address
        self._call = flight.FlightCallOptions(headers=headers, timeout=silence * _PATIENCE)
        self._lock = threading.Lock()
        self._client: flight.FlightClient | None = None
        self._under_way: set[Attempt] = set()
        self._pulse = _Pulse()
        self._closed = False
        self._threads = Threads(_PUTS_PER_PEER, f"put-{address}", failed)

    def submit(self, attempt: Attempt) -> None:
        with self._lock:
            if not self._closed:
                if not self._under_way:  # a peer that was asked nothing owes no sign
                    self._pulse.feel()
                attempt.pulse = self._pulse
                self._under_way.add(attempt)
                self._threads.submit(lambda: self._run(attempt))
                return
        attempt.finish(())

    def close(self) -> None:
        with self._lock:
            self._closed = True
            waiting, self._under_way = self._under_way, set()
            client, self._client = self._client, None
        for attempt in waiting:
            attempt.finish(())
        self._threads.close()
        if client is not None:
            threading.Thread(target=client.close, daemon=True).start()  # it may wait for calls

    def _run(self, attempt: Attempt) -> None:
        accepted: tuple[bool, ...] = ()
        try:
            if not self._closed:
                accepted = self._put(attempt)
        except (pa.ArrowException, OSError):
            with self._lock:
                self._client = None
            time.sleep(_PAUSE_SECONDS)
        finally:
            with self._lock:
                self._under_way.discard(attempt)
            attempt.finish(accepted)

    def _put(self, attempt: Attempt) -> tuple[bool, ...]:
        descriptor = flight.FlightDescriptor.for_command(_encode(attempt.header))
        schema = attempt.tables[0].schema
        writer, answers = self._connected().do_put(descriptor, schema, self._call)
        try:
            if attempt.header.bytes > _UNASKED_BYTES:
                _await(answers, attempt, lambda answer: answer.ready)
            for table in attempt.tables:
                for batch in batches(table):
                    writer.write_batch(batch)
                    self._pulse.feel()
            writer.done_writing()
            answer = _await(answers, attempt, lambda answer: answer.accepted is not None)
        finally:
            with suppress(pa.ArrowException, OSError):
                writer.close()
        return answer.accepted or ()

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = flight.FlightClient(self._address, generic_options=_CLIENT_OPTIONS)
            return self._client


def _attempt(query: str, output: TaskId, epoch: int, slices: Any) -> Attempt:
    places: dict[int, tuple[int, int]] = {}
    tables: list[pa.Table] = []
    first = 0
    for _, _, _, table in slices:
        if id(table) not in places:
            count = len(batches(table))
            places[id(table)] = (first, count)
            first += count
            tables.append(table)
    headers = tuple(
        SliceHeader(channel, side, reader_epoch, *places[id(table)], table.num_rows)
        for channel, side, reader_epoch, table in slices
    )
    total = sum(table.nbytes for table in tables)
    return Attempt(PutHeader(query, output, epoch, total, headers), tables)


def _await(answers: Any, attempt: Attempt, wanted: Callable[[_Answer], bool]) -> _Answer:
    for answer in _read(answers):
        attempt.pulse.feel()
        if wanted(answer):
            return answer
        if answer.accepted is not None:
            break
    raise pa.ArrowInvalid("the receiver ended the put without an answer")


def _read(answers: Any) -> Iterator[_Answer]:
    while (buffer := answers.read()) is not None:
        yield _ANSWER.decode(buffer)


def _table(received: list[pa.RecordBatch], header: SliceHeader, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(
        islice(received, header.first, header.first + header.count), schema
    )


def _bearer(token: str) -> bytes:
    return f"Bearer {token}".encode()


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
