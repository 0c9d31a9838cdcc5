"""The session: what `import headway` gives, and the wiring behind it.

Loaded when it is first used: a worker process is a part of the package too, and starts without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.session.api import Session
    from headway.session.batch_planning import Policy
    from headway.session.batch_reports import BatchProgress
    from headway.session.batches import BatchHandle
    from headway.session.planning import PlannedQuery
    from headway.session.progress import QueryProgress, QueryStatus
    from headway.session.queries import Query
    from headway.session.runs import RunHandle
    from headway.session.workers import Workers

__all__ = [
    "BatchHandle",
    "BatchProgress",
    "PlannedQuery",
    "Policy",
    "Query",
    "QueryProgress",
    "QueryStatus",
    "RunHandle",
    "Session",
    "session",
]
_PLACES = {
    "BatchHandle": "batches",
    "BatchProgress": "batch_reports",
    "PlannedQuery": "planning",
    "Policy": "batch_planning",
    "Query": "queries",
    "QueryProgress": "progress",
    "QueryStatus": "progress",
    "RunHandle": "runs",
    "Session": "api",
}


def session(spark: SparkSession, *, workers: Workers | None = None, **settings: Any) -> Session:
    """A Headway session over a Spark session, with the workers of another one if given.

    Settings come from `spark.headway.*`, the environment, headway.toml, and `settings` here, in
    that order of rising weight: `headway.session(spark, store_url="/data/headway")` or, with the
    dotted name, `headway.session(spark, **{"store.url": "/data/headway"})`.
    """
    from headway.session.api import open_session

    return open_session(spark, workers, settings)


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        return getattr(import_module(f"headway.session.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
