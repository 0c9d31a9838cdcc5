"""What Ctrl-C and a polite kill do: end the work where it can be ended, then the program."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR = "\x1b[?25h"
_ECHO_SECONDS = 0.3  # some wrappers pass on a signal that the terminal has sent already


class Interrupts:
    """The first signal raises KeyboardInterrupt, or only sets `requested` while work is under way
    that must be ended in order. A second one ends the process at once."""

    def __init__(self) -> None:
        self.requested = False
        self.terminated = False
        """It was a polite kill that asked, as machines send that are taken away."""
        self._since = 0.0
        self._deferring = False
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Again after Spark has started: PySpark puts a handler of its own in place."""
        for number in _SIGNALS:
            current = signal.getsignal(number)
            # Ignored by whoever started us (nohup, a script's background job): leave it so.
            if current is not signal.SIG_IGN and current != self._handle:
                self._before.setdefault(number, current)
                signal.signal(number, self._handle)

    def __enter__(self) -> Interrupts:
        self.requested = self.terminated = False
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Inside, whoever works looks at `requested`."""
        self._deferring = True
        try:
            yield
        finally:
            self._deferring = False

    @contextmanager
    def held_back(self) -> Iterator[None]:
        """Inside, nothing is interrupted; KeyboardInterrupt comes at the end instead."""
        with self.deferred():
            yield
        if self.requested:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.requested:
            if now - self._since > _ECHO_SECONDS:
                leave(INTERRUPTED)
            return
        self.requested, self._since = True, now
        self.terminated = number == signal.SIGTERM
        if not self._deferring:
            raise KeyboardInterrupt


interrupts = Interrupts()


def leave(code: int) -> None:
    """Ends the process without waiting for anything; the JVM follows, as its input closes."""
    if sys.stderr.isatty():
        sys.stderr.write(_SHOW_CURSOR + "\n")
        sys.stderr.flush()
    os._exit(code)
