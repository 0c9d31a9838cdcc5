"""Python's collector of cycles, which looks at all objects again and again while many are made."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting = 0
_was_on = False
_EVERY = 30.0
_next = 0.0


@contextmanager
def cycles_left_alone() -> Iterator[None]:
    """It stands still meanwhile, for all threads; where it was off, it stays off."""
    global _waiting, _was_on
    with _lock:
        if not _waiting:
            _was_on = gc.isenabled()
            gc.disable()
        _waiting += 1
    try:
        yield
    finally:
        with _lock:
            _waiting -= 1
            if not _waiting and _was_on:
                gc.enable()


def collect_now_and_then() -> None:
    """Has it look at all objects, once in half a minute at most. By itself it does so ever more
    rarely, and cannot know how much of Spark's memory the few objects of a run hold."""
    global _next
    with _lock:
        now = time.monotonic()
        if _waiting or now < _next:
            return
        _next = now + _EVERY
    gc.collect()
