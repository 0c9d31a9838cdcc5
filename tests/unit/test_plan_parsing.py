"""Texts that differ in their constants alone are parsed once, and mean what they say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlglot
from sqlglot.expressions import Expr

from headway.pipelined.kernels.syntax import Canonical
from headway.plan.parsing import ParsedByShape


def counted(dialect: object) -> tuple[Callable[[str], Expr], list[str]]:
    asked: list[str] = []

    def parse(text: str) -> Expr:
        asked.append(text)
        return sqlglot.parse_one(text, dialect=dialect)

    return parse, asked


@pytest.mark.parametrize("dialect", ["spark", Canonical])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("((`words` & 4L) != 0L)", "((`words` & 1073741824L) != 0L)"),
        ("(`a` BETWEEN 3 AND 17)", "(`a` BETWEEN 17 AND 3)"),
        ("IF((`s` = 'x'), 1.50BD, -2)", "IF((`s` = ''), 7BD, -9)"),
        ("(`5` IN (1, 2, 3))", "(`5` IN (3, 3, 3))"),
        ("(`a` = 5)", "(`a` = 5)"),
        ("(`x` > 1.0E10D)", "(`x` > 2.5E10D)"),
        ("CAST(`a` AS DECIMAL(15,2))", "CAST(`a` AS DECIMAL(7,3))"),
        ("(`s` LIKE 'it''s')", "(`s` LIKE 'it\\'s')"),
        ("(`u` >= DATE '2000-01-01')", "(`u` >= DATE '1999-12-31')"),
    ],
)  # fmt: skip
def test_a_tree_is_that_of_its_own_text(dialect: object, first: str, second: str) -> None:
    parse, _ = counted(dialect)
    by_shape = ParsedByShape(parse)
    for text in (first, second, first):
        assert by_shape(text) == sqlglot.parse_one(text, dialect=dialect)


def test_one_form_is_parsed_once() -> None:
    parse, asked = counted("spark")
    by_shape = ParsedByShape(parse)
    trees = [by_shape(f"(`a` > {number})") for number in range(1, 9)]
    assert len(asked) == 1
    assert [tree.sql() for tree in trees] == [f'("a" > {number})' for number in range(1, 9)]


def test_what_was_handed_out_stays_as_it_is() -> None:
    parse, _ = counted("spark")
    by_shape = ParsedByShape(parse)
    first = by_shape("(`a` > 1)")
    by_shape("(`a` > 2)")
    assert first == sqlglot.parse_one("(`a` > 1)", dialect="spark")
