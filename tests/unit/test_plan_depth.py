"""Plans of 60 levels that use the level below twice, and of 2,000 levels, cost what they weigh.

The first have 2**60 paths, the second are deeper than Python's stack: neither may matter.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.plan.canonical import canonical_forms, row_keys
from headway.plan.cardinalities import estimate
from headway.plan.expressions import Column, Expression, Subquery
from headway.plan.graph import replace_nodes, rewrite, walk
from headway.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Side,
    Sort,
    SortKey,
    StateScan,
    Union,
)
from headway.plan.pipelines import pipelines_of
from headway.plan.printer import LONGEST_LINE, print_plan
from headway.plan.reuse import share_equal_subplans
from headway.plan.serialize import plan_from_json, plan_to_json
from headway.plan.spark_sql import to_spark_sql
from headway.testing.example_plans import condition, equal, passed, reference, table
from headway.testing.plans import rename_columns

WIDE = 60
DEEP = 2_000


def unions() -> Node:
    node: Node = table("t", a="int")
    for _ in range(WIDE):
        node = Union((node, node), node.schema)
    return node


def joins() -> Node:
    """Each level joins the one below with a renamed reading of it."""
    node: Node = table("t", a="int")
    for level in range(WIDE):
        renamed = Project(node, (Named(f"r{level}", reference(node, "a")),))
        keys = (equal(node, "a", renamed, f"r{level}"),)
        node = Join(node, renamed, JoinKind.INNER, keys)
        node = Project(node, passed(node, "a"))
    return node


def subqueries() -> Node:
    value: Node = Limit(table("t", a="int"), 1)
    for _ in range(WIDE):
        both = (Subquery("s1", value), Subquery("s2", value))
        value = Limit(Filter(value, Expression("(:s1 < :s2)", "boolean", True, both)), 1)
    return value


def sums() -> Node:
    """Each column is the double of the one below: written out, the last would be huge."""
    node: Node = table("t", a="int")
    for level in range(WIDE):
        below = node.column_names[0]
        node = Project(node, (Named(f"a{level}", Expression(f"(`{below}` + `{below}`)", "int")),))
    return Filter(node, condition(f"(`a{WIDE - 1}` > 1)"))


def filters() -> Node:
    node: Node = table("t", a="int")
    for number in range(DEEP):
        node = Filter(node, condition(f"(`a` > {number})"))
    return node


def sorts() -> Node:
    node: Node = table("t", a="int")
    for _ in range(DEEP):
        node = Sort(node, (SortKey(reference(node, "a")),))
    return node


def probes() -> Node:
    return chain_of_joins(Side.RIGHT)


def builds() -> Node:
    return chain_of_joins(Side.LEFT)


def chain_of_joins(build: Side) -> Node:
    node: Node = table("t", a="int")
    other = table("u", b="int")
    for _ in range(DEEP):
        node = Join(node, other, JoinKind.SEMI, (equal(node, "a", other, "b"),), build=build)
    return node


def nested_subqueries() -> Node:
    value: Node = Limit(table("t", a="int"), 1)
    for _ in range(DEEP):
        inner = (Subquery("s", value),)
        value = Filter(table("u", b="int"), Expression("(`b` < :s)", "boolean", True, inner))
    return value


SHAPES = (
    unions, joins, subqueries, sums, filters, sorts, probes, builds, nested_subqueries,
)  # fmt: skip


@pytest.fixture(params=SHAPES, ids=lambda shape: shape.__name__)
def make(request: pytest.FixtureRequest) -> Callable[[], Node]:
    found: Callable[[], Node] = request.param
    return found


def plan_of(root: Node) -> QueryPlan:
    return QueryPlan(root, root.column_names)


def test_comparing(make: Callable[[], Node]) -> None:
    first, second = make(), make()
    assert first == second
    assert hash(first) == hash(second)
    assert first != Limit(first, 1)
    assert len(repr(first)) <= LONGEST_LINE


def test_comparing_what_differs_at_the_bottom(make: Callable[[], Node]) -> None:
    first, second = make(), make()
    leaf = next(walk(second))
    state = StateScan("run", "state", leaf.schema)
    other = replace_nodes(second, {leaf: state})
    assert first != other
    for node in [*walk(first), *walk(other)]:  # not even when all hashes are the same
        object.__setattr__(node, "_hash", 1)
    assert first != other


def test_walking_and_rewriting(make: Callable[[], Node]) -> None:
    root = make()
    assert len(list(walk(root))) <= 3 * DEEP
    assert rewrite(root, lambda node: node) == root
    renamed = rename_columns(root, lambda name: f"{name}_2")
    assert len(list(walk(renamed))) == len(list(walk(root)))


def test_json(make: Callable[[], Node]) -> None:
    plan = plan_of(make())
    assert plan_from_json(plan_to_json(plan)) == plan


def test_printing(make: Callable[[], Node]) -> None:
    root = make()
    lines = print_plan(plan_of(root)).splitlines()
    uses = sum(len(node.children) + len(node.subqueries) for node in walk(root))
    assert len(lines) == uses + 2
    assert max(map(len, lines)) <= LONGEST_LINE


def test_pipelines(make: Callable[[], Node]) -> None:
    found = pipelines_of(plan_of(make()))
    assert len(found) <= 2 * DEEP + 1
    assert all(max(p.depends_on, default=0) < p.id for p in found)
    half = range(1, len(found) // 2)
    assert found.ready(half)
    assert len(found.still_needed(half)) <= len(half)


def test_canonical_forms_and_sharing(make: Callable[[], Node]) -> None:
    root = make()
    renamed = rename_columns(root, lambda name: f"{name}_2")
    assert canonical_forms(root)[root].key == canonical_forms(renamed)[renamed].key
    assert row_keys(root)[root] == row_keys(renamed)[renamed]
    columns = tuple(Column(f"{c.name}_3", c.type) for c in root.schema)
    shared = share_equal_subplans(Union((root, renamed), columns))
    assert share_equal_subplans(shared) == shared


def test_estimates(make: Callable[[], Node]) -> None:
    root = make()
    found = estimate(plan_of(root))
    assert 1 <= found[root].rows < float("inf")


# A subquery in a subquery is written inside of it: no SQL text nests 2,000 of them.
@pytest.mark.parametrize("make", [shape for shape in SHAPES if shape is not nested_subqueries])
def test_sql(make: Callable[[], Node]) -> None:
    assert len(to_spark_sql(plan_of(make()), lambda scan: "t")) < 1_000_000
