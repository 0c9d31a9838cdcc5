"""Row counts seen in earlier runs, kept in the store for the estimates of later ones."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import msgspec

from headway.base.errors import HeadwayError
from headway.storage import ReliableStore

_PATH = "observations/rows"
_MOST = 20_000


class Observations:
    """A map from row keys to rows. The newest count of a key is the one that is used.

    Two sessions that write at the same time may lose each other's counts; later runs bring them
    back. Damaged counts are no counts: estimates must never keep a query from running.
    """

    def __init__(self, store: ReliableStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._rows: dict[str, float] | None = None

    def known(self) -> Mapping[str, float]:
        with self._lock:
            if self._rows is None:
                self._rows = self._read()
            return dict(self._rows)

    def add(self, rows: Mapping[str, float]) -> None:
        with self._lock:
            known = self._read() | (self._rows or {})
            for key, count in rows.items():
                known.pop(key, None)
                known[key] = count
            self._rows = dict(list(known.items())[-_MOST:])
            self._store.write(_PATH, msgspec.json.encode(self._rows))

    def _read(self) -> dict[str, float]:
        try:
            if not self._store.exists(_PATH):
                return {}
            return msgspec.json.decode(self._store.read(_PATH), type=dict[str, float])
        except (HeadwayError, msgspec.DecodeError):
            return {}
