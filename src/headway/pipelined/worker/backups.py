"""Copies of outputs: on this worker's disk, and as pieces in the reliable store."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headway.lineage.names import TaskId
from headway.pipelined.core.messages import Input
from headway.pipelined.worker.files import write_file
from headway.pipelined.worker.slices import SlicedFile, Slices, encode_slices, encode_stream
from headway.storage import Run, open_store


@dataclass(frozen=True, slots=True)
class _Backup:
    epoch: int
    path: Path


class Backups:
    """Outputs of one query that this worker can send again. One version of each, the newest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._kept: dict[TaskId, _Backup] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def write(self, output: TaskId, epoch: int, slices: Slices) -> None:
        """OSError when the disk does not take it."""
        path = self._folder / f"{_name(output, epoch)}.arrow"
        write_file(path, encode_slices(slices))
        with self._lock:
            former = self._kept.get(output)
            if former is None or former.epoch <= epoch:
                self._kept[output] = _Backup(epoch, path)
                superseded = former.path if former else None
            else:
                superseded = path
        if superseded is not None and superseded != self._kept[output].path:
            superseded.unlink(missing_ok=True)

    def open(self, output: TaskId, epoch: int) -> tuple[SlicedFile, int] | None:
        """The copy made under that epoch or a later one, and the epoch of it."""
        with self._lock:
            found = self._kept.get(output)
        if found is None or found.epoch < epoch:
            return None
        try:
            return SlicedFile(pa.memory_map(str(found.path))), found.epoch
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
            found.path.unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock:
            self._kept.clear()
        shutil.rmtree(self._folder, ignore_errors=True)


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

    def open(self, piece: str) -> SlicedFile:
        return SlicedFile(pa.py_buffer(self._run().read_piece(piece)))

    def _run(self) -> Run:
        with self._lock:
            if self._opened is None:
                self._opened = Run.open(open_store(self._store_url), self._run_id)
            return self._opened


def _name(output: TaskId, epoch: int) -> str:
    return f"{output.stage}-{output.channel}-{output.sequence}-e{epoch}"
