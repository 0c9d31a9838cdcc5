"""The control store: a coordinator's tables, durable, for one query of one run."""

from __future__ import annotations

from typing import Protocol

from headway.base.errors import WrongUsage
from headway.base.ids import check_id
from headway.lineage.records import Change, Tables
from headway.pipelined.control.rows import empty_tables


class ControlStore(Protocol):
    """Has one writer at a time. ControlStoreUnavailable when it cannot be reached."""

    def write(self, changes: list[Change]) -> None:
        """One transaction: durable when this returns. What had an error is durable or not there
        at all, and may be written again."""
        ...

    def load(self) -> Tables:
        """What all transactions so far amount to."""
        ...

    def delete(self) -> None:
        """The query is over: nothing of it stays."""
        ...

    def close(self) -> None:
        """What was written stays, for whoever opens it next."""
        ...


class ForgetfulStore:
    """Keeps nothing: a query survives the loss of workers but not of its coordinator. To measure
    what keeping costs."""

    def write(self, changes: list[Change]) -> None:
        pass

    def load(self) -> Tables:
        return empty_tables()

    def delete(self) -> None:
        pass

    def close(self) -> None:
        pass


def open_control_store(url: str, run: str, query: str) -> ControlStore:
    """`sqlite:<folder>`, `redis://host:port/database`, or `none`. The tables are those of earlier
    writes under the same run and query."""
    check_id(run, "run id")
    check_id(query, "query id")
    kind, _, rest = url.partition(":")
    if url == "none":
        return ForgetfulStore()
    if kind == "sqlite" and rest:
        from headway.pipelined.control.sqlite import SqliteStore

        return SqliteStore(rest, run, query)
    if kind in ("redis", "rediss", "unix"):
        from headway.pipelined.control.redis import RedisStore

        return RedisStore(url, run, query)
    raise WrongUsage(
        f"{url!r} is no control store",
        hint="use sqlite:<folder>, redis://host:port/0, or none",
    )
