"""Outputs between workers: what is accepted, refused, held back and given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyarrow import flight

from headway.lineage.names import ChannelId, TaskId
from headway.pipelined.worker.exchange import ExchangeServer, Peers, PutHeader, SliceHeader

TOKEN = "a token of this session"
OUTPUT = TaskId(0, 1, 7)
READERS = [ChannelId(1, number) for number in range(4)]


class Taking:
    """A receiver that takes what it is told to, when the gate is open."""

    def __init__(self, *, refuse: set[ChannelId] | None = None) -> None:
        self.refuse = refuse or set()
        self.gate = threading.Event()
        self.gate.set()
        self.arrived: dict[ChannelId, tuple[PutHeader, SliceHeader, pa.Table]] = {}
        self.read_bytes = 0

    @contextmanager
    def _room(self, still_waiting: Callable[[], None]) -> Iterator[None]:
        while not self.gate.wait(0.1):
            still_waiting()
        yield

    def room(
        self, query: str, wanted: int, still_waiting: Callable[[], None]
    ) -> AbstractContextManager[None]:
        return self._room(still_waiting) if wanted else nullcontext()

    def arrive(self, header: PutHeader, slice_header: SliceHeader, table: pa.Table) -> bool:
        self.arrived[slice_header.channel] = (header, slice_header, table)
        self.read_bytes += table.nbytes
        return slice_header.channel not in self.refuse


@pytest.fixture
def taking() -> Taking:
    return Taking()


@pytest.fixture
def server(taking: Taking) -> Iterator[ExchangeServer]:
    opened = ExchangeServer("127.0.0.1", TOKEN, taking)
    yield opened
    opened.shutdown()


@pytest.fixture
def peers(server: ExchangeServer) -> Iterator[Peers]:
    opened = Peers(TOKEN, silence_seconds=1.0, failed=pytest.fail)
    opened.update({"w2": server.address})
    yield opened
    opened.close()


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table(
        {"key": range(start, start + count), "text": [f"row {n}" for n in range(count)]}
    )


def put(peers: Peers, tables: list[pa.Table], worker: str = "w2") -> Any:
    slices = [(READERS[n], 1, 3, table) for n, table in enumerate(tables)]
    return peers.put(worker, "q", OUTPUT, 5, slices)


def test_the_slices_of_one_worker_go_in_one_put(peers: Peers, taking: Taking) -> None:
    whole = rows(200_000)
    tables = [whole.slice(0, 10), whole.slice(10, 150_000), whole.slice(150_010)]
    assert put(peers, tables).wait(5.0) == (True, True, True)
    for reader, table in zip(READERS, tables, strict=False):
        header, described, arrived = taking.arrived[reader]
        assert arrived.equals(table)
        assert (header.query, header.output, header.epoch) == ("q", OUTPUT, 5)
        assert (described.side, described.reader_epoch) == (1, 3)


def test_a_broadcast_is_sent_once(peers: Peers, taking: Taking) -> None:
    table = rows(100_000)
    assert put(peers, [table] * 4).wait(5.0) == (True,) * 4
    header, first, _ = taking.arrived[READERS[0]]
    assert header.bytes == table.nbytes
    assert {(each[1].first, each[1].count) for each in taking.arrived.values()} == {
        (first.first, first.count)
    }
    assert all(each[2].equals(table) for each in taking.arrived.values())


def test_rows_without_columns_arrive(peers: Peers, taking: Taking) -> None:
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))
    assert put(peers, [pa.Table.from_batches([batch])]).wait(5.0) == (True,)
    assert taking.arrived[READERS[0]][2].num_rows == 5


def test_a_refused_slice_is_not_delivered(peers: Peers, taking: Taking) -> None:
    taking.refuse = {READERS[1]}
    assert put(peers, [rows(3), rows(4)]).wait(5.0) == (True, False)


def test_a_sender_waits_while_the_receiver_has_no_room(peers: Peers, taking: Taking) -> None:
    taking.gate.clear()
    attempt = put(peers, [rows(500_000)])
    waited: list[tuple[bool, ...]] = []
    thread = threading.Thread(target=lambda: waited.append(attempt.wait(0.5)))
    thread.start()
    time.sleep(1.2)  # longer than the silence that is borne: signs of life keep it going
    assert not waited
    assert taking.read_bytes == 0
    taking.gate.set()
    thread.join(5.0)
    assert waited == [(True,)]


def test_a_dead_peer_is_not_delivered_to(peers: Peers, server: ExchangeServer) -> None:
    assert put(peers, [rows(3)], worker="unknown").wait(5.0) == ()
    peers.update({"w2": server.address, "w3": "grpc://127.0.0.1:1"})
    begun = time.monotonic()
    assert put(peers, [rows(3)], worker="w3").wait(5.0) == ()
    assert time.monotonic() - begun < 4.0, "it waited for a sign of life"
    assert put(peers, [rows(3)]).wait(5.0) == (True,)


_ELSEWHERE = f"""
import time
from contextlib import nullcontext
from headway.pipelined.worker.exchange import ExchangeServer

class Taking:
    def room(self, query, wanted, still_waiting):
        return nullcontext()
    def arrive(self, header, slice_header, table):
        return True

print(ExchangeServer("127.0.0.1", {TOKEN!r}, Taking()).address, flush=True)
time.sleep(60)
"""


@pytest.fixture
def elsewhere() -> Iterator[tuple[int, str]]:
    """A peer in a process of its own: its id and its address."""
    command = [sys.executable, "-c", _ELSEWHERE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
        process.kill()


def test_a_paused_peer_is_given_up_and_holds_up_nobody(
    elsewhere: tuple[int, str], peers: Peers, server: ExchangeServer
) -> None:
    pid, address = elsewhere
    peers.update({"w2": server.address, "w3": address})
    assert put(peers, [rows(3)], worker="w3").wait(5.0) == (True,)
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic()
    paused = [put(peers, [rows(200_000)], worker="w3") for _ in range(4)]
    assert put(peers, [rows(200_000)]).wait(5.0) == (True,)
    assert paused[0].wait(1.0) == ()
    assert time.monotonic() - begun > 0.8
    peers.update({"w2": server.address})  # declared lost: nobody waits any longer
    begun = time.monotonic()
    assert [each.wait(60.0) for each in paused] == [()] * 4
    assert time.monotonic() - begun < 30.0, "it waited for a sign of life"


def test_a_killed_peer_is_noticed_at_once(
    elsewhere: tuple[int, str], peers: Peers, server: ExchangeServer
) -> None:
    pid, address = elsewhere
    peers.update({"w2": server.address, "w3": address})
    os.kill(pid, signal.SIGSTOP)
    attempt = put(peers, [rows(200_000)], worker="w3")
    time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    begun = time.monotonic()
    assert attempt.wait(5.0) == ()
    assert time.monotonic() - begun < 4.0, "it waited for a sign of life"


def test_a_put_that_is_cut_short_is_not_taken(server: ExchangeServer, taking: Taking) -> None:
    """As when its sender is killed: then too the stream just ends."""
    table = rows(10)
    described = tuple(SliceHeader(reader, 0, 0, n, 1, 10) for n, reader in enumerate(READERS[:2]))
    header = PutHeader("q", OUTPUT, 0, table.nbytes * 2, described)
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
    with flight.FlightClient(server.address) as client:
        descriptor = flight.FlightDescriptor.for_command(msgspec.msgpack.encode(header))
        writer, answers = client.do_put(descriptor, table.schema, options)
        writer.write_table(table)  # the second slice is missing
        writer.done_writing()
        with pytest.raises(flight.FlightServerError, match="cut short"):
            answers.read()
            writer.close()
    assert not taking.arrived


@pytest.mark.parametrize("header", [None, "Bearer another", "", TOKEN])
def test_every_call_needs_the_token(server: ExchangeServer, header: str | None) -> None:
    headers = [] if header is None else [(b"authorization", header.encode())]
    options = flight.FlightCallOptions(headers=headers, timeout=5.0)
    with flight.FlightClient(server.address) as client:
        calls: list[Callable[[], object]] = [
            lambda: list(client.list_flights(options=options)),
            lambda: list(client.list_actions(options)),
            lambda: list(client.do_action("anything", options)),
            lambda: client.get_flight_info(flight.FlightDescriptor.for_path("x"), options),
            lambda: client.do_get(flight.Ticket(b"x"), options).read_all(),
            lambda: _raw_put(client, options),
        ]
        for call in calls:
            with pytest.raises(flight.FlightUnauthenticatedError):
                call()


def _raw_put(client: Any, options: Any) -> None:
    descriptor = flight.FlightDescriptor.for_command(b"x")
    writer, _ = client.do_put(descriptor, pa.schema([]), options)
    writer.close()


def test_a_wrong_token_delivers_nothing(server: ExchangeServer, taking: Taking) -> None:
    strangers = Peers("another", silence_seconds=1.0, failed=pytest.fail)
    strangers.update({"w2": server.address})
    assert put(strangers, [rows(3)]).wait(5.0) == ()
    assert not taking.arrived
    strangers.close()
