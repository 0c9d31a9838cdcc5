"""Expressions from Spark's text to DuckDB's: types, results of fixed cases, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from headway.base.errors import NotSupported
from headway.pipelined.kernels.connection import configure
from headway.pipelined.kernels.syntax import _parse, _parse_whole
from headway.pipelined.kernels.translate import normalised_key, translate
from headway.pipelined.kernels.typed import Translated
from headway.plan.expressions import Column, Expression

TYPES = {
    "i": "int", "k": "bigint", "x": "double", "a": "decimal(7,2)", "c": "decimal(15,2)",
    "w": "decimal(38,10)", "s": "string", "u": "date", "p": "boolean", "m": "timestamp",
    "l": "array<int>",
}  # fmt: skip
SCHEMA = {name: Column(name, ddl) for name, ddl in TYPES.items()}
ANSI = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        configure(made)
        yield made


def written(text: str, ddl: str, **settings: str) -> Translated:
    return translate(Expression(text, ddl), SCHEMA, ANSI | settings)


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("(`a` + `c`)", "decimal(16,2)"),
        ("(`a` * `c`)", "decimal(23,4)"),
        ("(`a` / `c`)", "decimal(25,18)"),
        ("(`a` % `c`)", "decimal(7,2)"),
        ("(`w` + `w`)", "decimal(38,9)"),
        ("(`w` * `w`)", "decimal(38,6)"),
        ("(`w` / `a`)", "decimal(38,8)"),
        ("(`c` * 1.20BD)", "decimal(19,4)"),
        ("(1BD - `a`)", "decimal(8,2)"),
        ("round(`w`, 2)", "decimal(31,2)"),
        ("ceil(`a`)", "decimal(6,0)"),
        ("(`k` DIV 3L)", "bigint"),
        ("(`x` / 2.0D)", "double"),
        ("year(`u`)", "int"),
        ("IF(`p`, `s`, 'no')", "string"),
        ("CAST(NULL AS STRING)", "string"),
        ("-128Y", "tinyint"),
        ("-9223372036854775808L", "bigint"),
        ("CAST(0E-18BD AS DECIMAL(38,18))", "decimal(38,18)"),
        ("TIMESTAMP '2020-01-01 00:00:00.000000Z'", "timestamp"),
    ],
)
def test_types_follow_the_rules_of_spark(text: str, ddl: str) -> None:
    assert written(text, ddl).type == ddl


def test_a_type_that_differs_from_the_plan_is_refused() -> None:
    with pytest.raises(NotSupported, match=r"give decimal\(16,2\) where Spark gives decimal"):
        written("(`a` + `c`)", "decimal(15,2)")


@pytest.mark.parametrize(
    ("text", "ddl", "value"),
    [
        ("(1.00BD / 3BD)", "decimal(7,6)", Decimal("0.333333")),
        ("(2BD / 3BD)", "decimal(7,6)", Decimal("0.666667")),
        ("(-2BD / 3BD)", "decimal(7,6)", Decimal("-0.666667")),
        ("(-7L DIV 2L)", "bigint", -3),
        ("(-7 % 3)", "int", -1),
        ("(CAST(NULL AS INT) % 0)", "int", None),
        ("CAST(2.5BD AS INT)", "int", 2),
        ("CAST(-2.5D AS INT)", "int", -2),
        ("CAST(2.5BD AS DECIMAL(1,0))", "decimal(1,0)", Decimal(3)),
        ("CAST(' 12 ' AS INT)", "int", 12),
        ("substring('abc', 0, 2)", "string", "ab"),
        ("substring('abc', -5, 3)", "string", "a"),
        ("substring('abc', 9, 3)", "string", ""),
        ("ucase('straße')", "string", "STRASSE"),
        ("concat('a', CAST(NULL AS STRING))", "string", None),
        ("trim('\\t a ')", "string", "\t a"),
        ("('a%b' LIKE 'a\\\\%_')", "boolean", True),
        ("('axb' LIKE 'a\\\\%_')", "boolean", False),
        ("('a\\nb' LIKE 'a_b')", "boolean", True),
        ("(1 IN (2, CAST(NULL AS INT)))", "boolean", None),
        ("(CAST('NaN' AS DOUBLE) = CAST('NaN' AS DOUBLE))", "boolean", True),
        ("(CAST('NaN' AS DOUBLE) > CAST('Infinity' AS DOUBLE))", "boolean", True),
        ("datediff(DATE '2000-03-01', DATE '2000-02-01')", "int", 29),
        ("dayofweek(DATE '2000-01-01')", "int", 7),
        ("round(2.5D, 0)", "double", 3.0),
        ("bround(2.5D, 0)", "double", 2.0),
    ],
)
def test_values(text: str, ddl: str, value: Any, connection: duckdb.DuckDBPyConnection) -> None:
    found = connection.execute(f"SELECT {written(text, ddl).text}").fetchone()
    assert found == (value,)


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("(2147483647 + 1)", "int"),
        ("(1.0D / 0.0D)", "double"),
        ("(1BD / 0BD)", "decimal(7,6)"),
        ("(5 % 0)", "int"),
        ("(- -2147483648)", "int"),
        ("CAST('1.5' AS INT)", "int"),
        ("CAST(128 AS TINYINT)", "tinyint"),
        ("CAST(100.00BD AS DECIMAL(3,2))", "decimal(3,2)"),
        (f"({'9' * 38}BD * 10BD)", "decimal(38,0)"),
    ],
)
def test_what_overflows_raises(text: str, ddl: str, connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error):
        connection.execute(f"SELECT {written(text, ddl).text}").fetchone()


@pytest.mark.parametrize(
    ("text", "ddl", "reason"),
    [
        ("CAST(`x` AS STRING)", "string", "CAST from double to string: DuckDB writes"),
        ("try_cast(`s` AS INT)", "int", "try_cast: it gives null"),
        ("sha2(`s`, 256)", "string", "function sha2: it is not in the table"),
        ("`l`", "array<int>", "type array<int>: the kernels hold no nested values"),
        ("(`s` LIKE `s`)", "boolean", "LIKE: its argument is no constant"),
        ("(`s` LIKE 'a\\\\b')", "boolean", "escapes no wildcard"),
        ("(`i` + `k`)", "bigint", r"\+ on int and bigint: the types differ"),
        ("year(`m`)", "int", "on timestamp"),
        ("trim(`s`, 'x')", "string", "2 arguments"),
        ("DATE '+12345-01-01'", "date", "four digits"),
        ("`nothing`", "int", "column nothing"),
        ("round(`a`, -1)", "decimal(6,0)", "before the point"),
    ],
)
def test_refusals_say_what_and_why(text: str, ddl: str, reason: str) -> None:
    with pytest.raises(NotSupported, match=reason):
        written(text, ddl)


@pytest.mark.parametrize(
    ("text", "ddl"),
    [
        ("(`i` + `i`)", "int"),
        ("(`a` / `a`)", "decimal(17,10)"),
        ("CAST(`k` AS INT)", "int"),
        ("CAST(`s` AS INT)", "int"),
        ("abs(`i`)", "int"),
    ],
)
def test_without_ansi_mode_what_can_fail_is_refused(text: str, ddl: str) -> None:
    with pytest.raises(NotSupported, match="ANSI mode is off"):
        written(text, ddl, **{"spark.sql.ansi.enabled": "false"})
    assert written("CAST(`i` AS BIGINT)", "bigint", **{"spark.sql.ansi.enabled": "false"})


def test_moments_need_utc() -> None:
    with pytest.raises(NotSupported, match="time zone is Europe/Berlin, not UTC"):
        written("`m`", "timestamp", **{"spark.sql.session.timeZone": "Europe/Berlin"})


def test_subqueries_are_written_as_the_caller_says() -> None:
    from headway.plan.expressions import Subquery
    from headway.plan.nodes import Values

    plan = Values((Column("v", "int"),), (("1",),))
    expression = Expression("(`i` > :subquery_1)", "boolean", True, (Subquery("subquery_1", plan),))
    found = translate(expression, SCHEMA, ANSI, {"subquery_1": Translated("(SELECT 7)", "int")})
    assert found.text == '("i" > (SELECT 7))'
    with pytest.raises(NotSupported, match="nothing stands for its value"):
        translate(expression, SCHEMA, ANSI)


def test_deep_nesting_is_refused_not_a_crash() -> None:
    deep = "(`i` = 1)"
    for _ in range(3_000):
        deep = f"(NOT {deep})"
    with pytest.raises(NotSupported, match="nested too deeply"):
        written(deep, "boolean")


def test_negative_zero_is_zero_as_a_key(connection: duckdb.DuckDBPyConnection) -> None:
    key = normalised_key(Translated("v", "double"))
    rows = connection.execute(
        f"SELECT {key} FROM (VALUES (CAST('-0.0' AS DOUBLE)), (0.0)) t(v) GROUP BY 1"
    ).fetchall()
    assert [str(value) for (value,) in rows] == ["0.0"]


def test_names_are_quoted(connection: duckdb.DuckDBPyConnection) -> None:
    schema = {'odd "name': Column('odd "name', "int")}
    found = translate(Expression('`odd "name`', "int"), schema, ANSI)
    assert found.text == '"odd ""name"'
    found = translate(Expression("'it\\'s'", "string"), {}, ANSI)
    assert connection.execute(f"SELECT {found.text}").fetchone() == ("it's",)


def test_a_configured_connection_reads_no_files(connection: duckdb.DuckDBPyConnection) -> None:
    with pytest.raises(duckdb.Error, match="disabled"):
        connection.execute("SELECT * FROM read_csv('/etc/passwd')")


def test_cursors_are_configured_too(connection: duckdb.DuckDBPyConnection) -> None:
    cursor = connection.cursor()
    configure(cursor)
    text = written("ucase('ß')", "string").text
    assert cursor.execute(f"SELECT {text}").fetchone() == ("SS",)
    assert cursor.execute("SELECT current_setting('TimeZone')").fetchone() == ("UTC",)


def test_no_subquery_stands_inside_a_try(connection: duckdb.DuckDBPyConnection) -> None:
    """DuckDB takes none there, so that wide arithmetic on one goes the slow way."""
    from headway.pipelined.kernels.decimals import add, multiply

    subquery = Translated("(SELECT CAST(2 AS DECIMAL(38,10)))", "decimal(38,10)")
    narrow = Translated("(SELECT CAST(2 AS DECIMAL(15,2)))", "decimal(15,2)")
    for value, expected in (
        (multiply(subquery, subquery), Decimal(4)),
        (add(subquery, subquery, "+"), Decimal(4)),
        (multiply(narrow, narrow), Decimal(4)),
    ):
        assert connection.execute(f"SELECT {value.text}").fetchone() == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "5L",
        "-5L",
        "(`a` < 5L)",
        "CAST(5L AS INT)",
        "array(1L, 2L, 30L)",
        "CASE WHEN (`a 5L` < 5L) THEN '7L' WHEN `b``6L` = 'it\\'s 8L' THEN 0L ELSE 9L END",
        "((`a` + 1e0) < 5L)",
        "(`a5L` = 1.5D)",
    ],
)
def test_long_numbers_are_read_as_sqlglot_does(text: str) -> None:
    assert _parse(text) == _parse_whole(text)
