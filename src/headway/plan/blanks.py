"""Plans with blanks, for queries that differ in constants alone: each gets its own filled in."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from headway.plan.expressions import Expression
from headway.plan.graph import walk
from headway.plan.nodes import Node, made_of

_MARK = f"\x02{secrets.token_hex(8)} "
"""No text that anybody else wrote holds it."""
_BLANK = re.compile(f"'{_MARK}(\\d+)'")


def blank(number: int) -> str:
    """Stands in the text of an expression for a constant that is not known yet."""
    return f"'{_MARK}{number}'"


def filled(root: Node, constants: Sequence[str]) -> Node:
    """The plan with the texts of constants in place of its blanks, by their numbers."""
    done: dict[Node, Node] = {}

    def text_of(match: re.Match[str]) -> str:
        return constants[int(match.group(1))]

    def fill(text: str) -> str:
        return _BLANK.sub(text_of, text) if _MARK in text else text

    for node in walk(root):
        has_expressions = node.children or node.subqueries
        done[node] = _mapped(node, done, fill) if has_expressions else node
    return done[root]


def _mapped(value: Any, done: Mapping[Node, Node], fill: Callable[[str], str]) -> Any:
    """The same with every node in it replaced by what was made of it, and every expression filled;
    the very same object where nothing changed."""
    before = {name: getattr(value, name) for name in made_of(value)}
    after = {name: _changed(each, done, fill) for name, each in before.items()}
    differing = {name: each for name, each in after.items() if each is not before[name]}
    return replace(value, **differing) if differing else value


def _changed(value: Any, done: Mapping[Node, Node], fill: Callable[[str], str]) -> Any:
    if isinstance(value, Node):
        return done[value]
    if isinstance(value, Expression):
        text, subqueries = fill(value.text), _changed(value.subqueries, done, fill)
        if text == value.text and subqueries is value.subqueries:
            return value
        return replace(value, text=text, subqueries=subqueries)
    if isinstance(value, tuple):
        items = tuple(_changed(each, done, fill) for each in value)
        unchanged = all(a is b for a, b in zip(items, value, strict=True))
        return value if unchanged else items
    if is_dataclass(value) and not isinstance(value, type):
        return _mapped(value, done, fill)
    return value
