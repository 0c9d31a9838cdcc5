"""A query as the DataFrame that Spark is to run: untouched, or its plan over saved states."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING

from headway.base.errors import PlanNotResumable
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import Aggregate, Join, Node, Scan, StateScan
from headway.session.planning import PlannedQuery
from headway.storage import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headway.spark.results import KeptResult

_SMALL_SIZE = 1 << 20
"""Bytes that Spark broadcasts, whatever it is set to, unless it is to broadcast nothing."""
_UNKNOWN_SIZE = 1 << 62
"""Spark's own, of what it knows nothing about."""


class OpenStates:
    """Saved states as rows of Spark: each is fetched once, for all that read it until it is closed.
    With `many` readers, the executors hold them meanwhile. Safe from several threads."""

    def __init__(self, spark: SparkSession, run: Run, *, many: bool = False) -> None:
        from headway.spark.results import table_session

        self._spark = spark
        self._run = run
        self._many = many
        self._beside = cache(partial(table_session, spark))
        self._rows: dict[tuple[str | None, tuple[str, ...], str], DataFrame] = {}
        self._held: list[DataFrame] = []
        self._lock = threading.Lock()

    def open(
        self, states: Mapping[str, KeptResult], twice: Collection[str]
    ) -> dict[str, DataFrame]:
        """By the names of the states; some are read `twice`."""
        from headway.spark.results import fetch_small, state_rows

        with self._lock:
            # States without rows have no pieces to tell them apart by.
            keys = {
                name: (kept.run, kept.pieces, "" if kept.pieces else name)
                for name, kept in states.items()
            }
            new = {name: states[name] for name, key in keys.items() if key not in self._rows}
            tables = fetch_small(self._run, new)
            for name, kept in new.items():
                table = tables.get(name)
                rows = state_rows(self._spark, self._run, kept, table, self._beside)
                if self.reads_in_one_task(kept):
                    rows = rows.coalesce(1)
                read_again = kept.bytes > _SMALL_SIZE if self._many else name in twice
                if read_again and (self._many or table is None):
                    rows = rows.persist()
                    self._held.append(rows)
                self._rows[keys[name]] = rows
            return {name: self._rows[key] for name, key in keys.items()}

    def reads_in_one_task(self, kept: KeptResult) -> bool:
        """Many queries use all cores, and need not shuffle the few rows that each of them reads."""
        return self._many and kept.bytes <= _SMALL_SIZE

    def close(self) -> None:
        with self._lock:
            held, self._held = self._held, []
            self._rows.clear()
        for rows in held:
            with suppress(Exception):  # Spark may be gone
                rows.unpersist()


@contextmanager
def frame_to_run(
    spark: SparkSession, run: Run, query: PlannedQuery, opened: OpenStates | None = None
) -> Iterator[DataFrame]:
    """With states that were `opened` for several queries, or for this one alone.

    What Spark had broadcast, it is to broadcast again, however large it found it to be. It shares
    work in the form of shuffles: where the plan has work to share, states that were shuffled are to
    be so again. It is not told how small they are, since it would then broadcast them, and do twice
    what comes before."""
    from headway.spark.errors import named_error
    from headway.spark.frames import frame_of
    from headway.spark.results import sized_state

    if query.frame is not None and not query.states:
        yield query.frame
        return
    if query.plan is None:
        raise PlanNotResumable(
            f"{query.name} was a DataFrame of another session, and has no plan",
            hint="run it again, in a new run",
        )
    uses = use_counts(query.plan.root)
    shares = any(count > 1 and _is_work(node) for node, count in uses.items())
    twice = {node.state for node, n in uses.items() if isinstance(node, StateScan) and n > 1}
    states = OpenStates(spark, run) if opened is None else opened
    try:
        try:
            rows = states.open(query.states, twice)

            def open_one(scan: StateScan) -> DataFrame:
                kept = query.states[scan.state]
                size = min(kept.bytes, _SMALL_SIZE) if kept.broadcast else kept.bytes
                size = _UNKNOWN_SIZE if shares and not kept.broadcast else size
                alone = states.reads_in_one_task(kept)
                found = rows[scan.state]
                return sized_state(spark, found, scan.state, kept, size, in_one_task=alone)

            frame = frame_of(
                spark, query.plan, session_frames=query.session_frames, state_frames=open_one
            )
        except Exception as error:
            raise named_error(error) from error
        yield frame
    finally:
        if opened is None:
            states.close()


def _is_work(node: Node) -> bool:
    """Whether it is more than reading rows."""
    below = list(walk(node))
    return any(isinstance(n, Join | Aggregate) for n in below) and any(
        isinstance(n, Scan) for n in below
    )
