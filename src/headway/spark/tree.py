"""Catalyst's trees in Python: read from one JSON text, with the JVM's objects on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from headway.base.errors import InternalError, PlanNotImportable
from headway.spark.tree_text import optimised, tree_text

Handle = Any  # a py4j JavaObject
FACTS = "#"
PLACE = "@"


class Facts(NamedTuple):
    """Of an expression. None where it has none."""

    type: int | None
    """Its number among the types of the text."""
    nullable: bool | None
    mode: str | None
    precision_loss: str | None
    pretty_name: str


class PlanFacts(NamedTuple):
    """Of a node of a plan."""

    schema: int | None
    """As a type; None of nodes that pass their inputs' columns on."""
    outputs: list[str]
    files: str
    """Of a table of files: which table of this JVM it is, and the state of its files."""


class _Shared(NamedTuple):
    """What all nodes of a text have in common."""

    types: list[str]
    nodes: Handle = None
    """Their objects, where the text says which one is whose."""


class Tree:
    """A node of a catalyst tree: a logical plan or an expression."""

    __slots__ = ("_handle", "_resolve", "_shared", "children", "class_name", "fields")

    def __init__(
        self, fields: dict[str, Any], shared: _Shared, resolve: Callable[[], Handle]
    ) -> None:
        self.class_name: str = fields["class"]
        self.fields = fields
        self.children: list[Tree] = []
        self._shared = shared
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
            place = self.fields.get(PLACE)
            self._handle = self._resolve() if place is None else self._shared.nodes.get(place)
        return self._handle

    @property
    def facts(self) -> Facts:
        """Of an expression."""
        return Facts(*self.fields[FACTS])

    @property
    def plan_facts(self) -> PlanFacts:
        """Of a node of a plan."""
        return PlanFacts(*self.fields[FACTS])

    @property
    def type_json(self) -> str:
        """The type of an expression."""
        number = self.facts.type
        return (
            self._shared.types[number] if number is not None else str(self.handle.dataType().json())
        )

    @property
    def schema_json(self) -> str:
        """The schema of a node of a plan."""
        number = self.plan_facts.schema
        return (
            self._shared.types[number] if number is not None else str(self.handle.schema().json())
        )

    def expression(self, field: str) -> Tree:
        """The expression in a field of a plan node."""
        return self._parse(field, lambda: _unwrap_option(getattr(self.handle, field)()))

    def expression_list(self, field: str) -> list[Tree]:
        """The expressions of a sequence in a field of a plan node."""
        return [
            _parse(value, self._shared, self._item(field, i))
            for i, value in enumerate(self.fields[field] or [])
        ]

    def expression_lists(self, field: str) -> list[list[Tree]]:
        """The expressions of a sequence of sequences in a field of a plan node."""
        return [
            [_parse(item, self._shared, self._item(field, i, j)) for j, item in enumerate(items)]
            for i, items in enumerate(self.fields[field])
        ]

    def plan(self, field: str) -> Tree:
        """The plan in a field of an expression."""
        return self._parse(field, lambda: getattr(self.handle, field)())

    def part(self, flat: list[dict[str, Any]]) -> Tree:
        """A tree somewhere in the fields, of which no object is asked for."""
        return _parse(flat, self._shared, lambda: None)

    def _parse(self, field: str, resolve: Callable[[], Handle]) -> Tree:
        return _parse(self.fields[field], self._shared, resolve)

    def _item(self, field: str, *indexes: int) -> Callable[[], Handle]:
        def resolve() -> Handle:
            found = getattr(self.handle, field)()
            for index in indexes:
                found = found.apply(index)
            return found

        return resolve


class _Text(msgspec.Struct):
    deterministic: bool
    nodes: list[dict[str, Any]]
    types: list[str]
    collation: str | None


_TEXT = msgspec.json.Decoder(_Text)


def _decode(data: bytes) -> _Text:
    text = _TEXT.decode(data)
    if text.collation is not None:
        raise PlanNotImportable(_collated(text.collation))
    return text


def _collated(collation: str) -> str:
    return f"strings with a collation have no place in a plan: {collation}"


def tree_of(handle: Handle) -> Tree:
    """The whole tree under a JVM object, in one call."""
    text = _decode(tree_text(handle))
    return _parse(text.nodes, _Shared(text.types), lambda: handle)


def optimised_tree(session: Handle, analysed: Handle) -> tuple[Tree, bool]:
    """An analysed plan as that session optimises it, and whether it is deterministic."""
    return tree_from(*optimised(session, analysed))


def tree_from(data: bytes, resolve: Callable[[], Handle]) -> tuple[Tree, bool]:
    """A plan from its text, and whether it is deterministic; `resolve` gets at its object."""
    text = _decode(data)
    return _parse(text.nodes, _Shared(text.types), resolve), text.deterministic


def running_tree(data: bytes, nodes: Handle) -> tuple[Tree, str | None]:
    """The plan of a query that is running, and why it cannot be gone on with elsewhere."""
    text = _TEXT.decode(data)
    tree = _parse(text.nodes, _Shared(text.types, nodes), lambda: None)
    if not text.deterministic:
        return tree, "it is not deterministic: what is left cannot be told from what is done"
    return tree, None if text.collation is None else _collated(text.collation)


def sequence(handle: Handle) -> list[Handle]:
    """A Scala sequence as a list."""
    return [handle.apply(index) for index in range(handle.length())]


def _parse(flat: list[dict[str, Any]], shared: _Shared, resolve: Callable[[], Handle]) -> Tree:
    """A tree is the list of its nodes, parents first."""
    position = 0

    def read(resolve_node: Callable[[], Handle]) -> Tree:
        nonlocal position
        tree = Tree(flat[position], shared, resolve_node)
        position += 1
        for index in range(tree.fields["num-children"]):
            tree.children.append(read(_child(tree, index)))
        return tree

    root = read(resolve)
    if position != len(flat):
        raise InternalError(f"catalyst's text has {len(flat)} nodes, its tree {position}")
    return root


def _child(parent: Tree, index: int) -> Callable[[], Handle]:
    return lambda: parent.handle.children().apply(index)


def _unwrap_option(handle: Handle) -> Handle:
    return handle.get() if handle.getClass().getName() == "scala.Some" else handle
