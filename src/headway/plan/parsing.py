"""Syntax trees of many texts that differ in their constants alone: each form is parsed once.

Queries of a batch come from few templates, and sqlglot takes a millisecond for what is copied in a
part of that.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import expressions

_CONSTANT = re.compile(
    r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|(?<![\w.])\d+(?:\.\d+)?(?![\d.])", re.DOTALL
)
"""A column, a text or a number; its suffix, such as that of 5L, is not a part of it."""
_MOST_SHAPES = 4_096


class ParsedByShape:
    """Parses texts with `parse`, whose trees have the constants of a text in their order."""

    def __init__(self, parse: Callable[[str], expressions.Expr]) -> None:
        self._parse = parse
        self._shapes: dict[str, expressions.Expr] = {}

    def __call__(self, text: str) -> expressions.Expr:
        matches = (match.group() for match in _CONSTANT.finditer(text))
        constants = tuple(_plain(found) for found in matches if found[0] != "`")
        if not constants or None in constants:
            return self._parse(text)
        shape = _CONSTANT.sub(_without_value, text)
        known = self._shapes.get(shape)
        if known is None:
            made = self._parse(text)
            found = [each.this for each in made.find_all(expressions.Literal, bfs=False)]
            # Constants are told apart by their values: of equal ones nobody knows which is which.
            if found == list(constants) and len(set(found)) == len(found):
                if len(self._shapes) > _MOST_SHAPES:
                    self._shapes.clear()
                self._shapes[shape] = made
            return made
        made = known.copy()
        places = made.find_all(expressions.Literal, bfs=False)
        for place, constant in zip(places, constants, strict=True):
            place.set("this", constant)
        return made


def _without_value(match: re.Match[str]) -> str:
    first = match.group()[0]
    return match.group() if first == "`" else "''" if first == "'" else "0"


def _plain(constant: str) -> str | None:
    """The value as a syntax tree has it; None of a text that would have to be read first."""
    if constant[0] != "'":
        return constant
    inner = constant[1:-1]
    return None if "'" in inner or "\\" in inner else inner
