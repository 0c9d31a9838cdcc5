"""Python's collector of cycles, which looks at all objects again and again while many are made."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting = 0
_was_on = False


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
