"""Durable files on a local disk, the recipe and nothing else.

A temporary file in the same folder, written and synced, then given its name in one step, then the
folder synced. All access goes through folder handles that refuse symbolic links, so a link planted
in the store leads nowhere. Errors are plain OSErrors; `local.py` gives them names.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from headway.base.errors import InvalidPath

TEMPORARY_PREFIX = ".tmp-"
_LOCK_NAME = ".lock"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_ABANDONED_SECONDS = 24 * 3600.0

Identity = tuple[int, int]


class RootReplaced(OSError):
    """The store's root is not the folder that was opened: deleted, unmounted or swapped."""


def make_root(root: Path) -> None:
    """Makes the folder and its parents, each durable in its own parent."""
    missing = []
    folder = root
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with suppress(FileExistsError):
            path.mkdir()
        parent = os.open(path.parent, _FOLDER_FLAGS)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)


def identify(root: Path) -> Identity:
    found = root.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(root))
    return found.st_dev, found.st_ino


class Folders:
    """Opens folders below one root, refusing symbolic links on the way."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._identity = identify(root)
        # Folders known to be durable in their parents. Another thread may have made one a moment
        # ago without having synced it yet, so seeing a folder is not enough.
        self._durable: set[tuple[str, ...]] = set()

    @contextmanager
    def open(self, segments: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
        current = self._open_root()
        try:
            for depth, segment in enumerate(segments, start=1):
                child = self._open_child(current, segments[:depth], segment, create)
                os.close(current)
                current = child
            yield current
        finally:
            os.close(current)

    def forget(self) -> None:
        """After folders were deleted: what is made anew is synced anew."""
        self._durable.clear()

    def _open_root(self) -> int:
        try:
            handle = os.open(self.root, _FOLDER_FLAGS)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise RootReplaced(errno.ENOENT, "the store's folder is gone") from error
        found = os.fstat(handle)
        if (found.st_dev, found.st_ino) != self._identity:
            os.close(handle)
            raise RootReplaced(errno.ESTALE, "the store's folder was replaced by another")
        return handle

    def _open_child(self, parent: int, key: tuple[str, ...], segment: str, create: bool) -> int:
        try:
            child = _open_folder(parent, segment)
        except FileNotFoundError:
            if not create:
                raise
            with suppress(FileExistsError):
                os.mkdir(segment, dir_fd=parent)
            self._durable.discard(key)
            child = _open_folder(parent, segment)
        if create and key not in self._durable:
            try:
                os.fsync(parent)
            except OSError:
                os.close(child)
                raise
            self._durable.add(key)
        return child


class NewFile:
    """A temporary file that becomes `name` by `publish`, or leaves nothing behind."""

    def __init__(self, folder: int) -> None:
        self._folder = folder
        self._temporary = TEMPORARY_PREFIX + secrets.token_hex(8)
        self._lost = False
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(self._temporary, flags, 0o666, dir_fd=folder)
        # The lock tells sweep() that the writer lives; it goes with the process.
        with suppress(OSError):
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        with suppress(OSError):
            os.close(self._handle)
        with suppress(OSError):
            os.unlink(self._temporary, dir_fd=self._folder)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._handle, view) :]
        except OSError:
            self._lost = True
            raise

    def publish(self, name: str, *, if_absent: bool) -> None:
        if self._lost:
            raise OSError(errno.EIO, "an earlier write to this file failed")
        try:
            os.fsync(self._handle)
        except OSError:
            self._lost = True  # the kernel may have dropped the pages: a second fsync would lie
            raise
        if if_absent:
            self._name_exclusively(name)
        else:
            os.replace(self._temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        os.fsync(self._folder)

    def _name_exclusively(self, name: str) -> None:
        try:
            os.link(self._temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            self._name_under_lock(name)

    def _name_under_lock(self, name: str) -> None:
        """For file systems without hard links: exact among the processes that share the lock."""
        lock = os.open(
            _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666, dir_fd=self._folder
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if name in os.listdir(self._folder):  # noqa: PTH208  (a handle, not a path)
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
            os.replace(self._temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        finally:
            os.close(lock)


@contextmanager
def open_file(folder: int, name: str) -> Iterator[int]:
    """A handle for reading a regular file; a symbolic link or a pipe is refused."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _linked(name) from error
        raise
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        if not stat.S_ISREG(mode):
            raise InvalidPath(f"{name!r} in the store is not a regular file")
        yield handle
    finally:
        os.close(handle)


Entry = tuple[tuple[str, ...], int, os.stat_result]


def walk(folder: int, prefix: tuple[str, ...] = ()) -> Iterator[Entry]:
    """Every entry below, as (path, folder handle, stat); a folder comes after what it holds, and
    links are told but never followed."""
    for name in sorted(os.listdir(folder)):
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                child = _open_folder(folder, name)
                try:
                    yield from walk(child, (*prefix, name))
                finally:
                    os.close(child)
        except FileNotFoundError:  # deleted while we looked
            continue
        yield (*prefix, name), folder, found


def remove_abandoned(folder: int, name: str, older_than_seconds: float) -> bool:
    """Deletes a temporary file whose writer is gone; True when it did."""
    try:
        handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        age = time.time() - os.fstat(handle).st_mtime
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # no locks on this file system: only age can tell
            older_than_seconds = max(older_than_seconds, _ABANDONED_SECONDS)
        if age < older_than_seconds:
            return False
        os.unlink(name, dir_fd=folder)
        return True
    finally:
        os.close(handle)


def _open_folder(parent: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            found = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise _linked(name) from error
        raise


def _linked(name: str) -> InvalidPath:
    return InvalidPath(
        f"{name!r} in the store is a symbolic link",
        hint="a store holds no links; move the data into it, or open the link's target as a store",
    )
