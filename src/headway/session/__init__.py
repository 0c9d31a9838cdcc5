"""The session: what `import headway` gives, and the wiring behind it."""

from headway.session.planning import PlannedQuery
from headway.session.runs import QueryProgress, QueryStatus, RunHandle
from headway.session.session import Query, Session, session

__all__ = [
    "PlannedQuery",
    "Query",
    "QueryProgress",
    "QueryStatus",
    "RunHandle",
    "Session",
    "session",
]
