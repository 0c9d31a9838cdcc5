"""Any name and any string can stand in an expression, and is found or left alone."""

from __future__ import annotations

import re
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import expressions as exp

from headway.plan.conjunctions import split_conjunction
from headway.plan.expressions import Column, Expression, quote, string_literal, substitute
from headway.testing.plans import TYPES, column_names, conditions

STRINGS = st.text(max_size=12) | st.text("'\\\"`:0a\0\n ", max_size=8)
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|([01][0-7]{2})|(.))", re.DOTALL)
NAMED_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def unescaped(literal: str) -> str:
    """A literal's value by the rules of Spark's ParserUtils.unescapeSQLString."""

    def value(match: re.Match[str]) -> str:
        code, octal, letter = match.groups()
        if code or octal:
            return chr(int(code, 16) if code else int(octal, 8))
        return "\\" + str(letter) if letter in "%_" else NAMED_ESCAPES.get(letter, letter)

    assert literal[0] == literal[-1] == "'"
    return ESCAPE.sub(value, literal[1:-1])


@given(STRINGS)
def test_strings_come_back_to_the_letter(value: str) -> None:
    literal = string_literal(value)
    assert unescaped(literal) == value
    # No quote inside ends it: a backslash stands before each, itself not escaped.
    assert re.fullmatch(r"'(?:[^'\\]|\\.)*'", literal, re.DOTALL)
    assert "\n" not in literal
    assert Expression(literal, "string").columns == frozenset()


@given(column_names())
def test_a_quoted_name_is_that_column(name: str) -> None:
    expression = Expression(quote(name), "int")
    assert expression.columns == {name}
    assert expression.column == name


PIECES = st.one_of(
    st.tuples(st.just("column"), column_names()),
    st.tuples(st.just("string"), STRINGS),
    st.tuples(st.just("double quoted"), st.text("`:'a ", max_size=6)),
    st.tuples(st.just("field"), column_names()),
    st.tuples(st.just("plain"), st.sampled_from(("1", "::int", "+", "CASE WHEN", "x(", "-0.5D"))),
)


def written(pieces: list[tuple[str, str]]) -> str:
    texts: dict[str, Callable[[str], str]] = {
        "column": quote,
        "string": string_literal,
        "double quoted": lambda text: f'"{text}"',
        "field": lambda name: f"`s`.{quote(name)}",
        "plain": str,
    }
    return " ".join(texts[kind](value) for kind, value in pieces)


@given(st.lists(PIECES, min_size=1))
def test_columns_are_found_among_anything(pieces: list[tuple[str, str]]) -> None:
    expression = Expression(written(pieces), "int")
    fields = {"s"} if any(kind == "field" for kind, _ in pieces) else set()
    assert expression.columns == {value for kind, value in pieces if kind == "column"} | fields
    assert substitute(expression.text, quote) == expression.text


@given(st.lists(PIECES, min_size=1), st.dictionaries(column_names(), column_names()))
def test_renaming_changes_columns_and_nothing_else(
    pieces: list[tuple[str, str]], names: dict[str, str]
) -> None:
    names.pop("s", None)
    expected = [(k, names.get(v, v) if k == "column" else v) for k, v in pieces]
    renamed = Expression(written(pieces), "int").rename(names)
    assert renamed.text == written(expected)


@given(st.lists(PIECES, min_size=1))
def test_renaming_there_and_back(pieces: list[tuple[str, str]]) -> None:
    expression = Expression(written(pieces), "int")
    there = {name: f"new`{number}" for number, name in enumerate(sorted(expression.columns))}
    back = {new: old for old, new in there.items()}
    assert expression.rename(there).rename(back) == expression


@given(st.lists(st.one_of(column_names(), st.none()), min_size=1, max_size=6))
def test_parameters_are_told_from_casts_and_strings(names: list[str | None]) -> None:
    texts = [":s" if name is None else f"{quote(name)}::int = ':s'" for name in names]
    changed = substitute(" AND ".join(texts), quote, lambda name: f"<{name}>")
    assert changed == " AND ".join("<s>" if t == ":s" else t for t in texts)


COLUMNS = tuple(Column(f"c`{ddl}", ddl) for ddl in TYPES)


def flattened(node: exp.Expr) -> list[exp.Expr]:
    node = node.unnest()
    if isinstance(node, exp.And):
        return [*flattened(node.left), *flattened(node.right)]
    return [node]


def check_split(text: str) -> None:
    parts = split_conjunction(text)
    expected = flattened(Expression(text, "boolean").parsed)
    assert [Expression(part, "boolean").parsed for part in parts] == expected


@settings(max_examples=100)
@given(conditions(COLUMNS))
def test_conditions_split_as_sqlglot_splits_them(condition: Expression) -> None:
    check_split(condition.text)


ATOMS = st.one_of(
    st.sampled_from(("`a`", "`b AND c`", "`d``)`", "`e` = 'x AND (y'", "f(`g` AND `h`)", "true")),
    st.sampled_from(("`a` BETWEEN 1 AND 2", "`b` not between 1 and 2", "`c` IN (1, 2)")),
    st.sampled_from(("CASE WHEN `a` AND `b` THEN `c` ELSE `d` OR `e` END", '`x` = "it\'s AND"')),
    STRINGS.map(lambda value: f"`s` = {string_literal(value.replace(chr(0), ''))}"),
)
LOOSE_CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from((" AND ", " and\n", " OR ")), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"NOT ({text})"),
        inner.map(lambda text: f"( {text} ) "),
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(LOOSE_CONDITIONS)
def test_conditions_without_parentheses_split_the_same_way(text: str) -> None:
    check_split(text)


@settings(max_examples=50)
@given(conditions(COLUMNS))
def test_every_condition_parses_once_and_reads_the_columns_it_shows(condition: Expression) -> None:
    again = Expression(condition.text, "boolean")
    assert again.parsed is condition.parsed
    found = {column.name for column in condition.parsed.find_all(exp.Column)}
    assert found == condition.columns
