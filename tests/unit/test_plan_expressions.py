"""Expressions are read by their tokens, and parsed only when somebody asks for more."""

from __future__ import annotations

import pytest
from sqlglot import expressions as exp

from headway.base.errors import InvalidPlan
from headway.plan.expressions import (
    Column,
    Expression,
    Subquery,
    column_reference,
    conjunction,
    merge_subqueries,
    quote,
    string_literal,
    substitute,
)
from headway.plan.nodes import Values

ONE = Values((Column("v", "int"),), (("1",),))
OTHER = Values((Column("w", "int"),), (("2",),))


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("a", "`a`"), ("a`b", "`a``b`"), ("`", "````"), ("a.b", "`a.b`"), ("select", "`select`")],
)
def test_names_are_quoted(name: str, quoted: str) -> None:
    assert quote(name) == quoted
    assert Expression(quoted, "int").column == name


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        ("it's", r"'it\'s'"),
        ("a\\b", r"'a\\b'"),
        ("a\nb\r", r"'a\nb\r'"),
        ("\0", r"'\0'"),
        ("\0x", r"'\0x'"),
        ("\x0012", r"'\00012'"),  # \012 would be one character, a line feed
        ('say "no"', "'say \"no\"'"),
    ],
)
def test_strings_become_literals(value: str, literal: str) -> None:
    assert string_literal(value) == literal


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("1", set()),
        ("(`a` + `b`)", {"a", "b"}),
        ("`a``b`", {"a`b"}),
        ("concat('`no`', `yes`)", {"yes"}),
        ("concat('it\\'s `no`', `yes`)", {"yes"}),
        ('concat("`no`", `yes`)', {"yes"}),
        ("concat('\\\\', `yes`, '`no`')", {"yes"}),
        ("`s`.`field`", {"s"}),
        ("`s` . `field`", {"s"}),
        ("`s`.`f`.`g` + `b`", {"s", "b"}),
        ("`a::b`", {"a::b"}),
        ("`a`::int", {"a"}),
        ("'10:30:00'", set()),
        ("`with ' quote` = 'x'", {"with ' quote"}),
        ("`a`\n+\n`b`", {"a", "b"}),
    ],
)
def test_columns_are_found(text: str, columns: set[str]) -> None:
    assert Expression(text, "int").columns == columns


@pytest.mark.parametrize("text", ["1", "(`a`)", "`a` + 1", "`s`.`field`", "'a'", " `a`"])
def test_only_a_column_is_a_column(text: str) -> None:
    assert Expression(text, "int").column is None


def test_renaming_leaves_strings_fields_and_parameters_alone() -> None:
    text = "(`a` = '`a`') AND (`s`.`a` > :a) AND (`b` <=> `A`)"
    expression = Expression(text, "boolean", True, (Subquery("a", ONE),))
    renamed = expression.rename({"a": "x`y", "s": "t"})
    assert renamed.text == "(`x``y` = '`a`') AND (`t`.`a` > :a) AND (`b` <=> `A`)"
    assert renamed.subqueries == expression.subqueries
    assert expression.rename({"unknown": "x"}) is expression


def test_names_can_be_exchanged() -> None:
    swapped = Expression("(`a` - `b`)", "int").rename({"a": "b", "b": "a"})
    assert swapped.text == "(`b` - `a`)"


def test_parameters_are_substituted_outside_of_strings_only() -> None:
    text = "`a` > :s1 AND `b` = ':s1' AND `c`::int > :s10 AND `:s1`"
    changed = substitute(text, quote, lambda name: f"<{name}>")
    assert changed == "`a` > <s1> AND `b` = ':s1' AND `c`::int > <s10> AND `:s1`"
    assert substitute(text, quote) == text


def test_a_text_is_parsed_once() -> None:
    first, second = Expression("(`a` + 1)", "int"), Expression("(`a` + 1)", "int")
    assert first.parsed is second.parsed
    assert isinstance(first.parsed, exp.Paren)


@pytest.mark.parametrize("text", ["(`a` +", "'open", "`open", "(" * 5_000 + "1" + ")" * 5_000])
def test_what_does_not_parse_is_said_so(text: str) -> None:
    with pytest.raises(InvalidPlan, match="does not parse"):
        _ = Expression(text, "int").parsed


def test_a_reference_has_the_columns_type() -> None:
    reference = column_reference(Column("a`b", "date", False))
    assert reference == Expression("`a``b`", "date", False)


def test_conjunctions() -> None:
    sure = Expression("(`a` IS NULL)", "boolean", False)
    s = Subquery("s", ONE)
    unsure = Expression("(`a` > :s) OR (`b`)", "boolean", True, (s,))
    assert conjunction([]) is None
    assert conjunction([unsure]) is unsure
    both = conjunction([sure, unsure, unsure])
    assert both is not None
    assert both.text == "((`a` IS NULL)) AND ((`a` > :s) OR (`b`)) AND ((`a` > :s) OR (`b`))"
    assert both.nullable
    assert both.subqueries == (s,)
    surely = conjunction([sure, sure])
    assert surely is not None and not surely.nullable


def test_merged_subqueries_keep_their_order() -> None:
    first, second = Subquery("s1", ONE), Subquery("s2", OTHER)
    left = Expression(":s2 + :s1", "int", True, (second, first))
    right = Expression(":s1", "int", True, (first,))
    assert merge_subqueries([left, right]) == (second, first)
