"""What a part of a plan is, apart from the names its columns happen to have.

Two subplans with equal keys put out the same rows, column by column. `row_key` asks for less: the
same rows in number, whatever the columns, which is what an observed row count may be reused for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypeGuard

from headway.plan.conjunctions import split_conjunction
from headway.plan.expressions import Column, Expression, Subquery, substitute
from headway.plan.graph import walk
from headway.plan.nodes import (
    Filter,
    Generate,
    Join,
    Limit,
    Node,
    Project,
    Scan,
    Sort,
    StateScan,
    Union,
    Window,
)

_PASSING_ON = (Filter, Sort, Limit, Window, Join, Generate)


@dataclass(frozen=True, slots=True)
class Canonical:
    """A node's key, and the canonical name of each of its columns."""

    key: str
    names: Mapping[str, str]


def canonical_forms(root: Node) -> dict[Node, Canonical]:
    """The canonical form of every node under `root`, subqueries included."""
    forms: dict[Node, Canonical] = {}
    for node in walk(root):
        forms[node] = _canonical(node, forms)
    return forms


def row_keys(root: Node) -> dict[Node, str]:
    """For every node a key that equal row counts may be filed under.

    Which columns a scan reads, how they are projected and in which order rows come does not change
    how many there are; neither does the order of a filter's conditions.
    """
    forms: dict[Node, Canonical] = {}
    for node in walk(root):
        forms[node] = _row_form(node, forms)
    return {node: form.key for node, form in forms.items()}


def is_renaming(node: Node) -> TypeGuard[Project]:
    """A projection that puts out its input's columns, all and in order, under other names."""
    if not isinstance(node, Project):
        return False
    return tuple(o.expression.column for o in node.outputs) == node.input.column_names


def _canonical(node: Node, forms: Mapping[Node, Canonical]) -> Canonical:
    inputs = _input_names(node, forms)
    if is_renaming(node):  # names are all that it changes
        below = forms[node.input]
        pairs = zip(node.column_names, node.input.column_names, strict=True)
        return Canonical(below.key, {name: below.names[before] for name, before in pairs})
    key = _digest(node.kind, *_parts(node, inputs, forms))
    return Canonical(key, _names(node, key, inputs))


def _parts(node: Node, inputs: Mapping[str, str], forms: Mapping[Node, Canonical]) -> Iterator[str]:
    """What makes the node what it is, field by field."""
    if isinstance(node, StateScan):  # its columns are found in the state by their names
        yield repr(node.columns)
    for field in fields(node):
        if field.name == "exists":  # the name of a column
            yield repr(getattr(node, field.name) is not None)
        elif field.init:
            yield _describe(getattr(node, field.name), inputs, forms)


def _names(node: Node, key: str, inputs: Mapping[str, str]) -> dict[str, str]:
    """Columns that a node passes on keep the names that they have in its input."""
    kept = inputs if isinstance(node, _PASSING_ON) else {}
    return {
        column.name: kept.get(column.name, f"{position}:{key}")
        for position, column in enumerate(node.schema)
    }


def _row_form(node: Node, forms: Mapping[Node, Canonical]) -> Canonical:
    if isinstance(node, Scan):
        key = _digest("Scan", repr(node.source))
        return Canonical(key, {c.column.name: f"{c.field}:{key}" for c in node.columns})
    inputs = _input_names(node, forms)
    if isinstance(node, Sort):
        return Canonical(forms[node.input].key, inputs)
    if isinstance(node, Project):
        names = {o.name: _output_name(o.expression, inputs, forms) for o in node.outputs}
        return Canonical(forms[node.input].key, names)
    if isinstance(node, Filter):
        condition = node.condition
        parts = sorted(
            _canonical_text(part, condition.subqueries, inputs, forms)
            for part in split_conjunction(condition.text)
        )
        return Canonical(_digest("Filter", forms[node.input].key, *parts), inputs)
    if isinstance(node, Union):
        key = _digest("Union", *(forms[child].key for child in node.inputs))
        columns = zip(*(forms[child].names.values() for child in node.inputs), strict=True)
        union_names = (_digest(key, *names) for names in columns)
        return Canonical(key, dict(zip(node.column_names, union_names, strict=True)))
    parts = list(_parts(node, inputs, forms))
    if isinstance(node, Limit):
        parts.append(_order_below(node, forms))
    key = _digest(node.kind, *parts)
    return Canonical(key, _names(node, key, inputs))


def _order_below(limit: Limit, forms: Mapping[Node, Canonical]) -> str:
    """The order that decides which rows a limit keeps, and so how many pass what is above it."""
    node = limit.input
    while isinstance(node, Project):
        node = node.input
    if not isinstance(node, Sort):
        return ""
    return _describe(node.keys, forms[node.input].names, forms)


def _input_names(node: Node, forms: Mapping[Node, Canonical]) -> dict[str, str]:
    """Canonical names of the columns that the node reads. The sides of a join stay apart."""
    if isinstance(node, Join):
        sides = (forms[node.left].names, forms[node.right].names)
        return {
            name: _digest(str(side), canonical)
            for side, names in enumerate(sides)
            for name, canonical in names.items()
        }
    return dict(forms[node.children[0]].names) if node.children else {}


def _describe(value: Any, names: Mapping[str, str], forms: Mapping[Node, Canonical]) -> str:
    if isinstance(value, Node):
        return forms[value].key
    if isinstance(value, Expression):
        return f"{_expression_text(value, names, forms)}:{value.type}"
    if isinstance(value, Column):
        return value.type  # its name is what canonical forms leave out
    if isinstance(value, tuple):
        return "[" + ",".join(_describe(item, names, forms) for item in value) + "]"
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, StrEnum):
        skipped = ("name",) if hasattr(value, "expression") else ()
        items = (
            _describe(getattr(value, field.name), names, forms)
            for field in fields(value)
            if field.name not in skipped
        )
        return f"{type(value).__name__}({';'.join(items)})"
    return repr(value)


def _output_name(
    expression: Expression, names: Mapping[str, str], forms: Mapping[Node, Canonical]
) -> str:
    """A column passed on keeps its name; what is computed is named by how, in a few letters."""
    if expression.column is not None:
        return names[expression.column]
    return _digest(_expression_text(expression, names, forms))


def _expression_text(
    expression: Expression, names: Mapping[str, str], forms: Mapping[Node, Canonical]
) -> str:
    return _canonical_text(expression.text, expression.subqueries, names, forms)


def _canonical_text(
    text: str,
    subqueries: tuple[Subquery, ...],
    names: Mapping[str, str],
    forms: Mapping[Node, Canonical],
) -> str:
    keys = {subquery.name: forms[subquery.plan].key for subquery in subqueries}
    return substitute(text, lambda name: f"`{names[name]}`", lambda name: f":{keys[name]}")


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\x00".join(parts).encode(), digest_size=12).hexdigest()
