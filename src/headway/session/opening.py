"""A query as the DataFrame that Spark is to run: untouched, or its plan over saved states."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from headway.base.errors import PlanNotResumable
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import Aggregate, Join, Node, Scan, StateScan
from headway.session.planning import PlannedQuery
from headway.storage import Run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_SMALL_SIZE = 1 << 20
"""Bytes that Spark broadcasts, whatever it is set to, unless it is to broadcast nothing."""
_UNKNOWN_SIZE = 1 << 62
"""Spark's own, of what it knows nothing about."""


@contextmanager
def frame_to_run(spark: SparkSession, run: Run, query: PlannedQuery) -> Iterator[DataFrame]:
    """A state that is read twice is fetched once.

    What Spark had broadcast, it is to broadcast again, however large it found it to be. It shares
    work in the form of shuffles: where the plan has work to share, states that were shuffled are to
    be so again. It is not told how small they are, since it would then broadcast them, and do twice
    what comes before."""
    from headway.spark.errors import named_error
    from headway.spark.frames import frame_of
    from headway.spark.results import fetch_small, open_state, table_session

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
    with ExitStack() as opened:
        tables: dict[str, pa.Table] = {}
        beside = cache(partial(table_session, spark))

        def open_one(scan: StateScan) -> DataFrame:
            kept = query.states[scan.state]
            size = min(kept.bytes, _SMALL_SIZE) if kept.broadcast else kept.bytes
            size = _UNKNOWN_SIZE if shares and not kept.broadcast else size
            table, again = tables.get(scan.state), uses[scan] > 1
            return opened.enter_context(
                open_state(
                    spark, run, scan.state, kept, table, again=again, size=size, beside=beside
                )
            )

        try:
            tables |= fetch_small(run, query.states)
            frame = frame_of(
                spark, query.plan, session_frames=query.session_frames, state_frames=open_one
            )
        except Exception as error:
            raise named_error(error) from error
        yield frame


def _is_work(node: Node) -> bool:
    """Whether it is more than reading rows."""
    below = list(walk(node))
    return any(isinstance(n, Join | Aggregate) for n in below) and any(
        isinstance(n, Scan) for n in below
    )
