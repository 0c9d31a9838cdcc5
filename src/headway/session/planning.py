"""From a query to what will run: its plan, its estimates, and the engine that takes it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headway.base.errors import HeadwayError, PlanNotImportable
from headway.pipelined.kernels.operators import explain_support
from headway.pipelined.printer import dataflow_to_builtins, print_dataflow
from headway.pipelined.programs import Dataflow
from headway.plan.cardinalities import Estimate, Statistics, estimate
from headway.plan.graph import walk
from headway.plan.join_order import order_joins
from headway.plan.nodes import Node, QueryPlan, Scan
from headway.plan.pipelines import Pipelines, pipelines_of
from headway.plan.printer import describe, print_plan
from headway.plan.reduction import reduce_by_joins
from headway.plan.serialize import plan_to_builtins
from headway.plan.sides import choose_build_sides
from headway.plan.sources import FileSource, SessionSource, Source
from headway.plan.statistics import TableStatistics, source_statistics
from headway.storage import (
    FileFingerprint,
    QueryRecord,
    TableRecord,
    fingerprint_files,
    written_again,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headway.spark.catalyst import ImportedPlan
    from headway.spark.results import KeptResult

SPARK = "spark"
PIPELINED = "pipelined"
_MOST_SHAPES = 200

Content = tuple[tuple[int, str, str], ...]


@dataclass(frozen=True)
class PlannedQuery:
    """A query ready to run, or the error that it already has."""

    name: str
    sql: str
    given: DataFrame | Callable[[], DataFrame] | None
    """As a frame, or what makes it for who asks: Spark need not look at what others run."""
    plan: QueryPlan | None = None
    not_imported: str | None = None
    settings: Mapping[str, str] | None = None
    """Without a plan: those of its session that change what its text means."""
    files: tuple[str, ...] = ()
    """Without a plan: what it reads, as far as Spark can tell."""
    error: HeadwayError | None = None
    estimates: Mapping[Node, Estimate] | None = None
    engine: str = SPARK
    refusals: tuple[str, ...] = ()
    """Why the pipelined engine does not take the query."""
    dataflow: Dataflow | None = None
    """Its stages on the pipelined engine; made for explaining."""
    session_frames: Mapping[str, DataFrame] = field(default_factory=dict, repr=False)
    """Frames of sources that only this session can read, by their id."""
    deadline: float | None = None
    """In a batch: seconds from its start, where the query has a deadline of its own."""
    priority: float = 0.0
    """In a batch: queries with a higher one are taken first."""
    imported: ImportedPlan | None = field(default=None, repr=False)
    """The plan as Spark made it, before an engine was chosen for it."""
    states: Mapping[str, KeptResult] = field(default_factory=dict, repr=False)
    """Results in the run that the plan reads in place of its own work, by their names."""
    command: bool = False
    """Spark has done what it says while it was planned; only its rows are left to be kept."""
    serves: int = 1
    """The queries that the plan works for; many make much work of few bytes."""

    def renew(self, frame: DataFrame) -> None:
        """The same query as another frame, for all who hold this one."""
        object.__setattr__(self, "given", frame)

    @property
    def frame(self) -> DataFrame | None:
        """What Spark is asked for as it is."""
        return self.given() if callable(self.given) else self.given

    @property
    def schema(self) -> str | None:
        """That of its rows as Spark's analyser has it, as JSON, where that is known."""
        if self.imported is not None and self.imported.schema:
            return self.imported.schema
        return None if self.frame is None else str(self.frame.schema.json())

    @property
    def result_bytes(self) -> float:
        """How large the result is expected to be; unknown ones count as small."""
        if self.plan is None or self.estimates is None:
            return 0.0
        return self.estimates[self.plan.root].bytes

    @cached_property
    def pipelines(self) -> Pipelines | None:
        return None if self.plan is None else pipelines_of(self.plan)

    @property
    def whole_plan(self) -> QueryPlan | None:
        """Without the states that it reads in place of its own work, where it is known."""
        return self.imported.plan if self.states and self.imported is not None else self.plan

    @property
    def travels(self) -> bool:
        """Whether another session can run it: it has a text, or a plan that reads no data of this
        one."""
        plan = self.whole_plan
        return bool(self.sql) or (plan is not None and is_portable(plan))

    def record(self) -> QueryRecord:
        """With the plan as Spark made it, which any engine can run."""
        plan = self.whole_plan if self.imported is None else self.imported.plan
        told = None if plan is None else plan_to_builtins(plan)
        settings = None if self.settings is None else dict(self.settings)
        return QueryRecord(self.name, self.sql, told, self.not_imported, settings)

    def explain(self) -> str:
        """The plan with its estimates, its pipelines, and the engine with the reason for it."""
        lines = [f"Query {self.name}"]
        if self.error is not None:
            return "\n".join([*lines, self.error.describe()])
        lines.append(f"Engine: {self.engine}")
        lines += [f"  not pipelined: {reason}" for reason in self.refusals]
        if self.plan is None:
            return "\n".join([*lines, f"Spark runs it unchanged: {self.not_imported}"])
        notes = {node: _note(found) for node, found in (self.estimates or {}).items()}
        lines += ["", print_plan(self.plan, notes), "", "Pipelines, in order of execution:"]
        for pipeline in self.pipelines or ():
            after = ", ".join(map(str, sorted(pipeline.depends_on)))
            lines.append(
                f"  {pipeline.id}. {describe(pipeline.source)[:60]} → {pipeline.role} of "
                f"{describe(pipeline.sink)[:60]}{f'  (after {after})' if after else ''}"
            )
        if self.dataflow is not None:
            lines += ["", "Stages on the workers:", print_dataflow(self.dataflow)]
        return "\n".join(lines)

    def to_builtins(self) -> dict[str, Any]:
        """What explain shows, for a script."""
        nodes = list(walk(self.plan.root)) if self.plan is not None else []
        found = self.estimates or {}
        return {
            "name": self.name,
            "engine": self.engine,
            "not_pipelined": list(self.refusals),
            "not_imported": self.not_imported,
            "error": None if self.error is None else self.error.describe(),
            "plan": None if self.plan is None else plan_to_builtins(self.plan),
            "estimates": [
                {"rows": found[n].rows, "bytes": found[n].bytes, "observed": found[n].observed}
                for n in nodes
                if n in found
            ],
            "pipelines": [
                {
                    "id": p.id,
                    "source": describe(p.source),
                    "sink": describe(p.sink),
                    "role": str(p.role),
                    "depends_on": sorted(p.depends_on),
                }
                for p in self.pipelines or ()
            ],
            "stages": [] if self.dataflow is None else dataflow_to_builtins(self.dataflow),
        }


def with_plan(
    query: PlannedQuery,
    imported: ImportedPlan,
    observed: Mapping[str, float],
    wanted: str = "auto",
) -> PlannedQuery:
    """The query with its plan: every node estimated, the engine chosen. The spark engine leaves the
    order of joins to Spark."""

    return with_engine(
        replace(query, session_frames=imported.frames, imported=imported),
        imported.plan,
        statistics_of(imported),
        observed,
        wanted,
    )


def statistics_of(imported: ImportedPlan | None) -> Statistics:
    """What is known of the sources of a plan."""
    told = {} if imported is None else imported.statistics

    def statistics(source: Source) -> TableStatistics | None:
        return source_statistics(source) or told.get(source)

    return statistics


def with_engine(
    query: PlannedQuery,
    plan: QueryPlan,
    statistics: Statistics,
    observed: Mapping[str, float],
    wanted: str,
    *,
    ordered: bool = False,
) -> PlannedQuery:
    """The query with a plan for the engine that takes it. Joins that are `ordered` stay so."""
    refusals = [] if wanted == SPARK else explain_support(plan)
    if wanted == PIPELINED and refusals:
        return replace(query, plan=plan, error=refusals[0])
    engine = SPARK if refusals or wanted == SPARK else PIPELINED
    if engine == PIPELINED and not ordered:
        for rule in (order_joins, reduce_by_joins):  # what is reduced depends on what is joined
            plan = rule(plan, statistics, observed)
    estimates = estimate(plan, statistics, observed)
    chosen = choose_build_sides(plan, estimates)
    if chosen.root is not plan.root:
        plan, estimates = chosen, estimate(chosen, statistics, observed)
    return replace(
        query,
        plan=plan,
        estimates=estimates,
        engine=engine,
        refusals=tuple(refusal.message for refusal in refusals),
    )


class Shapes:
    """Plans as they were made ready before, for queries that come again."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, tuple[ImportedPlan, int, PlannedQuery]] = OrderedDict()

    def with_plan(
        self,
        query: PlannedQuery,
        imported: ImportedPlan,
        observed: Mapping[str, float],
        wanted: str,
    ) -> PlannedQuery:
        """As `with_plan`, once per imported plan and state of what was observed."""
        known = self._known.get(id(imported))
        if known is not None and known[0] is imported and known[1] == len(observed):
            return replace(
                known[2],
                name=query.name,
                sql=query.sql,
                given=query.given,
                deadline=query.deadline,
                priority=query.priority,
            )
        made = with_plan(query, imported, observed, wanted)
        self._known[id(imported)] = (imported, len(observed), replace(made, given=None))
        while len(self._known) > _MOST_SHAPES:
            self._known.popitem(last=False)
        return made


def without_plan(query: PlannedQuery, error: PlanNotImportable) -> PlannedQuery:
    """With what its text alone does not tell whoever is to run it elsewhere."""
    from headway.spark.catalyst import is_command, session_settings
    from headway.spark.tables import files_of

    known = replace(query, not_imported=error.message)
    if query.frame is None or not hasattr(query.frame, "_jdf"):
        return known
    if is_command(query.frame):
        return replace(known, command=True)
    settings = session_settings(query.frame.sparkSession)
    return replace(known, settings=settings, files=files_of(query.frame))


def tables_of(queries: Iterable[PlannedQuery]) -> tuple[TableRecord, ...]:
    """Every table of files that the queries read, once, with the fingerprints of its files: those
    too that are behind states of other runs."""
    asked = list(queries)
    found = (query.whole_plan for query in asked)
    return (
        *tables_in(plan for plan in found if plan is not None),
        *(files_read(query) for query in asked if query.files),
    )


def files_read(query: PlannedQuery) -> TableRecord:
    """Those of a query without a plan, as if they were one table."""
    return TableRecord(f"the files of {query.name}", "", _fingerprints(query.files))


def tables_in(plans: Iterable[QueryPlan]) -> tuple[TableRecord, ...]:
    sources: dict[str, FileSource] = {}
    for plan in plans:
        for source in file_sources(plan):
            sources.setdefault(f"{source.table} {source.files}", source)
    return tuple(map(table_of, sources.values()))


def file_sources(plan: QueryPlan) -> list[FileSource]:
    scans = (node for node in walk(plan.root) if isinstance(node, Scan))
    return [scan.source for scan in scans if isinstance(scan.source, FileSource)]


def is_portable(plan: QueryPlan) -> bool:
    """Whether it reads no data that only the session which made it can reach."""
    scans = (node for node in walk(plan.root) if isinstance(node, Scan))
    return not any(isinstance(scan.source, SessionSource) for scan in scans)


def changed_tables(before: Iterable[TableRecord], now: Iterable[TableRecord]) -> tuple[str, ...]:
    """The tables of now whose data none of those before had. What tables are called, and where
    their files are, does not count; nothing is said of files that only Spark can read."""
    tables = list(before)
    known = {content_of(table) for table in tables}
    files = {file.path: file for table in tables for file in table.files}

    def is_known(table: TableRecord) -> bool:
        here = ((files[f.path], f) for f in table.files if f.path in files)
        return content_of(table) in known and not any(written_again(*pair) for pair in here)

    changed = (t.name for t in now if not is_unreadable(t) and not is_known(t))
    return tuple(dict.fromkeys(changed))


def is_unreadable(table: TableRecord) -> bool:
    """Whether only Spark can read its files."""
    return any(file.size < 0 for file in table.files)


def content_of(table: TableRecord) -> Content:
    """What a table holds, apart from what it is called and where it is. The folders of partitions
    are data as well."""
    return tuple(sorted((f.size, f.digest, _partition(f.path, table.root)) for f in table.files))


def _partition(file: str, root: str | None) -> str:
    return "" if root is None else file.rpartition("/")[0].removeprefix(root).strip("/")


def table_of(source: FileSource) -> TableRecord:
    """With the fingerprints of its files as they are now."""
    return TableRecord(source.table, source.format, _fingerprints(source.files), source.root)


def _fingerprints(files: tuple[str, ...]) -> tuple[FileFingerprint, ...]:
    """Without size and content where only Spark can reach the files (a Hadoop store, its own
    credentials)."""
    try:
        return tuple(fingerprint_files(files))
    except HeadwayError:
        return tuple(FileFingerprint(path=path, size=-1, digest="") for path in files)


def _note(found: Estimate) -> str:
    sign = "" if found.observed else "~"
    return f"{sign}{found.rows:,.0f} rows"
