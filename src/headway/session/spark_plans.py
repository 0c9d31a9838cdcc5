"""Queries as Spark plans them: texts and frames become plans of ours, or carry their error."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from headway.base.errors import PlanNotImportable, WrongUsage
from headway.session.planning import PlannedQuery, without_plan
from headway.session.queries import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.spark.remembered import Seen


class SparkPlans:
    """Those of one session; remembered for queries that come again."""

    def __init__(self, spark: SparkSession) -> None:
        from headway.spark.remembered import ImportedPlans

        self._spark = spark
        self._imported = ImportedPlans()

    def imported(
        self, queries: list[Query], *, act: bool, forms: bool = False
    ) -> Iterator[PlannedQuery]:
        """Texts that only read are planned side by side; Spark sees one after the other of those
        that may change what the next ones mean, and runs commands at once: unless `act`, they are
        refused. With `forms`, queries that differ in constants alone get their plans at once."""
        left = queries
        while left:
            texts = [query.sql for query in takewhile(_is_planned_beside, left)]
            count = 0
            if forms or len(texts) > 1:
                for query, seen in zip(
                    left, self._imported.get_all(self._spark, texts, forms=forms), strict=False
                ):
                    yield self._seen(query, seen)
                    count += 1
            if count < len(left) and (count < len(texts) or not texts):
                yield self._with_import(self._analysed(left[count], act=act))
                count += 1
            left = left[count:]

    def _analysed(self, query: Query, *, act: bool) -> PlannedQuery:
        from headway.spark.catalyst import is_action, is_command
        from headway.spark.errors import named_error

        asked = _to_plan(query)
        try:
            if not act and query.frame is None and is_action(self._spark, query.sql):
                raise WrongUsage(
                    f"{query.name} is a command, which Spark runs as soon as it sees it",
                    hint="explain the query inside it",
                )
            frame = query.frame if query.frame is not None else self._spark.sql(query.sql)
            if query.frame is not None and not is_command(frame):
                frame = frame.select("*")  # one of our own: what is stopped fails for ever
        except Exception as error:  # noqa: BLE001 - named, and carried by the query alone
            return replace(asked, error=named_error(error))
        return replace(asked, given=frame)

    def _with_import(self, query: PlannedQuery) -> PlannedQuery:
        if query.frame is None:
            return query
        try:
            return replace(query, imported=self._imported.get(query.frame))
        except PlanNotImportable as error:
            return without_plan(query, error)

    def _seen(self, query: Query, seen: Seen) -> PlannedQuery:
        from headway.spark.errors import named_error

        asked = replace(_to_plan(query), given=seen.frame, imported=seen.imported)
        if seen.error is None:
            return asked
        if isinstance(seen.error, PlanNotImportable):
            return without_plan(asked, seen.error)
        return replace(asked, error=named_error(seen.error))


def _to_plan(query: Query) -> PlannedQuery:
    return PlannedQuery(
        query.name, query.sql, None, deadline=query.deadline, priority=query.priority
    )


def _is_planned_beside(query: Query) -> bool:
    """Whether it is a text that can be planned beside others; some of those may still act."""
    from headway.spark.tree_text import PlannedTogether

    return query.frame is None and PlannedTogether.takes(query.sql)
