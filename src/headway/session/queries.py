"""What a session is asked to run: texts and DataFrames that have names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING, Any

from headway.base.errors import WrongUsage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headway.plan.nodes import QueryPlan


@dataclass(frozen=True, slots=True)
class Query:
    """A query that has a name: a text, or a DataFrame that somebody made."""

    name: str
    sql: str
    frame: DataFrame | None = None
    deadline: float | None = None
    """In a batch: seconds from its start, where the query has a deadline of its own."""
    priority: float = 0.0
    """In a batch: queries with a higher one are taken first."""
    plan: QueryPlan | None = None
    """Of a run that is resumed: what it was planned as, where others can run that."""


def checked(query: Query) -> Query:
    if query.deadline is not None and not query.deadline > 0:
        raise WrongUsage(
            f"the deadline of {query.name}, {query.deadline:g} seconds, has passed already"
        )
    if isnan(query.priority):
        raise WrongUsage(f"the priority of {query.name} is no number")
    return query


def listed(queries: Any) -> Sequence[Any]:
    if isinstance(queries, str | Query) or hasattr(queries, "sparkSession"):
        return [queries]
    return list(queries)


def named_apart(queries: list[Query]) -> list[Query]:
    """Names that fit into a store and occur once."""
    taken: set[str] = set()
    named = []
    for query in queries:
        base = re.sub(r"[^A-Za-z0-9_-]+", "_", query.name).strip("_")[:56] or "query"
        name, number = base, 2
        while name.casefold() in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name.casefold())
        named.append(replace(query, name=name))
    return named
