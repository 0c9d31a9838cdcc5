"""Rows and bytes of every node, and the share of rows that conditions let pass."""

from __future__ import annotations

import datetime

import pytest

from headway.plan.canonical import row_keys
from headway.plan.cardinalities import Estimate, estimate, width_of
from headway.plan.expressions import Column, Expression
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Sort,
    SortKey,
    StateScan,
    Union,
    Values,
)
from headway.plan.selectivity import ColumnEstimate, selectivity
from headway.plan.sources import Source
from headway.plan.statistics import ColumnStatistics, TableStatistics
from headway.testing.example_plans import (
    call,
    condition,
    equal,
    passed,
    reference,
    running_example,
    table,
)

DAY = datetime.date(2020, 1, 1).toordinal()
COLUMNS = {
    "n": ColumnEstimate(100.0, 0.0, 100.0, 0.1, 4.0),
    "one": ColumnEstimate(1.0, 5.0, 5.0, 0.0, 4.0),
    "day": ColumnEstimate(366.0, DAY, DAY + 100, 0.0, 4.0),
    "moment": ColumnEstimate(1e6, 1.5e9, 1.6e9, 0.0, 8.0),
    "text": ColumnEstimate(float("inf"), None, None, 0.0, 20.0),
}


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("true", 1.0),
        ("false", 0.0),
        ("(`n` = 7)", 0.01),
        ("(7 = `n`)", 0.01),
        ("(`n` <=> 7)", 0.01),
        ("(`n` <> 7)", 0.99),
        ("(`text` = 'x')", 0.1),
        ("(`n` < 25)", 0.25),
        ("(25 > `n`)", 0.25),
        ("(`n` >= 25)", 0.75),
        ("(`n` > -10)", 1.0),
        ("(`n` > 1000)", 0.0),
        ("(`n` >= 100)", 0.01),
        ("(`n` <= 0)", 0.01),
        ("(`n` > 100)", 0.0),
        ("(CAST(`n` AS DOUBLE) < 25.0D)", 0.25),
        ("(`n` < 25L)", 0.25),
        ("(`one` <= 5)", 1.0),
        ("(`one` >= 5)", 1.0),
        ("(`one` < 5)", 0.0),
        ("(`one` > 5)", 0.0),
        ("(`one` > 4)", 1.0),
        ("(`one` < 4)", 0.0),
        ("(`day` < DATE '2020-01-26')", 0.25),
        ("(`day` < CAST('2020-01-26' AS DATE))", 0.25),
        ("(`day` < CAST('no date' AS DATE))", 1 / 3),
        ("(CAST(`moment` AS DATE) < DATE '2020-01-26')", 1 / 3),
        ("(`text` < 'x')", 1 / 3),
        ("(`n` < `one`)", 1 / 3),
        ("(`n` IN (1, 2, 3))", 0.03),
        ("(`text` IN ('a', 'b'))", 0.2),
        ("(`n` IS NULL)", 0.1),
        ("(`n` IS NOT NULL)", 0.9),
        ("(`s`.`n` IS NULL)", 0.05),
        ("((`n` < 25) AND (`n` = 7))", 0.0025),
        ("((`n` < 25) OR (`n` >= 75))", 0.4375),
        ("(NOT (`n` < 25))", 0.75),
        ("(`text` LIKE 'x%')", 0.15),
        ("startswith(`text`, 'x')", 0.15),
        ("some_function(`n`)", 0.25),
        ("(`n` +", 0.25),  # does not parse
        ("'open", 0.25),
        ("(" * 5_000 + "true" + ")" * 5_000, 0.25),
        (" AND ".join(["true"] * 5_000), 1.0),
        (" OR ".join(["false"] * 5_000), 0.0),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_selectivity(text: str, share: float) -> None:
    assert selectivity(condition(text), COLUMNS) == pytest.approx(share)


T = table("t", a="int", b="string")
U = table("u", c="int", d="string")
TABLES = {
    "t": TableStatistics(1_000, 9_000, {"a": ColumnStatistics(0, 99), "b": ColumnStatistics()}),
    "u": TableStatistics(100, 900, {"c": ColumnStatistics(0, 99), "d": ColumnStatistics()}),
    "empty": TableStatistics(0, 0),
    "huge": TableStatistics(10**18, 10**19),
}


def statistics(source: Source) -> TableStatistics | None:
    return TABLES.get(source.table)


def rows(root: Node) -> float:
    plan = QueryPlan(root, root.column_names)
    return estimate(plan, statistics)[root].rows


KEY = (equal(T, "a", U, "c"),)
FEW = Filter(T, condition("(`a` < 0)"))
EMPTY = table("empty", e="int")
NUMBER = Expression("1", "int", False)


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        (T, 1_000),
        (table("unknown", a="int"), 100_000),
        (StateScan("run", "state", T.schema), 100_000),
        (Values(T.schema, (("1", "'x'"), ("2", "'y'"))), 2),
        (Filter(T, condition("(`a` = 1)")), 10),
        (FEW, 1),  # not 0, however few they may be
        (Filter(T, condition("false")), 1),
        (Filter(EMPTY, condition("true")), 0),
        (Project(T, passed(T, "a")), 1_000),
        (Sort(T, (SortKey(reference(T, "a")),)), 1_000),
        (Limit(T, 5), 5),
        (Limit(T, 0), 0),
        (Limit(T, None, 400), 600),
        (Limit(T, 5_000), 1_000),
        (Limit(T, 5, 10_000), 1),
        (Join(T, U, JoinKind.INNER, KEY), 1_000),
        (Join(T, U, JoinKind.CROSS), 100_000),
        (Join(T, U, JoinKind.LEFT, KEY), 1_000),
        (Join(T, U, JoinKind.RIGHT, KEY), 1_000),
        (Join(T, U, JoinKind.FULL, KEY), 1_000),
        (Join(T, U, JoinKind.SEMI, KEY), 500),
        (Join(T, U, JoinKind.ANTI, KEY), 500),
        (Join(T, U, JoinKind.EXISTENCE, KEY, exists="e"), 1_000),
        (Join(T, EMPTY, JoinKind.INNER), 0),
        (Join(T, EMPTY, JoinKind.LEFT), 1_000),
        (Join(EMPTY, T, JoinKind.ANTI), 0),
        (Aggregate(T, (), ()), 1),
        (Aggregate(EMPTY, (), ()), 1),
        (Aggregate(T, passed(T, "a"), ()), 100),
        (Aggregate(EMPTY, passed(EMPTY, "e"), ()), 0),
        (Union((T, T, U), T.schema), 2_100),
        (Expand(T, ((NUMBER,), (NUMBER,)), (Column("x", "int"),)), 2_000),
        (Generate(T, Expression("explode(array(1))", "int"), False, (Column("x", "int"),)), 4_000),
    ],
    ids=lambda value: repr(value) if isinstance(value, Node) else "",
)
def test_rows(root: Node, expected: float) -> None:
    assert rows(root) == pytest.approx(expected)


def test_two_group_keys_have_fewer_groups_than_rows() -> None:
    assert 100 < rows(Aggregate(T, passed(T, "a", "b"), ())) < 1_000


def test_estimates_stay_numbers() -> None:
    node: Node = table("huge", h0="int")
    for number in range(1, 40):
        node = Join(node, table("huge", **{f"h{number}": "int"}), JoinKind.CROSS)
    assert rows(node) == 1e18


def test_a_unions_column_has_the_extremes_of_both() -> None:
    low, high = Filter(T, condition("true")), table("high", a="int", b="string")
    known = {**TABLES, "high": TableStatistics(1_000, 9_000, {"a": ColumnStatistics(900, 999)})}
    union = Union((low, high), (Column("x", "int"), Column("y", "string")))
    root = Filter(union, condition("(`x` >= 500)"))
    found = estimate(QueryPlan(root, ("x", "y")), lambda source: known[source.table])
    assert found[root].rows == pytest.approx(2_000 * (1 - 500 / 999))


def test_observed_rows_replace_estimates_and_reach_what_is_above() -> None:
    plan = running_example()
    keys = row_keys(plan.root)
    revenue = next(n for n in keys if isinstance(n, Aggregate) and n.keys)
    top = Sort(revenue, (SortKey(reference(revenue, "revenue")),))
    whole = QueryPlan(top, ("id", "revenue"))
    found = estimate(whole, statistics, {keys[revenue]: 17})
    assert found[revenue] == Estimate(17.0, 17.0 * (4 + 8), observed=True)
    assert found[top].rows == 17.0
    assert not found[revenue.input].observed
    nothing = estimate(whole, statistics, {keys[revenue]: 0})
    assert nothing[revenue].rows == nothing[top].rows == 0


def test_counts_are_found_again_under_other_projections() -> None:
    seen = Filter(T, condition("((`a` > 3) AND (`b` = 'x'))"))
    narrow = table("t", b="string", a="int")
    asked = Filter(narrow, condition("((`b` = 'x') AND (`a` > 3))"))
    counted = {row_keys(seen)[seen]: 12.0}
    found = estimate(QueryPlan(asked, ("b", "a")), statistics, counted)
    assert found[asked].rows == 12
    assert found[asked].observed


@pytest.mark.parametrize(
    ("ddl", "width"),
    [("int", 4), ("bigint", 8), ("decimal(38,2)", 16), ("string", 20), ("array<int>", 20)],
)
def test_widths(ddl: str, width: float) -> None:
    assert width_of(ddl) == width


def test_bytes_are_rows_times_width() -> None:
    found = estimate(QueryPlan(U, ("c", "d")), statistics)[U]
    assert found.bytes == pytest.approx(100 * (4 + 20))
    without = Project(U, ())
    assert estimate(QueryPlan(without, ()), statistics)[without].bytes == 100
    made = Project(U, (Named("x", Expression("1", "bigint")),))
    assert estimate(QueryPlan(made, ("x",)), statistics)[made].bytes == 800
    summed = Aggregate(U, (), (call("sum", reference(U, "c"), "s"),))
    assert estimate(QueryPlan(summed, ("s",)), statistics)[summed].bytes == 4
