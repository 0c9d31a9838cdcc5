"""Walking and rewriting plans. A node with two parents is visited, and rewritten, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from headway.plan.expressions import Expression
from headway.plan.nodes import Node, QueryPlan


def walk(root: Node, *, subqueries: bool = True) -> Iterator[Node]:
    """Every node once, inputs before their users; with the plans of scalar subqueries."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        inputs = node.children
        if subqueries:
            inputs += tuple(subquery.plan for subquery in node.subqueries)
        stack.extend((child, False) for child in reversed(inputs))


def parents(root: Node) -> dict[Node, list[Node]]:
    """For every node its users: a user that reads it twice stands there twice."""
    users: dict[Node, list[Node]] = {root: []}
    for node in walk(root):
        for child in (*node.children, *(subquery.plan for subquery in node.subqueries)):
            users.setdefault(child, []).append(node)
    return users


def use_counts(root: Node) -> Counter[Node]:
    """How many times each node's result is read; the root's by the one who asked."""
    counts = Counter({node: len(users) for node, users in parents(root).items()})
    counts[root] += 1
    return counts


def rewrite(root: Node, rule: Callable[[Node], Node]) -> Node:
    """The plan with `rule` applied to every node, inputs first; shared nodes stay shared."""
    done: dict[Node, Node] = {}
    for node in walk(root):
        done[node] = rule(with_inputs(node, lambda child: done[child]))
    return done[root]


def replace_nodes(root: Node, replacements: dict[Node, Node]) -> Node:
    """The plan with some nodes replaced, in every place where they are used.

    The topmost replacement wins: what stood only below a replaced node is gone.
    """
    done: dict[Node, Node] = {}

    def replaced(node: Node) -> Node:
        if node not in done:
            found = replacements.get(node)
            done[node] = with_inputs(node, replaced) if found is None else found
        return done[node]

    return replaced(root)


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node over changed inputs (those of its subqueries too); itself when none changed."""
    changes: dict[str, Any] = {}
    for field_ in fields(node):
        if field_.init:
            before = getattr(node, field_.name)
            after = _map_nodes(before, change)
            if after is not before:
                changes[field_.name] = after
    return replace(node, **changes) if changes else node


def with_root(plan: QueryPlan, root: Node) -> QueryPlan:
    """The same query with another graph."""
    return replace(plan, root=root)


def _map_nodes(value: Any, change: Callable[[Node], Node]) -> Any:
    """`value` with every node in it changed; the very same object when nothing changed."""
    if isinstance(value, Node):
        return change(value)
    if isinstance(value, tuple):
        items = tuple(_map_nodes(item, change) for item in value)
        unchanged = all(a is b for a, b in zip(items, value, strict=True))
        return value if unchanged else items
    if isinstance(value, Expression) and not value.subqueries:
        return value
    if hasattr(value, "__dataclass_fields__"):
        items_by_name = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        changed = {name: _map_nodes(item, change) for name, item in items_by_name.items()}
        differing = {k: v for k, v in changed.items() if v is not items_by_name[k]}
        return replace(value, **differing) if differing else value
    return value


