"""Python's collector of cycles, which looks at all objects again and again while many are made."""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting = 0
_was_on = False
_SHARE = 0.01
"""Of all time, what looking at all objects may take."""
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
    """Has it look at all objects, as often as that takes little of all time. By itself it does so
    ever more rarely, and cannot know how much of Spark's memory it would free: what Python knows of
    one of Spark's objects is part of a cycle once a method of it was called."""
    global _next
    with _lock:
        began = time.monotonic()
        if _waiting or began < _next:
            return
        _next = math.inf
    gc.collect()
    ended = time.monotonic()
    with _lock:
        _next = ended + (ended - began) / _SHARE
