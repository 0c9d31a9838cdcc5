"""How often executors were lost in earlier batches, for the plans of later ones."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from headway.base.errors import HeadwayError
from headway.storage import ReliableStore

_PATH = "observations/failures"
_HOUR = 3600.0
_MEMORY_HOURS = 24.0
"""What lies further back weighs less and less."""


class _Seen(msgspec.Struct):
    hours: float = 0.0
    failures: float = 0.0


class FailureHistory:
    """Damaged counts are no counts: they must never keep a batch from running."""

    def __init__(self, store: ReliableStore) -> None:
        self._store = store

    def per_hour(self) -> float:
        """What to expect; 0 where nothing was seen."""
        seen = self._read()
        return seen.failures / max(seen.hours, 1.0)

    def add(self, before: frozenset[str], after: frozenset[str], seconds: float) -> int:
        """Counts the executors that were there before and are gone after so many seconds."""
        lost = len(before - after)
        seen = self._read()
        kept = min(1.0, _MEMORY_HOURS / max(seen.hours, 1e-9))
        hours = seen.hours * kept + seconds / _HOUR
        found = _Seen(hours, seen.failures * kept + lost)
        with suppress(HeadwayError):
            self._store.write(_PATH, msgspec.json.encode(found))
        return lost

    def _read(self) -> _Seen:
        try:
            if not self._store.exists(_PATH):
                return _Seen()
            return msgspec.json.decode(self._store.read(_PATH), type=_Seen)
        except (HeadwayError, msgspec.DecodeError):
            return _Seen()
