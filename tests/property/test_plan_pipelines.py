"""Pipelines against a slow definition: every way up from a source until rows are collected."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.plan.graph import walk
from headway.plan.nodes import (
    Aggregate,
    Join,
    Node,
    QueryPlan,
    Side,
    Sort,
    Window,
)
from headway.plan.pipelines import Pipeline, Pipelines, Role, pipelines_of
from headway.testing.plans import query_plans

BLOCKING = (Aggregate, Sort, Window)


@dataclass(frozen=True)
class Flow:
    """A pipeline without its number."""

    source: Node
    operators: tuple[Node, ...]
    sink: Node
    role: Role


@dataclass(frozen=True)
class Use:
    """One place where a node's rows are read; `user` is None for the plan's result."""

    user: Node | None
    role: Role | None
    """What the user does when it collects the rows; None when it passes them on."""


def uses_of(root: Node) -> dict[Node, list[Use]]:
    uses: dict[Node, list[Use]] = {node: [] for node in walk(root)}
    uses[root].append(Use(None, Role.RESULT))
    for user in walk(root):
        for position, child in enumerate(user.children):
            role = Role.INPUT if isinstance(user, BLOCKING) else None
            if isinstance(user, Join) and position == (0 if user.build is Side.LEFT else 1):
                role = Role.BUILD
            uses[child].append(Use(user, role))
        for subquery in user.subqueries:
            uses[subquery.plan].append(Use(user, Role.SUBQUERY))
    return uses


def is_shared(node: Node, uses: list[Use]) -> bool:
    """Collected because others wait for it too. A scalar value waits for nobody."""
    if not node.children or isinstance(node, BLOCKING) or len(uses) < 2:
        return False
    return any(use.role is not Role.SUBQUERY for use in uses)


def slow_flows(plan: QueryPlan) -> Counter[Flow]:
    uses = uses_of(plan.root)
    shared = {node for node, found in uses.items() if is_shared(node, found)}
    flows: Counter[Flow] = Counter()

    def climb(source: Node, operators: tuple[Node, ...], node: Node, use: Use) -> None:
        """Rows of `source`, which have come as far as out of `node`, go on to `use`."""
        if use.role in (Role.RESULT, Role.SUBQUERY):
            flows[Flow(source, operators, node, use.role)] += 1
        elif use.user is not None and use.role is not None:
            flows[Flow(source, operators, use.user, use.role)] += 1
        elif use.user in shared:
            flows[Flow(source, (*operators, use.user), use.user, Role.SHARED)] += 1
        elif use.user is not None:
            for further in once_per_value(uses[use.user]):
                climb(source, (*operators, use.user), use.user, further)

    for node in walk(plan.root):
        if node in shared or isinstance(node, BLOCKING) or not node.children:
            for use in once_per_value(uses[node]):
                if not (node in shared and use.role is Role.SUBQUERY):
                    climb(node, (), node, use)
    return flows


def once_per_value(uses: list[Use]) -> list[Use]:
    """A scalar subquery has one value, however many read it."""
    values = [use for use in uses if use.role is Role.SUBQUERY][:1]
    return [use for use in uses if use.role is not Role.SUBQUERY] + values


def slow_dependencies(flow: Flow, flows: Counter[Flow]) -> set[Flow]:
    """All flows into what this one reads: its source, build sides, and subqueries."""
    values = [s.plan for node in flow.operators for s in node.subqueries]
    if flow.role is Role.INPUT:
        values += [s.plan for s in flow.sink.subqueries]
    wanted = {(flow.source, Role.INPUT), (flow.source, Role.SHARED)}
    wanted |= {(node, Role.BUILD) for node in flow.operators}
    wanted |= {(plan, role) for plan in values for role in (Role.SUBQUERY, Role.SHARED)}
    if flow.role is Role.SHARED:  # what it makes is not what it reads
        wanted.discard((flow.sink, Role.SHARED))
    return {other for other in flows if (other.sink, other.role) in wanted}


def flow_of(pipeline: Pipeline) -> Flow:
    return Flow(pipeline.source, pipeline.operators, pipeline.sink, pipeline.role)


@settings(max_examples=150)
@given(query_plans(12))
def test_pipelines_are_the_ways_between_what_is_collected(plan: QueryPlan) -> None:
    found = pipelines_of(plan)
    expected = slow_flows(plan)
    assert Counter(map(flow_of, found)) == expected
    by_number = {p.id: flow_of(p) for p in found}
    for pipeline in found:
        needed = {by_number[number] for number in pipeline.depends_on}
        assert needed == slow_dependencies(flow_of(pipeline), expected)


@settings(max_examples=60)
@given(query_plans(12))
def test_the_order_of_pipelines_can_be_run(plan: QueryPlan) -> None:
    found = pipelines_of(plan)
    assert [p.id for p in found] == list(range(1, len(found) + 1))
    assert all(number < p.id for p in found for number in p.depends_on)
    assert [p.role for p in found].count(Role.RESULT) >= 1
    results = {p.id for p in found if p.role is Role.RESULT}
    dependents = found.dependents()
    assert all(bool(dependents[p.id]) != (p.id in results) for p in found)
    assert all((q.id in dependents[p.id]) == (p.id in q.depends_on) for p in found for q in found)


def check_state(found: Pipelines, finished: set[int], started: set[int]) -> None:
    """`started` have all they need: it is state now, or they are finished."""
    state = {p.id for p in found.still_needed(finished)}
    assert state <= finished
    waiting = [p for p in found if p.id not in finished]
    assert state == {n for p in waiting for n in p.depends_on if n in finished}
    assert found.progress(finished) == len(finished) / len(found)
    assert started <= finished


@settings(max_examples=60)
@given(query_plans(12), st.randoms(use_true_random=False))
def test_pipelines_run_in_any_order_in_which_they_are_ready(
    plan: QueryPlan, random: Random
) -> None:
    found = pipelines_of(plan)
    finished: set[int] = set()
    while ready := found.ready(finished):
        assert not {p.id for p in ready} & finished
        state = {p.id for p in found.still_needed(finished)}
        chosen = random.choice(ready)
        assert chosen.depends_on <= state  # all that a pipeline reads is kept until it ran
        finished.add(chosen.id)
        check_state(found, finished, {chosen.id})
    assert finished == {p.id for p in found}
    assert found.still_needed(finished) == ()
    assert found.progress(finished) == 1
