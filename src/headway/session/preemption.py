"""A polite kill of a process that uses sessions: its runs are suspended before it ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

_vacating: list[Callable[[], Any]] = []


def vacate_when_terminated(vacate: Callable[[], Any]) -> None:
    """Has it called when SIGTERM comes, and the process end as it would have after that. Where the
    program has a handler of its own for the signal, that one decides."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)
    if vacate not in _vacating:
        _vacating.append(vacate)


def forget(vacate: Callable[[], Any]) -> None:
    """Of a session that is closed."""
    with suppress(ValueError):
        _vacating.remove(vacate)


def _terminated(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_leave, name="headway-preempted").start()


def _leave() -> None:
    try:
        for vacate in list(_vacating):
            with suppress(Exception):  # what could not be kept, and there is no time left
                vacate()
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
