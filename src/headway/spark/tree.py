"""Catalyst's trees in Python: read from one JSON text, with the JVM's objects on demand.

One call fetches a whole plan as text. What the text leaves out (types of inner expressions,
evaluation modes, nested sequences) is asked of the JVM object at the same place in the tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from headway.base.errors import InternalError
from headway.spark.facts import Facts, NodeFacts, plan_facts

Handle = Any  # a py4j JavaObject


class Tree:
    """A node of a catalyst tree: a logical plan or an expression."""

    __slots__ = ("_handle", "_resolve", "children", "class_name", "facts", "fields", "node_facts")

    def __init__(self, fields: dict[str, Any], resolve: Callable[[], Handle]) -> None:
        self.class_name: str = fields["class"]
        self.fields = fields
        self.children: list[Tree] = []
        self.facts: Facts | None = None
        """Of an expression; None where it has to be asked for them."""
        self.node_facts: NodeFacts | None = None
        """Of a node of a plan."""
        self._resolve = resolve
        self._handle: Handle = None

    @property
    def name(self) -> str:
        """The class's simple name, such as EqualTo; Scala objects without their dollar."""
        return self.class_name.rsplit(".", 1)[-1].rstrip("$")

    @property
    def handle(self) -> Handle:
        """The JVM's object for this node."""
        if self._handle is None:
            self._handle = self._resolve()
        return self._handle

    def expression(self, field: str) -> Tree:
        """The expression in a field of a plan node."""
        made = parse(self.fields[field], lambda: _unwrap_option(getattr(self.handle, field)()))
        return self._with_facts(made, field)

    def expression_list(self, field: str) -> list[Tree]:
        """The expressions of a sequence in a field of a plan node."""
        values = self.fields[field] or []
        return [
            self._with_facts(parse(value, self._item(field, i)), f"{field}/{i}")
            for i, value in enumerate(values)
        ]

    def _with_facts(self, expression: Tree, field: str) -> Tree:
        known = self.node_facts.expressions.get(field) if self.node_facts is not None else None
        parts = list(expression.parents_first())
        if known is not None and len(known) == len(parts):
            for part, facts in zip(parts, known, strict=True):
                part.facts = facts
        return expression

    def parents_first(self) -> Iterator[Tree]:
        yield self
        for child in self.children:
            yield from child.parents_first()

    @property
    def schema_json(self) -> str:
        """The schema of a node of a plan."""
        if self.node_facts is not None and self.node_facts.schema:
            return self.node_facts.schema
        return str(self.handle.schema().json())

    @property
    def outputs(self) -> tuple[str, ...]:
        """The attributes that a node of a plan puts out, with their ids."""
        if self.node_facts is not None:
            return self.node_facts.outputs
        text = str(self.handle.output().mkString("\x05"))
        return tuple(text.split("\x05")) if text else ()

    def _item(self, field: str, index: int) -> Callable[[], Handle]:
        return lambda: getattr(self.handle, field)().apply(index)


def tree_of(handle: Handle) -> Tree:
    """The whole tree under a JVM object, in one call."""
    return parse(json.loads(handle.toJSON()), lambda: handle)


def plan_of(handle: Handle) -> Tree:
    """The whole plan under a JVM object, with what its JSON leaves out: two calls."""
    tree = tree_of(handle)
    known = plan_facts(handle)
    nodes = list(tree.parents_first())
    if len(known) == len(nodes):
        for node, facts in zip(nodes, known, strict=True):
            node.node_facts = facts
    return tree


def parse(flat: list[dict[str, Any]], resolve: Callable[[], Handle]) -> Tree:
    """Catalyst writes a tree as the list of its nodes, parents first."""
    position = 0

    def read(resolve_node: Callable[[], Handle]) -> Tree:
        nonlocal position
        tree = Tree(flat[position], resolve_node)
        position += 1
        for index in range(tree.fields["num-children"]):
            tree.children.append(read(_child(tree, index)))
        return tree

    root = read(resolve)
    if position != len(flat):
        raise InternalError(f"catalyst's JSON has {len(flat)} nodes, its tree {position}")
    return root


def sequence(handle: Handle) -> list[Handle]:
    """A Scala sequence as a list."""
    return [handle.apply(index) for index in range(handle.length())]


def _child(parent: Tree, index: int) -> Callable[[], Handle]:
    return lambda: parent.handle.children().apply(index)


def _unwrap_option(handle: Handle) -> Handle:
    return handle.get() if handle.getClass().getName() == "scala.Some" else handle
