"""A few threads that take work from one queue."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue


class Threads:
    """Daemons, unlike those of concurrent.futures: one that waits for a dead peer does not keep
    the process from its end. `failed` is told the story of work that raised: a bug."""

    def __init__(self, count: int, name: str, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def close(self) -> None:
        """After what was submitted before. Does not wait."""
        for _ in self._threads:
            self._work.put(None)

    def join(self, timeout: float) -> None:
        for thread in self._threads:
            thread.join(timeout)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception:  # noqa: BLE001  (nobody else would ever hear of it)
                self._failed(f"a bug: {traceback.format_exc()}")
            del work  # it may hold a table
