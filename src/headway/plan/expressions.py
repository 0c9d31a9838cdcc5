"""Expressions are Spark SQL text over column names that are unique in the plan.

The text is canonical: every column stands in back-ticks, a struct's field in back-ticks after a
dot, a scalar subquery as a named parameter (`:subquery_1`). That makes columns and subqueries a
matter of reading tokens; anything deeper (operators, other dialects) goes through sqlglot, once
per text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import expressions as sqlglot_expressions

from headway.base.errors import InvalidPlan
from headway.plan.parsing import ParsedByShape

if TYPE_CHECKING:
    from headway.plan.nodes import Node

_TOKEN = re.compile(
    r"""
    (?P<string>'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*")
  | (?P<field>\.\s*`(?:[^`]|``)*`)
  | `(?P<column>(?:[^`]|``)*)`
  | (?<!:):(?P<parameter>[A-Za-z_][A-Za-z0-9_]*)
    """,
    re.VERBOSE | re.DOTALL,
)


def quote(name: str) -> str:
    """`name` as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def string_literal(value: str) -> str:
    """`value` as a string literal that Spark reads back to the letter."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    escaped = re.sub("\0(?=[0-7])", r"\\000", escaped)  # \0 before digits would be an octal code
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0") + "'"


def type_text(ddl: str) -> str:
    """A type as SQL has it; the names inside a nested one keep their case."""
    return ddl if "<" in ddl else ddl.upper()


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a node's output. `type` is Spark's DDL text, such as decimal(15,2)."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Subquery:
    """A plan of one column and at most one row, named where an expression uses its value."""

    name: str
    plan: Node

    def __post_init__(self) -> None:
        if len(self.plan.schema) != 1:
            raise InvalidPlan(
                f"the subquery {self.name} has {len(self.plan.schema)} columns and needs one",
                hint=f"its columns: {', '.join(self.plan.column_names) or 'none'}",
            )


@dataclass(frozen=True, slots=True)
class Expression:
    """Canonical Spark SQL text with its type; see the module for what canonical means."""

    text: str
    type: str
    nullable: bool = True
    subqueries: tuple[Subquery, ...] = ()

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise InvalidPlan("an expression has no text")
        named = {subquery.name for subquery in self.subqueries}
        if named != set(_parameters(self.text)):
            raise InvalidPlan(
                f"expression {self.text} names the subqueries {sorted(_parameters(self.text))} "
                f"but carries {sorted(named)}"
            )

    @property
    def columns(self) -> frozenset[str]:
        """The columns it reads, without those inside its subqueries."""
        return _columns(self.text)

    @property
    def column(self) -> str | None:
        """The column's name when the expression is nothing but a column."""
        return _single_column(self.text)

    @property
    def parsed(self) -> sqlglot_expressions.Expr:
        """The syntax tree. Shared between callers: copy it before changing it."""
        return _parsed(self.text)

    def rename(self, names: Mapping[str, str]) -> Expression:
        """The same expression over other column names."""
        text = substitute(self.text, lambda name: quote(names.get(name, name)))
        return self if text == self.text else replace(self, text=text)


def column_reference(column: Column) -> Expression:
    return Expression(quote(column.name), column.type, column.nullable)


def conjunction(conditions: Iterable[Expression]) -> Expression | None:
    """All conditions at once; None when there are none."""
    parts = tuple(conditions)
    if len(parts) <= 1:
        return parts[0] if parts else None
    return Expression(
        " AND ".join(f"({part.text})" for part in parts),
        "boolean",
        any(part.nullable for part in parts),
        merge_subqueries(parts),
    )


def merge_subqueries(expressions: Iterable[Expression]) -> tuple[Subquery, ...]:
    """The subqueries of several expressions, each once, in order of appearance."""
    return tuple(dict.fromkeys(s for expression in expressions for s in expression.subqueries))


def substitute(
    text: str,
    column: Callable[[str], str],
    parameter: Callable[[str], str] | None = None,
) -> str:
    """`text` with each column (and each subquery's parameter) replaced by what is returned."""

    def replaced(match: re.Match[str]) -> str:
        name = match.group("column")
        if name is not None:
            return column(name.replace("``", "`"))
        subquery = match.group("parameter")
        if subquery is not None and parameter is not None:
            return parameter(subquery)
        return match.group(0)

    return _TOKEN.sub(replaced, text)


@lru_cache(maxsize=16_384)
def _columns(text: str) -> frozenset[str]:
    return frozenset(
        match.group("column").replace("``", "`")
        for match in _TOKEN.finditer(text)
        if match.group("column") is not None
    )


@lru_cache(maxsize=16_384)
def _single_column(text: str) -> str | None:
    match = _TOKEN.fullmatch(text)
    if match is None or match.group("column") is None:
        return None
    return match.group("column").replace("``", "`")


def _parameters(text: str) -> list[str]:
    if ":" not in text:
        return []
    return [m.group("parameter") for m in _TOKEN.finditer(text) if m.group("parameter")]


def _parse(text: str) -> sqlglot_expressions.Expr:
    try:
        parsed = sqlglot.parse_one(text, read="spark")
    except (sqlglot.errors.SqlglotError, RecursionError) as error:
        raise InvalidPlan(f"expression {text} does not parse: {error}") from error
    return parsed


_parsed = lru_cache(maxsize=4_096)(ParsedByShape(_parse))
