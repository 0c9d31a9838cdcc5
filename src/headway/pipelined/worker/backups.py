"""Copies of outputs: with this worker, and as pieces in the reliable store."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headway.lineage.names import TaskId
from headway.pipelined.core.messages import Input
from headway.pipelined.worker.files import write_file
from headway.pipelined.worker.slices import SlicedFile, Slices, encode_slices, encode_stream, size
from headway.storage import Run, open_store


@dataclass(frozen=True, slots=True)
class _Backup:
    """Of an output, as it was made or as a file."""

    epoch: int
    content: Slices | Path


class OpenedSlices(Protocol):
    """A copy of an output, from which slices are read."""

    def read(self, consumer: int, reader: int) -> pa.Table: ...


class Backups:
    """Outputs of one query that this worker can send again. One version of each, the newest.

    They are lost with the worker, wherever it has them: those that come first stay in memory, which
    costs nothing but the memory, and those beyond `limit` bytes go to the disk.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: dict[TaskId, _Backup] = {}
        self._in_memory = 0
        self._numbers = count()  # one output may be made twice under one epoch
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def fits(self, slices: Slices) -> bool:
        """Whether memory takes it."""
        return self._in_memory + _bytes(slices) <= self._limit

    def keep(self, output: TaskId, epoch: int, slices: Slices) -> None:
        """OSError when neither memory nor the disk takes it."""
        content: Slices | Path = slices
        with self._lock:
            fits = self.fits(slices)
            if fits:
                self._in_memory += _bytes(slices)
        if not fits:
            content = self._folder / f"{_name(output, epoch)}-{next(self._numbers)}.arrow"
            write_file(content, encode_slices(slices))
        made = _Backup(epoch, content)
        with self._lock:
            former = self._kept.get(output)
            if former is None or former.epoch <= epoch:
                self._kept[output] = made
                superseded = former
            else:
                superseded = made
        self._remove(superseded)

    def open(self, output: TaskId, epoch: int) -> tuple[OpenedSlices, int] | None:
        """The copy made under that epoch or a later one, and the epoch of it."""
        with self._lock:
            found = self._kept.get(output)
        if found is None or found.epoch < epoch:
            return None
        if not isinstance(found.content, Path):
            return _InMemory(found.content), found.epoch
        try:
            return SlicedFile(pa.memory_map(str(found.content))), found.epoch
        except (OSError, pa.ArrowInvalid):
            return None

    def delete(self, outputs: Iterable[Input]) -> None:
        """In these versions or earlier ones."""
        for output, epoch in ((each.output, each.epoch) for each in outputs):
            with self._lock:
                found = self._kept.get(output)
                if found is None or found.epoch > epoch:
                    continue
                del self._kept[output]
            self._remove(found)

    def close(self) -> None:
        with self._lock:
            self._kept.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _remove(self, backup: _Backup | None) -> None:
        if backup is None:
            return
        if not isinstance(backup.content, Path):
            with self._lock:
                self._in_memory -= _bytes(backup.content)
        else:
            backup.content.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _InMemory:
    slices: Slices

    def read(self, consumer: int, reader: int) -> pa.Table:
        return self.slices[consumer][reader]


def _bytes(slices: Slices) -> int:
    """What the distinct tables take."""
    distinct = {id(table): table for readers in slices for table in readers}
    return sum(map(size, distinct.values()))


class Pieces:
    """Outputs of one query in the reliable store. Opened when the first is written or read."""

    def __init__(self, store_url: str, run_id: str, query: str) -> None:
        self._store_url = store_url
        self._run_id = run_id
        self._query = query
        self._lock = threading.Lock()
        self._opened: Run | None = None

    def write_result(self, output: TaskId, epoch: int, table: pa.Table) -> str:
        """Rows of the query, as an Arrow stream; returns the name of the piece."""
        name = f"results/{self._query}/{_name(output, epoch)}"
        self._run().write_piece(name, memoryview(encode_stream(table)))
        return name

    def write_slices(self, output: TaskId, epoch: int, slices: Slices) -> str:
        """An output for its readers; returns the name of the piece."""
        name = f"spool/{self._query}/{_name(output, epoch)}"
        self._run().write_piece(name, memoryview(encode_slices(slices)))
        return name

    def write_state(self, piece: str, table: pa.Table) -> None:
        self._run().write_piece(piece, memoryview(encode_stream(table)))

    def open(self, piece: str) -> SlicedFile:
        return SlicedFile(pa.py_buffer(self._run().read_piece(piece)))

    def _run(self) -> Run:
        with self._lock:
            if self._opened is None:
                self._opened = open_run(self._store_url, self._run_id)
            return self._opened


@lru_cache(maxsize=8)
def open_run(store_url: str, run_id: str) -> Run:
    """Once for all queries of a run: its manifest has the plans of all of them."""
    return Run.open(open_store(store_url), run_id)


def _name(output: TaskId, epoch: int) -> str:
    return f"{output.stage}-{output.channel}-{output.sequence}-e{epoch}"
