"""A reliable store on any fsspec file system: S3 and its kin, memory, SFTP, HDFS, ...

Object stores put an object whole or not at all. On other file systems a piece is uploaded under a
temporary name and moved, which is as good as that file system's move. `if_absent` is exact where
the service offers conditional writes (S3, Google Cloud Storage) and within one process everywhere;
between processes on other file systems it is a best effort: look, then write.
"""

from __future__ import annotations

import errno
import math
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from headway.base.errors import StoreFull, StoreUnavailable
from headway.storage.blocks import (
    FOOTER_SIZE,
    Data,
    SealWriter,
    as_chunks,
    check_ending,
    unseal,
    unsealed_chunks,
)
from headway.storage.failures import conflict, missing, service_code, translated
from headway.storage.paths import check_path, check_prefix, is_segment, join

_CONDITIONAL = frozenset({"s3", "s3a", "gs", "gcs"})
_OBJECT_STORES = _CONDITIONAL | {"az", "abfs", "abfss", "adl", "oss", "oci"}
_WHOLE_PUTS = _OBJECT_STORES | {"memory"}
_TEMPORARY_PREFIX = ".tmp-"
_ASK_AGAIN = ("ConditionalRequestConflict", "409")
_RANGE = 8 << 20
_LARGEST_IN_MEMORY = 64 << 20
_exclusive = threading.Lock()  # one for the process: stores are opened many times on one URL

Upload = Callable[[str, str], None]
"""Takes the full path and fsspec's mode, 'create' or 'overwrite'."""


class FsspecStore:
    """Sealed objects below one URL. Safe from several threads."""

    remote = True

    def __init__(self, fs: Any, root: str, url: str, *, protocol: str, create: bool = True) -> None:
        self.url = url.rstrip("/")
        self._fs = fs
        self._root = root.rstrip("/")
        self._protocol = protocol
        self._conditional: bool | None = None if protocol in _CONDITIONAL else False
        with self._translated("opening it"):
            self._check_root(create)

    def write(self, path: str, data: Data, *, if_absent: bool = False) -> None:
        check_path(path)
        parts: list[bytes | memoryview] = []
        sealed = SealWriter(path, parts.append)
        for chunk in as_chunks(data):
            sealed.write(chunk)
        sealed.finish()
        whole = b"".join(parts)
        self._put(path, sealed.header, self._upload_bytes(whole), if_absent=if_absent)

    @contextmanager
    def writer(self, path: str, *, if_absent: bool = False) -> Iterator[SealWriter]:
        """Collects in a local temporary file and uploads on a clean exit, so that a writer that
        fails or is killed leaves nothing in the store."""
        check_path(path)
        with tempfile.NamedTemporaryFile(prefix="headway-") as spool:

            def sink(data: bytes | memoryview) -> None:
                try:
                    spool.write(data)
                except OSError as error:
                    raise StoreFull(
                        f"the temporary copy of {path} cannot be written: {error.strerror}",
                        hint=f"free space in {tempfile.gettempdir()}, or set TMPDIR",
                    ) from error

            sealed = SealWriter(path, sink)
            yield sealed
            sealed.finish()
            spool.flush()
            upload = self._upload_file(Path(spool.name))
            self._put(path, sealed.header, upload, if_absent=if_absent)

    def read(self, path: str) -> bytes:
        full = self._full(path)
        with self._translated(f"reading {path}"):
            try:
                sealed = self._fs.cat_file(full)
            except (FileNotFoundError, IsADirectoryError) as error:
                raise self._missing(path) from error
        return unseal(path, sealed, name=path)

    def reader(self, path: str) -> Iterator[bytes]:
        """Verified chunks; keep nothing of a stream that ends in StoreCorrupt."""
        full = self._full(path)
        stored = self.size(path)
        with self._translated(f"reading {path}"):
            try:
                tail = self._fs.cat_file(full, start=max(0, stored - FOOTER_SIZE), end=stored)
                check_ending(path, tail, stored, name=path)
                read = _ranges(self._fs, full, stored)
                for chunk in unsealed_chunks(path, read, name=path):
                    yield bytes(chunk)
            except FileNotFoundError as error:
                raise self._missing(path) from error

    def exists(self, path: str) -> bool:
        return self._info(path) is not None

    def size(self, path: str) -> int:
        info = self._info(path)
        if info is None:
            raise self._missing(path)
        return int(info["size"])

    def folders(self, prefix: str = "") -> list[str]:
        """The names of the folders right below `prefix`."""
        full = join(self._root, *check_prefix(prefix))
        with self._translated(f"listing {prefix or 'it'}"):
            try:
                entries = self._fs.ls(full, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                self._check_root(create=False)
                return []
        names = {_last(entry["name"]) for entry in entries if entry["type"] == "directory"}
        return sorted(name for name in names if is_segment(name))

    def list(self, prefix: str = "") -> list[str]:
        return sorted(self.sizes(prefix))

    def room(self) -> float:
        return math.inf

    def sizes(self, prefix: str = "") -> dict[str, int]:
        found = self._find(prefix)
        return {name: int(info["size"]) for name, info in found.items() if _is_piece(name)}

    def delete_tree(self, prefix: str) -> None:
        """Deletes a piece, or all below a folder; nothing there is no error."""
        names = [prefix] if self.exists(prefix) else list(self._find(prefix))
        if not names:
            return
        with self._translated(f"deleting {prefix}"):
            try:
                self._fs.rm([join(self._root, name) for name in names])
            except FileNotFoundError:  # somebody else deletes the same
                return

    def sweep(self, *, older_than_seconds: float = 24 * 3600.0) -> int:
        """Deletes temporary names that killed writers left on file systems without whole puts.
        Parts of uploads that S3 never completed are left to a lifecycle rule of the bucket."""
        if self._protocol in _WHOLE_PUTS:
            return 0
        count = 0
        for name, info in self._find("").items():
            age = time.time() - _modified(info)
            if _last(name).startswith(_TEMPORARY_PREFIX) and age >= older_than_seconds:
                with self._translated(f"deleting {name}"):
                    self._fs.rm_file(join(self._root, name))
                count += 1
        return count

    def _put(self, path: str, header: bytes, upload: Upload, *, if_absent: bool) -> None:
        full = self._full(path)
        with self._translated(f"writing {path}"):
            try:
                if not if_absent:
                    self._place(full, upload)
                elif self._is_conditional():
                    _create(full, upload)
                else:
                    with _exclusive:
                        if self.exists(path):
                            raise FileExistsError(full)
                        self._place(full, upload)
            except FileExistsError as error:
                # A put whose answer got lost is sent again by s3fs and then meets itself.
                if not (if_absent and self._begins_with(full, header)):
                    raise conflict(path) from error

    def _is_conditional(self) -> bool:
        """Asked of the service once: some that speak S3's protocol ignore the condition, and
        would let two writers both believe that they won."""
        if self._conditional is None:
            probe = join(self._root, f".probe-{secrets.token_hex(8)}")
            self._fs.pipe_file(probe, b"may be deleted")
            try:
                self._fs.pipe_file(probe, b"may be deleted", mode="create")
                self._conditional = False
            except FileExistsError:
                self._conditional = True
            except (NotImplementedError, OSError) as error:
                if getattr(error, "errno", errno.ENOSYS) != errno.ENOSYS:
                    raise
                self._conditional = False
            finally:
                self._fs.rm_file(probe)
        return self._conditional

    def _place(self, full: str, upload: Upload) -> None:
        if self._protocol in _WHOLE_PUTS:
            upload(full, "overwrite")
            return
        parent, _, _ = full.rpartition("/")
        temporary = f"{parent}/{_TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        self._fs.makedirs(parent, exist_ok=True)
        try:
            upload(temporary, "overwrite")
            self._fs.mv(temporary, full)
        except BaseException:
            if self._fs.exists(temporary):
                self._fs.rm_file(temporary)
            raise

    def _upload_bytes(self, data: bytes) -> Upload:
        def upload(full: str, mode: str) -> None:
            self._fs.pipe_file(full, data, mode=mode)

        return upload

    def _upload_file(self, local: Path) -> Upload:
        # fsspec's memory files are visible while they are written: give those all at once
        if local.stat().st_size <= _LARGEST_IN_MEMORY or self._protocol == "memory":
            return self._upload_bytes(local.read_bytes())

        def upload(full: str, mode: str) -> None:
            self._fs.put_file(str(local), full, mode=mode)

        return upload

    def _begins_with(self, full: str, header: bytes) -> bool:
        try:
            return bool(self._fs.cat_file(full, start=0, end=len(header)) == header)
        except FileNotFoundError:
            return False

    def _find(self, prefix: str) -> dict[str, Any]:
        full = join(self._root, *check_prefix(prefix))
        with self._translated(f"listing {prefix or 'it'}"):
            try:
                found = self._fs.find(full, detail=True)
            except FileNotFoundError:
                self._check_root(create=False)
                return {}
        start = len(self._root) + 1
        files = {name[start:]: info for name, info in found.items() if info["type"] == "file"}
        files.pop(prefix, None)  # a piece is not below itself
        return files

    def _info(self, path: str) -> dict[str, Any] | None:
        full = self._full(path)
        with self._translated(f"looking for {path}"):
            try:
                info: dict[str, Any] = self._fs.info(full)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return info if info["type"] == "file" else None

    def _full(self, path: str) -> str:
        return join(self._root, *check_path(path))

    def _check_root(self, create: bool) -> None:
        """The bucket must exist, and is never made; a folder elsewhere is made when asked."""
        if self._protocol in _OBJECT_STORES:
            self._fs.info(self._root.lstrip("/").split("/", 1)[0])
        elif create:
            self._fs.makedirs(self._root, exist_ok=True)
        elif not self._fs.exists(self._root):
            raise StoreUnavailable(f"there is no store at {self.url}")

    def _missing(self, path: str) -> Exception:
        with self._translated(f"looking for {path}"):
            self._check_root(create=False)  # a bucket that vanished is not a missing piece
        return missing(path)

    def _translated(self, doing: str) -> AbstractContextManager[None]:
        return translated(doing, self.url)


def _create(full: str, upload: Upload) -> None:
    """S3 answers 409 when two conditional writes meet, and wants to be asked again."""
    for pause in (0.1, 0.2, 0.4, None):
        try:
            return upload(full, "create")
        except OSError as error:
            if pause is None or service_code(error) not in _ASK_AGAIN:
                raise
            time.sleep(pause)


def _ranges(fs: Any, full: str, stored: int) -> Callable[[int], bytes]:
    """Reads forward by range requests: fsspec's memory files share one position among readers."""
    position, buffer = 0, b""

    def read(size: int) -> bytes:
        nonlocal position, buffer
        while len(buffer) < size and position < stored:
            end = min(stored, position + max(_RANGE, size))
            part = fs.cat_file(full, start=position, end=end)
            buffer += part
            position = end
        data, buffer = buffer[:size], buffer[size:]
        return data

    return read


def _is_piece(name: str) -> bool:
    return all(map(is_segment, name.split("/")))


def _last(name: str) -> str:
    return str(name).rstrip("/").rpartition("/")[2]


def _modified(info: dict[str, Any]) -> float:
    moment = info.get("mtime") or info.get("LastModified") or info.get("modified")
    if isinstance(moment, datetime):
        return moment.timestamp()
    return float(moment) if isinstance(moment, int | float) else time.time()
