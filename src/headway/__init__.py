"""Headway: SQL on Spark that keeps the progress it has made."""

from headway.base.errors import HeadwayError
from headway.session import Query, RunHandle, Session, session

__all__ = ["HeadwayError", "Query", "RunHandle", "Session", "session"]
