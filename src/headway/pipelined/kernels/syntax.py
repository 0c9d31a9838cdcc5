"""Canonical text as a syntax tree that keeps what Spark wrote.

sqlglot's Spark dialect rewrites calls on its way in: date_sub becomes an addition, year gets a
cast, CAST and literals become TRY_CAST. Here every call keeps its name and its arguments, so one
table by Spark's own names decides what is supported.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import ClassVar

import sqlglot
from sqlglot import expressions as tree
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

from headway.base.errors import NotSupported
from headway.plan.parsing import ParsedByShape


class _CanonicalParser(SparkParser):
    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {
        name: parse
        for name, parse in SparkParser.FUNCTION_PARSERS.items()
        if name in ("CAST", "TRY_CAST")
    }
    NO_PAREN_FUNCTIONS: ClassVar = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {
        name: parse
        for name, parse in SparkParser.NO_PAREN_FUNCTION_PARSERS.items()
        if name in ("CASE", "IF", "ANY")
    }
    STRICT_CAST: ClassVar = True


class Canonical(Spark):
    """The Spark SQL of a plan's expressions."""

    Parser = _CanonicalParser


@lru_cache(maxsize=4_096)
def parse(text: str) -> tree.Expr:
    """The tree of a canonical text; shared between callers, so never to be changed."""
    return _by_shape(text)


_LONG = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|(?<![\w.])(\d+)L\b", re.DOTALL)
_MARK = "e0"
"""For sqlglot, numbers with a suffix are casts of types that it parses by themselves, which takes
seven times as long as a number; shared work has hundreds of them. Spark writes none with this."""


def _parse(text: str) -> tree.Expr:
    marked = _LONG.sub(lambda m: m[0] if m[1] is None else m[1] + _MARK, text)
    if marked == text or _MARK in text:
        return _parse_whole(text)
    parsed = _parse_whole(marked)
    for number in list(parsed.find_all(tree.Literal)):
        if not number.is_string and number.this.endswith(_MARK):
            plain = tree.Literal.number(number.this.removesuffix(_MARK))
            long = tree.cast(plain, tree.DType.BIGINT)
            if number is parsed:
                return long
            number.replace(long)
    return parsed


def _parse_whole(text: str) -> tree.Expr:
    try:
        return sqlglot.parse_one(text, dialect=Canonical)
    except sqlglot.errors.SqlglotError as error:
        raise NotSupported(f"expression {text}", f"it does not parse: {error}") from error
    except RecursionError as error:
        raise NotSupported("expression", "it is nested too deeply") from error


_by_shape = ParsedByShape(_parse)
