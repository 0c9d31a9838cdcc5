"""The order of joins, and the estimates that it goes by."""

from __future__ import annotations

from itertools import pairwise

import pytest

from headway.plan.cardinalities import estimate
from headway.plan.expressions import Column, Expression
from headway.plan.graph import use_counts, walk
from headway.plan.join_order import order_joins
from headway.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    JoinKey,
    JoinKind,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    Union,
)
from headway.plan.selectivity import ColumnEstimate, selectivity
from headway.plan.sources import Source
from headway.plan.statistics import ColumnStatistics, TableStatistics
from headway.testing.example_plans import condition, equal, passed, reference, renamed, table

FACTS = table("facts", f_id="int", f_a="int", f_b="int", f_c="int")
A = table("a", a_id="int", a_kind="int")
B = table("b", b_id="int", b_kind="int")
C = table("c", c_id="int", c_kind="int")
LINES = table("lines", l_part="int", l_supplier="int", l_text="string")
OFFERS = table("offers", o_part="int", o_supplier="int")


def known(rows: int, **ranges: tuple[float, float]) -> TableStatistics:
    columns = {name: ColumnStatistics(*ends, 0, 4 * rows) for name, ends in ranges.items()}
    return TableStatistics(rows, 100 * rows, columns)


TABLES = {
    "facts": known(1_000_000, f_id=(0, 999_999), f_a=(0, 999), f_b=(0, 999), f_c=(0, 999)),
    "a": known(1_000, a_id=(0, 999), a_kind=(0, 99)),
    "b": known(1_000, b_id=(0, 999), b_kind=(0, 99)),
    "c": known(1_000, c_id=(0, 999), c_kind=(0, 99)),
    "lines": known(600_000, l_part=(1, 20_000), l_supplier=(1, 1_000)),
    "offers": known(80_000, o_part=(1, 20_000), o_supplier=(1, 1_000)),
    **{f"chain {n}": known(1_000, **{f"k{n}": (0, 999), f"r{n}": (0, 999)}) for n in range(12)},
}


def statistics(source: Source) -> TableStatistics | None:
    return TABLES[source.table]


def planned(root: Node) -> QueryPlan:
    return QueryPlan(root, tuple(f"column {n}" for n in range(len(root.schema))))


def ordered(root: Node) -> Node:
    """The root after the rule; what must always hold is checked."""
    plan = planned(root)
    found = order_joins(plan, statistics)
    assert [(c.name, c.type) for c in found.root.schema] == [(c.name, c.type) for c in root.schema]
    assert (found.names, found.settings) == (plan.names, plan.settings)
    assert rows_on_the_way(found) <= rows_on_the_way(plan) * 1.001
    return found.root


def rows_on_the_way(plan: QueryPlan) -> float:
    estimates = estimate(plan, statistics)
    return sum(estimates[node].rows for node in walk(plan.root) if isinstance(node, Join))


def names(node: Node) -> set[str]:
    return {below.source.table for below in walk(node) if isinstance(below, Scan)}


def joins(root: Node) -> list[tuple[JoinKind, set[str]]]:
    """All joins, the first to be computed first, with the tables that they bring together."""
    return [(node.join, names(node)) for node in walk(root) if isinstance(node, Join)]


def inner(left: Node, left_name: str, right: Node, right_name: str) -> Join:
    return Join(left, right, JoinKind.INNER, (equal(left, left_name, right, right_name),))


def star(*selective: str) -> Node:
    """Facts with three dimensions, of which some are filtered to a tenth."""
    root: Node = FACTS
    for dimension, letter in ((A, "a"), (B, "b"), (C, "c")):
        side: Node = dimension
        if letter in selective:
            side = Filter(dimension, condition(f"(`{letter}_kind` < 10)"))
        root = inner(root, f"f_{letter}", side, f"{letter}_id")
    return root


def test_a_selective_dimension_comes_first() -> None:
    assert joins(ordered(star("c")))[0] == (JoinKind.INNER, {"facts", "c"})
    assert joins(ordered(star("b", "c")))[2][1] == {"facts", "a", "b", "c"}
    assert {"facts", "a"} not in [found for _, found in joins(ordered(star("b", "c")))]


def test_projections_on_the_way_are_looked_through() -> None:
    first = inner(FACTS, "f_a", A, "a_id")
    narrow = Project(first, passed(first, "f_b", "a_kind"))
    few = Filter(B, condition("(`b_kind` = 1)"))
    root = ordered(inner(narrow, "f_b", few, "b_id"))
    assert joins(root)[0][1] == {"facts", "b"}


def test_a_projection_that_computes_is_a_leaf() -> None:
    first = inner(FACTS, "f_a", A, "a_id")
    computed = Project(
        first, (*passed(first, "f_b"), Named("sum", Expression("(`f_a` + `a_kind`)", "int")))
    )
    few = Filter(B, condition("(`b_kind` = 1)"))
    root = inner(computed, "f_b", few, "b_id")
    assert ordered(root) == root


def test_only_needed_columns_are_passed_on() -> None:
    first = inner(FACTS, "f_a", A, "a_id")
    root = inner(Project(first, passed(first, "f_b")), "f_b", B, "b_id")
    found = [node for node in walk(ordered(root)) if isinstance(node, Join)]
    assert len(found) == 2
    for node in found:
        assert set(node.column_names) <= {"f_a", "f_b", "a_id", "b_id", "b_kind"}


def test_a_semi_join_waits_for_a_selective_inner_join() -> None:
    """What it collects is large: better to ask it for few rows."""
    semi = Join(FACTS, LINES, JoinKind.SEMI, (equal(FACTS, "f_id", LINES, "l_part"),))
    few = Filter(A, condition("(`a_kind` = 1)"))
    found = joins(ordered(inner(semi, "f_a", few, "a_id")))
    assert found[0] == (JoinKind.INNER, {"facts", "a"})
    assert found[1][0] is JoinKind.SEMI


@pytest.mark.parametrize("kind", [JoinKind.SEMI, JoinKind.ANTI])
def test_a_semi_join_stays_in_front_of_one_that_keeps_all_rows(kind: JoinKind) -> None:
    semi = Join(FACTS, LINES, kind, (equal(FACTS, "f_id", LINES, "l_part"),))
    found = joins(ordered(inner(semi, "f_a", A, "a_id")))
    assert [each for each, _ in found] == [kind, JoinKind.INNER]


def test_a_semi_join_over_columns_of_two_tables_follows_their_join() -> None:
    joined = inner(FACTS, "f_a", A, "a_id")
    keys = (equal(joined, "f_id", LINES, "l_part"), equal(joined, "a_kind", LINES, "l_supplier"))
    semi = Join(joined, LINES, JoinKind.SEMI, keys)
    few = Filter(B, condition("(`b_kind` = 1)"))
    found = joins(ordered(inner(semi, "f_b", few, "b_id")))
    assert found[0][1] == {"facts", "b"}
    assert found[-1][0] is JoinKind.SEMI


def test_outer_joins_stay_where_they_are() -> None:
    outer = Join(FACTS, A, JoinKind.LEFT, (equal(FACTS, "f_a", A, "a_id"),))
    few = Filter(B, condition("(`b_kind` = 1)"))
    root = ordered(inner(inner(outer, "f_b", few, "b_id"), "f_c", C, "c_id"))
    assert (JoinKind.LEFT, {"facts", "a"}) in joins(root)


def test_equal_columns_stand_for_each_other() -> None:
    """a = b and b = c: a may be joined with c first."""
    first = inner(FACTS, "f_id", B, "b_id")
    few = Filter(C, condition("(`c_kind` = 1)"))
    root = ordered(inner(first, "b_id", few, "c_id"))
    tables = [found for _, found in joins(root)]
    assert tables[0] in ({"facts", "c"}, {"b", "c"})
    assert all(node.keys for node in walk(root) if isinstance(node, Join))


def test_keys_of_two_tables_and_other_conditions_find_their_place() -> None:
    first = inner(FACTS, "f_a", A, "a_id")
    second = inner(first, "f_b", Filter(B, condition("(`b_kind` = 1)")), "b_id")
    both = JoinKey(Expression("(`a_kind` + `b_kind`)", "int"), reference(C, "c_id"))
    third = Join(
        second, C, JoinKind.INNER, (both, equal(second, "f_c", C, "c_id")),
        condition("(`a_kind` < `c_kind`)"),
    )  # fmt: skip
    root = ordered(third)
    texts = [c.text for node in walk(root) if isinstance(node, Join) for c in node.conditions()]
    assert sum("`a_kind` + `b_kind`" in text for text in texts) == 1
    assert sum("`a_kind` < `c_kind`" in text for text in texts) == 1


def test_null_safe_keys_stay_null_safe() -> None:
    safe = JoinKey(reference(FACTS, "f_a"), reference(A, "a_id"), null_safe=True)
    first = Join(FACTS, A, JoinKind.INNER, (safe,))
    few = Filter(B, condition("(`b_kind` = 1)"))
    root = ordered(inner(first, "f_b", few, "b_id"))
    keys = [key for node in walk(root) if isinstance(node, Join) for key in node.keys]
    assert [key.null_safe for key in keys] == [False, True]


def chain(count: int, *filtered: int) -> Node:
    """Tables each of which refers to the one before; those `filtered` have few rows."""
    sides: list[Node] = []
    for n in range(count):
        scan = table(f"chain {n}", **{f"k{n}": "int", f"r{n}": "int"})
        sides.append(Filter(scan, condition(f"(`k{n}` < 5)")) if n in filtered else scan)
    root = sides[0]
    for before, n in pairwise(range(count)):
        root = inner(root, f"k{before}", sides[n], f"r{n}")
    return root


@pytest.mark.parametrize("count", [3, 8, 9, 12])
def test_keys_that_connect_tables_are_used(count: int) -> None:
    """Never a cross product, also where not all trees are looked at."""
    root = ordered(chain(count, count - 1))
    found = [node for node in walk(root) if isinstance(node, Join)]
    assert len(found) == count - 1
    assert all(node.keys for node in found)
    assert joins(root)[0][1] == {f"chain {count - 1}", f"chain {count - 2}"}


def test_tables_that_no_key_connects_stay_as_they_are() -> None:
    apart = Join(A, B, JoinKind.INNER, residual=condition("((`a_id` + `b_id`) < `a_kind`)"))
    root = Join(apart, C, JoinKind.INNER, residual=condition("(`c_id` > 3)"))
    assert ordered(root) == root


def test_a_result_with_two_readers_stays_one() -> None:
    shared = inner(FACTS, "f_a", Filter(A, condition("(`a_kind` = 1)")), "a_id")
    other = Project(shared, (Named("again", reference(shared, "f_id")),))
    top = inner(inner(shared, "f_b", B, "b_id"), "f_id", other, "again")
    root = ordered(top)
    assert use_counts(root)[shared] == 2


def test_a_result_used_twice_in_one_tree() -> None:
    """Its columns are there twice, so nothing is moved past each other."""
    semi = Join(FACTS, A, JoinKind.SEMI, (equal(FACTS, "f_a", A, "a_id"),))
    root = inner(
        inner(semi, "f_b", A, "a_id"), "f_c", Filter(C, condition("(`c_kind` = 1)")), "c_id"
    )
    assert ordered(root) == root


def test_trees_below_others_and_in_subqueries_are_ordered_too() -> None:
    tree = star("c")
    grouped = Aggregate(tree, passed(tree, "a_kind"), ())
    root = ordered(grouped)
    assert joins(root)[0][1] == {"facts", "c"}


# Estimates


RANGE = {"n": ColumnEstimate(1_000.0, 0.0, 1_000.0, 0.0, 4.0)}


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("((`n` >= 200) AND (`n` < 300))", 0.1),
        ("((300 > `n`) AND (200 <= `n`))", 0.1),
        ("((`n` >= 200) AND ((`n` < 300) AND (`n` < 900)))", 0.1),
        ("((`n` >= 200) AND (`n` >= 600))", 0.4),
        ("((`n` < 100) AND (`n` > 900))", 0.001),  # nothing, or next to it
        ("((`n` >= 200) AND (`other` = 3))", 0.08),
    ],
)
def test_both_ends_of_a_range(text: str, share: float) -> None:
    assert selectivity(condition(text), RANGE) == pytest.approx(share, rel=0.02)


def rows(root: Node) -> float:
    return estimate(planned(root), statistics)[root].rows


def test_a_foreign_key_finds_one_row() -> None:
    assert rows(inner(FACTS, "f_a", A, "a_id")) == pytest.approx(1_000_000)
    few = Filter(A, condition("(`a_kind` < 10)"))
    assert rows(inner(FACTS, "f_a", few, "a_id")) == pytest.approx(100_000, rel=0.2)


def test_two_keys_together_say_less_than_apart() -> None:
    """A line refers to one offer by both of its keys."""
    keys = (
        equal(LINES, "l_part", OFFERS, "o_part"),
        equal(LINES, "l_supplier", OFFERS, "o_supplier"),
    )
    found = rows(Join(LINES, OFFERS, JoinKind.INNER, keys))
    assert found == pytest.approx(600_000, rel=0.01)


def test_composite_keys_in_an_order() -> None:
    keys = (
        equal(LINES, "l_part", OFFERS, "o_part"),
        equal(LINES, "l_supplier", OFFERS, "o_supplier"),
    )
    pair = Join(LINES, OFFERS, JoinKind.INNER, keys)
    few = Filter(A, condition("(`a_kind` = 1)"))
    root = ordered(inner(pair, "l_supplier", few, "a_id"))
    (linked,) = [n for n in walk(root) if isinstance(n, Join) and len(n.keys) == 2]
    assert {"lines", "offers"} <= names(linked)


def test_what_has_a_dictionary_has_as_many_values_as_its_codes_tell_apart() -> None:
    scan = table("t", s="string", u="string", d="decimal(5,2)", e="decimal(38,2)")
    codes = ColumnStatistics(bytes=1_000_000 * 3 // 8)  # of three bits
    columns = {
        "s": codes,
        "u": ColumnStatistics(bytes=1_000_000 * 30),
        "d": codes,
        "e": ColumnStatistics(bytes=1_000_000 * 16),
    }
    found = TableStatistics(1_000_000, 31_000_000, columns)

    def groups(name: str) -> float:
        root = Aggregate(scan, passed(scan, name), ())
        return estimate(planned(root), lambda source: found)[root].rows

    assert groups("s") == pytest.approx(8)
    assert groups("u") == pytest.approx(1_000_000**0.6)
    assert groups("d") == pytest.approx(8)
    assert groups("e") == pytest.approx(1_000_000)


def test_a_union_of_keys_has_no_domain() -> None:
    """Of which table a value is one cannot be told."""
    both = Union((A, renamed(A, "2")), (Column("id", "int"), Column("kind", "int")))
    assert rows(inner(FACTS, "f_a", both, "id")) == pytest.approx(1_000_000)
