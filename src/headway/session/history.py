"""What earlier batches have shown, for the plans of later ones: kept in the reliable store.

Damaged history is no history: it must never keep a batch from running.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

import msgspec

from headway.base.errors import HeadwayError
from headway.sharing.cost_model import CostModel, Observation
from headway.sharing.costs import Work
from headway.storage import ReliableStore

_HOUR = 3600.0
_MEMORY_HOURS = 24.0
"""What lies further back weighs less and less."""
_MOST_WRITES = 64
_SMALL_WRITE = 8 << 20
_LATENCY, _BYTES_PER_SECOND = 0.3, 40e6
"""Of a store that nothing was written to yet."""
S = TypeVar("S", bound=msgspec.Struct)


class _Kept(Generic[S]):
    """One small record of the store."""

    def __init__(self, store: ReliableStore, name: str, nothing: S) -> None:
        self._store = store
        self._path = f"observations/{name}"
        self._nothing = nothing

    def read(self) -> S:
        try:
            if not self._store.exists(self._path):
                return self._nothing
            return msgspec.json.decode(self._store.read(self._path), type=type(self._nothing))
        except (HeadwayError, msgspec.DecodeError):
            return self._nothing

    def write(self, record: S) -> None:
        with suppress(HeadwayError):
            self._store.write(self._path, msgspec.json.encode(record))


class _Failures(msgspec.Struct):
    hours: float = 0.0
    failures: float = 0.0


class FailureHistory:
    """How often executors were lost; or something else, under a name of its own."""

    def __init__(self, store: ReliableStore, name: str = "failures") -> None:
        self._kept = _Kept(store, name, _Failures())

    def per_hour(self, before: float | None = None) -> float:
        """What to expect; 0 where nothing was seen. What was expected `before` counts as much as
        what is seen in an hour."""
        seen = self._kept.read()
        if before is not None:
            return (seen.failures + before) / (seen.hours + 1.0)
        return seen.failures / max(seen.hours, 1.0)

    def add(self, lost: int, seconds: float) -> None:
        """So many were lost in so many seconds."""
        seen = self._kept.read()
        kept = min(1.0, _MEMORY_HOURS / max(seen.hours, 1e-9))
        hours = seen.hours * kept + seconds / _HOUR
        self._kept.write(_Failures(hours, seen.failures * kept + lost))


class _Costs(msgspec.Struct):
    work: list[dict[str, float]] = []
    seconds: list[float] = []
    errors: list[float | None] = []
    """Of what was predicted; there are none in what earlier releases have kept."""


class CostHistory:
    """How long work took on an engine with so many cores."""

    def __init__(self, store: ReliableStore, engine: str, cores: int) -> None:
        self._kept = _Kept(store, f"costs-{engine}-{cores}", _Costs())

    def recall(self, model: CostModel) -> None:
        """Tell a new model what was seen before."""
        kept = self._kept.read()
        with suppress(TypeError, ValueError):
            errors = kept.errors or [None] * len(kept.work)
            seen = zip(kept.work, kept.seconds, errors, strict=True)
            model.recall([Observation(Work(**work), took, error) for work, took, error in seen])

    def keep(self, observations: tuple[Observation, ...]) -> None:
        self._kept.write(
            _Costs(
                [each.work.to_builtins() for each in observations],
                [each.seconds for each in observations],
                [each.error for each in observations],
            )
        )


class _Writes(msgspec.Struct):
    bytes: list[int] = []
    seconds: list[float] = []


class StoreSpeed:
    """How long the store takes to keep rows, as it did before. Safe from several threads."""

    def __init__(self, store: ReliableStore) -> None:
        self._kept = _Kept(store, "store-speed", _Writes())
        self._lock = threading.Lock()
        self._writes: _Writes | None = None
        self._writers = 0

    @contextmanager
    def writing(self, count: int) -> Iterator[None]:
        """Meanwhile so many more share the store, and each has its part of the speed."""
        with self._lock:
            self._writers += count
        try:
            yield
        finally:
            with self._lock:
                self._writers -= count

    def seconds(self, size: float) -> float:
        """To keep so many bytes, or to read them again."""
        latency, rate = self._rates()
        return latency + size * max(1, self._writers) / rate

    def add(self, size: int, seconds: float) -> None:
        """What one of those who write has seen."""
        with self._lock:
            size *= max(1, self._writers)
            seen = self._writes or self._kept.read()
            self._writes = _Writes(
                [*seen.bytes, size][-_MOST_WRITES:], [*seen.seconds, seconds][-_MOST_WRITES:]
            )
            self._kept.write(self._writes)

    def _rates(self) -> tuple[float, float]:
        """Seconds for the smallest write, and bytes per second of large ones."""
        with self._lock:
            self._writes = self._writes or self._kept.read()
            writes = list(zip(self._writes.bytes, self._writes.seconds, strict=True))
        small = [seconds for size, seconds in writes if size < _SMALL_WRITE]
        latency = statistics.median(small) if small else _LATENCY
        large = [(size, seconds) for size, seconds in writes if size >= _SMALL_WRITE]
        if not large:
            return latency, _BYTES_PER_SECOND
        moving = sum(max(seconds - latency, seconds / 10) for _, seconds in large)
        return latency, sum(size for size, _ in large) / max(moving, 1e-6)
