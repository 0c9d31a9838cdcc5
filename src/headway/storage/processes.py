"""Which process drives a run, told apart from a later one with the same number."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec

_PROC = Path("/proc")


class ProcessRecord(msgspec.Struct, frozen=True):
    """`started` names the machine's boot, the process namespace and the start, joined by ':'."""

    host: str
    pid: int
    started: str | None


def this_process() -> ProcessRecord:
    return ProcessRecord(host=socket.gethostname(), pid=os.getpid(), started=_started(os.getpid()))


def is_gone(record: ProcessRecord) -> bool:
    """True only when it certainly ended; a process of another machine is never said to be gone."""
    here = this_process()
    if record.host != here.host or record.started is None or here.started is None:
        return False
    boot, namespace, _ = record.started.split(":")
    boot_here, namespace_here, _ = here.started.split(":")
    if boot != boot_here:
        return True  # the machine was started anew since
    if namespace != namespace_here:
        return False  # another container: its process numbers mean nothing here
    now = _started(record.pid)
    return now != record.started and (now is not None or not _may_exist(record.pid))


def is_visible(record: ProcessRecord) -> bool:
    """Whether it can be told from here if the process is there: not from another machine, nor from
    another container."""
    here = this_process()
    if record.host != here.host or record.started is None or here.started is None:
        return False
    return record.started.split(":")[:2] == here.started.split(":")[:2]


def _started(pid: int) -> str | None:
    """None for a process that is not there, is a zombie, or on a system without /proc."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    if fields[0] in ("Z", "X"):
        return None
    return f"{boot}:{namespace}:{fields[19]}"


def _may_exist(pid: int) -> bool:
    """Whether a process that /proc does not show may be there all the same (hidepid)."""
    if pid <= 0 or (_PROC / str(pid)).exists():
        return False  # visible, so what _started said holds: a zombie
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
