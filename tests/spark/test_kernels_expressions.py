"""Every supported expression against Spark, on awkward values: results and errors alike.

All expressions of a group go through Spark as one query. Which rows raise an error is first asked
of DuckDB; Spark then computes the others, which must be equal, and must raise for a sample of
those that DuckDB refused.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import expressions as tree

from headway.base.errors import NotSupported
from headway.pipelined.kernels import translate as translation
from headway.pipelined.kernels.casts import CASTS, kind_of
from headway.pipelined.kernels.connection import configure
from headway.pipelined.kernels.syntax import parse
from headway.pipelined.kernels.translate import ALIASES, SUPPORTED, translate
from headway.pipelined.kernels.types import arrow_type, decimal_type, duckdb_type
from headway.plan.expressions import Column, Expression
from headway.plan.nodes import Project
from headway.spark.catalyst import import_plan

ROWS = 100
ERRORS_CHECKED = 50
SPARK_ERRORS = (PySparkException, Py4JJavaError)
SEED = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))

COLUMNS = {
    "i8": "tinyint", "j8": "tinyint", "i16": "smallint", "j16": "smallint", "i": "int", "j": "int",
    "k": "bigint", "l": "bigint", "x": "double", "y": "double", "a": "decimal(7,2)",
    "b": "decimal(7,2)", "c": "decimal(15,2)", "d": "decimal(18,4)", "e": "decimal(38,18)",
    "f": "decimal(38,6)", "g": "decimal(38,0)", "h": "decimal(20,0)", "s": "string", "t": "string",
    "n": "string", "u": "date", "v": "date", "p": "boolean", "q": "boolean", "m": "timestamp",
}  # fmt: skip

WHOLE = ("tinyint", "int", "bigint")
CASES = [
    # arithmetic
    *(f"{a} {sign} {b}" for sign in ("+", "-", "*", "%")
      for a, b in (("i8", "j8"), ("i16", "j16"), ("i", "j"), ("k", "l"), ("x", "y"), ("a", "b"),
                   ("c", "d"), ("e", "f"), ("g", "h"), ("c", "1"), ("e", "e"))),
    *(f"{a} / {b}" for a, b in (("i", "j"), ("x", "y"), ("a", "b"), ("c", "d"), ("e", "f"),
                                ("g", "h"), ("a", "2.0BD"), ("h", "a"), ("f", "k"), ("e", "e"))),
    "(a / b) / c", "i DIV j", "k DIV l", "-i", "-k", "-x", "-a", "-g", "i8 + 1Y",
    "i & j", "i | j", "i ^ j", "~i", "k & l", "k | l", "k ^ l", "~k", "i8 & j8",
    "shiftright(i, 3)", "shiftright(k, 40)", "shiftright(k, 0)", "shiftright(i, 33)",
    # comparison and logic
    *(f"{a} {sign} {b}" for sign in ("=", "<=>", "<", "<=", ">", ">=")
      for a, b in (("i", "j"), ("k", "l"), ("x", "y"), ("a", "b"), ("s", "t"), ("u", "v"),
                   ("p", "q"), ("x", "-x"))),
    "p AND q", "p OR q", "NOT p", "i IS NULL", "s IS NOT NULL", "i IN (1, 2, NULL)", "i NOT IN (0)",
    "x IN (0.0D, CAST('NaN' AS DOUBLE))", "s IN ('a', '', 'ß')", "m >= m", "p IN (true, NULL)",
    "CASE WHEN p THEN i WHEN q THEN j ELSE 7 END", "CASE WHEN p THEN a END", "IF(p, s, t)",
    "coalesce(i, j, 0)", "coalesce(s, t)", "nullif(i, 0)", "greatest(x, y, 0.0D)",
    "least(x, y)", "greatest(i, j)", "least(s, t)", "greatest(u, v)",
    # functions of numbers
    *(f"{name}({a})" for name in ("abs", "ceil", "floor", "round", "bround")
      for a in ("i", "k", "x", "a", "d", "e", "g")),
    "round(x, 2)", "round(d, 2)", "bround(d, 2)", "round(e, 6)", "bround(e, 17)", "bround(x, 1)",
    "round(a, 5)", "sqrt(x)", "isnan(x)", "abs(i8)",
    # strings
    "upper(s)", "lower(s)", "concat(s, t, 'x')", "trim(s)", "ltrim(s)", "rtrim(s)", "length(s)",
    "startswith(s, t)", "endswith(s, t)", "contains(s, t)", "startswith(s, '')", "s || t",
    *(f"substring(s, {first}, {size})" for first in (-7, -2, -1, 0, 1, 2, 50)
      for size in (-1, 0, 2, 9)),
    "substring(s, 2)", "substring(s, -3)", "replace(s, 'a', 'xy')", "replace(s, t, '')",
    r"s LIKE '%a_b%'", r"s LIKE 'a\\%%'", r"s LIKE '%!_%' ESCAPE '!'", r"s LIKE '\\\\%'",
    "s LIKE '_'", "s LIKE '%'", "s LIKE ''", r"NOT (s LIKE '%\n%')", "s LIKE '%ß_'",
    # dates and moments
    *(f"{name}(u)" for name in ("year", "quarter", "month", "day", "dayofweek", "weekday",
                                "dayofyear", "weekofyear", "last_day")),
    "date_add(u, 31)", "date_sub(u, i8)", "date_add(u, j8)", "datediff(u, v)", "add_months(u, i8)",
    "add_months(u, 1)", *(f"trunc(u, '{unit}')" for unit in ("year", "Q", "quarter", "MM", "week")
                          if unit != "Q"),
    "hour(m)", "minute(m)", "second(m)", "year(m)", "DATE '0001-01-01' < u",
    "m < TIMESTAMP '2000-01-01 00:00:00Z'",
    # casts
    *(f"CAST({a} AS {ddl})" for a in ("i8", "i", "k") for ddl in
      (*WHOLE, "double", "decimal(9,2)", "decimal(38,18)", "string", "boolean")),
    *(f"CAST({a} AS {ddl})" for a in ("a", "d", "e", "g", "h") for ddl in
      (*WHOLE, "double", "decimal(10,1)", "decimal(38,10)", "string", "boolean")),
    *(f"CAST(x AS {ddl})" for ddl in (*WHOLE, "decimal(20,3)", "decimal(38,18)")),
    *(f"CAST(n AS {ddl})" for ddl in
      (*WHOLE, "decimal(10,2)", "decimal(38,18)", "double", "date", "boolean")),
    "CAST(p AS int)", "CAST(p AS string)", "CAST(u AS string)", "CAST(u AS timestamp)",
    "CAST(m AS date)", "CAST(CAST(i AS float) AS double)",
]  # fmt: skip

REFUSED = {
    "CAST(x AS string)": "other digits than Spark",
    "CAST(m AS string)": "another form than Spark",
    "try_cast(n AS int)": "null where the kernels raise",
    "s RLIKE 'a'": "not in the table",
    "s LIKE t": "no constant",
    "s LIKE ANY ('a_b', 'b_c')": "lists of patterns",
    "soundex(s)": "not in the table",
    "array(i, j)": "not made of constants",
    "trunc(u, 'q4')": None,  # Spark gives null, and folds it to a constant
}


def _integers(rng: random.Random, bits: int) -> Iterator[int]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    yield from (0, 1, -1, 2, least, most, least + 1, most - 1, 7, -7)
    while True:
        yield rng.randint(least, most) >> rng.randrange(bits)


def _doubles(rng: random.Random) -> Iterator[float]:
    yield from (0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 2.5, 3.5, -2.5)
    yield from (
        0.1,
        1e-300,
        5e-324,
        1.7976931348623157e308,
        9007199254740993.0,
        2.0**63,
        -(2.0**63),
    )
    yield from (1.005, 2.675, 0.125, -0.375, 2147483647.5, 1e15 + 0.3, 99999999999999999.0)
    while True:
        yield rng.choice(
            (rng.uniform(-1e3, 1e3), round(rng.uniform(-1e3, 1e3), 2), rng.gauss(0, 1e9))
        )


def _decimals(rng: random.Random, precision: int, scale: int) -> Iterator[Decimal]:
    most = 10**precision - 1
    for unscaled in (0, 1, -1, most, -most, most // 2, 5, -5, 10 ** (precision - 1), 15, 25, -25):
        yield Decimal(f"{max(-most, min(most, unscaled))}E-{scale}")
    while True:
        digits = rng.randint(1, precision)
        unscaled = rng.randrange(10**digits) * rng.choice((1, -1))
        yield Decimal(f"{unscaled}E-{scale}")


def _strings(rng: random.Random) -> Iterator[str]:
    yield from (
        "",
        " ",
        "a",
        "A",
        "  pad  ",
        "\tpad\n",
        "ß",
        "straße",
        "ÅΣ",
        "ὈΔΥΣΣΕΎΣ",
        "ﬁ",
        "日本語",
    )
    yield from (
        "a\nb",
        "a%b",
        "a_b",
        "\\",
        "\\x",
        "100%",
        "😀x",
        "é",
        "e\u0301",
        "İ",
        "\u00a0a\u00a0",
    )
    while True:
        yield "".join(rng.choice("abA %_ß\\é😀") for _ in range(rng.randrange(8)))


def _numeric_strings(rng: random.Random) -> Iterator[str]:
    yield from ("", " ", "1", "-1", "+5", " 12 ", "\t7\n", "1.5", ".5", "5.", "1e3", "1E-2", "abc")
    yield from ("NaN", "Infinity", "-Infinity", "inf", "1_0", "0x10", "1.0d", "1f", "--1", "1 2")
    yield from ("2147483648", "9223372036854775808", "99999999.995", "1e400", "1e39", "9" * 39)
    yield from (
        "2000-01-31",
        "2000-1-1",
        "2000",
        "2000-02",
        "2001-02-29",
        " 1999-12-31 ",
        "0001-01-01",
    )
    yield from (
        "2000-01-01T10",
        "2000-01-01 10:00",
        "2000-13-01",
        "20000101",
        "true",
        " T ",
        "no",
        "Y",
    )
    yield from ("off", "1.005", "-0.005", "1.23456789012345678901234567890", "\u00a01")
    while True:
        yield rng.choice((str(rng.randint(-999, 999)), f"{rng.uniform(-99, 99):.3f}"))


def _dates(rng: random.Random) -> Iterator[date]:
    """A few years within what Python holds, so that months can be added and taken away."""
    yield from (date(12, 1, 31), date(9988, 12, 31), date(1970, 1, 1), date(2000, 2, 29))
    yield from (date(1582, 10, 4), date(1582, 10, 15), date(1999, 12, 31), date(2004, 12, 27))
    yield from (date(2000, 1, 31), date(1900, 2, 28), date(999, 7, 4), date(2021, 1, 3))
    while True:
        yield date(1, 1, 1) + timedelta(days=rng.randrange(4_400, 3_600_000))


def _moments(rng: random.Random) -> Iterator[datetime]:
    yield datetime(1970, 1, 1, tzinfo=UTC)
    yield datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    while True:
        start = datetime(1901, 1, 1, tzinfo=UTC)
        yield start + timedelta(microseconds=rng.randrange(6 * 10**15))


def _values(rng: random.Random, name: str, ddl: str) -> Iterator[Any]:
    decimal = decimal_type(ddl)
    if decimal is not None:
        return _decimals(rng, decimal.precision, decimal.scale)
    bits = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}.get(ddl)
    if bits is not None:
        return _integers(rng, bits)
    if ddl == "string":
        return _numeric_strings(rng) if name == "n" else _strings(rng)
    if ddl == "boolean":
        return iter(lambda: rng.random() < 0.5, None)
    return {"double": _doubles, "date": _dates, "timestamp": _moments}[ddl](rng)


def awkward_table(rng: random.Random, columns: dict[str, str], rows: int) -> pa.Table:
    """Extremes first, in an order of their own per column, then random values; some nulls."""
    arrays: dict[str, pa.Array] = {"id": pa.array(range(rows), pa.int32())}
    for name, ddl in columns.items():
        source = _values(rng, name, ddl)
        values = [next(source) for _ in range(rows)]
        rng.shuffle(values)
        values = [None if rng.random() < 0.04 else value for value in values]
        arrays[name] = pa.array(values, arrow_type(ddl))
    return pa.table(arrays)


ERROR = "an error"


@dataclass(frozen=True)
class Outcome:
    case: str
    expression: Expression
    values: list[Any]


class Comparison:
    """Expressions over one table, by DuckDB and by Spark."""

    def __init__(self, spark: SparkSession, folder: Path, table: pa.Table, columns: dict[str, str]):
        self.spark = spark.newSession()
        self.spark.conf.set("spark.sql.session.timeZone", "UTC")
        self.spark.conf.set("spark.sql.subexpressionElimination.enabled", "false")
        self._folder = folder
        self._table = table
        self._columns = columns
        pyarrow.parquet.write_table(table, folder / "values.parquet")
        self.spark.read.parquet(str(folder / "values.parquet")).createOrReplaceTempView("awkward")
        self._connection = duckdb.connect()
        configure(self._connection)
        self._connection.register("awkward", table)
        self._connection.execute("CREATE TABLE t AS SELECT * FROM awkward")

    def expressions(self, cases: Sequence[str]) -> list[Expression]:
        """What Spark's optimiser makes of the cases, all at once."""
        outputs = ", ".join(f"{case} AS r{number}" for number, case in enumerate(cases))
        plan = import_plan(self.spark.sql(f"SELECT id, {outputs} FROM awkward")).plan
        assert isinstance(plan.root, Project)
        self._settings = dict(plan.settings)
        self._schema = {column.name: column for column in plan.root.input.schema}
        return [output.expression for output in plan.root.outputs[1:]]

    def by_duckdb(self, case: str, expression: Expression) -> Outcome:
        schema = {name: Column(name, column.type) for name, column in self._schema.items()}
        found = translate(expression, schema, self._settings)
        described = self._connection.execute(f"SELECT {found.text} FROM t LIMIT 0").description
        assert str(described[0][1]) == duckdb_type(found.type), case
        query = f"SELECT {found.text} AS r FROM t"
        try:
            rows = self._connection.execute(f"{query} ORDER BY id").fetchall()
            return Outcome(case, expression, [row[0] for row in rows])
        except duckdb.Error:
            return Outcome(case, expression, list(self._row_by_row(query)))

    def _row_by_row(self, query: str) -> Iterator[Any]:
        for number in range(self._table.num_rows):
            try:
                found = self._connection.execute(f"{query} WHERE id = {number}").fetchone()
                assert found is not None
                yield found[0]
            except duckdb.Error:
                yield ERROR

    def by_spark(self, outcomes: Sequence[Outcome]) -> dict[str, list[Any]]:
        """The values of all rows that DuckDB computed."""
        table = self._table
        for number, outcome in enumerate(outcomes):
            flags = pa.array([value is not ERROR for value in outcome.values])
            table = table.append_column(f"ok{number}", flags)
        path = self._folder / "flagged.parquet"
        pyarrow.parquet.write_table(table, path)
        self.spark.read.parquet(str(path)).createOrReplaceTempView("flagged")
        outputs = [f"CASE WHEN ok{n} THEN {o.case} END AS r{n}" for n, o in enumerate(outcomes)]
        try:
            frame = self.spark.sql(f"SELECT {', '.join(outputs)} FROM flagged ORDER BY id")
            found = frame.toArrow().to_pydict()
            return {outcome.case: found[f"r{n}"] for n, outcome in enumerate(outcomes)}
        except SPARK_ERRORS:
            if len(outcomes) == 1:
                raise
        half = len(outcomes) // 2
        return self._halves(outcomes[:half], outcomes[half:])

    def _halves(self, *halves: Sequence[Outcome]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for half in halves:
            try:
                found |= self.by_spark(half)
            except SPARK_ERRORS as error:
                found[half[0].case] = [f"Spark raises {str(error)[:200]}"]
        return found

    def spark_raises(self, case: str, number: int) -> bool:
        row = self._table.slice(number, 1).to_pylist()[0]
        values = ", ".join(
            f"{_literal(row[name], ddl)} AS {name}" for name, ddl in self._columns.items()
        )
        try:
            self.spark.sql(f"SELECT {case} FROM (SELECT {values})").collect()
        except SPARK_ERRORS:
            return True
        return False

    def row(self, number: int) -> dict[str, Any]:
        return self._table.slice(number, 1).to_pylist()[0]


def _literal(value: Any, ddl: str) -> str:
    if value is None:
        return f"CAST(NULL AS {ddl})"
    if ddl == "string":
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if decimal_type(ddl) is not None:
        return f"CAST('{value:f}' AS {ddl})"
    if ddl == "double":
        return f"CAST('{value!r}' AS {ddl})"
    return f"CAST('{value}' AS {ddl})"


def _same(wanted: Any, found: Any) -> bool:
    if isinstance(wanted, float) and isinstance(found, float):
        return repr(wanted) == repr(found)
    return type(wanted) is type(found) and bool(wanted == found)


def _compare(comparison: Comparison, cases: Sequence[str], rng: random.Random, errors: int) -> None:
    expressions = comparison.expressions(cases)
    outcomes = []
    differences = []
    for case, expression in zip(cases, expressions, strict=True):
        try:
            outcomes.append(comparison.by_duckdb(case, expression))
        except (NotSupported, duckdb.Error) as error:
            differences.append(f"{case}: {str(error)[:300]}")
    wanted = comparison.by_spark(outcomes)
    for outcome in outcomes:
        pairs = zip(wanted[outcome.case], outcome.values, strict=False)
        for number, (expected, found) in enumerate(pairs):
            if found is not ERROR and not _same(expected, found):
                row = {c: comparison.row(number)[c] for c in outcome.expression.columns}
                differences.append(f"{outcome.case} of {row}: Spark {expected!r}, DuckDB {found!r}")
                break
    raised = [
        (outcome, number)
        for outcome in outcomes
        for number, value in enumerate(outcome.values)
        if value is ERROR
    ]
    for outcome, number in rng.sample(raised, min(errors, len(raised))):
        if not comparison.spark_raises(outcome.case, number):
            row = {c: comparison.row(number)[c] for c in outcome.expression.columns}
            differences.append(f"{outcome.case} of {row}: only DuckDB raises")
    assert not differences, "\n".join(differences)


@pytest.fixture(scope="module")
def awkward(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    print(f"seed {SEED}")
    table = awkward_table(random.Random(SEED), COLUMNS, ROWS)
    return Comparison(spark, tmp_path_factory.mktemp("awkward"), table, COLUMNS)


def test_every_supported_expression_agrees_with_spark(awkward: Comparison) -> None:
    print(f"seed {SEED}")
    _compare(awkward, CASES, random.Random(SEED), ERRORS_CHECKED)


def test_every_entry_of_the_tables_is_compared(awkward: Comparison) -> None:
    operations: set[str] = set()
    casts: set[tuple[str, str]] = set()
    for expression in awkward.expressions(CASES):
        for node in parse(expression.text).walk():
            if isinstance(node, tree.Cast) and isinstance(node.this, tree.Column):
                source = COLUMNS[node.this.name]
                casts.add((kind_of(source), kind_of(translation._ddl(node.to))))
            elif not isinstance(node, tree.Cast):
                operations.update(_name(node))
    assert set(SUPPORTED) <= operations
    assert set(CASTS) - {("floating", "floating")} <= casts  # that one is of another cast


def _name(node: tree.Expr) -> Iterator[str]:
    try:
        name = translation._call(node)[0]
        yield ALIASES.get(name, name)
    except NotSupported:
        return


@pytest.mark.parametrize(("case", "reason"), REFUSED.items())
def test_what_is_not_supported_is_refused_by_name(
    case: str, reason: str | None, awkward: Comparison
) -> None:
    (expression,) = awkward.expressions([case])
    if reason is None:
        return
    with pytest.raises(NotSupported, match=reason):
        awkward.by_duckdb(case, expression)


def test_decimals_of_all_sizes_agree_with_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Random precisions and scales, results that need more than 38 digits, ties, overflow."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    columns = {}
    for number in range(24):
        precision = rng.choice((rng.randint(1, 38), rng.randint(30, 38), 38))
        columns[f"d{number}"] = f"decimal({precision},{rng.randint(0, precision)})"
    pairs = [(f"d{number}", f"d{number + 1}") for number in range(0, len(columns), 2)]
    cases = [f"{a} {sign} {b}" for a, b in pairs for sign in ("+", "-", "*", "/", "%")]
    cases += [f"CAST({a} AS {columns[b]})" for a, b in pairs if columns[a] != columns[b]]
    table = awkward_table(rng, columns, 60)
    _compare(Comparison(spark, tmp_path, table, columns), cases, rng, 15)


def test_what_shared_plans_look_up_agrees_with_spark(spark: SparkSession) -> None:
    """Arrays of constants, at places within them and beyond."""
    arrays = {
        "array(5, 7, 9)": "int",
        "array(5L, -7L)": "bigint",
        "array('a', 'ß', 'it\\'s')": "string",
        "array(CAST(1.5BD AS DECIMAL(7,2)), CAST(2.25BD AS DECIMAL(7,2)))": "decimal(7,2)",
        "array(DATE '2000-01-01', DATE '1999-12-31')": "date",
        "array(1.5D, -2.5D)": "double",
    }
    texts = {f"try_element_at({array}, `n`)": ddl for array, ddl in arrays.items()}
    places = [n for n in range(-4, 6) if n]
    frame = spark.createDataFrame([(n,) for n in places], "n int")
    wanted = frame.selectExpr(*texts).collect()
    with duckdb.connect() as connection:
        configure(connection)
        columns = {"n": Column("n", "int", False)}
        written = [translate(Expression(t, d), columns, {}).text for t, d in texts.items()]
        rows = f"(SELECT unnest({places})::INTEGER AS n)"
        found = connection.execute(f"SELECT {', '.join(written)} FROM {rows}").fetchall()
        assert [tuple(row) for row in wanted] == found
        zero = translate(Expression("try_element_at(array(1), `n`)", "int"), columns, {})
        with pytest.raises(duckdb.Error, match="INVALID_INDEX_OF_ZERO"):
            connection.execute(f"SELECT {zero.text} FROM (SELECT 0 AS n)").fetchall()
