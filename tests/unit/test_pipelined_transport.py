"""The control connections: who is admitted, what arrives, and how a loss is noticed."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from headway.base.errors import DriverUnreachable
from headway.lineage.names import ChannelId, TaskId
from headway.lineage.records import Lineage
from headway.lineage.topology import Feed, Partitioning, Side, Stage, Topology
from headway.pipelined.core.messages import (
    Assign,
    Destination,
    Done,
    Input,
    Message,
    Run,
)
from headway.pipelined.transport import (
    DriverLink,
    EndQuery,
    Fenced,
    Hello,
    Join,
    Ordered,
    Peers,
    QueryRefused,
    Reported,
    Shutdown,
    StartQuery,
    WorkerHub,
)
from headway.pipelined.wire import Link
from headway.testing.faults import start_child

TOKEN = "a token of this session"
TASK = TaskId(1, 0, 4)
DONE = Done(TASK, 2, ((10, 0),), 3, False, (Destination(ChannelId(2, 1), 0, 0, "w2"),))


class Noted:
    """Everything that the hub says, as tuples."""

    def __init__(self) -> None:
        self.events: SimpleQueue[tuple[Any, ...]] = SimpleQueue()

    def joined(self, hello: Hello) -> None:
        self.events.put(("joined", hello.worker))

    def received(self, worker: str, query: str, message: Message) -> None:
        self.events.put(("received", worker, query, message))

    def refused(self, worker: str, refusal: QueryRefused) -> None:
        self.events.put(("refused", worker, refusal))

    def lost(self, worker: str, reason: str) -> None:
        self.events.put(("lost", worker, reason))

    def next(self, timeout: float = 5.0) -> tuple[Any, ...]:
        return self.events.get(timeout=timeout)

    def nothing_more(self, seconds: float = 0.1) -> bool:
        try:
            self.events.get(timeout=seconds)
        except Empty:
            return True
        return False


class WorkerEnd:
    def __init__(self, hub: Any, worker: str, *, token: str = TOKEN) -> None:
        self.messages: SimpleQueue[Any] = SimpleQueue()
        self.closed = threading.Event()
        self.link = DriverLink(
            hub.host,
            hub.port,
            token=token,
            hello=hello(worker),
            received=self.messages.put,
            closed=self.closed.set,
            heartbeat_seconds=0.05,
        )
        self.link.start()

    def next(self, *, skip: type | None = None) -> Any:
        message = self.messages.get(timeout=5.0)
        return self.next(skip=skip) if skip and isinstance(message, skip) else message


def hello(worker: str) -> Hello:
    return Hello(worker, f"grpc://127.0.0.1/{worker}", 2, os.getpid(), "0", "here")


@pytest.fixture
def noted() -> Noted:
    return Noted()


@pytest.fixture
def hub(noted: Noted) -> Iterator[WorkerHub]:
    opened = WorkerHub(
        noted, host="127.0.0.1", token=TOKEN, heartbeat_seconds=0.05, lease_seconds=0.4
    )
    yield opened
    opened.close()


def test_messages_go_both_ways_in_order(hub: WorkerHub, noted: Noted) -> None:
    worker = WorkerEnd(hub, "w1")
    assert noted.next() == ("joined", "w1")
    run = Run(TASK, 2, Lineage(0, 3, 1, 5, True), (Input(TaskId(0, 3, 1), 1),), repeated=True)
    topology = Topology(
        (
            Stage((Side(Feed.SHARED, units=(5, 6), keeps=False),), channels=2),
            Stage((Side(Feed.EXCHANGE, upstream=0, partitioning=Partitioning.HASH),), result=True),
        )
    )
    hub.tell("w1", StartQuery("q", topology, b"program", "file:///store", "run"))
    for epoch in range(100):
        hub.send("w1", "q", Assign(ChannelId(1, 0), epoch))
    hub.send("w1", "q", run)
    hub.tell("w1", EndQuery("q"))
    assert worker.next() == Peers({"w1": "grpc://127.0.0.1/w1"})
    started = worker.next()
    assert started == StartQuery("q", topology, b"program", "file:///store", "run")
    assert [worker.next().message.epoch for _ in range(100)] == list(range(100))
    assert worker.next() == Ordered("q", run)
    assert worker.next() == EndQuery("q")
    worker.link.report("q", DONE)
    worker.link.tell(QueryRefused("q2", "KERNEL_NOT_SUPPORTED", "no"))
    assert noted.next() == ("received", "w1", "q", DONE)
    assert noted.next() == ("refused", "w1", QueryRefused("q2", "KERNEL_NOT_SUPPORTED", "no"))


def test_large_frames_do_not_block_the_sender(noted: Noted) -> None:
    hub = WorkerHub(noted, host="127.0.0.1", token=TOKEN, lease_seconds=60.0)
    raw = raw_connection(hub)
    raw.sendall(frame(Join(TOKEN, hello("slow"))))
    assert noted.next() == ("joined", "slow")
    program = os.urandom(16 << 20)
    begun = time.monotonic()
    hub.tell("slow", StartQuery("q", Topology(()), program, "", ""))  # nobody reads it
    hub.send("slow", "q", Assign(ChannelId(0, 0), 1))
    assert time.monotonic() - begun < 30.0, "it waited until its peer was given up"
    raw.settimeout(5.0)
    stream = raw.makefile("rb")
    seen = []
    while len(seen) < 3:
        (length,) = struct.unpack(">I", stream.read(4))
        seen.append(msgspec.msgpack.decode(stream.read(length)))
    assert [each["type"] for each in seen] == ["Peers", "StartQuery", "Ordered"]
    assert seen[1]["program"] == program
    hub.close()


def test_everybody_learns_who_joins_and_who_is_lost(hub: WorkerHub, noted: Noted) -> None:
    first, second = WorkerEnd(hub, "w1"), WorkerEnd(hub, "w2")
    assert {noted.next(), noted.next()} == {("joined", "w1"), ("joined", "w2")}
    both = {f"w{n}": f"grpc://127.0.0.1/w{n}" for n in (1, 2)}
    assert await_peers(first, lambda known: known == both)
    second.link.close()
    assert noted.next() == ("lost", "w2", "its connection closed")
    assert await_peers(first, lambda known: known.keys() == {"w1"})


def test_a_closed_connection_is_noticed_at_once(hub: WorkerHub, noted: Noted) -> None:
    pid = start_child(lambda: (WorkerEnd(hub, "w1"), time.sleep(60)))
    try:
        assert noted.next() == ("joined", "w1")
    finally:
        os.kill(pid, signal.SIGKILL)
    assert noted.next() == ("lost", "w1", "its connection closed"), "before its lease has ended"
    os.waitpid(pid, 0)


def test_a_silent_worker_is_lost_when_its_lease_ends(hub: WorkerHub, noted: Noted) -> None:
    def child() -> None:
        worker = WorkerEnd(hub, "w1")
        fenced = worker.next(skip=Peers)
        os._exit(7 if isinstance(fenced, Fenced) else 8)

    pid = start_child(child)
    assert noted.next() == ("joined", "w1")
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    assert noted.next()[:2] == ("lost", "w1")
    assert time.monotonic() - stopped > 0.25
    os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert noted.nothing_more()


def test_a_worker_that_gives_up_says_why(hub: WorkerHub, noted: Noted) -> None:
    worker = WorkerEnd(hub, "w1")
    assert noted.next() == ("joined", "w1")
    worker.link.close(reason="its disk is full")
    assert noted.next() == ("lost", "w1", "its disk is full")


def test_an_expelled_worker_is_told_and_not_heard(hub: WorkerHub, noted: Noted) -> None:
    worker = WorkerEnd(hub, "w1")
    assert noted.next() == ("joined", "w1")
    hub.expel("w1", "a test")
    assert worker.next(skip=Peers) == Fenced("a test")
    assert noted.next() == ("lost", "w1", "a test")
    worker.link.report("q", DONE)
    assert worker.closed.wait(5.0)
    assert noted.nothing_more()


def test_strangers_are_not_admitted(hub: WorkerHub, noted: Noted) -> None:
    wrong = WorkerEnd(hub, "w1", token="another")
    assert wrong.closed.wait(5.0)
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", frame({"type": "Join"}), struct.pack(">I", 2**31)):
        raw = raw_connection(hub)
        raw.sendall(nonsense)
        raw.settimeout(5.0)
        assert raw.recv(100) == b""
        raw.close()
    assert noted.nothing_more()
    WorkerEnd(hub, "w1")
    assert noted.next() == ("joined", "w1")


def test_a_lost_name_never_comes_back(hub: WorkerHub, noted: Noted) -> None:
    WorkerEnd(hub, "w1").link.close()
    assert noted.next() == ("joined", "w1")
    assert noted.next()[0] == "lost"
    assert WorkerEnd(hub, "w1").closed.wait(5.0)
    assert noted.nothing_more()


def test_closing_the_hub_sends_the_workers_away(noted: Noted) -> None:
    hub = WorkerHub(noted, host="127.0.0.1", token=TOKEN)
    worker = WorkerEnd(hub, "w1")
    assert noted.next() == ("joined", "w1")
    hub.close()
    assert worker.next(skip=Peers) == Shutdown()
    assert worker.closed.wait(5.0)
    assert noted.nothing_more()
    with pytest.raises(DriverUnreachable):
        WorkerEnd(hub, "w2")


def test_a_hub_that_stood_still_does_not_blame_its_workers() -> None:
    """The hub is in a child that is stopped for longer than the lease, its worker is here."""
    ready, said = os.pipe()

    def child() -> None:
        noted = Noted()
        hub = WorkerHub(
            noted, host="127.0.0.1", token=TOKEN, heartbeat_seconds=0.05, lease_seconds=0.4
        )
        os.write(said, struct.pack(">H", hub.port))
        assert noted.next() == ("joined", "w1")
        os.write(said, b"j")
        os._exit(0 if noted.nothing_more(2.0) else 9)

    pid = start_child(child)
    (port,) = struct.unpack(">H", os.read(ready, 2))
    worker = WorkerEnd(SimpleNamespace(host="127.0.0.1", port=port), "w1")
    assert os.read(ready, 1) == b"j"
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.8)
    os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    worker.link.close()


def test_frames_survive_every_split() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        link = Link(listening.accept()[0])
    message = b"hello" * 100
    data = struct.pack(">I", len(message)) + message
    for cut in (1, 3, 4, 5, 250):
        theirs.sendall(data[:cut])
        time.sleep(0.01)
        theirs.sendall(data[cut:])
        assert link.receive() == message
    theirs.sendall(data[:-1])
    theirs.close()
    assert link.receive() is None
    link.close()


def test_every_message_can_be_sent() -> None:
    sendable = {
        kind
        for envelope in (Ordered, Reported)
        for kind in get_args(get_type_hints(envelope)["message"])
    }
    assert sendable == set(Message.__subclasses__())


def raw_connection(hub: WorkerHub) -> socket.socket:
    return socket.create_connection((hub.host, hub.port))


def frame(message: Any) -> bytes:
    data = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(data)) + data


def await_peers(worker: WorkerEnd, wanted: Callable[[dict[str, str]], bool]) -> bool:
    while isinstance(message := worker.next(), Peers):
        if wanted(message.addresses):
            return True
    return False
