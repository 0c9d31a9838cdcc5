"""A reliable store in a local folder."""

from __future__ import annotations

import math
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from headway.storage.blocks import (
    FOOTER_SIZE,
    Data,
    SealWriter,
    as_chunks,
    check_ending,
    unsealed_chunks,
)
from headway.storage.durable import (
    TEMPORARY_PREFIX,
    Folders,
    NewFile,
    make_root,
    open_file,
    remove_abandoned,
    walk,
)
from headway.storage.failures import conflict, missing, translated
from headway.storage.paths import check_path, check_prefix, is_segment

_EMPTY_FOLDER_SECONDS = 3600.0


class LocalStore:
    """Sealed files below one folder, durable when a write returns. Safe from several threads and
    processes. Temporary files of a killed writer begin with a dot and are never listed or read."""

    remote = False

    def __init__(self, root: Path, *, create: bool = True) -> None:
        self.root = Path(os.path.abspath(root))  # noqa: PTH100  (resolve() fails on a loop)
        with self._translated("opening it"):
            if create:
                make_root(self.root)
            self.root = self.root.resolve()
            self._folders = Folders(self.root)

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def write(self, path: str, data: Data, *, if_absent: bool = False) -> None:
        with self.writer(path, if_absent=if_absent) as writer:
            for chunk in as_chunks(data):
                writer.write(chunk)

    @contextmanager
    def writer(self, path: str, *, if_absent: bool = False) -> Iterator[SealWriter]:
        *folders, name = check_path(path)
        doing = f"writing {path}"
        with ExitStack() as stack:
            # Only our own steps are translated: an OSError of the caller's body stays the caller's.
            with self._translated(doing):
                folder = stack.enter_context(self._folders.open(tuple(folders), create=True))
                file = stack.enter_context(NewFile(folder))

            def sink(data: bytes | memoryview) -> None:
                with self._translated(doing):
                    file.write(data)

            sealed = SealWriter(path, sink)
            yield sealed
            sealed.finish()
            with self._translated(doing):
                try:
                    file.publish(name, if_absent=if_absent)
                except FileExistsError as error:
                    raise conflict(path) from error

    def read(self, path: str) -> bytes:
        return b"".join(self.reader(path))

    def reader(self, path: str) -> Iterator[bytes]:
        """Verified chunks; keep nothing of a stream that ends in StoreCorrupt."""
        *folders, name = check_path(path)
        with self._translated(f"reading {path}"), ExitStack() as stack:
            try:
                folder = stack.enter_context(self._folders.open(tuple(folders)))
                handle = stack.enter_context(open_file(folder, name))
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
                raise missing(path) from error
            stored = os.fstat(handle).st_size
            tail = os.pread(handle, FOOTER_SIZE, max(0, stored - FOOTER_SIZE))
            check_ending(path, tail, stored, name=path)
            with open(handle, "rb", buffering=1 << 16, closefd=False) as stream:
                for chunk in unsealed_chunks(path, stream.read, name=path):
                    yield bytes(chunk)

    def exists(self, path: str) -> bool:
        return self._stat(path) is not None

    def size(self, path: str) -> int:
        found = self._stat(path)
        if found is None:
            raise missing(path)
        return found.st_size

    def folders(self, prefix: str = "") -> list[str]:
        """The names of the folders right below `prefix`."""
        segments = check_prefix(prefix)
        with self._translated(f"listing {prefix or 'it'}"):
            try:
                with self._folders.open(segments) as folder, os.scandir(folder) as entries:
                    return sorted(
                        entry.name
                        for entry in entries
                        if is_segment(entry.name) and entry.is_dir(follow_symlinks=False)
                    )
            except (FileNotFoundError, NotADirectoryError):
                return []

    def list(self, prefix: str = "") -> list[str]:
        return sorted(self.sizes(prefix))

    def room(self) -> float:
        try:
            return float(shutil.disk_usage(self.root).free)
        except OSError:  # whoever writes is told why
            return math.inf

    def sizes(self, prefix: str = "") -> dict[str, int]:
        segments = check_prefix(prefix)
        found: dict[str, int] = {}
        with self._translated(f"listing {prefix or 'it'}"):
            try:
                with self._folders.open(segments) as folder:
                    for path, _, entry in walk(folder, segments):
                        if stat.S_ISREG(entry.st_mode) and all(map(is_segment, path)):
                            found["/".join(path)] = entry.st_size
            except (FileNotFoundError, NotADirectoryError):
                return found
        return found

    def delete_tree(self, prefix: str) -> None:
        """Deletes a piece, or a folder and all below it; nothing there is no error."""
        *folders, name = check_path(prefix)
        with self._translated(f"deleting {prefix}"):
            try:
                with self._folders.open(tuple(folders)) as folder:
                    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                    if stat.S_ISDIR(mode):
                        shutil.rmtree(name, dir_fd=folder)
                    else:
                        os.unlink(name, dir_fd=folder)
                    os.fsync(folder)
            except FileNotFoundError:
                pass
            finally:
                self._folders.forget()

    def sweep(self, *, older_than_seconds: float = 60.0) -> int:
        """Deletes what killed writers left behind; says how many files."""
        count = 0
        long_ago = time.time() - max(older_than_seconds, _EMPTY_FOLDER_SECONDS)
        with self._translated("sweeping it"), self._folders.open(()) as root:
            for path, parent, entry in walk(root):
                if path[-1].startswith(TEMPORARY_PREFIX) and stat.S_ISREG(entry.st_mode):
                    count += remove_abandoned(parent, path[-1], older_than_seconds)
                elif stat.S_ISDIR(entry.st_mode) and entry.st_mtime < long_ago:
                    with suppress(OSError):  # not empty, the usual case
                        os.rmdir(path[-1], dir_fd=parent)
        self._folders.forget()
        return count

    def _stat(self, path: str) -> os.stat_result | None:
        *folders, name = check_path(path)
        with self._translated(f"looking for {path}"):
            try:
                with (
                    self._folders.open(tuple(folders)) as folder,
                    open_file(folder, name) as handle,
                ):
                    return os.fstat(handle)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def _translated(self, doing: str) -> AbstractContextManager[None]:
        return translated(doing, str(self.root))
