"""Killing executors for real, on this machine."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from headway.base.errors import WrongUsage

_BACKEND = b"CoarseGrainedExecutorBackend"


def kill_executor(application: str, executor: str) -> None:
    """SIGKILL to the JVM of an executor; its worker goes with it."""
    for pid in _processes():
        words = _command(pid)
        if any(_BACKEND in word for word in words) and _names(words, application, executor):
            os.kill(pid, signal.SIGKILL)
            return
    raise WrongUsage(
        f"executor {executor} of {application} is no process of this machine",
        hint="use a master such as local-cluster[4,1,1024]",
    )


def _names(words: list[bytes], application: str, executor: str) -> bool:
    pairs = set(pairwise(words))
    wanted = {(b"--app-id", application.encode()), (b"--executor-id", executor.encode())}
    return wanted <= pairs


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _command(pid: int) -> list[bytes]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return []
