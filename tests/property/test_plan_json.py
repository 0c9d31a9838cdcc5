"""Any plan survives JSON; whatever is wrong with the JSON, the error has a name."""

from __future__ import annotations

import copy
from typing import Any, get_args

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from headway.base.errors import PlanNotReadable
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import NODE_KINDS, Join, JoinKind, Node, QueryPlan, Scan
from headway.plan.serialize import (
    plan_from_builtins,
    plan_from_json,
    plan_to_builtins,
    plan_to_json,
)
from headway.plan.sources import Source
from headway.testing.plans import query_plans

JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1, 7, 10**30, 1.5, "", "x", "Scan", "`a`", ":s", [], [[]], {}, [None], [0],
)  # fmt: skip


def distinct_objects(root: Node) -> int:
    """How many node objects hang together, whether equal or not."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            stack += [*node.children, *(subquery.plan for subquery in node.subqueries)]
    return len(seen)


@settings(max_examples=100)
@given(query_plans())
def test_json_loses_nothing(plan: QueryPlan) -> None:
    again = plan_from_json(plan_to_json(plan))
    assert again == plan
    assert hash(again) == hash(plan)
    assert again.root.schema == plan.root.schema
    assert plan_to_json(again) == plan_to_json(plan)
    assert use_counts(again.root) == use_counts(plan.root)
    assert distinct_objects(again.root) == len(list(walk(plan.root)))


def features(plan: QueryPlan) -> set[object]:
    found: set[object] = set()
    uses = use_counts(plan.root)
    for node in walk(plan.root):
        found.add(type(node))
        if isinstance(node, Join):
            found |= {node.join, f"build {node.build}"}
        if isinstance(node, Scan):
            found.add(type(node.source))
        if node.subqueries:
            inner = any(n.subqueries for s in node.subqueries for n in walk(s.plan))
            found.add("subquery in a subquery" if inner else "subquery")
        if uses[node] > 1 and node.children:
            found.add("shared")
    return found


def test_random_plans_have_everything_that_plans_have() -> None:
    """So that the tests with random plans test what they say."""
    missing: set[object] = {
        *NODE_KINDS, *JoinKind, *get_args(Source), "build left", "build right", "subquery",
        "subquery in a subquery", "shared",
    }  # fmt: skip
    for number in range(20):  # the examples of one run resemble each other

        @seed(number)
        @settings(max_examples=40, database=None, phases=[Phase.generate])
        @given(query_plans(12))
        def look(plan: QueryPlan) -> None:
            missing.difference_update(features(plan))

        look()
        if not missing:
            break
    assert not missing


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in the value."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        top = stack.pop()
        inner = top.items() if isinstance(top, dict) else enumerate(top)
        for key, item in inner:
            found.append((top, key))
            if isinstance(item, dict | list):
                stack.append(item)
    return found


def damage(data: st.DataObject, written: dict[str, Any]) -> None:
    draw = data.draw
    container, key = draw(st.sampled_from(places(written)))
    action = draw(st.sampled_from(("replace", "drop", "swap", "grow")))
    if action == "drop":
        del container[key]
    elif action == "swap":
        other, other_key = draw(st.sampled_from(places(written)))
        container[key], other[other_key] = (
            copy.deepcopy(other[other_key]),
            copy.deepcopy(container[key]),
        )
    elif action == "grow" and isinstance(container, list):
        container.insert(key, copy.deepcopy(draw(st.sampled_from(container))))
    else:
        container[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))


def read_or_refuse(value: Any) -> None:
    """Whatever is read is a plan: it can be written and read again."""
    try:
        plan = plan_from_builtins(value)
    except PlanNotReadable:
        return
    assert plan_from_json(plan_to_json(plan)) == plan


@settings(max_examples=200)
@given(query_plans(4), st.data())
def test_damaged_plans_are_read_or_refused_by_name(plan: QueryPlan, data: st.DataObject) -> None:
    written = copy.deepcopy(plan_to_builtins(plan))
    for _ in range(data.draw(st.integers(1, 3))):
        if places(written):
            damage(data, written)
    read_or_refuse(written)


@settings(max_examples=50)
@given(query_plans(4), st.data())
def test_damaged_bytes_are_read_or_refused_by_name(plan: QueryPlan, data: st.DataObject) -> None:
    text = bytearray(plan_to_json(plan))
    position = data.draw(st.integers(0, len(text) - 1))
    if data.draw(st.booleans()):
        text[position] = data.draw(st.integers(0, 255))
    else:
        del text[position:]
    try:
        plan_from_json(bytes(text))
    except PlanNotReadable:
        return


@settings(max_examples=50)
@given(st.binary() | st.text().map(str.encode))
def test_no_noise_is_a_plan(text: bytes) -> None:
    with pytest.raises(PlanNotReadable):
        plan_from_json(text)


@settings(max_examples=50)
@given(query_plans(4), st.data())
def test_a_node_reads_only_nodes_before_it(plan: QueryPlan, data: st.DataObject) -> None:
    """Cycles, positions of nothing, and negative ones, wherever a position stands."""
    written = copy.deepcopy(plan_to_builtins(plan))
    inputs = [
        (number, node, key)
        for number, node in enumerate(written["nodes"])
        for key in ("input", "left", "right")
        if key in node
    ]
    if not inputs:
        return
    number, node, key = data.draw(st.sampled_from(inputs))
    node[key] = data.draw(st.integers(-3, -1) | st.integers(number, number + 3))
    with pytest.raises(PlanNotReadable, match="no position of a node"):
        plan_from_builtins(written)
