"""The reliable store: sealed pieces under checked names, wherever the URL points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import fsspec

from headway.base.errors import InvalidPath
from headway.storage.blocks import Data, SealWriter
from headway.storage.failures import translated
from headway.storage.local import LocalStore
from headway.storage.paths import check_remote_url, local_path
from headway.storage.remote import FsspecStore


class ReliableStore(Protocol):
    """What is written is durable when the call returns, and verified when it is read.

    Paths are relative, made of checked segments joined by '/'. Every piece is sealed under its own
    path, so that two swapped files are noticed.
    """

    @property
    def url(self) -> str: ...

    @property
    def remote(self) -> bool:
        """Whether a call costs a network round trip, so that many are worth threads."""
        ...

    def write(self, path: str, data: Data, *, if_absent: bool = False) -> None:
        """Replaces the piece in one step; with if_absent, StoreConflict when it exists."""
        ...

    def writer(self, path: str, *, if_absent: bool = False) -> AbstractContextManager[SealWriter]:
        """For large pieces: `write` chunks; the piece appears only on a clean exit."""
        ...

    def read(self, path: str) -> bytes:
        """The whole piece; PieceMissing or StoreCorrupt, which name it, otherwise."""
        ...

    def reader(self, path: str) -> Iterator[bytes]:
        """For large pieces: verified chunks. Keep nothing of a stream that ends in an error."""
        ...

    def exists(self, path: str) -> bool: ...

    def room(self) -> float:
        """How many bytes can still be written; infinite where nobody knows."""
        ...

    def size(self, path: str) -> int:
        """Bytes it takes in the store, seal included."""
        ...

    def folders(self, prefix: str = "") -> list[str]: ...

    def list(self, prefix: str = "") -> list[str]:
        """All pieces below a folder, sorted."""
        ...

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """Like list, with what `size` says of each."""
        ...

    def delete_tree(self, prefix: str) -> None: ...

    def sweep(self, *, older_than_seconds: float = ...) -> int:
        """Deletes what killed writers left behind, and says how many files."""
        ...


def open_store(
    url: str, *, create: bool = True, options: Mapping[str, Any] | None = None
) -> ReliableStore:
    """The store at a path, a file URL or any URL fsspec knows. `options` go to fsspec.

    A missing local folder is made unless `create` is false; a missing bucket never is.
    """
    path = local_path(url)
    if path is not None:
        return LocalStore(path, create=create)
    protocol = check_remote_url(url)
    settings = {"use_listings_cache": False, **(options or {})}
    with translated("opening it", url):
        try:
            fs, root = fsspec.core.url_to_fs(url, **settings)
        except (ValueError, ImportError) as error:
            raise InvalidPath(
                f"{url!r} cannot be opened as a store: {error}",
                hint="use a path, file://, s3://bucket/folder, or install the named package",
            ) from error
    if not root.strip("/"):
        raise InvalidPath(f"{url!r} names no bucket or folder", hint="write s3://bucket/folder")
    return FsspecStore(fs, root, url, protocol=protocol, create=create)
