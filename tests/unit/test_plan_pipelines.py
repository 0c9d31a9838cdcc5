"""Pipelines of known plans: what flows where, what depends on what, what is state when."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.plan.expressions import Column, Expression, Subquery
from headway.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    Side,
    Sort,
    SortKey,
    Union,
    Window,
    WindowCall,
)
from headway.plan.pipelines import Pipelines, Role, pipelines_of
from headway.testing.example_plans import (
    call,
    condition,
    equal,
    passed,
    reference,
    running_example,
    table,
)

T = table("t", a="int", b="int")
U = table("u", c="int")


def found(root: Node) -> Pipelines:
    return pipelines_of(QueryPlan(root, root.column_names))


def shown(pipelines: Pipelines) -> list[str]:
    """`2: Scan > Join > Aggregate input after 1`."""
    return [
        f"{p.id}: {' > '.join(n.kind for n in (p.source, *p.operators, p.sink))} {p.role}"
        + (f" after {', '.join(map(str, sorted(p.depends_on)))}" if p.depends_on else "")
        for p in pipelines
    ]


def test_the_running_example_of_the_paper() -> None:
    root = running_example().root
    pipelines = pipelines_of(running_example())
    assert shown(pipelines) == [
        "1: Scan > Join build",
        "2: Scan > Join > Aggregate input after 1",
        "3: Aggregate > Aggregate input after 2",
        "4: Aggregate > Join build after 3",
        "5: Scan > Join build",
        "6: Aggregate > Join > Join > Join result after 2, 4, 5",
    ]
    one, two, three, four, five, six = pipelines
    assert isinstance(one.source, Scan) and one.source.source.table == "customer"
    assert isinstance(two.source, Scan) and two.source.source.table == "orders"
    assert two.operators == (one.sink,)
    assert three.source == two.sink == six.source
    assert four.sink == root == six.sink
    assert six.operators == (five.sink, root)


@pytest.mark.parametrize(
    ("finished", "state", "ready"),
    [
        ([], [], [1, 5]),
        ([1], [1], [2, 5]),
        ([1, 2], [2], [3, 5]),  # the hash table that pipeline 1 made is no longer needed
        ([1, 2, 3], [2, 3], [4, 5]),
        ([1, 2, 3, 4], [2, 4], [5]),
        ([1, 2, 3, 4, 5], [2, 4, 5], [6]),
        ([1, 2, 3, 4, 5, 6], [], []),
    ],
)
def test_the_state_of_the_running_example(
    finished: list[int], state: list[int], ready: list[int]
) -> None:
    pipelines = pipelines_of(running_example())
    assert [p.id for p in pipelines.still_needed(finished)] == state
    assert [p.id for p in pipelines.ready(finished)] == ready
    assert pipelines.progress(finished) == len(finished) / 6


def test_the_state_after_pipeline_four_is_the_aggregation_and_the_build_side() -> None:
    example = running_example()
    aggregation, build = pipelines_of(example).still_needed({1, 2, 3, 4})
    assert isinstance(aggregation.sink, Aggregate)
    assert aggregation.sink.column_names == ("id", "revenue")
    assert (build.sink, build.role) == (example.root, Role.BUILD)


def test_dependents_are_dependencies_the_other_way_round() -> None:
    assert pipelines_of(running_example()).dependents() == {
        1: {2}, 2: {3, 6}, 3: {4}, 4: {6}, 5: {6}, 6: set(),
    }  # fmt: skip


def subquery(name: str, plan: Node) -> Expression:
    return Expression(f"(`a` > :{name})", "boolean", True, (Subquery(name, plan),))


def largest() -> Node:
    return Aggregate(U, (), (call("max", reference(U, "c"), "m"),))


def one_c() -> Node:
    return Limit(U, 1)


def subquery_also_read_as_rows() -> Node:
    value = one_c()
    return Join(Filter(T, subquery("s", value)), value, JoinKind.CROSS)


def subquery_used_twice() -> Node:
    test = subquery("s", one_c())
    return Sort(Filter(T, test), (SortKey(Expression(":s", "int", True, test.subqueries)),))


def shared_and_renamed() -> Node:
    shared = Filter(T, condition("(`a` > 1)"))
    renamed = Project(shared, (Named("x", reference(shared, "a")),))
    return Join(shared, renamed, JoinKind.INNER, (equal(shared, "a", renamed, "x"),))


def scan_used_twice() -> Node:
    renamed = Project(T, (Named("x", reference(T, "a")),))
    return Join(T, renamed, JoinKind.INNER, build=Side.LEFT)


def sorted_union() -> Node:
    other = Aggregate(T, passed(T, "a", "b"), ())
    union = Union((Filter(T, condition("true")), other), T.schema)
    ranked = Window(
        union, (reference(union, "a"),), (), (WindowCall(Column("n", "int"), "row_number", ()),)
    )
    return Limit(Sort(ranked, (SortKey(reference(ranked, "n")),)), 5)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: T, ["1: Scan > Scan result"]),
        (lambda: Limit(T, 3), ["1: Scan > Limit > Limit result"]),
        (
            lambda: Sort(T, (SortKey(reference(T, "a")),)),
            ["1: Scan > Sort input", "2: Sort > Sort result after 1"],
        ),
        (
            lambda: Filter(T, subquery("s", largest())),
            [
                "1: Scan > Aggregate input",
                "2: Aggregate > Aggregate subquery after 1",
                "3: Scan > Filter > Filter result after 2",
            ],
        ),
        (
            subquery_also_read_as_rows,
            [
                "1: Scan > Limit > Limit shared",
                "2: Limit > Join build after 1",
                "3: Scan > Filter > Join > Join result after 1, 2",
            ],
        ),
        (
            subquery_used_twice,
            [
                "1: Scan > Limit > Limit subquery",
                "2: Scan > Filter > Sort input after 1",
                "3: Sort > Sort result after 2",
            ],
        ),
        (
            shared_and_renamed,
            [
                "1: Scan > Filter > Filter shared",
                "2: Filter > Project > Join build after 1",
                "3: Filter > Join > Join result after 1, 2",
            ],
        ),
        (
            scan_used_twice,
            ["1: Scan > Join build", "2: Scan > Project > Join > Join result after 1"],
        ),
        (
            sorted_union,
            [
                "1: Scan > Filter > Union > Window input",
                "2: Scan > Aggregate input",
                "3: Aggregate > Union > Window input after 2",
                "4: Window > Sort input after 1, 3",
                "5: Sort > Limit > Limit result after 4",
            ],
        ),
    ],
)
def test_pipelines(make: Callable[[], Node], expected: list[str]) -> None:
    assert shown(found(make())) == expected
