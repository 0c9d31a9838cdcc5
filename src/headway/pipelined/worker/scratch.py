"""The private folder of a worker, and those that killed workers left behind.

A lock file in the folder is held as long as the worker lives: whoever gets the lock knows that its
owner is dead, and removes the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path

from headway.base.errors import WrongUsage

_LOCK = ".headway-lock"
_MAKING_SECONDS = 60.0


class Scratch:
    """Makes the folder and holds its lock. `remove` at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        sweep(folder.parent)
        # It gets its name when it is locked, so that nobody takes it for a dead one's.
        unnamed = folder.with_name(f".{folder.name}.{os.getpid()}")
        unnamed.mkdir(mode=0o700)
        lock = _locked(unnamed / _LOCK, create=True)
        try:
            if lock is None:
                raise OSError
            unnamed.rename(folder)
        except OSError as error:
            shutil.rmtree(unnamed, ignore_errors=True)
            raise WrongUsage(
                f"the scratch folder {folder} cannot be made: {error}",
                hint="every worker needs a folder of its own, which is not there yet",
            ) from error
        self._lock = lock

    def remove(self) -> None:
        """Twice does no harm."""
        if self._lock >= 0:
            lock, self._lock = self._lock, -1
            _remove(self.folder, lock)


def sweep(parent: Path) -> None:
    """Removes the folders of dead workers."""
    for lock_file in parent.glob(f"*/{_LOCK}"):
        lock = None if _is_being_made(lock_file) else _locked(lock_file, create=False)
        if lock is not None:
            _remove(lock_file.parent, lock)


def _is_being_made(lock_file: Path) -> bool:
    """Without its name yet, and perhaps not locked yet either."""
    try:
        age = time.time() - lock_file.stat().st_mtime
    except OSError:
        return True
    return lock_file.parent.name.startswith(".") and age < _MAKING_SECONDS


def _remove(folder: Path, lock: int) -> None:
    # The lock file goes last: as long as it is there, somebody can come back for the rest.
    for entry in folder.glob("*"):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != _LOCK:
            with suppress(OSError):
                entry.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _locked(lock_file: Path, *, create: bool) -> int | None:
    """A handle that holds the lock; None when another process does, or the file is not ours."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    try:
        handle = os.open(lock_file, flags, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.fstat(handle)
    except OSError:
        os.close(handle)
        return None
    if stat.S_ISREG(held.st_mode) and held.st_uid == os.geteuid() and held.st_nlink == 1:
        return handle
    os.close(handle)
    return None
