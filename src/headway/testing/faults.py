"""Failures written as data: a disk that fills up, an fsync that fails, a process that dies."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest.mock import patch

from headway.storage import durable

DiskCall = Literal["open", "mkdir", "write", "fsync", "link", "replace", "unlink", "close"]
_CALLS: frozenset[str] = frozenset(
    ("open", "mkdir", "write", "fsync", "link", "replace", "unlink", "close")
)


@dataclass(frozen=True, slots=True)
class DiskFault:
    """The nth such call of a local store fails with `error`, or kills the process when None."""

    call: DiskCall
    nth: int = 1
    error: int | None = errno.ENOSPC
    after: bool = False
    """Strike when the call has done its work, as when an answer gets lost."""


@contextmanager
def disk_faults(*faults: DiskFault) -> Iterator[list[str]]:
    """Local stores of this process meet the faults inside. Yields the calls as they are made, so
    that a test can list the steps first and then fail each of them."""
    calls: list[str] = []
    with patch.object(durable, "os", _FaultyOs(faults, calls)):
        yield calls


class _FaultyOs:
    def __init__(self, faults: tuple[DiskFault, ...], calls: list[str]) -> None:
        self._faults = faults
        self._made = calls

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._watched(name, real) if name in _CALLS else real

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self._made.append(name)
            nth = self._made.count(name)
            due = [fault for fault in self._faults if (fault.call, fault.nth) == (name, nth)]
            for fault in due:
                if not fault.after:
                    _strike(fault)
            try:
                return real(*arguments, **keywords)
            finally:
                for fault in due:
                    if fault.after:
                        _strike(fault)

        return call


def _strike(fault: DiskFault) -> None:
    if fault.error is None:
        os.kill(os.getpid(), signal.SIGKILL)
        return
    raise OSError(fault.error, os.strerror(fault.error))


def start_child(function: Callable[[], object]) -> int:
    """Runs the function in a forked process that a test may kill; returns its process id. The
    child's exit status is 0 only when the function returned."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        function()
        status = 0
    finally:
        os._exit(status)


def run_in_child(function: Callable[[], object]) -> int:
    """Like start_child, and waits: the exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(start_child(function), 0)[1])
