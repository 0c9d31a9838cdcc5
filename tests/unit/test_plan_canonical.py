"""Keys say what a subplan computes, whatever its columns are called; equal work becomes one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.plan.canonical import canonical_forms, is_renaming, row_keys
from headway.plan.conjunctions import split_conjunction
from headway.plan.expressions import Column, Expression, Subquery
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    Scan,
    ScanColumn,
    Side,
    Sort,
    SortKey,
    StateScan,
    Union,
    Values,
)
from headway.plan.reuse import share_equal_subplans
from headway.plan.sources import SessionSource
from headway.testing.example_plans import call, condition, equal, passed, reference, table
from headway.testing.plans import rename_columns

T = table("t", a="int", b="int")
U = table("u", c="int")


def key(node: Node) -> str:
    return canonical_forms(node)[node].key


def row_key(node: Node) -> str:
    return row_keys(node)[node]


def renamed(node: Node) -> Node:
    return rename_columns(node, lambda name: f"{name}_2")


def grouped(node: Node, *names: str, function: str = "sum") -> Aggregate:
    column = node.column_names[0]
    return Aggregate(
        node,
        passed(node, *names),
        (call(function, reference(node, column), f"{function}_{column}"),),
    )


def value(name: str) -> Node:
    return Values((Column(name, "int"),), (("1",),))


def compared(plan: Node, name: str = "s") -> Expression:
    return Expression(f"(`a` > :{name})", "boolean", True, (Subquery(name, plan),))


SAME = {
    "a scan": (T, renamed(T)),
    "a filter": (Filter(T, condition("(`a` > 1)")), renamed(Filter(T, condition("(`a` > 1)")))),
    "an existence join": (
        Join(T, U, JoinKind.EXISTENCE, exists="e"),
        Join(T, U, JoinKind.EXISTENCE, exists="other"),
    ),
    "a group key that keeps its name": (
        Aggregate(T, passed(T, "a"), ()),
        Aggregate(T, (Named("other", reference(T, "a")),), ()),
    ),
    "a union named like its first input": (
        Union((T, T), T.schema),
        Union((T, T), (Column("x", "int"), Column("y", "int"))),
    ),
    "an expand named like its input": (
        Expand(T, ((reference(T, "a"),),), (Column("a", "int"),)),
        Expand(T, ((reference(T, "a"),),), (Column("x", "int"),)),
    ),
    "a renaming": (T, Project(T, (Named("x", reference(T, "a")), Named("y", reference(T, "b"))))),
    "subqueries of other names": (
        Filter(T, compared(value("v"))),
        Filter(T, compared(value("w"), "r")),
    ),
    "nullability": (
        Filter(T, condition("(`a` > 1)")),
        Filter(T, Expression("(`a` > 1)", "boolean", False)),
    ),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_the_same_work_has_one_key(one: Node, other: Node) -> None:
    assert key(one) == key(other)
    assert row_key(one) == row_key(other)


KEYS = (equal(T, "a", U, "c"),)
DIFFERENT = {
    "source": (T, table("t2", a="int", b="int")),
    "field": (T, replace(T, columns=tuple(replace(c, field=f"{c.field}x") for c in T.columns))),
    "columns of a state": (
        StateScan("run", "state", (Column("a", "int"),)),
        StateScan("run", "state", (Column("b", "int"),)),
    ),
    "state": (StateScan("run", "one", T.schema), StateScan("run", "two", T.schema)),
    "condition": (Filter(T, condition("(`a` > 1)")), Filter(T, condition("(`a` > 2)"))),
    "column in a condition": (Filter(T, condition("(`a` > 1)")), Filter(T, condition("(`b` > 1)"))),
    "string in a condition": (
        Filter(T, condition("(`a` = 'a')")),
        Filter(T, condition("(`a` = 'b')")),
    ),
    "operator": (Limit(T, None), Sort(T, (SortKey(reference(T, "a")),))),
    "limit": (Limit(T, 1), Limit(T, 2)),
    "offset": (Limit(T, 1), Limit(T, 1, 1)),
    "order of outputs": (Project(T, passed(T, "a", "b")), Project(T, passed(T, "b", "a"))),
    "some outputs": (T, Project(T, passed(T, "a"))),
    "kind of join": (Join(T, U, JoinKind.LEFT, KEYS), Join(T, U, JoinKind.INNER, KEYS)),
    "build side": (Join(T, U, JoinKind.LEFT), Join(T, U, JoinKind.LEFT, build=Side.LEFT)),
    "null-safe key": (
        Join(T, U, JoinKind.LEFT, KEYS),
        Join(T, U, JoinKind.LEFT, (replace(KEYS[0], null_safe=True),)),
    ),
    "sides of a join": (Join(T, U, JoinKind.INNER), Join(U, T, JoinKind.INNER)),
    "function": (grouped(T), grouped(T, function="min")),
    "distinct": (
        grouped(T),
        Aggregate(T, (), (replace(grouped(T).aggregates[0], distinct=True),)),
    ),
    "direction": (
        Sort(T, (SortKey(reference(T, "a")),)),
        Sort(T, (SortKey(reference(T, "a"), False),)),
    ),
    "subquery": (Filter(T, compared(value("v"))), Filter(T, compared(Limit(U, 1)))),
    "type": (value("v"), Values((Column("v", "bigint"),), (("1",),))),
    "rows": (value("v"), Values((Column("v", "int"),), (("2",),))),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_different_work_has_different_keys(one: Node, other: Node) -> None:
    assert key(one) != key(other)


def sorted_by(node: Node, name: str) -> Node:
    return Sort(node, (SortKey(reference(node, name)),))


def positive(node: Node, name: str = "a") -> Node:
    return Filter(node, condition(f"(`{name}` > 0)"))


T_ONE_COLUMN = Scan(SessionSource("session_t", "t"), (ScanColumn("a", Column("z", "int")),))
BOTH = positive(Filter(T, condition("((`a` > 1) AND (`b` > 2))")))

SAME_ROWS = {
    "projection": (positive(T), Project(positive(T), passed(T, "b"))),
    "computed column": (
        positive(Project(T, (Named("x", Expression("(`a` + `b`)", "int")),)), "x"),
        positive(Project(T, (Named("y", Expression("(`a` + `b`)", "int")),)), "y"),
    ),
    "scan columns": (positive(T), positive(T_ONE_COLUMN, "z")),
    "sort": (positive(T), sorted_by(positive(T), "b")),
    "sort below a filter": (positive(T), positive(sorted_by(T, "b"))),
    "order of conditions": (
        BOTH,
        positive(Filter(T, condition("((`b` > 2) AND (`a` > 1))"))),
    ),
    "parentheses": (BOTH, positive(Filter(T, condition("(`a` > 1) AND ((`b` > 2))")))),
}  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME_ROWS.values(), ids=SAME_ROWS)
def test_row_keys_ignore_what_does_not_change_the_number_of_rows(one: Node, other: Node) -> None:
    assert row_key(one) == row_key(other)


def union_of(name: str) -> Node:
    part = Project(T, (Named(f"{name}_out", reference(T, name)),))
    return Union((part, part), (Column("x", "int"),))


OTHER_ROWS = {
    "condition": (positive(T, "a"), positive(T, "b")),
    "computed differently": (
        positive(Project(T, (Named("x", Expression("(`a` + `b`)", "int")),)), "x"),
        positive(Project(T, (Named("x", Expression("(`a` - `b`)", "int")),)), "x"),
    ),
    "which rows a limit keeps": (
        positive(Limit(sorted_by(T, "a"), 5)),
        positive(Limit(sorted_by(T, "b"), 5)),
    ),
    "which rows a limit keeps, projected": (
        positive(Limit(Project(sorted_by(T, "a"), passed(T, "a")), 5)),
        positive(Limit(Project(sorted_by(T, "b"), passed(T, "a")), 5)),
    ),
    "columns of a union": (positive(union_of("a"), "x"), positive(union_of("b"), "x")),
    "group keys": (grouped(T, "a"), grouped(T, "b")),
    "join keys": (
        Join(T, U, JoinKind.INNER, (equal(T, "a", U, "c"),)),
        Join(T, U, JoinKind.INNER, (equal(T, "b", U, "c"),)),
    ),
}


@pytest.mark.parametrize(("one", "other"), OTHER_ROWS.values(), ids=OTHER_ROWS)
def test_row_keys_differ_where_rows_do(one: Node, other: Node) -> None:
    assert row_key(one) != row_key(other)


def test_subqueries_with_similar_names_do_not_mix() -> None:
    both = Expression(
        "((`a` > :s_1) AND (`a` > :s_10))", "boolean", True,
        (Subquery("s_1", value("v")), Subquery("s_10", Limit(U, 1))),
    )  # fmt: skip
    assert row_key(Filter(T, both))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("`a`", ["`a`"]),
        ("(`a`)", ["`a`"]),
        ("(`a` AND `b`)", ["`a`", "`b`"]),
        ("((`a` AND `b`) AND (`c` AND (`d`)))", ["`a`", "`b`", "`c`", "`d`"]),
        ("(`a` OR `b`) AND `c`", ["`a` OR `b`", "`c`"]),
        ("`a` AND `b` OR `c`", ["`a` AND `b` OR `c`"]),
        ("`a` BETWEEN 1 AND 2", ["`a` BETWEEN 1 AND 2"]),
        ("`a` between 1 and 2 and `b`", ["`a` between 1 and 2", "`b`"]),
        ("`a` = 'x AND y' AND `b`", ["`a` = 'x AND y'", "`b`"]),
        ("`a` = 'it\\'s AND' AND `b`", ["`a` = 'it\\'s AND'", "`b`"]),
        ('`a` = ") AND (" AND `b`', ['`a` = ") AND ("', "`b`"]),
        ("`x AND y` AND `(`", ["`x AND y`", "`(`"]),
        ("`a``AND` AND `b`", ["`a``AND`", "`b`"]),
        ("CASE WHEN `a` AND `b` THEN `c` END AND `d`",
         ["CASE WHEN `a` AND `b` THEN `c` END", "`d`"]),
        ("`a`\nAND\t`b`", ["`a`", "`b`"]),
        ("(`a`) AND ((`b`))", ["`a`", "`b`"]),
        ("('(' = `a`)", ["'(' = `a`"]),
        ("(`a`) + (`b`)", ["(`a`) + (`b`)"]),
        ("f(`a` AND `b`)", ["f(`a` AND `b`)"]),
        (" ( `a`  AND `b` ) ", ["`a`", "`b`"]),
    ],
)  # fmt: skip
def test_split_conjunction(text: str, parts: list[str]) -> None:
    assert split_conjunction(text) == parts


def test_a_conjunction_may_be_deep() -> None:
    text = "`c0`"
    for number in range(1, 3_000):
        text = f"({text} AND `c{number}`)"
    assert len(split_conjunction(text)) == 3_000


def test_what_a_renaming_is() -> None:
    assert is_renaming(Project(T, passed(T, "a", "b")))
    assert not is_renaming(Project(T, passed(T, "b", "a")))
    assert not is_renaming(Project(T, passed(T, "a")))
    assert not is_renaming(Project(T, (Named("x", Expression("(`a`)", "int")), *passed(T, "b"))))
    assert not is_renaming(T)


# Sharing


def joined(left: Node, right: Node) -> Node:
    return Join(left, right, JoinKind.CROSS)


def kinds(root: Node) -> list[str]:
    return sorted(node.kind for node in walk(root))


def test_copies_become_one_node_with_renamings() -> None:
    original = grouped(T, "b")
    root = joined(original, joined(renamed(original), rename_columns(original, lambda n: n + "_3")))
    shared = share_equal_subplans(root)
    assert kinds(shared) == ["Aggregate", "Join", "Join", "Project", "Project", "Scan"]
    assert use_counts(shared)[original] == 3
    assert shared.schema == root.schema
    assert share_equal_subplans(shared) == shared


def test_copies_in_copies_are_shared_too() -> None:
    inner = grouped(T, "b")
    outer = joined(inner, renamed(inner))  # holds a copy of its own
    again = rename_columns(outer, lambda name: f"{name}_again")
    shared = share_equal_subplans(joined(outer, again))
    assert kinds(shared) == ["Aggregate", "Join", "Join", "Project", "Project", "Scan"]
    assert share_equal_subplans(shared) == shared


def test_copies_keep_their_own_nullability() -> None:
    original = grouped(T, "b")
    sure = replace(original.aggregates[0], column=Column("sum_a", "int", False))
    copy = renamed(replace(original, aggregates=(sure,)))
    shared = share_equal_subplans(joined(original, copy))
    assert shared.schema == joined(original, copy).schema


def test_copies_whose_keys_are_named_differently_are_shared() -> None:
    original = grouped(T, "b")
    keys = (Named("other", reference(T, "b")),)
    total = (replace(original.aggregates[0], column=Column("total", "int")),)
    shared = share_equal_subplans(joined(original, Aggregate(T, keys, total)))
    assert use_counts(shared)[original] == 2


def test_copies_in_subqueries_are_shared() -> None:
    largest = Aggregate(U, (), (call("max", reference(U, "c"), "m"),))
    inside = Filter(Project(T, passed(T, "a")), compared(renamed(largest)))
    shared = share_equal_subplans(joined(largest, inside))
    assert use_counts(shared)[largest] == 2


def test_scans_of_different_columns_of_a_state_stay_apart() -> None:
    totals = [grouped(StateScan("run", "state", (Column(name, "int"),))) for name in "ab"]
    root = joined(*totals)
    assert share_equal_subplans(root) is root


def test_cheap_copies_stay() -> None:
    root = joined(positive(T), renamed(positive(T)))
    assert share_equal_subplans(root) is root
