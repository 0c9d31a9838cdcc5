"""Frames over TCP: four bytes of length, then that many bytes of msgpack."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress

from headway.base.errors import DriverUnreachable

_LENGTH = struct.Struct(">I")
FRAME_LIMIT = 256 << 20
"""A program with all of its plan is the largest thing that is ever said."""


class Link:
    """One connection. `send` may be called from any thread and does not wait for the peer;
    `receive` belongs to one thread."""

    def __init__(self, connection: socket.socket, *, limit: int = FRAME_LIMIT) -> None:
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.limit = limit
        self.heard_at = time.monotonic()
        self._socket = connection
        self._stream = connection.makefile("rb", buffering=1 << 16)
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._writer: threading.Thread | None = None
        self._closed = False

    def send(self, frame: bytes) -> None:
        """Frames arrive in the order of the calls; one for a closed connection goes nowhere."""
        data = _LENGTH.pack(len(frame)) + frame
        with self._changed:
            if self._closed:
                return
            if not self._waiting:
                data = data[self._send_now(data) :]
            if data:
                self._waiting.append(data)
                self._changed.notify_all()
                if self._writer is None:
                    self._writer = threading.Thread(target=self._write, daemon=True)
                    self._writer.start()

    def receive(self) -> bytes | None:
        """The next frame; None when the connection is closed, broken, or talks nonsense."""
        try:
            head = self._stream.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack(head)
            if length > self.limit:
                return None
            frame = self._stream.read(length)
        except (OSError, ValueError):  # ValueError: closed by another thread
            return None
        self.heard_at = time.monotonic()
        return frame if len(frame) == length else None

    def stop_receiving(self) -> None:
        """`receive` returns None from now on, also where it waits already."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    def close(self, *, flush_seconds: float = 0.0) -> None:
        """With `flush_seconds`, what was said before still goes out, if that is quick."""
        with self._changed:
            if flush_seconds:
                self._changed.wait_for(lambda: not self._waiting, flush_seconds)
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            self._socket.close()

    def set_timeout(self, seconds: float | None) -> None:
        """For the first frame alone: `send` needs a connection that waits for ever."""
        self._socket.settimeout(seconds)

    def _send_now(self, data: bytes) -> int:
        """As much as the kernel takes without waiting: nearly always all of it."""
        try:
            return self._socket.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # broken: the receiving side notices

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                data = self._waiting[0]
            with suppress(OSError):
                self._socket.sendall(data)
            with self._changed:
                if self._waiting:  # a close in between has cleared it
                    self._waiting.popleft()
                self._changed.notify_all()


def listen(host: str) -> socket.socket:
    """A listening socket on a free port of that address and no other."""
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family, backlog=128)


def connect(host: str, port: int, *, timeout: float) -> Link:
    try:
        return Link(socket.create_connection((host, port), timeout=timeout))
    except OSError as error:
        raise DriverUnreachable(
            f"the driver at {host}:{port} cannot be reached: {error}",
            hint="spark.driver.host must be an address that the executors reach",
        ) from error
