"""A worker that does nothing but live and die like one: `python -m headway.testing.idle_worker`.

It connects to the driver, says who it is in a line of JSON, and stays until the connection closes
or a process that it watches ends. One that is configured to be `silent` never says that it is
ready. `IdleDriver` is the other end.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any


class IdleDriver:
    """Takes the connections of idle workers and notes what they report and when they go."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._connections: dict[str, socket.socket] = {}
        self.address: tuple[str, int] = self._server.getsockname()[:2]
        self.reports: dict[str, dict[str, Any]] = {}
        self.closed: set[str] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self, *, but: str | None = None) -> None:
        """Lets all workers go, but one if it is named."""
        self._server.close()
        for worker, connection in self._connections.items():
            if worker != but:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        lines = connection.makefile("rb")
        report = json.loads(lines.readline())
        self._connections[report["worker"]] = connection
        self.reports[report["worker"]] = report
        with suppress(OSError):  # it may end without a farewell
            lines.read()
        self.closed.add(report["worker"])


def main() -> None:
    config = json.loads(sys.stdin.readline())
    scratch = Path(config["scratch"])
    scratch.mkdir(mode=0o700)
    watched = [os.pidfd_open(pid) for pid in config["watch"]]
    connection = socket.create_connection((config["driver_host"], config["driver_port"]))
    connection.sendall(json.dumps(_report(config)).encode() + b"\n")
    if not config.get("silent"):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
    poll = select.poll()
    for descriptor in [*watched, connection.fileno()]:
        poll.register(descriptor, select.POLLIN)
    ended = {descriptor for descriptor, _ in poll.poll()}
    if not ended & set(watched):
        shutil.rmtree(scratch)
    os._exit(0)


def _report(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "pid": os.getpid(), "group": os.getpgrp(), "environment": dict(os.environ)}


if __name__ == "__main__":
    main()
