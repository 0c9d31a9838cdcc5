"""The order of inner joins: the one that lets the fewest rows through on the way.

Spark keeps the order in which a query names its tables, unless it was told to analyse them. Here
row counts come from the files themselves, so a better order can be found for every query: by
dynamic programming over all sets of tables that equalities connect, bushy trees included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from math import prod
from operator import or_

from headway.plan.cardinalities import Estimator, Statistics, key_values, shared_values, width_of
from headway.plan.expressions import Expression, column_reference, conjunction
from headway.plan.graph import use_counts, walk, with_inputs, with_root
from headway.plan.join_graph import JoinGraph, is_part, join_graph, key_classes, only
from headway.plan.nodes import Join, JoinKey, JoinKind, Named, Node, Project, QueryPlan
from headway.plan.statistics import source_statistics

_MOST_LEAVES = 8  # for which all trees are looked at
_KEPT_ROW = 2.0  # collecting a row costs more than letting one pass
_WIDE = 64.0  # bytes, from which on the width of rows counts


def order_joins(
    plan: QueryPlan,
    statistics: Statistics = source_statistics,
    observed: Mapping[str, float] | None = None,
) -> QueryPlan:
    """The plan with every tree of inner joins in its best order."""
    uses = use_counts(plan.root)
    estimator = Estimator(statistics, observed or {}, {})
    done: dict[Node, Node] = {}
    inside: set[Node] = set()
    for node in reversed(list(walk(plan.root))):  # users first: a tree is found by its top
        if isinstance(node, Join) and is_part(node) and node not in inside:
            inside |= set(_parts(node, uses))
    for node in walk(plan.root):
        changed = with_inputs(node, lambda child: done[child])
        if isinstance(node, Join) and is_part(node) and node not in inside:
            shared = {done[n] for n, count in uses.items() if count > 1 and n in done}
            changed = _reordered(changed, shared, estimator)
        done[node] = changed
    return with_root(plan, done[plan.root])


def _parts(top: Join, uses: Mapping[Node, int]) -> Iterator[Node]:
    """The nodes below the top of a tree that belong to it."""
    stack: list[Node] = list(top.children if top.join is JoinKind.INNER else (top.left,))
    while stack:
        node = stack.pop()
        if not is_part(node) or uses[node] > 1:
            continue
        yield node
        if isinstance(node, Join) and node.join is not JoinKind.INNER:
            stack.append(node.left)
        else:
            stack += node.children


def _reordered(top: Node, shared: set[Node], estimator: Estimator) -> Node:
    graph = join_graph(top, shared.__contains__)
    if len(graph.leaves) < 2 or len(graph.leaves) + len(graph.filters) < 3:
        return top
    if not graph.names_are_unique:
        return top
    for leaf in (*graph.leaves, *(each.right for each in graph.filters)):
        _estimate(leaf, estimator)
    found = _Search(graph, estimator).best()
    if found is None:
        return top
    return _Builder(graph, estimator, top).build(found)


def _estimate(root: Node, estimator: Estimator) -> None:
    for node in walk(root):
        if node not in estimator.estimates:
            estimator.add(node)


@dataclass(frozen=True, slots=True)
class _Tree:
    """A set of leaves joined in some order: the smaller side is collected."""

    leaves: int
    rows: float
    cost: float
    left: _Tree | None = None
    right: _Tree | None = None


class _Search:
    """Finds the cheapest tree: among all for few leaves, step by step for many."""

    def __init__(self, graph: JoinGraph, estimator: Estimator) -> None:
        self._graph = graph
        self._estimator = estimator
        self._rows = [max(estimator.estimates[leaf].rows, 1.0) for leaf in graph.leaves]
        self._widths = [
            max(1.0, sum(width_of(c.type) for c in leaf.schema) / _WIDE) for leaf in graph.leaves
        ]
        classes, keys = key_classes(graph)
        self._classes = [self._class(members) for members in classes]
        self._others = [(self._mask(key), self._share(key)) for key in keys]
        self._others += [(graph.mask(each.columns), 0.25) for each in graph.conditions]
        self._neighbours = self._find_neighbours()
        self._linked = self._find_linked()
        self._sizes: dict[int, float] = {}

    def best(self) -> _Tree | None:
        """None where only a cross product would join all leaves."""
        single = [_Tree(1 << n, rows, 0.0) for n, rows in enumerate(self._rows)]
        return self._greedy(single) if len(single) > _MOST_LEAVES else self._exact(single)

    def _exact(self, single: list[_Tree]) -> _Tree | None:
        best = {tree.leaves: tree for tree in single}
        everything = (1 << len(single)) - 1
        for leaves in range(1, everything + 1):
            if leaves in best:
                continue
            part = (leaves - 1) & leaves
            while part > leaves ^ part:  # each pair of a part and its rest once
                left, right = best.get(part), best.get(leaves ^ part)
                if left is not None and right is not None and self._connected(left, right):
                    tree = self._joined(left, right)
                    if leaves not in best or tree.cost < best[leaves].cost:
                        best[leaves] = tree
                part = (part - 1) & leaves
        return best.get(everything)

    def _greedy(self, trees: list[_Tree]) -> _Tree | None:
        while len(trees) > 1:
            pairs = [(a, b) for a, b in combinations(trees, 2) if self._connected(a, b)]
            if not pairs:
                return None
            joined = min((self._joined(a, b) for a, b in pairs), key=lambda t: (t.rows, t.cost))
            trees = [t for t in trees if not t.leaves & joined.leaves] + [joined]
        return trees[0]

    def _joined(self, left: _Tree, right: _Tree) -> _Tree:
        leaves = left.leaves | right.leaves
        rows = self._size(leaves)
        build, probe = (left, right) if left.rows <= right.rows else (right, left)
        width = sum(width for n, width in enumerate(self._widths) if build.leaves >> n & 1)
        cost = left.cost + right.cost + build.rows * width * _KEPT_ROW + probe.rows + rows
        return _Tree(leaves, rows, cost, left, right)

    def _connected(self, left: _Tree, right: _Tree) -> bool:
        near = 0
        for number, neighbours in enumerate(self._neighbours):
            if left.leaves >> number & 1:
                near |= neighbours
        return bool(near & right.leaves)

    def _find_neighbours(self) -> list[int]:
        sets = [members for members, _ in self._classes]
        sets += [mask for mask, _ in self._others if mask.bit_count() == 2]
        return [
            reduce(or_, (each for each in sets if each >> number & 1), 0)
            for number in range(len(self._graph.leaves))
        ]

    def _find_linked(self) -> dict[int, float]:
        """For pairs of leaves with several equalities: what these say less together than apart."""
        found: dict[int, float] = {}
        for one, other in combinations(range(len(self._rows)), 2):
            pair = 1 << one | 1 << other
            values = [values for members, values in self._classes if members & pair == pair]
            if len(values) > 1:
                together = key_values(values, self._rows[one], self._rows[other])
                found[pair] = prod(values) / together
        return found

    def _size(self, leaves: int) -> float:
        """Rows of the join of these leaves, the same whatever their order."""
        if leaves not in self._sizes:
            rows = prod(count for number, count in enumerate(self._rows) if leaves >> number & 1)
            for members, values in self._classes:
                rows /= values ** max((members & leaves).bit_count() - 1, 0)
            for pair, factor in self._linked.items():
                if pair & leaves == pair:
                    rows *= factor
            rows *= prod(share for mask, share in self._others if mask & leaves == mask)
            self._sizes[leaves] = max(rows, 1.0)
        return self._sizes[leaves]

    def _class(self, members: dict[str, Expression]) -> tuple[int, float]:
        """The leaves with a column of the class, and how many values these share."""
        found = {
            number: self._estimator.domain(expression, leaf)
            for name, expression in members.items()
            for number, leaf in enumerate(self._graph.leaves)
            if name in leaf.column_names
        }
        return sum(1 << number for number in found), shared_values(list(found.values()))

    def _mask(self, key: JoinKey) -> int:
        return self._graph.mask(key.left.columns | key.right.columns)

    def _share(self, key: JoinKey) -> float:
        distincts = [
            self._estimator.distinct(side, leaf)
            for side in (key.left, key.right)
            for leaf in self._graph.leaves
            if side.columns and side.columns <= set(leaf.column_names)
        ]
        return 1 / max(*distincts, 1.0, 1.0)


class _Builder:
    """Writes the chosen tree as joins, with only the columns that are needed above."""

    def __init__(self, graph: JoinGraph, estimator: Estimator, top: Node) -> None:
        self._graph = graph
        self._estimator = estimator
        self._top = top
        self._classes, self._keys = key_classes(graph)
        self._conditions = list(graph.conditions)
        self._filters = list(graph.filters)

    def build(self, tree: _Tree) -> Node:
        wanted = frozenset(self._top.column_names)
        late = [each for each in self._filters if self._is_late(each, tree)]
        self._filters = [each for each in self._filters if each not in late]
        needed = wanted | {name for each in late for name in _read_left(each)}
        made = self._node(tree, needed)
        for each in late:
            made = replace(each, left=made)
        return _in_order(only(made, wanted), self._top)

    def _is_late(self, join: Join, tree: _Tree) -> bool:
        """A filter that has to collect many rows waits until few are left to be filtered."""
        mask = self._graph.mask(frozenset(_read_left(join)))
        leaves = (leaf for n, leaf in enumerate(self._graph.leaves) if mask >> n & 1)
        early = prod(self._estimator.estimates[leaf].rows for leaf in leaves)
        return tree.rows < early / 2

    def _node(self, tree: _Tree, needed: frozenset[str]) -> Node:
        if tree.left is None or tree.right is None:
            leaf = self._graph.leaves[tree.leaves.bit_length() - 1]
            return self._filtered(leaf, tree.leaves, needed)
        left, right = self._node(tree.left, needed), self._node(tree.right, needed)
        keys = self._keys_between(tree.left.leaves, tree.right.leaves)
        residual = self._conditions_within(tree.leaves)
        joined = Join(left, right, JoinKind.INNER, tuple(keys), conjunction(residual))
        return self._filtered(joined, tree.leaves, needed)

    def _filtered(self, node: Node, leaves: int, needed: frozenset[str]) -> Node:
        """With the semi and anti joins whose columns are all there."""
        ready = [
            each
            for each in self._filters
            if self._graph.mask(frozenset(_read_left(each))) & ~leaves == 0
        ]
        for each in ready:
            self._filters.remove(each)
            node = replace(each, left=node)
        return only(node, needed | self._read_above(leaves))

    def _read_above(self, leaves: int) -> frozenset[str]:
        """Columns of these leaves that joins with others, or filters to come, still read."""
        found: set[str] = set()
        everything = (1 << len(self._graph.leaves)) - 1
        for members in self._classes:
            if leaves != everything and self._graph.mask(frozenset(members)) & ~leaves:
                found |= members.keys()
        for key in self._keys:
            found |= key.left.columns | key.right.columns
        for condition in self._conditions:
            found |= condition.columns
        for each in self._filters:
            found |= set(_read_left(each))
        return frozenset(found)

    def _keys_between(self, left: int, right: int) -> list[JoinKey]:
        keys = []
        for members in self._classes:
            ours = [e for n, e in members.items() if self._graph.mask(frozenset({n})) & left]
            theirs = [e for n, e in members.items() if self._graph.mask(frozenset({n})) & right]
            if ours and theirs:
                keys.append(JoinKey(ours[0], theirs[0]))
        for key in list(self._keys):
            one, other = self._graph.mask(key.left.columns), self._graph.mask(key.right.columns)
            if one & ~left == 0 and other & ~right == 0:
                keys.append(key)
                self._keys.remove(key)
            elif one & ~right == 0 and other & ~left == 0:
                keys.append(JoinKey(key.right, key.left, key.null_safe))
                self._keys.remove(key)
        return keys

    def _conditions_within(self, leaves: int) -> list[Expression]:
        """Conditions that can be checked here, and keys that lie across the two sides."""
        found = []
        for condition in list(self._conditions):
            if self._graph.mask(condition.columns) & ~leaves == 0:
                found.append(condition)
                self._conditions.remove(condition)
        for key in list(self._keys):
            if self._graph.mask(key.left.columns | key.right.columns) & ~leaves == 0:
                found.append(key.condition)
                self._keys.remove(key)
        return found


def _read_left(join: Join) -> set[str]:
    """The columns of its left side that a semi or anti join reads."""
    read = {name for condition in join.conditions() for name in condition.columns}
    return read & set(join.left.column_names)


def _in_order(node: Node, like: Node) -> Node:
    """The node with the columns of another, in their order."""
    if node.column_names == like.column_names:
        return node
    columns = {column.name: column for column in node.schema}
    return Project(node, tuple(Named(n, column_reference(columns[n])) for n in like.column_names))
