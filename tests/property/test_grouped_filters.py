"""Grouped filters: the set of a row is the set of the queries whose conditions it meets."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.pipelined.kernels.connection import configure
from headway.pipelined.kernels.translate import translate
from headway.pipelined.kernels.types import arrow_type
from headway.plan.expressions import Column, Expression
from headway.plan.nodes import Named
from headway.sharing import grouped_filters
from headway.sharing.grouped_filters import grouped_filter
from headway.sharing.query_sets import WORD_BITS, members_of, set_of
from headway.sharing.ranges import condition_on

SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
COLUMNS = {
    "i": Column("i", "int"),
    "n": Column("n", "bigint", False),
    "d": Column("d", "decimal(7,2)"),
    "t": Column("t", "date"),
    "s": Column("s", "string"),
    "x": Column("x", "double"),
}
VALUES: dict[str, list[Any]] = {
    "i": [None, -1, 0, 1, 2, 3, 10],
    "n": [-5, 0, 5, 9, 2**40],
    "d": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("1.25"), Decimal("99999.99")],
    "t": [None, datetime.date(1999, 12, 31), datetime.date(2000, 1, 1), datetime.date(2000, 2, 1)],
    "s": [None, "", "a", "ab", "b", "it's", "ß", "Z"],
    "x": [None, -1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")],
}
LITERALS = {
    "i": ["-1", "0", "1", "2", "10"],
    "n": ["0L", "5L", "1099511627776L"],
    "d": ["CAST(0.00BD AS DECIMAL(7,2))", "CAST(1.25BD AS DECIMAL(7,2))", "99999.99BD"],
    "t": ["DATE '2000-01-01'", "DATE '1999-12-31'"],
    "s": ["'a'", "'ab'", "'it\\'s'", "''"],
    "x": ["2.5D", "-1.5D", "0.0D"],
}


def conditions_on(name: str) -> st.SearchStrategy[str]:
    literal = st.sampled_from(LITERALS[name])
    compared = st.tuples(st.sampled_from(["=", "<", "<=", ">", ">=", "<=>"]), literal).map(
        lambda pair: f"(`{name}` {pair[0]} {pair[1]})"
    )
    turned = literal.map(lambda value: f"({value} <= `{name}`)")
    listed = st.lists(literal, min_size=1, max_size=3).map(
        lambda values: f"(`{name}` IN ({', '.join(values)}))"
    )
    nulls = st.sampled_from([f"(`{name}` IS NULL)", f"(`{name}` IS NOT NULL)"])
    return st.recursive(
        st.one_of(compared, turned, listed, nulls),
        lambda inner: st.one_of(
            inner.map(lambda text: f"(NOT {text})"),
            st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
                lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"
            ),
        ),
        max_leaves=4,
    )


conditions = st.one_of(
    *(conditions_on(name) for name in COLUMNS),
    st.just("(`s` LIKE '%a%')"),
    st.just("(CAST(`i` AS BIGINT) < `n`)"),
).map(lambda text: Expression(text, "boolean"))


def evaluate(
    expressions: list[Expression], steps: tuple[tuple[Named, ...], ...] = ()
) -> list[tuple[Any, ...]]:
    """Over all values, and columns that are computed step by step."""
    length = max(map(len, VALUES.values()))
    rows = pa.table(
        {
            name: pa.array([values[n % len(values)] for n in range(length)], arrow_type(c.type))
            for (name, values), c in zip(VALUES.items(), COLUMNS.values(), strict=True)
        }
    )
    with duckdb.connect() as connection:
        connection.register("given_rows", rows)
        connection.execute("CREATE TABLE rows AS SELECT * FROM given_rows")
        configure(connection)
        known, table = dict(COLUMNS), "rows"
        for step in steps:
            made = {each.name: each.expression for each in step}
            outputs = [f'"{name}"' for name in known if name not in made]
            for name, expression in made.items():
                outputs.append(f'{translate(expression, known, SETTINGS).text} AS "{name}"')
            table = f"(SELECT {', '.join(outputs)} FROM {table})"
            known |= {name: Column(name, e.type, False) for name, e in made.items()}
        texts = ", ".join(translate(e, known, SETTINGS).text for e in expressions)
        return connection.execute(f"SELECT {texts} FROM {table}").fetchall()


@settings(max_examples=80, deadline=None)
@given(
    st.one_of(
        st.lists(st.lists(conditions, max_size=3), min_size=1, max_size=20),
        st.lists(st.lists(conditions, max_size=2), min_size=63, max_size=130),
    ),
    st.data(),
)
def test_the_set_of_a_row(asked: list[list[Expression]], data: st.DataObject) -> None:
    """In a word, and in several; by trees, by searches, and by some of each."""
    numbers = data.draw(st.sets(st.sampled_from(range(len(asked))), min_size=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped_filters, "_MOST_CUTS", data.draw(st.sampled_from([0, 4, 128])))
        found = grouped_filter(dict(enumerate(asked)), COLUMNS.values(), set_of(numbers))
    alone = [e for n in sorted(numbers) for e in asked[n]]
    values = evaluate([*found.words, *found.prefilter, *alone], found.steps)
    words, plain = len(found.words), len(found.words) + len(found.prefilter)
    for row in values:
        got = sum(word << (WORD_BITS * n) for n, word in enumerate(row[:words]))
        tests = iter(row[plain:])
        holds = {n: [next(tests) is True for _ in asked[n]] for n in sorted(numbers)}
        wanted = {n for n, each in holds.items() if all(each)}
        assert set(members_of(got)) == wanted
        if wanted:
            assert all(test is True for test in row[words:plain])


def ranges_of(count: int) -> dict[int, list[Expression]]:
    return {
        n: [Expression(f"((`i` >= {7 * n}) AND (`i` < {7 * n + 40}))", "boolean")]
        for n in range(count)
    }


def test_the_depth_grows_with_the_logarithm() -> None:
    """The ranges of one word: a row is led through about eight comparisons."""
    (word,) = grouped_filter(ranges_of(62), COLUMNS.values(), (1 << 62) - 1).words
    depth = most = 0
    for each in word.text.replace("(", " ").replace(")", " ").split():
        depth += {"CASE": 1, "END": -1}.get(each, 0)
        most = max(most, depth)
    assert most <= 9  # of 124 ends of ranges, and the test for null


@pytest.mark.parametrize(("count", "comparisons"), [(70, 8), (1000, 11)])
def test_many_queries_are_searched_for_once(count: int, comparisons: int) -> None:
    """Of a thousand ranges on one column: eleven comparisons, and a look-up for each word."""
    found = grouped_filter(ranges_of(count), COLUMNS.values(), (1 << count) - 1)
    made = [each for step in found.steps for each in step]
    assert {each.name for each in made} == {"place 0"}
    assert sum(" <= `i`" in each.expression.text for each in made) == comparisons
    assert all(word.text.count("try_element_at") == 1 for word in found.words)
    assert all("CASE" not in word.text for word in found.words)


def test_long_lists_are_searched_for_however_few_queries_ask() -> None:
    """Of 40 lists with 100 values each: 12 comparisons, and texts not much longer than they are."""
    asked = {}
    for n in range(40):
        values = ", ".join(str(2 * (n + 40 * each)) for each in range(100))
        asked[n] = [Expression(f"(`i` IN ({values}))", "boolean")]
    found = grouped_filter(asked, COLUMNS.values(), (1 << 40) - 1)
    made = [each.expression.text for step in found.steps for each in step]
    assert sum(" <= `i`" in text for text in made) == 12
    written = sum(len(each[0].text) for each in asked.values())
    assert sum(map(len, made)) < 3 * written
    (word,) = found.words
    assert "CASE" not in word.text


def test_few_constants_of_many_queries_make_small_trees() -> None:
    asked = {n: [Expression(f"(`i` = {n % 3})", "boolean")] for n in range(130)}
    found = grouped_filter(asked, COLUMNS.values(), (1 << 130) - 1)
    assert not found.steps and len(found.words) == 3
    assert all(word.text.count("CASE") <= 7 for word in found.words)


def test_what_is_no_matter_of_ranges() -> None:
    for text in ("(`s` LIKE 'a%')", "(`i` < `n`)", "(`i` = NULL)", "(`d` > 1.255BD)", "`b`"):
        expression = Expression(text, "boolean")
        assert condition_on(expression, COLUMNS.get(text[2], COLUMNS["i"])) is None, text
