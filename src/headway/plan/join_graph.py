"""A tree of inner joins as a graph: what is joined, and by which equalities.

Projections that only leave columns out, and semi and anti joins, are part of the tree too: a semi
or anti join filters the rows of its left side, wherever in the tree they have come together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headway.plan.expressions import Expression, column_reference
from headway.plan.nodes import Join, JoinKey, JoinKind, Named, Node, Project

_FILTERING = (JoinKind.SEMI, JoinKind.ANTI)


@dataclass
class JoinGraph:
    """Leaves are numbered; a set of them is a bit mask."""

    leaves: list[Node] = field(default_factory=list)
    keys: list[JoinKey] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)
    filters: list[Join] = field(default_factory=list)
    """Semi and anti joins, inner ones first; their left sides are part of the graph."""

    def mask(self, columns: frozenset[str]) -> int:
        """The leaves that these columns come from."""
        found = 0
        for number, leaf in enumerate(self.leaves):
            if not columns.isdisjoint(leaf.column_names):
                found |= 1 << number
        return found

    @property
    def names_are_unique(self) -> bool:
        """Not so where a result is used twice in the tree, its columns left out in between."""
        inputs = (*self.leaves, *(each.right for each in self.filters))
        names = [name.casefold() for node in inputs for name in node.column_names]
        return len(set(names)) == len(names)


def join_graph(root: Node, is_shared: Callable[[Node], bool]) -> JoinGraph:
    """The graph under an inner, semi or anti join. What `is_shared` stays whole."""
    graph = JoinGraph()
    _collect(root, graph, is_shared, top=True)
    return graph


def is_part(node: Node) -> bool:
    """Whether a node is inside such a tree, rather than one of its leaves."""
    if isinstance(node, Join):
        return node.join in (JoinKind.INNER, *_FILTERING)
    return isinstance(node, Project) and all(o.expression.column == o.name for o in node.outputs)


def _collect(
    node: Node, graph: JoinGraph, is_shared: Callable[[Node], bool], *, top: bool = False
) -> None:
    if not is_part(node) or (is_shared(node) and not top) or not _leads_to_join(node):
        graph.leaves.append(node)
        return
    if isinstance(node, Project):
        _collect(node.input, graph, is_shared)
        return
    assert isinstance(node, Join)
    _collect(node.left, graph, is_shared)
    if node.join in _FILTERING:
        graph.filters.append(node)
        return
    _collect(node.right, graph, is_shared)
    graph.keys += node.keys
    if node.residual is not None:
        graph.conditions.append(node.residual)


def _leads_to_join(node: Node) -> bool:
    while isinstance(node, Project) and is_part(node):
        node = node.input
    return isinstance(node, Join)


def key_classes(graph: JoinGraph) -> tuple[list[dict[str, Expression]], list[JoinKey]]:
    """Sets of columns that are equal in every row, and the keys that say something else.

    A set has at most one column of each leaf: between any two leaves one equality stands for all.
    """
    plain = [key for key in graph.keys if _is_plain(key)]
    classes = _connected(plain)
    usable = [each for each in classes if _one_per_leaf(graph, each)]
    covered = {name for each in usable for name in each}
    others = [k for k in graph.keys if k not in plain or k.left.column not in covered]
    return usable, others


def _connected(keys: list[JoinKey]) -> list[dict[str, Expression]]:
    classes: list[dict[str, Expression]] = []
    for key in keys:
        members = {str(side.column): side for side in (key.left, key.right)}
        for known in [each for each in classes if not each.keys().isdisjoint(members)]:
            classes.remove(known)
            members |= known
        classes.append(members)
    return classes


def _one_per_leaf(graph: JoinGraph, members: dict[str, Expression]) -> bool:
    return all(len(members.keys() & set(leaf.column_names)) <= 1 for leaf in graph.leaves)


def _is_plain(key: JoinKey) -> bool:
    """Two columns of the same type, compared as they are."""
    return (
        key.left.column is not None
        and key.right.column is not None
        and key.left.type == key.right.type
        and not key.null_safe
    )


def only(node: Node, names: frozenset[str]) -> Node:
    """The node with these columns alone."""
    kept = [column for column in node.schema if column.name in names]
    if len(kept) == len(node.schema):
        return node
    return Project(node, tuple(Named(c.name, column_reference(c)) for c in kept))
