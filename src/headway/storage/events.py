"""The append-only log of a run: one sealed piece per event, which object stores can do as well.

Each event carries the CRC of the one before it, so a missing or swapped event in the middle does
not fit. The end of a chain shows no gap, so there is also a head, written before the first event
and replaced when the log ends: it then holds the count and the last CRC. It must always be there,
hence the loss of any one piece of an ended log is seen.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal
from zlib import crc32

import msgspec

from headway.base.errors import StoreConflict, StoreFull, StoreUnavailable
from headway.storage.blocks import corrupt
from headway.storage.failures import conflict
from headway.storage.paths import join
from headway.storage.processes import ProcessRecord
from headway.storage.store import ReliableStore

END = "end"
_NAME = re.compile(r"[0-9]{8}\.event")
_READERS = 16


class Event(msgspec.Struct, frozen=True):
    """Something that happened: `at` is an ISO time in UTC, `data` holds JSON values."""

    at: str
    kind: str
    query: str | None = None
    data: dict[str, Any] = {}


class LogHead(msgspec.Struct, frozen=True, kw_only=True):
    """`pieces` are the sizes in the store of all that the run held when it ended."""

    state: Literal["open", "ended", "removed"] = "open"
    created_at: str
    driver: ProcessRecord
    count: int = 0
    last_crc: int = 0
    pieces: dict[str, int] = {}


class _Record(msgspec.Struct, frozen=True):
    number: int
    previous: int
    event: Event


class EventLog:
    """The log in one folder of the store. One writer at a time: a second gets StoreConflict, and
    so does a first that was overtaken, from then on. Any number may read while it grows."""

    def __init__(self, store: ReliableStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._head_path = join(folder, "head")
        self._lock = threading.Lock()
        self._tail: tuple[int, int] | None = None  # number and CRC of the last event
        self._unsure: bytes | None = None  # a write that failed, but may have arrived
        self._ended = False

    def create(self, created_at: str, driver: ProcessRecord) -> None:
        head = LogHead(created_at=created_at, driver=driver)
        self._store.write(self._head_path, msgspec.json.encode(head), if_absent=True)
        self._tail = (0, 0)

    def head(self) -> LogHead:
        data = self._store.read(self._head_path)
        try:
            return msgspec.json.decode(data, type=LogHead)
        except msgspec.MsgspecError as error:
            raise corrupt(self._head_path, f"is not the head of a log: {error}") from error

    def append(self, event: Event, *, after: int | None = None) -> int:
        """Writes the event and returns its number, counted from 1; StoreConflict unless it follows
        the event with the number `after`, where that is given."""
        with self._lock:
            return self._append(event, after)

    def _append(self, event: Event, after: int | None = None) -> int:
        if self._ended:
            raise StoreConflict(f"the log in {self._folder} has ended")
        number, previous = self._tail or self._find_tail()
        if after is not None and number != after:
            raise conflict(self._path(after + 1))
        if self._unsure is not None:
            number, previous = self._settle(number, previous)
        record = msgspec.json.encode(_Record(number + 1, previous, event))
        try:
            self._store.write(self._path(number + 1), record, if_absent=True)
        except (StoreUnavailable, StoreFull):
            self._unsure = record
            raise
        self._tail = (number + 1, crc32(record))
        return number + 1

    def overtaken(self) -> bool:
        """Whether somebody else has written an event after the last one of this writer."""
        with self._lock:
            if self._tail is None or self._unsure is not None or self._ended:
                return False
            return self._store.exists(self._path(self._tail[0] + 1))

    def end(self, event: Event, pieces: dict[str, int]) -> None:
        """Appends the last event and closes the log over it and the run's pieces."""
        head = self.head()
        if head.state != "open":
            raise StoreConflict(f"the log in {self._folder} has ended already")
        with self._lock:  # until the head is written: nothing may come after the last event
            count = self._append(event)
            assert self._tail is not None
            closed = msgspec.structs.replace(
                head, state="ended", count=count, last_crc=self._tail[1], pieces=pieces
            )
            self._store.write(self._head_path, msgspec.json.encode(closed))
            self._ended = True

    def mark_removed(self) -> None:
        """So that a removal cut short is finished by a sweep, and not taken for damage."""
        nobody = ProcessRecord("", 0, None)
        gone = LogHead(state="removed", created_at="", driver=nobody)
        self._store.write(self._head_path, msgspec.json.encode(gone))

    def read(self, head: LogHead | None = None) -> tuple[Event, ...]:
        """All events, verified. `head`, when the caller read it already, must be older than this
        call: what a log gains in between is no damage."""
        head = head or self.head()
        ended = head.state == "ended"
        last = head.count if ended else max(self._numbers(), default=0)
        events, crc = [], 0
        for number, data in enumerate(self._payloads(range(1, last + 1)), start=1):
            record = self._decode(number, data)
            if (record.number, record.previous) != (number, crc):
                raise corrupt(self._path(number), "does not continue the event before it")
            events.append(record.event)
            crc = crc32(data)
        if ended and crc != head.last_crc:
            raise corrupt(self._path(last), "is not the event that the log ended with")
        return tuple(events)

    def _payloads(self, numbers: Iterable[int]) -> Iterable[bytes]:
        """By number and not by listing: a listing may miss a file that appeared meanwhile."""
        paths = [self._path(number) for number in numbers]
        if not self._store.remote or len(paths) < 2:
            return map(self._store.read, paths)
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(self._store.read, paths))

    def _find_tail(self) -> tuple[int, int]:
        number = max(self._numbers(), default=0)
        return number, crc32(self._store.read(self._path(number))) if number else 0

    def _settle(self, number: int, previous: int) -> tuple[int, int]:
        """Where the log stands after a failed write: with it, without it, or with another's."""
        path = self._path(number + 1)
        if self._store.exists(path):
            found = self._store.read(path)
            if found != self._unsure:
                raise conflict(path)
            number, previous = number + 1, crc32(found)
        self._tail, self._unsure = (number, previous), None
        return number, previous

    def _numbers(self) -> list[int]:
        names = (path.rpartition("/")[2] for path in self._store.list(join(self._folder, "events")))
        return [int(name[:8]) for name in names if _NAME.fullmatch(name)]

    def _decode(self, number: int, data: bytes) -> _Record:
        try:
            return msgspec.json.decode(data, type=_Record)
        except msgspec.MsgspecError as error:
            raise corrupt(self._path(number), f"is not an event: {error}") from error

    def _path(self, number: int) -> str:
        return join(self._folder, "events", f"{number:08d}.event")
