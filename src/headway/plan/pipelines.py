"""Pipelines: the paths of a plan along which rows flow without being collected.

A blocking operator collects all its rows before it puts out the first: an aggregate, a sort, a
window; a join its build side; and a result that is used more than once. What lies between two of
them is a pipeline. Every pipeline runs once, after all that it depends on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from headway.plan.graph import use_counts
from headway.plan.nodes import (
    Aggregate,
    Join,
    Node,
    QueryPlan,
    Scan,
    Sort,
    StateScan,
    Union,
    Values,
    Window,
)

_BLOCKING = (Aggregate, Sort, Window)
_LEAVES = (Scan, StateScan, Values)


class Role(StrEnum):
    """What becomes of the rows at a pipeline's end."""

    INPUT = "input"
    """The input of an aggregate, a sort or a window."""
    BUILD = "build"
    """The build side of a join."""
    SHARED = "shared"
    """A result that several operators read."""
    SUBQUERY = "subquery"
    """The value of a scalar subquery."""
    RESULT = "result"
    """The rows the user asked for."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Rows of `source` through `operators` into `sink`.

    `operators` are those that pass rows on, in the order of the flow; a join among them is probed.
    `sink` is the operator that collects: for the roles result, shared and subquery, the node whose
    output it is.
    """

    id: int
    source: Node
    operators: tuple[Node, ...]
    sink: Node
    role: Role
    depends_on: frozenset[int]


@dataclass(frozen=True, slots=True)
class Pipelines:
    """All pipelines of a plan, in an order in which they can run."""

    pipelines: tuple[Pipeline, ...]

    def __iter__(self) -> Iterator[Pipeline]:
        return iter(self.pipelines)

    def __len__(self) -> int:
        return len(self.pipelines)

    def dependents(self) -> dict[int, frozenset[int]]:
        """For every pipeline those that need its result directly."""
        return {
            p.id: frozenset(q.id for q in self.pipelines if p.id in q.depends_on)
            for p in self.pipelines
        }

    def progress(self, finished: Collection[int]) -> float:
        """The finished share of all pipelines."""
        return sum(p.id in finished for p in self.pipelines) / len(self.pipelines)

    def ready(self, finished: Collection[int]) -> tuple[Pipeline, ...]:
        """Those that have not run and whose dependencies all have."""
        return tuple(
            p for p in self.pipelines if p.id not in finished and p.depends_on <= set(finished)
        )

    def still_needed(self, finished: Collection[int]) -> tuple[Pipeline, ...]:
        """Finished pipelines whose result an unfinished one needs: the state of the query."""
        dependents = self.dependents()
        return tuple(
            p
            for p in self.pipelines
            if p.id in finished and not dependents[p.id] <= set(finished)
        )


def pipelines_of(plan: QueryPlan) -> Pipelines:
    return Pipelines(tuple(_Finder(plan.root).find()))


class _Finder:
    """Finds pipelines depth first, so that each has a number above all it depends on."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._shared = {
            node
            for node, uses in use_counts(root).items()
            if uses > 1 and not isinstance(node, _LEAVES)
        }
        self._found: list[Pipeline] = []
        self._results: dict[tuple[Node, Role], frozenset[int]] = {}

    def find(self) -> list[Pipeline]:
        self._into(self._root, self._root, Role.RESULT)
        return self._found

    def _into(self, start: Node, sink: Node, role: Role) -> frozenset[int]:
        """The pipelines that bring the rows of `start` into `sink`, found once."""
        key = (sink, role)
        if key not in self._results:
            made: list[int] = []
            extra = self._subqueries(sink) if role is Role.INPUT else frozenset()
            self._descend(start, (), sink, role, extra, made)
            self._results[key] = frozenset(made)
        return self._results[key]

    def _descend(
        self,
        node: Node,
        above: tuple[Node, ...],
        sink: Node,
        role: Role,
        needed: frozenset[int],
        made: list[int],
    ) -> None:
        """Follow the rows of `node` downwards until they come from something collected."""
        if node in self._shared and not isinstance(node, _BLOCKING) and node is not sink:
            needed |= self._into(node, node, Role.SHARED)
            self._add(node, above, sink, role, needed, made)
        elif isinstance(node, _BLOCKING):
            needed |= self._into(node.input, node, Role.INPUT)
            self._add(node, above, sink, role, needed, made)
        elif isinstance(node, _LEAVES):
            self._add(node, above, sink, role, needed, made)
        elif isinstance(node, Join):
            needed |= self._subqueries(node)
            needed |= self._into(node.build_input, node, Role.BUILD)
            self._descend(node.probe_input, (node, *above), sink, role, needed, made)
        else:
            needed |= self._subqueries(node)
            inputs = node.inputs if isinstance(node, Union) else node.children
            for child in inputs:
                self._descend(child, (node, *above), sink, role, needed, made)

    def _subqueries(self, node: Node) -> frozenset[int]:
        found: frozenset[int] = frozenset()
        for subquery in node.subqueries:
            found |= self._into(subquery.plan, subquery.plan, Role.SUBQUERY)
        return found

    def _add(
        self,
        source: Node,
        operators: tuple[Node, ...],
        sink: Node,
        role: Role,
        needed: frozenset[int],
        made: list[int],
    ) -> None:
        number = len(self._found) + 1
        self._found.append(Pipeline(number, source, operators, sink, role, needed))
        made.append(number)
