"""Workers without Spark: in threads of the test, or in processes that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from headway.pipelined.worker.config import WorkerConfig
from headway.pipelined.worker.interfaces import StartKernels
from headway.pipelined.worker.process import Worker
from headway.testing.faulty_worker import Fault

_HERE = "127.0.0.1"
_PATIENCE = 30.0


class WorkerProcess:
    """A worker in a process of its own, ready when made."""

    def __init__(self, module: str, config: dict[str, Any]) -> None:
        self.name = str(config["worker"])
        self._process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(config) + b"\n")
        self._process.stdin.close()
        self.ready = self._process.stdout.readline() == b"ready\n"
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives, minus the signal that ended it."""
        return self._process.poll()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = _PATIENCE) -> int:
        return self._process.wait(seconds)

    def is_paused(self) -> bool:
        stat = Path(f"/proc/{self.pid}/stat").read_text()
        return stat.rpartition(")")[2].split()[0] == "T"

    def await_pause(self, seconds: float = _PATIENCE) -> bool:
        """Whether it stood still before the time was over."""
        deadline = time.monotonic() + seconds
        while self.exit_code is None and time.monotonic() < deadline:
            if self.is_paused():
                return True
            time.sleep(0.01)
        return False

    def close(self) -> None:
        if self.exit_code is None:
            self.signal(signal.SIGKILL)
        self.wait()


class LocalWorkers:
    """Workers of one session, all gone after `close`. Scratch folders are below `folder`."""

    def __init__(self, port: int, token: str, folder: Path) -> None:
        """The driver is on this machine."""
        self._port = port
        self._token = token
        self._folder = folder
        self._threads: list[Worker] = []
        self._processes: list[WorkerProcess] = []
        self.left: list[str] = []
        """Why workers in threads have left."""

    def config(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "worker": name,
            "driver_host": _HERE,
            "driver_port": self._port,
            "token": self._token,
            "bind_host": _HERE,
            "scratch": str(self._folder / name),
            "watch": [os.getpid()],
            **more,
        }

    def in_thread(self, name: str, start_kernels: StartKernels, **more: Any) -> Worker:
        config = msgspec.convert(self.config(name, **more), WorkerConfig)
        worker = Worker(config, start_kernels, self.left.append)
        self._threads.append(worker)
        return worker

    def in_process(
        self,
        name: str,
        *,
        faults: Iterable[Fault] = (),
        module: str = "headway.testing.faulty_worker",
        **more: Any,
    ) -> WorkerProcess:
        process = WorkerProcess(module, self.config(name, faults=list(faults), **more))
        self._processes.append(process)
        return process

    def close(self) -> None:
        for worker in self._threads:
            worker.close()
        for process in self._processes:
            process.close()
