"""Pipelines: the paths of a plan along which rows flow without being collected.

A blocking operator collects all its rows before it puts out the first: an aggregate, a sort, a
window; a join its build side; and a result that is used more than once. What lies between two of
them is a pipeline. Every pipeline runs once, after all that it depends on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum

from headway.plan.graph import parents
from headway.plan.nodes import (
    Aggregate,
    Join,
    Node,
    QueryPlan,
    Scan,
    Sort,
    StateScan,
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
        found: dict[int, set[int]] = {p.id: set() for p in self.pipelines}
        for pipeline in self.pipelines:
            for needed in pipeline.depends_on:
                found[needed].add(pipeline.id)
        return {number: frozenset(users) for number, users in found.items()}

    def progress(self, finished: Collection[int]) -> float:
        """The finished share of all pipelines."""
        done = set(finished)
        return sum(p.id in done for p in self.pipelines) / len(self.pipelines)

    def ready(self, finished: Collection[int]) -> tuple[Pipeline, ...]:
        """Those that have not run and whose dependencies all have."""
        done = set(finished)
        return tuple(p for p in self.pipelines if p.id not in done and p.depends_on <= done)

    def still_needed(self, finished: Collection[int]) -> tuple[Pipeline, ...]:
        """Finished pipelines whose result an unfinished one needs: the state of the query."""
        done = set(finished)
        needed = {n for p in self.pipelines if p.id not in done for n in p.depends_on}
        return tuple(p for p in self.pipelines if p.id in done and p.id in needed)


def pipelines_of(plan: QueryPlan) -> Pipelines:
    return Pipelines(tuple(_Finder(plan.root).find()))


@dataclass(frozen=True, slots=True)
class _Collection:
    """Rows that are collected: those of `start`, in `sink`."""

    start: Node
    sink: Node
    role: Role


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """A pipeline before it has a number. `needs` are in the order in which they should run."""

    source: Node
    operators: tuple[Node, ...]
    into: _Collection
    needs: tuple[_Collection, ...]


class _Finder:
    """Finds pipelines from the result downwards; each has a number above all it depends on."""

    def __init__(self, root: Node) -> None:
        self._result = _Collection(root, root, Role.RESULT)
        users = parents(root)
        self._shared = {
            node
            for node, users_of_node in users.items()
            if len(users_of_node) > 1 and not isinstance(node, (*_LEAVES, *_BLOCKING))
        }
        self._read_as_rows = {child for node in users for child in node.children}

    def find(self) -> list[Pipeline]:
        """Depth first: what a pipeline needs is numbered before it."""
        found: list[Pipeline] = []
        numbers: dict[_Collection, list[int]] = {}
        opened: set[_Path] = set()
        stack: list[_Collection | _Path] = [self._result]
        while stack:
            top = stack.pop()
            if isinstance(top, _Collection):
                if top not in numbers:
                    numbers[top] = []
                    stack.extend(reversed(self._paths(top)))
            elif top not in opened:
                opened.add(top)
                stack.append(top)
                stack.extend(reversed(top.needs))
            else:
                needed = frozenset(n for need in top.needs for n in numbers[need])
                number, into = len(found) + 1, top.into
                found.append(
                    Pipeline(number, top.source, top.operators, into.sink, into.role, needed)
                )
                numbers[into].append(number)
        return found

    def _paths(self, into: _Collection) -> list[_Path]:
        """Follow the rows downwards, on every branch until they come from something collected."""
        needs = self._subqueries(into.sink) if into.role is Role.INPUT else ()
        found: list[_Path] = []
        stack: list[tuple[Node, tuple[Node, ...], tuple[_Collection, ...]]]
        stack = [(into.start, (), needs)]
        while stack:
            node, above, needs = stack.pop()
            if node in self._shared and node is not into.sink:
                found.append(
                    _Path(node, above, into, (*needs, _Collection(node, node, Role.SHARED)))
                )
            elif isinstance(node, _BLOCKING):
                collected = _Collection(node.input, node, Role.INPUT)
                found.append(_Path(node, above, into, (*needs, collected)))
            elif isinstance(node, _LEAVES):
                found.append(_Path(node, above, into, needs))
            else:
                needs += self._subqueries(node)
                rows_from = node.children
                if isinstance(node, Join):
                    needs += (_Collection(node.build_input, node, Role.BUILD),)
                    rows_from = (node.probe_input,)
                stack.extend((child, (node, *above), needs) for child in reversed(rows_from))
        return found

    def _subqueries(self, node: Node) -> tuple[_Collection, ...]:
        """Where the node finds the values of its subqueries."""
        found = []
        for plan in (subquery.plan for subquery in node.subqueries):
            # What others read row by row is collected for them already.
            collected = plan in self._shared and plan in self._read_as_rows
            found.append(_Collection(plan, plan, Role.SHARED if collected else Role.SUBQUERY))
        return tuple(found)
