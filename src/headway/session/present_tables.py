"""The tables of a run that is resumed: where they are now, and whether they are the same.

A table is known by what it holds. What it is called, and where its files are, may be otherwise in
another session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import msgspec

from headway.base.errors import TableChanged
from headway.plan.canonical import canonical_forms
from headway.plan.graph import replace_nodes, walk, with_root
from headway.plan.nodes import Node, QueryPlan, Scan
from headway.plan.sources import FileSource
from headway.session.planning import (
    Content,
    PlannedQuery,
    changed_tables,
    content_of,
    file_sources,
    files_read,
    is_unreadable,
    table_of,
    tables_in,
)
from headway.session.resuming import Resumed
from headway.storage import Event, Run, TableRecord

TABLES = "tables"

Identity = tuple[Content, str]


def known_tables(run: Run, events: Iterable[Event], resumed: Resumed) -> tuple[TableRecord, ...]:
    """Those that a run began with, also where its later drivers have found them."""
    found = [
        msgspec.convert(table, TableRecord)
        for event in events
        if event.kind == TABLES
        for table in event.data["tables"]
    ]
    return (*run.manifest.tables, *found, *resumed.tables)


def present_tables(
    run: Run, queries: Iterable[PlannedQuery], plans: Iterable[QueryPlan] = ()
) -> tuple[TableRecord, ...]:
    """What the queries of a run and these plans read now; not of queries whose tables nobody knew
    when the run began."""
    records = {record.name: record for record in run.manifest.queries}
    asked = [query for query in queries if query.name in records]
    found = (query.whole_plan for query in asked if records[query.name].plan is not None)
    read = {table.name for table in run.manifest.tables}
    files = (files_read(query) for query in asked if query.files)
    return (
        *tables_in([*(plan for plan in found if plan is not None), *plans]),
        *(table for table in files if table.name in read),
    )


def record_moved(run: Run, known: Sequence[TableRecord], present: Sequence[TableRecord]) -> None:
    """Says where tables are now: plans of what is left read them there from now on, and are found
    again when they move once more."""
    before = {_paths(table) for table in known}
    moved = [table for table in present if _paths(table) not in before]
    if moved:
        run.append(TABLES, None, tables=msgspec.to_builtins(moved))


def refuse_changed(run: Run, known: Sequence[TableRecord], present: Sequence[TableRecord]) -> None:
    """What a run has kept is of the rows that its tables had when it began."""
    changed = changed_tables(known, present)
    if changed:
        raise TableChanged(
            f"{', '.join(changed)} does not hold what the tables of run {run.run_id} held when it "
            "began: its kept results are of other rows",
            hint="resume it where its tables are as they were, or run the queries again",
        )


def refuse_mixed(run: Run, tables: Iterable[TableRecord]) -> None:
    """`tables` are what an image read of queries whose tables the run did not know: they were noted
    with the image, and its states may be of what the same files held before."""
    began = {file.path: file for table in run.manifest.tables for file in table.files}
    changed = [
        table.name
        for table in tables
        for file in table.files
        if file.path in began and min(file.size, began[file.path].size) >= 0
        if file != began[file.path]
    ]
    if changed:
        raise TableChanged(
            f"{', '.join(dict.fromkeys(changed))} was written to while run {run.run_id} was under "
            "way: what is kept of it is of other rows",
            hint="run the queries again",
        )


def check_tables(
    run: Run, known: Sequence[TableRecord], present: Sequence[TableRecord], *, unchecked: bool
) -> None:
    """Refuses tables that have changed; and those of which nobody can tell, unless they are to go
    `unchecked`."""
    refuse_changed(run, known, present)
    unknown = dict.fromkeys(t.name for t in (*known, *present) if is_unreadable(t))
    if unknown and not unchecked:
        raise TableChanged(
            f"the files of {', '.join(unknown)} cannot be read from here, or by Spark alone: "
            f"nobody can tell whether they are those that run {run.run_id} began with",
            hint="if you know that they are, go on with --unchecked",
        )


class PresentTables:
    """The tables of files that queries read now, known by what they hold and how they are read."""

    def __init__(self, known: Iterable[TableRecord], queries: Iterable[PlannedQuery]) -> None:
        """`known` are those of the plans that were made before."""
        tables = (table for table in known if table.format)  # or files of which no plan is known
        self._known = {_paths(table): _identity(table) for table in tables}
        plans = [query.imported.plan for query in queries if query.imported is not None]
        self._sources = {source for plan in plans for source in file_sources(plan)}

    def plan(self, plan: QueryPlan) -> QueryPlan:
        """The plan over the tables where they are now; over those that no query reads, where they
        were."""
        replaced: dict[Node, Node] = {}
        for node in walk(plan.root):
            if not isinstance(node, Scan) or not isinstance(node.source, FileSource):
                continue
            identity = self._known.get(node.source.files)
            if identity is None or node.source in self._sources:
                continue
            found = self._present.get((identity, _reading(node.source)))
            if found is not None:
                replaced[node] = replace(node, source=found)
        return with_root(plan, replace_nodes(plan.root, replaced)) if replaced else plan

    def has(self, plan: QueryPlan) -> bool:
        """Whether the tables of a plan are there: where they are now, or where they were."""
        return not any(is_unreadable(table_of(source)) for source in file_sources(self.plan(plan)))

    def is_planned_as(self, query: PlannedQuery | None, plan: QueryPlan) -> bool:
        """Whether the text of a query means here what it meant when that plan was made of it: with
        the same settings and views, at the same day, over the same tables."""
        if query is None or query.imported is None:
            return False
        now, then = query.imported.plan, self.plan(plan)
        if (now.names, dict(now.settings)) != (then.names, dict(then.settings)):
            return False
        return _key(now) == _key(then)

    @cached_property
    def _present(self) -> Mapping[tuple[Identity, FileSource], FileSource]:
        return {(_identity(table_of(s)), _reading(s)): s for s in self._sources}


def _key(plan: QueryPlan) -> str:
    return canonical_forms(plan.root)[plan.root].key


def _identity(table: TableRecord) -> Identity:
    """What a table holds; where that cannot be told, what it is called as well."""
    return content_of(table), table.name if is_unreadable(table) else ""


def _reading(source: FileSource) -> FileSource:
    """How its files are read, whichever they are."""
    return replace(source, table="", files=(), root=None if source.root is None else "")


def _paths(table: TableRecord) -> tuple[str, ...]:
    return tuple(file.path for file in table.files)
