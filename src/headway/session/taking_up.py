"""A run that another driver has left, as this session goes on with it: its queries planned again,
over the tables that are here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from headway.base.config import SETTINGS, Settings
from headway.base.errors import (
    HeadwayError,
    PieceMissing,
    PlanNotResumable,
    StoreConflict,
    StoreCorrupt,
    WrongUsage,
)
from headway.plan.serialize import plan_from_builtins
from headway.session.planning import PlannedQuery, is_portable
from headway.session.present_tables import (
    PresentTables,
    present_tables,
    refuse_changed,
    refuse_mixed,
)
from headway.session.queries import Query
from headway.session.resuming import Resumed, resumed_from
from headway.storage import TAKEN_OVER, Event, Run, TableRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_TRIALS = 5


def what_is_left(run: Run) -> tuple[tuple[Event, ...], Resumed]:
    """Of a run that goes on: while an image is read, the next one may take its place."""
    while True:
        events = run.events()
        try:
            return events, resumed_from(run, events)
        except PieceMissing:
            if len(run.events()) == len(events):
                raise


def taken_from_driver(run: Run, take_over: Callable[[], T]) -> T:
    """What taking the run over gives, from a driver that may go on meanwhile: then it is tried
    again with what that has done. Somebody else who takes it over is left with it."""
    for _ in range(_TRIALS):
        seen = len(run.events())
        try:
            return take_over()
        except StoreConflict:
            if any(event.kind == TAKEN_OVER for event in run.events()[seen:]):
                raise
    raise StoreConflict(
        f"the driver of run {run.run_id} goes on, and always does more than was read of it",
        hint=f"stop it first: headway suspend {run.run_id}",
    )


def took_snapshots(run: Run) -> bool:
    return run.manifest.settings.get("suspension.snapshot_every", "never") != "never"


def as_it_was_asked_for(run: Run, settings: Settings) -> Settings:
    """With what the run was begun with for the case that it is stopped or lost again, where nothing
    else is asked for here."""
    asked = {
        each.key: each.read(run.manifest.settings[each.name], f"run {run.run_id}")
        for each in SETTINGS
        if each.area == "suspension"
        and each.name in run.manifest.settings
        and settings.origin(each.name) == "default"
    }
    return replace(settings, suspension=replace(settings.suspension, **asked))


def queries_of(
    run: Run, deadlines: Mapping[str, float], priorities: Mapping[str, float]
) -> list[Query]:
    """As the run has them: with their texts, and the plans that others can run."""
    found = []
    for record in run.manifest.queries:
        plan = None
        if record.plan is not None:
            plan = plan_from_builtins(record.plan)
            plan = plan if is_portable(plan) else None
        deadline, priority = deadlines.get(record.name), priorities.get(record.name, 0.0)
        found.append(Query(record.name, record.sql, None, deadline, priority, plan))
    return found


def planned_again(
    spark: SparkSession,
    run: Run,
    queries: list[Query],
    resumed: Resumed,
    known: Sequence[TableRecord],
    plan: Callable[[list[Query]], list[PlannedQuery]],
) -> list[PlannedQuery]:
    """The queries that are left, planned; those that are done need no plan. Commands were run
    when the run began, and are not run again. What was a DataFrame, or whose text means
    something else here, is read from its plan; what had none is whatever its image says, or its
    text with the settings that it had. A query that nobody can go on with fails by itself, where
    there are others."""
    left = [query for query in queries if query.name not in resumed.results]
    for query in left:
        if _is_command(spark, query.sql):
            raise WrongUsage(
                f"{query.name} is a command, which was run when run {run.run_id} began",
                hint="run what is left of its queries in a new run",
            )
    bound = {
        query.name: _bound(run, query)
        for query in left
        if not query.sql and query.plan is None and query.name not in resumed.plans
    }
    if bound and len(bound) == len(left):
        raise next(iter(bound.values()))
    left = [query for query in left if query.name not in bound]
    records = {record.name: record for record in run.manifest.queries}
    of_images = {q.name for q in left if q.plan is None and q.name in resumed.plans}
    texts = []
    for query in (query for query in left if query.sql):
        try:
            texts.append(_as_it_was(spark, query, records[query.name].settings))
        except HeadwayError:
            if query.name not in of_images:
                raise
    found = {each.name: each for each in plan(texts)} if texts else {}
    for name in of_images & found.keys():
        if found[name].error is not None:  # it needs its image alone, and no view of this session
            del found[name]
    refuse_mixed(run, resumed.tables)
    refuse_changed(run, known, present_tables(run, found.values()))
    here = PresentTables(known, found.values())
    frames = []
    for query in left:
        if query.plan is None or here.is_planned_as(found.get(query.name), query.plan):
            continue
        error = found[query.name].error if query.name in found else None
        if error is not None and not here.has(query.plan):
            raise error  # such as that a table is not known here
        frames.append(_framed(spark, query, here))
    found |= {each.name: each for each in plan(frames)} if frames else {}
    _raise_new_errors(run, found.values())
    others = [
        PlannedQuery(
            q.name,
            q.sql,
            None,
            error=bound.get(q.name),
            deadline=q.deadline,
            priority=q.priority,
        )
        for q in queries
    ]
    return [found.get(planned.name, planned) for planned in others]


def _bound(run: Run, query: Query) -> PlanNotResumable:
    return PlanNotResumable(
        f"{query.name} was a DataFrame over data of its session alone: run {run.run_id} has "
        "nothing to go on with it",
        hint="run it again, in a new run",
    )


def _as_it_was(spark: SparkSession, query: Query, settings: Mapping[str, str] | None) -> Query:
    """A query that has a text alone, which is read with the `settings` that it had."""
    from headway.spark.catalyst import session_settings
    from headway.spark.errors import named_error
    from headway.spark.frames import frame_of_text

    if query.plan is not None or settings is None or settings == session_settings(spark):
        return query
    try:
        return replace(query, frame=frame_of_text(spark, query.sql, settings))
    except Exception as error:
        raise named_error(error) from error


def _framed(spark: SparkSession, query: Query, here: PresentTables) -> Query:
    """A query that has a plan alone, as a DataFrame of this session."""
    from headway.spark.frames import frame_of

    assert query.plan is not None
    return replace(query, frame=frame_of(spark, here.plan(query.plan)))


def _is_command(spark: SparkSession, text: str) -> bool:
    from headway.spark.catalyst import is_action

    try:
        return is_action(spark, text)
    except Exception:  # noqa: BLE001 - what cannot be parsed fails by itself, later
        return False


def _raise_new_errors(run: Run, queries: Iterable[PlannedQuery]) -> None:
    """Such as of a table that is not known here."""
    records = {record.name: record for record in run.manifest.queries}
    for planned in queries:
        record = records[planned.name]
        was_planned = record.plan is not None or record.not_imported is not None
        if planned.error is not None and was_planned:
            raise planned.error


def check_plans(run: Run, queries: Iterable[PlannedQuery], resumed: Resumed) -> None:
    """What is left of a query must have the columns of the query."""
    for query in queries:
        plan = resumed.plans.get(query.name)
        if plan is not None and query.frame is not None:
            names = tuple(query.frame.columns)
            if plan.names != names:
                raise StoreCorrupt(
                    f"the image of query {query.name} in run {run.run_id} is of another query: "
                    f"it has the columns {', '.join(plan.names)}, not {', '.join(names)}",
                    hint="resume the run where its tables and views are what they were, or run the "
                    "query again",
                )
