"""States of images, found again by later queries over the same data.

A state is known by what made it: the canonical form of that part of the plan, in which the content
of files stands in place of their names, and the settings that it was made with. It stays in the run
that made it, for as long as that run is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from headway.base.errors import HeadwayError, RunNotFound
from headway.plan.canonical import canonical_forms
from headway.plan.expressions import Column
from headway.plan.graph import replace_nodes, topmost, walk, with_inputs, with_root
from headway.plan.nodes import (
    Filter,
    Join,
    Node,
    Project,
    QueryPlan,
    Scan,
    Side,
    StateScan,
    Values,
)
from headway.plan.sources import FileSource, SessionSource
from headway.plan.states import IMAGE, renamed_state
from headway.session.planning import Content, content_of, is_unreadable, table_of
from headway.session.resuming import QueryImage, kept_data, kept_of
from headway.storage import ReliableStore, Run

if TYPE_CHECKING:
    from headway.spark.results import KeptResult

_FOLDER = "reuse"
_VERSION = "1"
_CHEAP = (Scan, StateScan, Filter, Project, Values)
"""Reading a state costs about what these cost, unless there is more below them."""


class _Record(msgspec.Struct):
    run: str
    places: tuple[int, ...]
    kept: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reused:
    """A plan that reads states of other runs, by their names in it."""

    plan: QueryPlan
    states: Mapping[str, KeptResult]


class ReusableStates:
    """Those of one store."""

    def __init__(self, store: ReliableStore) -> None:
        self._store = store

    def offer(self, run: Run, images: Iterable[QueryImage]) -> set[str]:
        """Make the states of images known; the names of those that are, and have to stay."""
        offered: set[str] = set()
        known = {content_of(each) for each in run.manifest.tables}
        contents: dict[FileSource, str | None] = {}
        for image in images:
            for name, origin in image.origins.items():
                kept = image.states.get(name)
                if kept is None or kept.run is not None or not origin.whole:
                    continue
                keys = _keys(origin.node, image.plan.settings, contents, known)
                key = keys.get(origin.node)
                if key is None or not _is_worth(origin.node):
                    continue
                record = _Record(run.run_id, origin.places, kept_data(kept))
                self._store.write(f"{_FOLDER}/{key}", msgspec.json.encode(record))
                offered.add(name)
        return offered

    def used_by(self, plan: QueryPlan) -> Reused | None:
        """The plan with states in place of what made them; None where there are none of its own
        work."""
        known = {path.rpartition("/")[2] for path in self._store.list(_FOLDER)}
        if not known:
            return None
        keys = {
            node: key
            for node, key in _keys(plan.root, plan.settings, {}).items()
            if key in known and _is_worth(node)
        }
        found = {node: self._find(key) for node, key in keys.items()}
        there = {node: record for node, record in found.items() if record is not None}
        states: dict[str, KeptResult] = {}
        replaced: dict[Node, Node] = {}
        for node in topmost(plan.root, there):
            record = there[node]
            kept = replace(kept_of(record.kept), run=record.run)
            name = f"reused-{keys[node]}"
            scan = StateScan(IMAGE, name, _columns(kept))
            states[name] = kept
            replaced[node] = renamed_state(scan, node, record.places)
        if not states:
            return None
        return Reused(with_root(plan, replace_nodes(plan.root, replaced)), states)

    def _find(self, key: str) -> _Record | None:
        """None where the run is gone, or does not have all of it."""
        path = f"{_FOLDER}/{key}"
        try:
            record = msgspec.json.decode(self._store.read(path), type=_Record)
            pieces = set(Run.open(self._store, record.run).pieces())
        except RunNotFound:
            with suppress(HeadwayError):
                self._store.delete_tree(path)
            return None
        except (HeadwayError, msgspec.MsgspecError):
            return None
        return record if pieces.issuperset(record.kept["pieces"]) else None


def _is_worth(node: Node) -> bool:
    return any(not isinstance(below, _CHEAP) for below in walk(node))


def _columns(kept: KeptResult) -> tuple[Column, ...]:
    from headway.spark.schemas import columns_of_schema

    return columns_of_schema(kept.schema)


def _keys(
    root: Node,
    settings: tuple[tuple[str, str], ...],
    contents: dict[FileSource, str | None],
    known: Collection[Content] | None = None,
) -> dict[Node, str]:
    """What each node of a plan is known by, but for those that read what has no content of its own:
    data of one session, states of one run, files that only Spark can read. What the sources hold is
    added to `contents`. Where `known` ones are given, files have to have one of them: others have
    changed since a run began."""
    changed: dict[Node, Node] = {}
    closed: set[Node] = set()
    for node in walk(root):
        source = node.source if isinstance(node, Scan) else None
        if isinstance(source, FileSource) and source not in contents:
            contents[source] = _content(source, known)
        changed[node] = _anonymous(with_inputs(node, lambda child: changed[child]), contents)
        unread = isinstance(source, FileSource) and contents[source] is None
        alone = isinstance(node, StateScan) or isinstance(source, SessionSource) or unread
        if alone or any(child in closed for child in _inputs(node)):
            closed.add(node)
    forms = canonical_forms(changed[root])
    common = f"{_VERSION} {sorted(settings)}"
    return {
        node: _digest(f"{common} {forms[changed[node]].key} {_schema(node)}")
        for node in changed
        if node not in closed
    }


def _anonymous(node: Node, contents: Mapping[FileSource, str | None]) -> Node:
    """Without the names of files, and the side of a join that happens to be collected."""
    if isinstance(node, Join):
        return replace(node, build=Side.RIGHT)
    if isinstance(node, Scan) and isinstance(node.source, FileSource):
        content = contents[node.source] or ""
        folder = None if node.source.root is None else ""
        told = replace(node.source, table="", files=(content,), root=folder)
        return replace(node, source=told)
    return node


def _inputs(node: Node) -> tuple[Node, ...]:
    return (*node.children, *(subquery.plan for subquery in node.subqueries))


def _schema(node: Node) -> str:
    return " ".join(column.type for column in node.schema)


def _content(source: FileSource, known: Collection[Content] | None) -> str | None:
    table = table_of(source)
    content = content_of(table)
    if not content or is_unreadable(table) or (known is not None and content not in known):
        return None
    return _digest(str((content, sorted(file.version for file in table.files))))


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
