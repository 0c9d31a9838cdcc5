"""Where the queries of a run stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headway.base.errors import HeadwayError


class QueryStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    SUSPENDED = "suspended"


UNDER_WAY = (QueryStatus.WAITING, QueryStatus.RUNNING, QueryStatus.SUSPENDED)


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """Where a query stands. `pipelines` are those of the engine that runs it."""

    name: str
    engine: str
    status: QueryStatus = QueryStatus.WAITING
    pipelines_done: int = 0
    pipelines_total: int = 0
    seconds: float = 0.0
    rows: int | None = None
    error: HeadwayError | None = None


def summary_rows(progress: tuple[QueryProgress, ...]) -> list[Mapping[str, Any]]:
    """Query, rows, seconds, engine and status, for a table or for JSON."""
    return [
        {
            "query": p.name,
            "status": str(p.status),
            "rows": p.rows,
            "seconds": round(p.seconds, 3),
            "engine": p.engine,
            "error": None if p.error is None else p.error.describe(),
        }
        for p in progress
    ]
