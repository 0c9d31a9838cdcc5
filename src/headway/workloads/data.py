"""Folders of generated tables: written aside, published whole, recognised again by their marker.

A folder is either absent, empty, or complete. Tables are written into a hidden sibling folder, the
marker goes in last, and one rename publishes everything. A generator that was killed leaves only
its sibling behind, and the next call removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb
import msgspec
import pyarrow.parquet

from headway.base.errors import (
    HeadwayError,
    StoreConflict,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
    WrongUsage,
)

MARKER = "headway-data.json"
_MARKER_VERSION = 1


@dataclass(frozen=True, slots=True)
class GeneratedTable:
    """One table's Parquet files, in row order."""

    name: str
    files: tuple[Path, ...]
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class GeneratedData:
    """A finished folder; `reused` says that it was there already and nothing was written."""

    workload: str
    scale: float
    directory: Path
    tables: dict[str, GeneratedTable]
    reused: bool

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables.values())


class _MarkedTable(msgspec.Struct, frozen=True):
    rows: int
    bytes: int
    files: dict[str, int]  # name inside the table's folder -> bytes


class _Marker(msgspec.Struct, frozen=True):
    version: int
    workload: str
    scale: float
    parts: int | None
    tables: dict[str, _MarkedTable]


@dataclass(frozen=True, slots=True)
class Staging:
    """Where a generator works: `data` becomes the folder, `scratch` is thrown away."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"


def finished_data(
    folder: Path, *, workload: str, scale: float, parts: int | None
) -> GeneratedData | None:
    """What `folder` already holds of this order; None when it is free; else WrongUsage."""
    if not folder.exists():
        return None
    if not folder.is_dir():
        raise WrongUsage(f"{folder} is a file, not a folder", hint="name a new or empty folder")
    marker = folder / MARKER
    if not marker.exists():
        foreign = sorted(entry.name for entry in folder.iterdir())
        if not foreign:
            return None
        names = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise WrongUsage(
            f"{folder} holds files that Headway did not generate: {names}",
            hint="name a new or empty folder",
        )
    found = _read_marker(marker)
    held = f"{found.workload} at scale {found.scale:g}"
    elsewhere = f"name another folder, or remove {folder} first"
    if (found.workload, found.scale) != (workload, scale):
        raise WrongUsage(
            f"{folder} already holds {held}, not {workload} at scale {scale:g}", hint=elsewhere
        )
    if parts is not None and parts != found.parts:
        raise WrongUsage(f"{folder} already holds {held} in other parts", hint=elsewhere)
    _check_files(folder, found)
    return _generated(folder, found, reused=True)


def complete(
    staging: Staging, tables: Sequence[str], *, workload: str, scale: float, parts: int | None
) -> None:
    """Make the staged tables durable and put the marker beside them."""
    marked = {}
    for table in tables:
        files = sorted((staging.data / table).iterdir())
        sizes = {file.name: file.stat().st_size for file in files}
        rows = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
        marked[table] = _MarkedTable(rows=rows, bytes=sum(sizes.values()), files=sizes)
        for path in (*files, staging.data / table):
            _flush(path)
    marker = _Marker(_MARKER_VERSION, workload, scale, parts, marked)
    path = staging.data / MARKER
    path.write_bytes(msgspec.json.format(msgspec.json.encode(marker), indent=2) + b"\n")
    _flush(path)
    _flush(staging.data)


def publish(staging: Staging, folder: Path) -> GeneratedData:
    """Turn the completed staging folder into `folder`, all of it or nothing."""
    try:
        staging.data.rename(folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        raise StoreConflict(
            f"{folder} was filled by somebody else meanwhile", hint="name another folder"
        ) from error
    _flush(folder.parent)
    return _generated(folder, _read_marker(folder / MARKER), reused=False)


@contextmanager
def staged_beside(folder: Path) -> Iterator[Staging]:
    """A fresh staging folder beside `folder`, removed in the end whatever happens."""
    if folder.is_mount():
        raise WrongUsage(
            f"{folder} is a mount point, which cannot be replaced in one step",
            hint=f"name a new folder inside it, such as {folder / 'data'}",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{folder.name}.generating-"
    _remove_abandoned(folder, prefix)
    staging = Staging(folder.parent / f"{prefix}{secrets.token_hex(4)}")
    staging.root.mkdir()
    lock = os.open(staging.root, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        staging.data.mkdir()
        staging.scratch.mkdir()
        yield staging
    finally:
        shutil.rmtree(staging.root, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove what killed generators left; the lock of a living one is held by its process."""
    for entry in folder.parent.iterdir():
        if not entry.name.startswith(prefix):
            continue
        try:
            lock = os.open(entry, os.O_RDONLY)
        except OSError:  # gone meanwhile, or another user's: it is not in our way
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry, ignore_errors=True)
        except BlockingIOError as error:
            raise StoreConflict(
                f"another process is generating {folder}",
                hint="wait for it to finish, then call again to use what it made",
            ) from error
        finally:
            os.close(lock)


def check_room(folder: Path, needed: int) -> None:
    """StoreFull before hours of work rather than after them."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise StoreFull(
            f"about {needed / 1e9:.1f} GB are needed for {folder}, {free / 1e9:.1f} GB are free",
            hint="free some space, name a folder on another disk, or ask for a smaller scale",
        )


@contextmanager
def storage_errors(folder: Path) -> Iterator[None]:
    """Failures of the disk under `folder`, met by us or by DuckDB, under their own names."""
    try:
        yield
    except HeadwayError:
        raise
    except (OSError, duckdb.Error) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in (errno.ENOSPC, errno.EDQUOT) or "no space left" in str(error).lower():
            raise StoreFull(
                f"the disk under {folder} is full; nothing was kept",
                hint="free some space, name a folder on another disk, or ask for a smaller scale",
            ) from error
        raise StoreUnavailable(
            f"{folder} cannot be written: {error}",
            hint="check that the folder above it exists and that you may write there",
        ) from error


def _generated(folder: Path, marker: _Marker, *, reused: bool) -> GeneratedData:
    tables = {
        name: GeneratedTable(
            name=name,
            files=tuple(folder / name / file for file in table.files),
            rows=table.rows,
            bytes=table.bytes,
        )
        for name, table in marker.tables.items()
    }
    return GeneratedData(marker.workload, marker.scale, folder, tables, reused)


def _read_marker(path: Path) -> _Marker:
    try:
        marker = msgspec.json.decode(path.read_bytes(), type=_Marker)
    except msgspec.DecodeError as error:
        raise StoreCorrupt(
            f"{path} is damaged: {error}", hint=f"remove {path.parent} and generate it again"
        ) from error
    if marker.version != _MARKER_VERSION:
        raise WrongUsage(
            f"{path} is of version {marker.version}; this release reads {_MARKER_VERSION}",
            hint="name another folder, or use the release that generated this one",
        )
    return marker


def _check_files(folder: Path, marker: _Marker) -> None:
    for table, marked in marker.tables.items():
        for name, size in marked.files.items():
            path = folder / table / name
            if not path.is_file() or path.stat().st_size != size:
                raise StoreCorrupt(
                    f"{path} is missing or has changed since it was generated",
                    hint=f"remove {folder} and generate it again",
                )


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
