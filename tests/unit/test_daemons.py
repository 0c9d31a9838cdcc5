"""Work that no process waits for at its end."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from headway.base.daemons import start_daemons


def test_so_many_at_a_time() -> None:
    go, begun = threading.Event(), threading.Semaphore(0)

    def wait() -> int:
        begun.release()
        go.wait(30)
        return 7

    futures = start_daemons(dict.fromkeys(range(5), wait), 2)
    assert begun.acquire(timeout=30) and begun.acquire(timeout=30)
    assert not begun.acquire(timeout=0.05), "three at a time"
    assert futures[4].cancel() and not futures[0].cancel()
    go.set()
    assert [futures[n].result(30) for n in range(4)] == [7] * 4


def test_what_fails_says_so() -> None:
    def fail() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        start_daemons({"a": fail}, 1)["a"].result(30)


def test_a_process_ends_whatever_hangs() -> None:
    text = (
        "import threading; from headway.base.daemons import start_daemons; "
        "start_daemons({1: threading.Event().wait}, 1)"
    )
    assert subprocess.run([sys.executable, "-c", text], timeout=60, check=False).returncode == 0
