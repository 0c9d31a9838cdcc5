"""Which side of a join is collected, and which streams past it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from headway.plan.cardinalities import Estimate
from headway.plan.graph import rewrite, walk, with_root
from headway.plan.nodes import Join, JoinKind, Node, QueryPlan, Side


def choose_build_sides(plan: QueryPlan, estimates: Mapping[Node, Estimate]) -> QueryPlan:
    """Collect the smaller side where the join may choose; otherwise the side whose rows need not
    all come out."""
    # Joins below change too, so a join is found again by its place in the walk, not by value.
    sides = iter([_side(node, estimates) for node in walk(plan.root) if isinstance(node, Join)])

    def choose(node: Node) -> Node:
        if not isinstance(node, Join):
            return node
        side = next(sides)
        return node if node.build is side else replace(node, build=side)

    return with_root(plan, rewrite(plan.root, choose))


def _side(node: Join, estimates: Mapping[Node, Estimate]) -> Side:
    if node.join is JoinKind.RIGHT:
        return Side.LEFT
    if node.join not in (JoinKind.INNER, JoinKind.CROSS):
        return Side.RIGHT
    left, right = estimates[node.left], estimates[node.right]
    return Side.LEFT if left.bytes < right.bytes else Side.RIGHT
