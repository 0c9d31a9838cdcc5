"""Aggregates in their three steps, windows, sort keys, types, and what a plan is refused for."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow
import pytest

from headway.base.errors import NotSupported
from headway.pipelined.kernels.aggregates import SplitAggregate, split_aggregate
from headway.pipelined.kernels.connection import configure
from headway.pipelined.kernels.operators import explain_support
from headway.pipelined.kernels.sorting import sort_key
from headway.pipelined.kernels.typed import quoted
from headway.pipelined.kernels.types import (
    DecimalType,
    adjusted,
    arrow_type,
    duckdb_type,
    spark_type,
)
from headway.pipelined.kernels.windows import window_call
from headway.plan.expressions import Column, Expression, column_reference
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Generate,
    QueryPlan,
    Scan,
    ScanColumn,
    SortKey,
    StateScan,
    Values,
    Window,
    WindowCall,
)
from headway.plan.sources import FileSource, SessionSource

COLUMNS = (
    Column("i", "int"),
    Column("a", "decimal(7,2)"),
    Column("w", "decimal(38,30)"),
    Column("x", "double"),
    Column("s", "string"),
)
SCHEMA = {column.name: column for column in COLUMNS}
SETTINGS = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}
ROWS = [
    (1, Decimal("1.01"), Decimal("0.1"), 1.0, "a"),
    (2, Decimal("1.02"), Decimal("0.2"), 2.0, "b"),
    (2, None, None, 4.0, None),
    (None, Decimal("-7.00"), Decimal("0.3"), None, "ß"),
]


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        configure(made)
        columns = ", ".join(f"{quoted(c.name)} {duckdb_type(c.type)}" for c in COLUMNS)
        made.execute(f"CREATE TABLE t ({columns})")
        made.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", ROWS)
        yield made


def call(function: str, column: str, ddl: str, **options: Any) -> AggregateCall:
    arguments = (column_reference(SCHEMA[column]),)
    return AggregateCall(Column("r", ddl), function, arguments, **options)


def in_steps(connection: duckdb.DuckDBPyConnection, split: SplitAggregate) -> Any:
    """Partial over each row alone, merged twice over, then finished."""
    names = [quoted(part.name) for part in split.partial]
    partial = ", ".join(f"{part.text} AS {quoted(part.name)}" for part in split.partial)
    pairs = zip(split.merge, names, strict=True)
    merge = ", ".join(f"{text} AS {name}" for text, name in pairs)
    pieces = f"SELECT {partial} FROM t GROUP BY rowid"
    merged = f"SELECT {merge} FROM (SELECT {merge} FROM ({pieces}) GROUP BY random() < 0.5)"
    found = connection.execute(f"SELECT {split.final} FROM ({merged})").fetchone()
    assert found is not None
    return found[0]


@pytest.mark.parametrize(
    ("function", "column", "ddl", "value"),
    [
        ("count", "a", "bigint", 3),
        ("sum", "i", "bigint", 5),
        ("sum", "a", "decimal(17,2)", Decimal("-4.97")),
        ("avg", "a", "decimal(11,6)", Decimal("-1.656667")),
        ("avg", "w", "decimal(38,34)", Decimal("0.2")),
        ("avg", "i", "double", 5 / 3),
        ("min", "s", "string", "a"),
        ("max", "s", "string", "ß"),
        ("stddev_samp", "x", "double", pytest.approx(1.5275252316519465)),
        ("var_pop", "x", "double", pytest.approx(1.5555555555555556)),
    ],
)
def test_three_steps_come_to_the_whole(
    function: str, column: str, ddl: str, value: Any, connection: duckdb.DuckDBPyConnection
) -> None:
    split = split_aggregate(call(function, column, ddl), SCHEMA, SETTINGS)
    assert split.splittable
    assert split.type == ddl
    assert in_steps(connection, split) == value
    assert connection.execute(f"SELECT {split.whole} FROM t").fetchone() == (value,)


def test_no_rows_make_nulls_and_a_count_of_zero(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("DELETE FROM t")
    for function, ddl in (("sum", "decimal(17,2)"), ("avg", "decimal(11,6)")):
        split = split_aggregate(call(function, "a", ddl), SCHEMA, SETTINGS)
        assert in_steps(connection, split) is None
    assert (
        in_steps(connection, split_aggregate(call("count", "a", "bigint"), SCHEMA, SETTINGS)) == 0
    )


def test_distinct_is_evaluated_whole(connection: duckdb.DuckDBPyConnection) -> None:
    split = split_aggregate(call("count", "i", "bigint", distinct=True), SCHEMA, SETTINGS)
    assert not split.splittable
    assert split.partial == ()
    assert connection.execute(f"SELECT {split.whole} FROM t").fetchone() == (2,)


def test_a_filter_belongs_to_each_part(connection: duckdb.DuckDBPyConnection) -> None:
    only = Expression("(`i` = 2)", "boolean")
    split = split_aggregate(call("avg", "x", "double", filter=only), SCHEMA, SETTINGS)
    assert in_steps(connection, split) == 3.0


@pytest.mark.parametrize(
    ("function", "ddl", "reason"),
    [
        ("first", "string", "depends on the order"),
        ("collect_list", "array<string>", "nested"),
        ("percentile", "double", "not in the table of aggregates"),
        ("sum", "double", "sum on string"),
    ],
)
def test_aggregates_are_refused_by_name(function: str, ddl: str, reason: str) -> None:
    with pytest.raises(NotSupported, match=reason):
        split_aggregate(call(function, "s", ddl), SCHEMA, SETTINGS)


def window(function: str, ddl: str, *columns: str, **options: Any) -> str:
    source = Values(COLUMNS, ())
    made = WindowCall(
        Column("r", ddl), function, tuple(column_reference(SCHEMA[c]) for c in columns), **options
    )
    keys = (SortKey(column_reference(SCHEMA["i"]), ascending=False, nulls_first=False),)
    node = Window(source, (column_reference(SCHEMA["x"]),), keys, (made,))
    return window_call(node, made, SETTINGS).text


def test_windows_have_their_order_and_frame_written_out() -> None:
    assert window("rank", "int") == (
        'CAST(rank() OVER (PARTITION BY CASE WHEN "x" = 0 THEN CAST(0 AS DOUBLE) ELSE "x" END '
        'ORDER BY "i" DESC NULLS LAST) AS INTEGER)'
    )
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    assert window("max", "string", "s", frame=frame).endswith(f"NULLS LAST {frame})")


@pytest.mark.parametrize(
    ("function", "options", "reason"),
    [
        ("nth_value", {}, "nth_value: it is not in the table"),
        ("first_value", {"ignore_nulls": True}, "IGNORE NULLS"),
        ("max", {"frame": "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW"}, "distances between values"),
        ("max", {"frame": "ROWS BETWEEN x PRECEDING AND CURRENT ROW"}, "window frame"),
    ],
)
def test_windows_are_refused_by_name(function: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(NotSupported, match=reason):
        window(function, "string", "s", **options)


def test_sort_keys_say_where_nulls_stand() -> None:
    key = SortKey(column_reference(SCHEMA["s"]), ascending=True, nulls_first=False)
    assert sort_key(key, SCHEMA, SETTINGS) == '"s" ASC NULLS LAST'


def test_types_have_three_spellings() -> None:
    assert duckdb_type("decimal(15,2)") == "DECIMAL(15,2)"
    assert spark_type("DECIMAL(15,2)") == "decimal(15,2)"
    assert spark_type("TIMESTAMP WITH TIME ZONE") == "timestamp"
    assert arrow_type("decimal(15,2)") == pyarrow.decimal128(15, 2)
    assert arrow_type("timestamp") == pyarrow.timestamp("us", tz="UTC")
    for refused in ("array<int>", "struct<`a`:int>", "binary", "interval day to second"):
        with pytest.raises(NotSupported, match="type "):
            duckdb_type(refused)


def test_precision_is_lost_after_the_point_first() -> None:
    assert adjusted(38, 10) == DecimalType(38, 10)
    assert adjusted(49, 6) == DecimalType(38, 6)
    assert adjusted(47, 30) == DecimalType(38, 21)
    assert adjusted(77, 38) == DecimalType(38, 6)


def plan_of(node: Any) -> QueryPlan:
    return QueryPlan(node, node.column_names, tuple(SETTINGS.items()))


def test_a_plan_is_refused_for_everything_that_stands_in_the_way() -> None:
    scan = Scan(SessionSource("1", "memory"), tuple(ScanColumn(c.name, c) for c in COLUMNS))
    node = Filter(scan, Expression("(soundex(`s`) = 'A100')", "boolean"))
    node2 = Aggregate(node, (), (call("first", "s", "string"),))
    found = [(refusal.what, refusal.reason) for refusal in explain_support(plan_of(node2))]
    assert found == [
        ("function soundex", "it is not in the table of supported expressions"),
        ("aggregate first", "its value depends on the order of the rows"),
    ]


@pytest.mark.parametrize(
    "source",
    [
        FileSource("t", "csv", ("/d/t.csv",)),
        FileSource("t", "parquet", ("/d/t/p=1/x.parquet",), root="/d/t"),
        SessionSource("1", "memory"),
    ],
)
def test_what_only_spark_reads_comes_in_through_spark(source: FileSource) -> None:
    assert explain_support(plan_of(Scan(source, (ScanColumn("i", SCHEMA["i"]),)))) == []


def test_saved_state_is_read_like_a_table() -> None:
    assert explain_support(plan_of(StateScan("run", "state", (SCHEMA["i"],)))) == []


def test_names_of_our_own_are_refused() -> None:
    source = FileSource("t", "parquet", ("/t/part.parquet",))
    scan = Scan(source, (ScanColumn("s", SCHEMA["s"]),))
    quoting = Filter(scan, Expression("(`s` = '\"#batch\"')", "boolean"))
    numbered = Scan(source, (ScanColumn("File_Row_Number", SCHEMA["i"]),))
    named = Scan(source, (ScanColumn("#batch", SCHEMA["i"]),))
    for node, what in ((quoting, "#batch"), (named, "#batch"), (numbered, "file_row_number")):
        (refusal,) = explain_support(plan_of(node))
        assert what in refusal.what


def test_generators_and_nested_columns_are_refused() -> None:
    values = Values((Column("l", "array<int>"),), ())
    node = Generate(values, Expression("explode(`l`)", "int"), False, (Column("e", "int"),))
    whats = [refusal.what for refusal in explain_support(plan_of(node))]
    assert whats == ["type array<int>", "operator Generate (explode)"]


def test_an_ordinary_plan_is_supported() -> None:
    scan = Scan(
        FileSource("t", "parquet", ("/d/t.parquet",)), tuple(ScanColumn(c.name, c) for c in COLUMNS)
    )
    node = Aggregate(scan, (), (call("sum", "a", "decimal(17,2)"),))
    assert explain_support(plan_of(node)) == []
