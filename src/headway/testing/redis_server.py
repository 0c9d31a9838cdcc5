"""A Redis server for tests, which can be killed and started again over the same files."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path

_START_SECONDS = 10.0


class RedisServer:
    """`program` is run with its files in `folder`, on a port of its own. Not started yet."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program = program
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, appendfsync: str = "always", appendonly: str = "yes") -> None:
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "save": "",
            "dir": str(self._folder),
            "appendonly": appendonly,
            "appendfsync": appendfsync,
        }
        self._process = subprocess.Popen(
            [self._program, *_arguments(options)], stdout=subprocess.DEVNULL
        )
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            except OSError:
                time.sleep(0.02)
        raise TimeoutError("redis-server did not start")

    def kill(self) -> None:
        """With SIGKILL; what it has acknowledged is in its files, or it is no control store."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _arguments(options: dict[str, str]) -> list[str]:
    return [part for name, value in options.items() for part in (f"--{name}", value)]
