"""Catalyst's trees in Python: read from one JSON text, with the JVM's objects on demand.

One call fetches a whole plan as text. What the text leaves out (types of inner expressions,
evaluation modes, nested sequences) is asked of the JVM object at the same place in the tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from headway.base.errors import InternalError

Handle = Any  # a py4j JavaObject


class Tree:
    """A node of a catalyst tree: a logical plan or an expression."""

    __slots__ = ("_handle", "_resolve", "children", "class_name", "fields")

    def __init__(self, fields: dict[str, Any], resolve: Callable[[], Handle]) -> None:
        self.class_name: str = fields["class"]
        self.fields = fields
        self.children: list[Tree] = []
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
        return parse(self.fields[field], lambda: _unwrap_option(getattr(self.handle, field)()))

    def expression_list(self, field: str) -> list[Tree]:
        """The expressions of a sequence in a field of a plan node."""
        values = self.fields[field] or []
        return [parse(value, self._item(field, i)) for i, value in enumerate(values)]

    def _item(self, field: str, index: int) -> Callable[[], Handle]:
        return lambda: getattr(self.handle, field)().apply(index)


def tree_of(handle: Handle) -> Tree:
    """The whole tree under a JVM object, in one call."""
    return parse(json.loads(handle.toJSON()), lambda: handle)


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
