"""Time as a parameter, so that tests can turn the hands."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

Until = Callable[[], float | None]
"""By when something is to be done, in seconds that never go back: asked again while it is done, as
somebody may come who is in more haste."""


def whenever() -> float | None:
    """Nobody is in haste."""
    return None


class Clock(Protocol):
    def now(self) -> datetime:
        """The wall clock, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
