"""Semi joins that throw rows away before they are grouped or collected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.plan.expressions import Expression
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    JoinKey,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
)
from headway.plan.reduction import reduce_by_joins
from headway.plan.sources import Source
from headway.plan.statistics import ColumnStatistics, TableStatistics
from headway.testing.example_plans import call, condition, equal, passed, reference, table

PARTS = table("parts", p_id="int", p_brand="int")
LINES = table("lines", l_part="int", l_line="int", l_amount="int")
SMALL = table("small", s_part="int")
FEW = Filter(PARTS, condition("(`p_brand` = 7)"))
GROUPED = Aggregate(
    LINES, passed(LINES, "l_part"), (call("max", reference(LINES, "l_amount"), "most"),)
)
TABLES = {
    "parts": TableStatistics(
        20_000, 2_000_000, {"p_id": ColumnStatistics(1, 20_000), "p_brand": ColumnStatistics(1, 25)}
    ),
    "lines": TableStatistics(600_000, 60_000_000, {"l_part": ColumnStatistics(1, 20_000)}),
    "small": TableStatistics(1_000, 4_000, {"s_part": ColumnStatistics(1, 20_000)}),
}


def statistics(source: Source) -> TableStatistics | None:
    return TABLES[source.table]


def reduced(root: Node) -> Node:
    plan = QueryPlan(root, tuple(f"column {n}" for n in range(len(root.schema))))
    found = reduce_by_joins(plan, statistics)
    assert found.root.schema == root.schema
    assert (found.names, found.settings) == (plan.names, plan.settings)
    return found.root


def joined(left: Node, right: Node, kind: JoinKind = JoinKind.INNER) -> Join:
    keys = (equal(left, left.column_names[0], right, right.column_names[0]),)
    return Join(left, right, kind, keys, exists="found" if kind is JoinKind.EXISTENCE else None)


def semi(large: Node, small: Node) -> Join:
    return joined(large, small, JoinKind.SEMI)


def test_an_aggregate_groups_only_what_the_join_will_find() -> None:
    wanted = replace(GROUPED, input=semi(LINES, FEW))
    assert reduced(joined(FEW, GROUPED)) == joined(FEW, wanted)
    assert reduced(joined(GROUPED, FEW)) == joined(wanted, FEW)
    assert use_counts(reduced(joined(FEW, GROUPED)))[FEW] == 2


def test_filters_and_projections_over_the_aggregate_are_passed() -> None:
    named = Project(
        GROUPED, (Named("part", reference(GROUPED, "l_part")), *passed(GROUPED, "most"))
    )
    above = Filter(named, condition("(`most` > 3)"))
    found = reduced(joined(FEW, above))
    (made,) = [n for n in walk(found) if isinstance(n, Join) and n.join is JoinKind.SEMI]
    assert made == semi(LINES, FEW)


def test_a_key_that_is_no_column_of_the_input_is_no_help() -> None:
    computed = Project(
        GROUPED, (Named("part", Expression("(`l_part` + 1)", "int")), *passed(GROUPED, "most"))
    )
    whole = Aggregate(LINES, (), (call("max", reference(LINES, "l_part"), "most"),))
    counted = Aggregate(
        LINES, passed(LINES, "l_line"), (call("max", reference(LINES, "l_part"), "most"),)
    )
    by_value = Join(FEW, counted, JoinKind.INNER, (equal(FEW, "p_id", counted, "most"),))
    for root in (joined(FEW, computed), joined(FEW, whole), by_value):
        assert reduced(root) == root


def test_what_a_limit_takes_is_not_changed() -> None:
    root = joined(FEW, Limit(GROUPED, 10))
    assert reduced(root) == root


def test_of_several_keys_one_is_enough() -> None:
    pairs = Aggregate(LINES, passed(LINES, "l_part", "l_line"), ())
    keys = (equal(FEW, "p_id", pairs, "l_part"), equal(FEW, "p_brand", pairs, "l_line"))
    found = reduced(Join(FEW, pairs, JoinKind.INNER, keys))
    (made,) = [n for n in walk(found) if isinstance(n, Join) and n.join is JoinKind.SEMI]
    assert [(key.left.column, key.right.column) for key in made.keys] == [
        ("l_part", "p_id"), ("l_line", "p_brand")
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [JoinKind.SEMI, JoinKind.ANTI, JoinKind.LEFT, JoinKind.EXISTENCE])
def test_a_side_that_is_collected_keeps_the_keys_of_the_other(kind: JoinKind) -> None:
    assert reduced(joined(FEW, LINES, kind)) == joined(FEW, semi(LINES, FEW), kind)


@pytest.mark.parametrize("kind", [JoinKind.RIGHT, JoinKind.FULL, JoinKind.NULL_AWARE_ANTI])
def test_rows_that_must_come_out_are_not_thrown_away(kind: JoinKind) -> None:
    root = joined(FEW, LINES, kind)
    assert reduced(root) == root


def test_it_has_to_pay() -> None:
    all_parts = joined(PARTS, GROUPED)  # every key is found
    few_rows = joined(FEW, Aggregate(SMALL, passed(SMALL, "s_part"), ()))
    unknown = Filter(PARTS, condition("(`p_brand` < 20)"))  # most keys are found
    for root in (
        all_parts,
        few_rows,
        joined(unknown, GROUPED),
        joined(PARTS, LINES, JoinKind.LEFT),
    ):
        assert reduced(root) == root


def test_keys_that_nulls_satisfy_are_left_alone() -> None:
    key = JoinKey(reference(FEW, "p_id"), reference(LINES, "l_part"), null_safe=True)
    root = Join(FEW, LINES, JoinKind.LEFT, (key,))
    assert reduced(root) == root
    without = Join(FEW, LINES, JoinKind.LEFT, residual=condition("(`p_id` < `l_part`)"))
    assert reduced(without) == without


def test_columns_that_are_on_both_sides_are_left_alone() -> None:
    """The side itself is in what would be reduced."""
    inside = joined(LINES, FEW)
    grouped = Aggregate(inside, (Named("part", reference(inside, "p_id")),), ())
    root = joined(FEW, grouped)
    assert reduced(root) == root
