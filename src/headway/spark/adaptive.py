"""Watching a query while Spark runs it.

Spark's pipelines end in exchanges: what lies between two of them runs as one stage. Adaptive
execution starts each as a job of its own, so finished jobs are finished pipelines.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headway.spark.tree_text import let_go

_EXCHANGE = re.compile(r"^[\s:+\-*()\d]*(?:Exchange|BroadcastExchange)\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PipelineCount:
    done: int
    total: int


class QueryWatch:
    """Counts the pipelines of one running query; cheap enough to ask a few times a second."""

    def __init__(self, frame: DataFrame, group: str) -> None:
        self.frame = frame
        """What is being run."""
        self.written = False
        """Whether its last step is that the executors write the rows down."""
        self._tracker = frame.sparkSession.sparkContext.statusTracker()
        self._group = group
        self._total: int | None = None
        self._finished: set[int] = set()
        self._readers_known = threading.Lock()
        self._readers = 0
        self._let_go = False

    def follow(self, frame: DataFrame) -> None:
        """That frame is what is being run now, and writes the rows down."""
        self.frame, self.written = frame, True

    @contextmanager
    def kept(self) -> Iterator[bool]:
        """What was made for the query is not let go of meanwhile; false where it has been."""
        with self._readers_known:
            is_there = not self._let_go
            self._readers += 1
        try:
            yield is_there
        finally:
            with self._readers_known:
                self._readers -= 1
            if is_there:
                self._remove_if_unread()

    def let_go(self) -> None:
        """Of what was made for the query, which is over. Its frame cannot be run again."""
        with self._readers_known:
            self._let_go = True
        self._remove_if_unread()

    def _remove_if_unread(self) -> None:
        with self._readers_known:
            if not self._let_go or self._readers:
                return
        with suppress(Py4JError, PySparkException):
            let_go(self.frame._jdf.queryExecution())

    def count(self) -> PipelineCount:
        try:
            return self._count()
        except (
            Py4JError,
            PySparkException,
        ):  # a query that cannot even be planned, or a driver that is going down
            return PipelineCount(0, self._total or 1)

    def _count(self) -> PipelineCount:
        if self._total is None:
            self._total = self._exchanges() + 1
        for job in self._tracker.getJobIdsForGroup(self._group):
            if job not in self._finished:
                info = self._tracker.getJobInfo(job)
                if info is not None and info.status == "SUCCEEDED":
                    self._finished.add(job)
        # Adaptive execution may split or drop stages: the last pipeline is the result's own.
        return PipelineCount(min(len(self._finished), self._total - 1), self._total)

    def _exchanges(self) -> int:
        text = str(self.frame._jdf.queryExecution().executedPlan().toString())
        initial = text.split("== Initial Plan ==")[-1]
        return len(_EXCHANGE.findall(initial))
