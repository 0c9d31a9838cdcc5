"""Work in threads that no process waits for at its end, unlike those of concurrent.futures: a write
that hangs does not keep a driver from leaving its machine."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def start_daemons(work: Mapping[K, Callable[[], T]], most: int) -> dict[K, Future[T]]:
    """Begins with it, at most so many at a time. What is cancelled before it begins is not done."""
    futures: dict[K, Future[T]] = {key: Future() for key in work}
    waiting = deque(work.items())

    def work_off() -> None:
        while True:
            try:
                key, act = waiting.popleft()
            except IndexError:
                return
            future = futures[key]
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(act())
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                future.set_exception(error)

    for _ in range(min(most, len(work))):
        threading.Thread(target=work_off, daemon=True, name="headway-daemon").start()
    return futures
