"""Conditions taken apart at their ANDs, by their tokens alone: exact, and linear in the text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_LEXEME = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `(?:[^`]|``)*` | [()\[\]{}] | \w+""",
    re.VERBOSE | re.DOTALL,
)
_OPENING = {"(", "[", "{", "CASE"}
_CLOSING = {")", "]", "}", "END"}


def split_conjunction(text: str) -> list[str]:
    """What must hold for `a AND b AND (c AND d)` to hold, each without enclosing parentheses."""
    whole, groups = _groups(text)
    found: list[str] = []
    stack: list[tuple[int, int, _Group | None]] = [(0, len(text), whole)]
    while stack:
        start, end, group = stack.pop()
        start, end = _stripped(text, start, end)
        while start in groups and groups[start].end == end:
            group = groups[start]
            start, end = _stripped(text, start + 1, end - 1)
        if group is None or group.has_or or not group.ands:
            found.append(text[start:end])
            continue
        edges = [start, *(edge for span in group.ands for edge in span), end]
        spans = zip(edges[-2::-2], edges[::-2], strict=True)
        stack.extend((start, end, None) for start, end in spans)
    return found


@dataclass(slots=True)
class _Group:
    """What stands between two parentheses, or in the whole text, outside of inner ones."""

    start: int
    end: int = 0
    ands: list[tuple[int, int]] = field(default_factory=list)
    has_or: bool = False
    betweens: int = 0
    """BETWEENs that still wait for their AND."""


def _groups(text: str) -> tuple[_Group, dict[int, _Group]]:
    """The whole text, and what stands in parentheses by where they open."""
    whole = _Group(0)
    groups: dict[int, _Group] = {}
    open_ = [whole]
    for match in _LEXEME.finditer(text):
        lexeme, inner = match.group().upper(), open_[-1]
        if lexeme in _OPENING:
            open_.append(_Group(match.start()))
        elif lexeme in _CLOSING and len(open_) > 1:
            closed = open_.pop()
            closed.end = match.end()
            if lexeme == ")":
                groups[closed.start] = closed
        elif lexeme == "OR":
            inner.has_or = True
        elif lexeme == "BETWEEN":
            inner.betweens += 1
        elif lexeme == "AND" and inner.betweens:
            inner.betweens -= 1
        elif lexeme == "AND":
            inner.ands.append(match.span())
    return whole, groups


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
