"""The text of any plan shows every node once, in lines that fit."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.plan.graph import use_counts, walk
from headway.plan.nodes import QueryPlan
from headway.plan.printer import LONGEST_LINE, describe, print_plan
from headway.testing.plans import query_plans

LABEL = re.compile(r"^\W*(?::\w+ = )?#(\d+) ")


@settings(max_examples=80)
@given(query_plans(12))
def test_every_node_is_drawn_once_and_named_at_its_other_uses(plan: QueryPlan) -> None:
    nodes = list(walk(plan.root))
    notes = {node: f"note {number}." for number, node in enumerate(nodes)}
    text = print_plan(plan, notes)
    for note in notes.values():
        assert text.count(f"  [{note}]") == 1
    lines = text.split("\n")
    uses = use_counts(plan.root)
    again = [line for line in lines if line.endswith("(drawn above)")]
    assert len(again) == sum(uses.values()) - len(nodes)
    assert len(lines) == 1 + len(nodes) + len(again)

    drawn = {node: line for node in nodes for line in lines if line.endswith(f"[{notes[node]}]")}
    labels = {node: LABEL.match(line) for node, line in drawn.items()}
    for node, label in labels.items():
        assert (label is not None) == (uses[node] > 1)
        if label is not None:
            named = [line for line in again if line.endswith(f"#{label[1]} (drawn above)")]
            assert len(named) == uses[node] - 1
            assert lines.index(drawn[node]) < min(map(lines.index, named))


@settings(max_examples=50)
@given(query_plans(12), st.text(max_size=200))
def test_lines_fit_and_hold_only_what_can_be_printed(plan: QueryPlan, note: str) -> None:
    text = print_plan(plan, dict.fromkeys(walk(plan.root), note))
    for line in text.split("\n"):
        assert len(line) <= LONGEST_LINE
        assert line.isprintable()
    assert plan.explain() == print_plan(plan)


@settings(max_examples=30)
@given(query_plans(12))
def test_a_description_names_the_operator(plan: QueryPlan) -> None:
    for node in walk(plan.root):
        assert describe(node).startswith(node.kind)
