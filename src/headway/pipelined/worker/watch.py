"""A worker ends with the processes that it serves."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterable


def watch_processes(pids: Iterable[int], gone: Callable[[int], None]) -> None:
    """Calls `gone` from a thread as soon as one of them ends, or at once for one that is not
    there any more."""
    watched: dict[int, int] = {}
    for pid in pids:
        try:
            watched[os.pidfd_open(pid)] = pid
        except ProcessLookupError:
            gone(pid)
            return
    if not watched:
        return
    poll = select.poll()
    for handle in watched:
        poll.register(handle, select.POLLIN)

    def wait() -> None:
        (handle, _), *_ = poll.poll()
        gone(watched[handle])

    threading.Thread(target=wait, name="watch", daemon=True).start()
