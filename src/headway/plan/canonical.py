"""What a part of a plan is, apart from the names its columns happen to have.

Two subplans with equal keys put out the same rows, column by column. `row_key` asks for less: the
same rows in number, whatever the columns, which is what an observed row count may be reused for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from headway.plan.expressions import Column, Expression, substitute
from headway.plan.graph import walk
from headway.plan.nodes import Filter, Join, Node, Project, Scan, Sort


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


def _canonical(node: Node, forms: Mapping[Node, Canonical]) -> Canonical:
    inputs = _input_names(node, forms)
    parts = [
        _describe(getattr(node, field.name), inputs, forms)
        for field in fields(node)
        if field.init
    ]
    key = _digest(node.kind, *parts)
    kept = {} if isinstance(node, Project) else inputs
    names = {
        column.name: kept.get(column.name, f"{position}:{key}")
        for position, column in enumerate(node.schema)
    }
    return Canonical(key, names)


def _row_form(node: Node, forms: Mapping[Node, Canonical]) -> Canonical:
    if isinstance(node, Scan):
        key = _digest("Scan", repr(node.source))
        return Canonical(key, {c.column.name: f"{c.field}:{key}" for c in node.columns})
    inputs = _input_names(node, forms)
    if isinstance(node, Sort):
        return Canonical(forms[node.input].key, inputs)
    if isinstance(node, Project):
        names = {o.name: _expression_text(o.expression, inputs, forms) for o in node.outputs}
        return Canonical(forms[node.input].key, names)
    if isinstance(node, Filter):
        conditions = sorted(_expression_text(c, inputs, forms) for c in _conditions(node))
        return Canonical(_digest("Filter", forms[node.input].key, *conditions), inputs)
    return _canonical(node, forms)


def _conditions(node: Filter) -> list[Expression]:
    return [
        Expression(part, "boolean", True, _used(node.condition, part))
        for part in split_conjunction(node.condition.text)
    ]


def _used(whole: Expression, part: str) -> Any:
    return tuple(s for s in whole.subqueries if f":{s.name}" in part)


def split_conjunction(text: str) -> list[str]:
    """The parts of `(a AND b) AND c`, as the importer writes it; other texts stay whole."""
    inner = _strip_parentheses(text)
    depth, start, parts = 0, 0, []
    in_string = False
    position = 0
    while position < len(inner):
        character = inner[position]
        if in_string:
            if character == "\\":
                position += 1
            elif character == "'":
                in_string = False
        elif character == "'":
            in_string = True
        elif character == "`":
            position = inner.index("`", position + 1)
        elif character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif depth == 0 and inner.startswith(" AND ", position):
            parts.append(inner[start:position])
            start = position + 5
            position += 4
        elif depth == 0 and inner.startswith((" BETWEEN ", " OR ", "CASE "), position):
            return [text]
        position += 1
    if not parts:
        return [text]
    return [found for part in (*parts, inner[start:]) for found in split_conjunction(part)]


def _strip_parentheses(text: str) -> str:
    text = text.strip()
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth, position = 0, 0
    while position < len(text) - 1:
        character = text[position]
        if character in "'`":
            position += 1
            while text[position] != character:
                position += 2 if text[position] == "\\" and character == "'" else 1
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text
        position += 1
    return text[1:-1]


def _input_names(node: Node, forms: Mapping[Node, Canonical]) -> dict[str, str]:
    """Canonical names of the columns that the node reads. The sides of a join stay apart."""
    names: dict[str, str] = {}
    for position, child in enumerate(node.children):
        prefix = f"{position}." if isinstance(node, Join) else ""
        names |= {name: prefix + canonical for name, canonical in forms[child].names.items()}
    return names


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


def _expression_text(
    expression: Expression, names: Mapping[str, str], forms: Mapping[Node, Canonical]
) -> str:
    keys = {subquery.name: forms[subquery.plan].key for subquery in expression.subqueries}
    return substitute(
        expression.text, lambda name: f"`{names[name]}`", lambda name: f":{keys[name]}"
    )


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\x00".join(parts).encode(), digest_size=12).hexdigest()
