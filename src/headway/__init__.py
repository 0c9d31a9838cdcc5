"""Headway: SQL on Spark that keeps the progress it has made."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headway.base.errors import HeadwayError
from headway.session import session

if TYPE_CHECKING:
    from headway.session import Query, RunHandle, Session

__all__ = ["HeadwayError", "Query", "RunHandle", "Session", "session"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("headway.session"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
