"""Executors that are lost while queries run: how many, with how much work, and what to expect."""

from __future__ import annotations

import threading
import time

from headway.session.batch_reports import Lost
from headway.session.keeping import Around
from headway.session.planning import SPARK
from headway.sharing.failures import Failures

_HOUR = 3600.0
_TRUST_HOURS = 0.25
"""For how long failures as expected must be seen to weigh as much as the expectation."""


class LossWatch:
    """Looks at the executors when it is told to. Safe from several threads."""

    def __init__(self, around: Around, expected: Failures | None = None) -> None:
        self._around = around
        self._asked = expected or Failures()
        self._lock = threading.Lock()
        self._began = self._looked = time.monotonic()
        self._present = self._latest = self._busy()
        self._gone: frozenset[str] = frozenset()
        self._all = 0
        self._now = self._asked.workers
        self._lost = Lost()

    def begin(self) -> None:
        """A mini-batch or a run begins. Losses that were noticed since the last one ended are its
        own."""
        self._gone = frozenset()
        self._lost = Lost()
        self.look()
        if self._latest is not None:
            self._present = dict(self._latest)
        self._looked = time.monotonic()

    def end(self) -> Lost:
        """It has ended; what it has lost. What was seen is kept for later ones."""
        self.look()
        if self._present is not None:
            seconds = time.monotonic() - self._looked
            self._around.failures.add(len(self._gone), seconds)
        return self._lost

    def look(self) -> bool:
        """Whether executors were lost since the last look. Their work is that of the mini-batch so
        far: what they had made is lost with them."""
        after = self._latest = self._busy()
        if self._present is None or after is None:
            return False
        there = {name for name, (alive, _) in after.items() if alive}
        self._now = max(1, len(there))
        # What is not told of at all was no loss: Spark has let go of it.
        self._present = {name: found for name, found in self._present.items() if name in after}
        gone = {n for n, (alive, _) in self._present.items() if alive} - there
        worked = sum(after[n][1] - self._present[n][1] for n in gone)
        self._present |= {name: after[name] for name in there - self._present.keys()}
        self._present |= dict.fromkeys(gone, (False, 0.0))
        if gone:
            self._gone |= gone
            self._all += len(gone)
            # Beside workers, Spark's own tasks are mostly those that started them.
            of_spark = self._around.settings.engine.name == SPARK
            with self._lock:
                self._lost += Lost(len(gone), max(0.0, worked) if of_spark else 0.0)
        return bool(gone)

    def repeated(self, tasks: int) -> None:
        """Tasks of workers were done again."""
        with self._lock:
            self._lost += Lost(tasks=tasks)

    def expected(self) -> Failures:
        """What was expected, corrected by what was seen of this batch."""
        if not self._all:
            return self._asked
        hours = (time.monotonic() - self._began) / _HOUR
        seen = self._asked.per_hour * _TRUST_HOURS + self._all
        return Failures(seen / (_TRUST_HOURS + hours), self._now)

    def _busy(self) -> dict[str, tuple[bool, float]] | None:
        """By executor: whether it is there, and for how long its tasks have run. None of a Spark
        that is gone."""
        from headway.spark.executors import SPARK_GONE, task_seconds

        try:
            return task_seconds(self._around.engine.spark)
        except SPARK_GONE:
            return None
