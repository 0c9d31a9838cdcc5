"""Plans as text for people."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.plan.expressions import Column, Expression, Subquery
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKey,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    ScanColumn,
    Sort,
    SortKey,
    StateScan,
    Union,
    Values,
    Window,
    WindowCall,
)
from headway.plan.printer import LONGEST_LINE, describe, print_plan, readable
from headway.plan.sources import FileSource
from headway.testing.example_plans import (
    condition,
    passed,
    reference,
    running_example,
    table,
)

Golden = Callable[[str, str], None]


def test_the_running_example(golden: Golden) -> None:
    golden("plan/running-example.txt", running_example().explain() + "\n")


def every_kind() -> QueryPlan:
    """One plan with every kind of node, a subquery in a subquery and a shared node."""
    source = FileSource("sales", "parquet", ("/data/sales/1.parquet",))
    sales = Scan(
        source,
        (ScanColumn("item", Column("item", "int")), ScanColumn("price", Column("p", "double"))),
    )
    state = StateScan("run-7", "items", (Column("id", "int"), Column("tags", "array<int>")))
    lowest = Limit(Project(state, passed(state, "id")), 1)
    inner = Subquery("subquery_2", lowest)
    picked = Filter(state, Expression("(`id` >= :subquery_2)", "boolean", True, (inner,)))
    outer = Subquery("subquery_1", Limit(Project(picked, passed(picked, "id")), 1, 2))
    filtered = Filter(sales, Expression("(`item` > :subquery_1)", "boolean", True, (outer,)))
    exploded = Generate(state, Expression("explode(`tags`)", "int"), True, (Column("tag", "int"),))
    key = JoinKey(reference(filtered, "item"), reference(exploded, "tag"), null_safe=True)
    joined = Join(filtered, exploded, JoinKind.LEFT, (key,), condition("((`p` > 1) OR (`id` = 2))"))
    exists = Join(
        joined, Values((Column("v", "int"),), (("1",), ("2",))), JoinKind.EXISTENCE, exists="known"
    )
    rolled = Expand(
        exists,
        (
            (reference(exists, "item"), reference(exists, "p")),
            (Expression("CAST(NULL AS INT)", "int"), reference(exists, "p")),
        ),
        (Column("group", "int"), Column("amount", "double")),
    )
    summed = Aggregate(
        rolled,
        passed(rolled, "group"),
        (
            AggregateCall(
                Column("total", "double"), "sum", (reference(rolled, "amount"),), True,
                condition("(`amount` > 0)"),
            ),
        ),
    )  # fmt: skip
    ranked = Window(
        summed,
        (reference(summed, "group"),),
        (SortKey(reference(summed, "total"), ascending=False, nulls_first=True),),
        (
            WindowCall(
                Column("rank", "int"), "rank", (),
                "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
            ),
        ),
    )  # fmt: skip
    both = Union((ranked, ranked), ranked.schema)
    ordered = Sort(both, (SortKey(reference(both, "total"), nulls_first=False),))
    return QueryPlan(Limit(ordered, None, 10), ("group", "total amount", "rank"))


def test_every_kind(golden: Golden) -> None:
    golden("plan/every-kind.txt", every_kind().explain() + "\n")


def odd_names() -> QueryPlan:
    columns = (Column("a`b", "int"), Column("new\nline", "string"), Column("größe", "int"))
    scan = Scan(
        FileSource("odd table", "csv", ("/data/odd.csv",)),
        tuple(ScanColumn(f"field {n}", column) for n, column in enumerate(columns)),
    )
    test = condition("((`a``b` > 1) AND (`new\nline` = '`x`\n')) OR (`größe` IS NULL)")
    outputs = (*passed(scan, "a`b"), Named("größe", Expression("(`größe` + 1)", "int")))
    return QueryPlan(Project(Filter(scan, test), outputs), ("select", "tab\there"))


def test_odd_names(golden: Golden) -> None:
    golden("plan/odd-names.txt", odd_names().explain() + "\n")


def test_notes_stand_behind_their_nodes(golden: Golden) -> None:
    plan = running_example()
    notes: dict[Node, str] = {plan.root: "10 rows"}
    notes[plan.root.children[1]] = "a note that goes on and on, " * 10
    golden("plan/notes.txt", print_plan(plan, notes) + "\n")


def test_no_line_is_longer_than_the_limit() -> None:
    node: Node = table("t", **{f"a_rather_long_name_{n}": "int" for n in range(50)})
    for _ in range(100):
        node = Limit(node, 3)
    plan = QueryPlan(node, node.column_names)
    text = print_plan(plan, dict.fromkeys([node, *node.children], "note " * 100))
    assert max(map(len, text.splitlines())) <= LONGEST_LINE
    assert text.splitlines()[-1].startswith("(100 deep) ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`a`", "a"),
        ("(`a` > 1)", "a > 1"),
        ("((`a` > 1) AND `b`)", "((a > 1) AND b)"),
        ("(`a b` = '`c`')", "`a b` = '`c`'"),
        ("`s`.`field`", "s.`field`"),
    ],
)
def test_readable(text: str, expected: str) -> None:
    assert readable(text) == expected


def test_a_description_is_cut_where_it_is_too_long() -> None:
    node = Filter(table("t", a="string"), condition(f"(`a` = '{'x' * 500}')"))
    assert len(describe(node)) == 160
    assert describe(node).endswith("…")
