"""What /proc says about the machine that a driver or a Spark task runs on."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from headway.storage.processes import ProcessRecord, is_gone, this_process

LEAST_MEMORY = 256 << 20
"""Less would not do for a worker, however little is free."""

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_JVM = "java"
_SPARE_MEMORY = 2 << 30
"""Assumed to be free where the system does not say."""
_PERIOD = 0.02


class Leftover(msgspec.Struct, frozen=True):
    """A process that has to go, and the folder that it may leave behind."""

    process: ProcessRecord
    folder: str


def free_memory() -> int:
    """Bytes that a new process may take without pushing another out, by machine and container."""
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
    except OSError:
        return _SPARE_MEMORY
    sizes = dict(line.split(":", 1) for line in lines if ":" in line)
    free = int(sizes["MemAvailable"].split()[0]) * 1024
    with suppress(OSError, ValueError):  # "max": no limit
        limit = int((_CGROUP / "memory.max").read_text())
        free = min(free, limit - int((_CGROUP / "memory.current").read_text()))
    return max(free, 0)


def hosting_jvm() -> int | None:
    """The JVM that started this Python process, through Spark's daemon; None where none did."""
    pid = os.getpid()
    while pid > 1:
        try:
            name = (_PROC / str(pid) / "comm").read_text().strip()
            parent = int(_status_fields(pid)[1])
        except OSError:
            return None
        if name == _JVM:
            return pid
        pid = parent
    return None


def process_record(pid: int) -> ProcessRecord:
    """The process as any other on this machine can name it, also when its number is used again."""
    here = this_process()
    try:
        start = _status_fields(pid)[19]
    except OSError:
        return ProcessRecord(here.host, pid, None)
    place = (here.started or "").rpartition(":")[0]
    return ProcessRecord(here.host, pid, f"{place}:{start}" if place else None)


def runs_here(record: ProcessRecord) -> bool:
    """Whether its number means the same here: same machine, same boot, same namespace."""
    here = this_process()
    if record.started is None or here.started is None:
        return False
    same_place = record.started.rpartition(":")[0] == here.started.rpartition(":")[0]
    return record.host == here.host and same_place


def clear_away(leftover: Leftover, patience: float) -> None:
    """Waits for the process to end by itself, ends it when that takes longer, and removes its
    folder. One of another machine is not touched."""
    if not runs_here(leftover.process):
        return
    if not _ends_within(leftover.process, patience):
        with suppress(ProcessLookupError):
            os.kill(leftover.process.pid, signal.SIGKILL)
        _ends_within(leftover.process, patience=5.0)
    shutil.rmtree(leftover.folder, ignore_errors=True)


def _ends_within(process: ProcessRecord, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while not is_gone(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_PERIOD)
    return True


def _status_fields(pid: int) -> list[str]:
    """The fields of its status line from the third on: a name may hold anything."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
