"""Walking and rewriting plans. A node with two parents is visited, and rewritten, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import is_dataclass, replace
from typing import Any

from headway.plan.expressions import Expression
from headway.plan.nodes import Node, QueryPlan, made_of


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
        inputs = _inputs(node) if subqueries else node.children
        stack.extend((child, False) for child in reversed(inputs))


def parents(root: Node) -> dict[Node, list[Node]]:
    """For every node its users: a user that reads it twice stands there twice."""
    users: dict[Node, list[Node]] = {root: []}
    for node in walk(root):
        for child in _inputs(node):
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
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, inputs_done = stack.pop()
        if node in done:
            continue
        if node in replacements:
            done[node] = replacements[node]
        elif inputs_done:
            done[node] = with_inputs(node, lambda child: done[child])
        else:
            stack.append((node, True))
            stack.extend((child, False) for child in _inputs(node))
    return done[root]


def topmost(root: Node, wanted: Collection[Node]) -> list[Node]:
    """Those of the wanted nodes that are not only below others of them, from the root down."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in wanted:
            found[node] = None
        else:
            stack.extend(reversed(_inputs(node)))
    return list(found)


def with_inputs(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node over changed inputs (those of its subqueries too); itself when none changed."""
    changed = {child: change(child) for child in _inputs(node)}
    if all(after is before for before, after in changed.items()):
        return node
    deep = bool(node.subqueries)
    before = {name: getattr(node, name) for name in made_of(node)}
    after = {name: _map_nodes(value, changed, deep) for name, value in before.items()}
    return replace(node, **{k: v for k, v in after.items() if v is not before[k]})


def with_root(plan: QueryPlan, root: Node) -> QueryPlan:
    """The same query with another graph."""
    return replace(plan, root=root)


def _inputs(node: Node) -> tuple[Node, ...]:
    """The plans that the node reads: its children, then its scalar subqueries."""
    return (*node.children, *(subquery.plan for subquery in node.subqueries))


def _map_nodes(value: Any, changed: Mapping[Node, Node], deep: bool) -> Any:
    """`value` with every node in it changed; the very same object when nothing changed. Only
    subqueries are `deep` inside of it."""
    if isinstance(value, Node):
        return changed[value]
    if isinstance(value, tuple):
        if not value or not (deep or isinstance(value[0], Node)):
            return value
        items = tuple(_map_nodes(item, changed, deep) for item in value)
        unchanged = all(a is b for a, b in zip(items, value, strict=True))
        return value if unchanged else items
    if not deep or (isinstance(value, Expression) and not value.subqueries):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        before = {name: getattr(value, name) for name in made_of(value)}
        after = {name: _map_nodes(item, changed, deep) for name, item in before.items()}
        differing = {name: item for name, item in after.items() if item is not before[name]}
        return replace(value, **differing) if differing else value
    return value
