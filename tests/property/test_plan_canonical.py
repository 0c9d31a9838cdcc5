"""Keys against a slow definition of what a subplan means; sharing keeps that meaning."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headway.plan.canonical import canonical_forms, is_renaming, row_keys
from headway.plan.expressions import Column, Expression, column_reference, substitute
from headway.plan.graph import replace_nodes, walk
from headway.plan.nodes import (
    Filter,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    Sort,
    SortKey,
    StateScan,
    Values,
)
from headway.plan.reuse import share_equal_subplans
from headway.plan.serialize import plan_from_json, plan_to_json
from headway.testing.plans import query_plans, rename_columns


def meaning(node: Node) -> str:
    """All of the subplan written out, with columns as places in the inputs instead of names."""
    if is_renaming(node):
        return meaning(node.input)
    places = {
        name: f"{number}.{position}"
        for number, child in enumerate(node.children)
        for position, name in enumerate(child.column_names)
    }
    names = repr(node.column_names) if isinstance(node, StateScan) else ""
    parts = (written(getattr(node, f.name), f.name, places) for f in fields(node) if f.init)
    return f"{node.kind}{names}({'|'.join(parts)})"


def written(value: Any, name: str, places: dict[str, str]) -> str:
    if isinstance(value, Node):
        return meaning(value)
    if isinstance(value, Expression):
        plans = {subquery.name: meaning(subquery.plan) for subquery in value.subqueries}
        text = substitute(value.text, lambda n: f"`{places[n]}`", lambda n: f":({plans[n]})")
        return f"{text} {value.type}"
    if isinstance(value, Column):
        return value.type
    if isinstance(value, Named):
        return written(value.expression, name, places)
    if isinstance(value, tuple):
        return f"[{' , '.join(written(item, name, places) for item in value)}]"
    if is_dataclass(value) and not isinstance(value, StrEnum | type):
        inner = (written(getattr(value, f.name), f.name, places) for f in fields(value))
        return f"{type(value).__name__}({' ; '.join(inner)})"
    return str(value is None) if name == "exists" else repr(value)


@settings(max_examples=100)
@given(query_plans())
def test_keys_are_equal_where_meanings_are(plan: QueryPlan) -> None:
    forms = canonical_forms(plan.root)
    by_meaning: dict[str, set[str]] = defaultdict(set)
    for node, form in forms.items():
        by_meaning[meaning(node)].add(form.key)
        assert tuple(form.names) == node.column_names
        assert len(set(form.names.values())) == len(form.names)
    assert all(len(keys) == 1 for keys in by_meaning.values())
    assert len(by_meaning) == len({form.key for form in forms.values()})


@settings(max_examples=80)
@given(query_plans())
def test_names_do_not_matter(plan: QueryPlan) -> None:
    renamed = rename_columns(plan.root, lambda name: f"`{name}'")
    before, after = canonical_forms(plan.root), canonical_forms(renamed)
    assert before[plan.root].key == after[renamed].key
    assert {form.key for form in before.values()} == {form.key for form in after.values()}
    assert row_keys(plan.root)[plan.root] == row_keys(renamed)[renamed]
    assert set(row_keys(plan.root).values()) == set(row_keys(renamed).values())


@settings(max_examples=60)
@given(query_plans(), st.data())
def test_a_changed_leaf_changes_the_keys_above_it(plan: QueryPlan, data: st.DataObject) -> None:
    leaves = [node for node in walk(plan.root) if not node.children]
    leaf = data.draw(st.sampled_from(leaves))
    other = replace_nodes(plan.root, {leaf: StateScan("other", "state", leaf.schema)})
    assert canonical_forms(plan.root)[plan.root].key != canonical_forms(other)[other].key
    if leaf in set(walk(plan.root, subqueries=False)):  # a projected value changes no row count
        assert row_keys(plan.root)[plan.root] != row_keys(other)[other]


@settings(max_examples=60)
@given(query_plans(5))
def test_row_keys_ignore_projection_order_and_the_order_of_conditions(plan: QueryPlan) -> None:
    root = plan.root
    assume(root.schema)
    columns = [column_reference(column) for column in root.schema]
    tests = [f"({column.text} IS NOT NULL)" for column in columns]

    def filtered(node: Node, parts: list[str]) -> Node:
        return Filter(node, Expression(" AND ".join(parts), "boolean", False))

    wider = Project(root, (*(Named(c.name, column_reference(c)) for c in root.schema[::-1]),))
    variants = [
        filtered(root, tests),
        filtered(root, tests[::-1]),
        filtered(Sort(root, tuple(map(SortKey, columns))), tests),
        filtered(wider, [f"(({test}))" for test in tests]),
    ]
    assert len({row_keys(variant)[variant] for variant in variants}) == 1
    assert len({canonical_forms(variant)[variant].key for variant in variants}) > 1


@settings(max_examples=30)
@given(query_plans())
def test_row_keys_ignore_which_columns_a_scan_reads(plan: QueryPlan) -> None:
    for scan in (node for node in walk(plan.root) if isinstance(node, Scan) and node.columns):
        fewer = Scan(scan.source, scan.columns[1:])
        limited, narrow = Limit(scan, 3), Limit(fewer, 3)
        assert row_keys(limited)[limited] == row_keys(narrow)[narrow]


def is_cheap(node: Node) -> bool:
    """Nothing below collects or joins: a copy costs no more than reading the original."""
    cheap = (Scan, StateScan, Values, Filter, Project, Limit)
    return all(isinstance(n, cheap) for n in walk(node, subqueries=False))


@settings(max_examples=150)
@given(query_plans(10))
def test_sharing_keeps_the_meaning_and_leaves_no_copies(plan: QueryPlan) -> None:
    root = plan.root
    shared = share_equal_subplans(root)
    assert shared.schema == root.schema
    assert meaning(shared) == meaning(root)
    assert share_equal_subplans(shared) == shared
    whole = QueryPlan(shared, plan.names)
    assert plan_from_json(plan_to_json(whole)) == whole

    forms = canonical_forms(shared)
    originals = [node for node in walk(shared) if not is_cheap(node) and not is_renaming(node)]
    assert len({forms[node].key for node in originals}) == len(originals)
    before = {form.key for form in canonical_forms(root).values()}
    assert {forms[node].key for node in originals} <= before


@settings(max_examples=60)
@given(query_plans(5))
def test_a_plan_and_its_renamed_copy_become_one(plan: QueryPlan) -> None:
    root = plan.root
    assume(not is_cheap(root))
    copy = rename_columns(root, lambda name: f"{name} again")
    shared = share_equal_subplans(Join(root, copy, JoinKind.CROSS))
    assert len(list(walk(shared))) <= len(list(walk(root))) + 2
