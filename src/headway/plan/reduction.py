"""Rows that a join will throw away are thrown away before they are grouped or collected.

Two rules, both of which put a semi join with the join's smaller side in front of the larger one:

- an aggregate under an inner join, grouped by the join's key, groups only keys that will be found;
- the right side of a semi, anti, left or existence join, which is collected, keeps only keys that
  the left side has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headway.plan.cardinalities import Estimator, Statistics
from headway.plan.expressions import Expression
from headway.plan.graph import walk, with_inputs, with_root
from headway.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    JoinKey,
    JoinKind,
    Node,
    Project,
    QueryPlan,
    Scan,
)
from headway.plan.statistics import source_statistics

_MOST_SHARE = 0.25
"""Worth it when the smaller side has at most this share of the keys."""
_FEWEST_ROWS = 100_000.0
_COLLECTING_RIGHT = (JoinKind.SEMI, JoinKind.ANTI, JoinKind.LEFT, JoinKind.EXISTENCE)


def reduce_by_joins(
    plan: QueryPlan,
    statistics: Statistics = source_statistics,
    observed: Mapping[str, float] | None = None,
) -> QueryPlan:
    """The plan with semi joins where they save more than they cost."""
    reducer = _Reducer(Estimator(statistics, observed or {}, {}))
    done: dict[Node, Node] = {}
    for node in walk(plan.root):
        changed = with_inputs(node, lambda child: done[child])
        done[node] = reducer.reduced(changed) if isinstance(changed, Join) else changed
    return with_root(plan, done[plan.root])


@dataclass(frozen=True, slots=True)
class _Reducer:
    estimator: Estimator

    def reduced(self, join: Join) -> Join:
        if not join.keys or any(key.null_safe for key in join.keys):
            return join
        if join.join in _COLLECTING_RIGHT:
            keys = tuple(JoinKey(key.right, key.left) for key in join.keys)
            if self._pays(join.left, join.right, keys):
                return replace(join, right=_reduced(join.right, join.left, keys))
        if join.join is JoinKind.INNER:
            left = self._aggregate_below(join.left, join.right, join.keys)
            if left is not None:
                return replace(join, left=left)
            turned = tuple(JoinKey(key.right, key.left) for key in join.keys)
            right = self._aggregate_below(join.right, join.left, turned)
            if right is not None:
                return replace(join, right=right)
        return join

    def _aggregate_below(self, node: Node, other: Node, keys: tuple[JoinKey, ...]) -> Node | None:
        """`node` with the aggregate in it fed only what `other` has keys for; None where it has
        none, or where that would not pay."""
        if isinstance(node, Filter):
            below = self._aggregate_below(node.input, other, keys)
            return None if below is None else replace(node, input=below)
        if isinstance(node, Project):
            outputs = {output.name: output.expression for output in node.outputs}
            below = self._aggregate_below(node.input, other, _through(keys, outputs))
            return None if below is None else replace(node, input=below)
        if not isinstance(node, Aggregate) or node.subqueries:
            return None
        keys = _through(keys, {key.name: key.expression for key in node.keys})
        if not keys or not self._pays(other, node.input, keys):
            return None
        return replace(node, input=_reduced(node.input, other, keys))

    def _pays(self, small: Node, large: Node, keys: tuple[JoinKey, ...]) -> bool:
        for root in (small, large):
            for node in walk(root):
                if node not in self.estimator.estimates:
                    self.estimator.add(node)
        rows = self.estimator.estimates[small].rows
        if self.estimator.estimates[large].rows < max(_FEWEST_ROWS, 2 * rows):
            return False
        if not set(small.column_names).isdisjoint(large.column_names):
            return False
        return any(self._share(key.right, small, rows) <= _MOST_SHARE for key in keys)

    def _share(self, key: Expression, node: Node, rows: float) -> float:
        """The part of all values that a column may have which it has here."""
        if key.column is None:
            return 1.0
        origin = _origin(node, key.column)
        return rows / max(self.estimator.estimates[origin].rows, 1.0) if origin is not None else 1.0


def _reduced(large: Node, small: Node, keys: tuple[JoinKey, ...]) -> Join:
    return Join(large, small, JoinKind.SEMI, keys)


def _through(keys: tuple[JoinKey, ...], outputs: Mapping[str, Expression]) -> tuple[JoinKey, ...]:
    """The keys over what the columns on their left are made of, where these are columns again."""
    found = []
    for key in keys:
        below = outputs.get(key.left.column or "")
        if below is not None and below.column is not None:
            found.append(JoinKey(below, key.right))
    return tuple(found)


def _origin(node: Node, column: str) -> Scan | None:
    """The table that a column was read from."""
    while True:
        if isinstance(node, Scan):
            return node
        if isinstance(node, Project | Aggregate):
            outputs = node.outputs if isinstance(node, Project) else node.keys
            made = next((o.expression.column for o in outputs if o.name == column), None)
            if made is None:
                return None
            node, column = node.input, made
        else:
            below = next((c for c in node.children if column in c.column_names), None)
            if below is None:
                return None
            node = below
