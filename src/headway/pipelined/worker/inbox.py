"""Slices that arrived for the channels of a worker and wait to be read.

They wait in memory up to a limit. What arrives beyond it is written to the scratch folder by a
thread of the inbox, and read back when its task runs. Senders wait while that thread is behind.
"""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa

from headway.base.errors import InternalError
from headway.lineage.names import ChannelId, TaskId
from headway.pipelined.worker.files import write_file
from headway.pipelined.worker.slices import SlicedFile, encode_slices, size

_LOOK_SECONDS = 1.0
_BEHIND = 4  # a quarter of the limit may wait to be written


_Name = tuple[ChannelId, int, TaskId]  # reader, its side, output


class _Slot:
    """A slice: its table is in memory, or its file is there, or both for a moment."""

    __slots__ = ("dropped", "file", "size", "table")

    def __init__(self, table: pa.Table) -> None:
        self.table: pa.Table | None = table
        self.size = size(table)
        self.file: Path | None = None
        self.dropped = False


class Inbox:
    """The waiting slices of one query, one for each side of a reader and output."""

    def __init__(self, folder: Path, limit: int, failed: Callable[[str], None]) -> None:
        """`failed` is called when the scratch folder does not take a slice."""
        self._folder = folder
        self._limit = limit
        self._failed = failed
        self._changed = threading.Condition()
        self._slots: dict[_Name, _Slot] = {}
        self._to_spill: deque[_Slot] = deque()
        self._spiller: threading.Thread | None = None
        self._names = count()
        self._in_memory = 0
        self._expected = 0
        self._behind = 0
        self._closed = False
        self.spilled_bytes = 0
        """All that was ever written to the scratch folder."""

    @property
    def bytes_in_memory(self) -> int:
        with self._changed:
            return self._in_memory

    @contextmanager
    def room(self, wanted: int, still_waiting: Callable[[], None]) -> Iterator[None]:
        """Waits while there is too much already, and counts `wanted` bytes until the end of the
        block. `still_waiting` is called every second of it."""
        with self._changed:
            while not self._changed.wait_for(self._has_room, _LOOK_SECONDS):
                still_waiting()
            self._expected += wanted
        try:
            yield
        finally:
            with self._changed:
                self._expected -= wanted

    def has_room(self) -> bool:
        with self._changed:
            return self._has_room()

    def put(self, reader: ChannelId, side: int, output: TaskId, table: pa.Table) -> None:
        """Replaces an earlier version of the same output."""
        slot = _Slot(table)
        with self._changed:
            if self._closed:
                return
            self._drop(self._slots.get((reader, side, output)))
            self._slots[reader, side, output] = slot
            self._in_memory += slot.size
            if self._in_memory - self._behind > self._limit:
                self._behind += slot.size
                self._to_spill.append(slot)
                self._start_spiller()
                self._changed.notify_all()

    def get(self, reader: ChannelId, side: int, output: TaskId) -> pa.Table:
        """The slice, which stays until it is discarded. OSError when it cannot be read back."""
        with self._changed:
            slot = self._slots.get((reader, side, output))
            if slot is None:
                raise InternalError(f"side {side} of channel {reader} has no slice of {output}")
            if slot.table is not None:
                return slot.table
            file = slot.file
        try:
            return SlicedFile(pa.memory_map(str(file))).read(0, 0)
        except OSError:
            if slot.dropped:
                raise InternalError(f"the slice of {output} was taken away") from None
            raise

    def discard(self, reader: ChannelId, side: int, outputs: Iterable[TaskId]) -> None:
        with self._changed:
            for output in outputs:
                self._drop(self._slots.pop((reader, side, output), None))
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for slot in self._slots.values():
                self._drop(slot)
            self._slots.clear()
            self._changed.notify_all()
        if self._spiller is not None:
            self._spiller.join(timeout=10.0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _has_room(self) -> bool:
        behind = self._behind > self._limit // _BEHIND
        return self._closed or not (behind and self._in_memory + self._expected > self._limit)

    def _drop(self, slot: _Slot | None) -> None:
        if slot is None or slot.dropped:
            return
        slot.dropped = True
        if slot.table is not None:
            slot.table = None
            self._in_memory -= slot.size
        if slot.file is not None:
            slot.file.unlink(missing_ok=True)

    def _start_spiller(self) -> None:
        if self._spiller is None:
            self._spiller = threading.Thread(target=self._spill, name="spill", daemon=True)
            self._spiller.start()

    def _spill(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._to_spill or self._closed)
                if self._closed:
                    return
                slot = self._to_spill.popleft()
                table = slot.table
            file = self._folder / f"{next(self._names)}.arrow"
            try:
                if table is not None:
                    self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                    write_file(file, encode_slices(((table,),)))
                table = None
            except OSError as error:
                self._failed(f"inputs cannot be spilled: {error}")
                return
            with self._changed:
                self._behind -= slot.size
                if slot.dropped:
                    file.unlink(missing_ok=True)
                else:
                    slot.table, slot.file = None, file
                    self._in_memory -= slot.size
                    self.spilled_bytes += slot.size
                self._changed.notify_all()
