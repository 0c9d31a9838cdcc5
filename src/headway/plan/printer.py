"""A plan as a tree for people. A node that is used twice is drawn once and named at its other uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import singledispatch

from headway.plan.expressions import Expression, quote, substitute
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKey,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    Sort,
    SortKey,
    StateScan,
    Union,
    Values,
    Window,
)

_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_LONGEST_LINE = 160


def print_plan(plan: QueryPlan, notes: Mapping[Node, str] | None = None) -> str:
    """The whole graph, subqueries after the operator that uses them, with a note per node."""
    lines = [f"Result: {', '.join(plan.names) or 'no columns'}"]
    shared = {node for node, uses in use_counts(plan.root).items() if uses > 1}
    labels = {
        node: f"#{number}"
        for number, node in enumerate((n for n in walk(plan.root) if n in shared), 1)
    }
    drawn: set[Node] = set()

    def draw(node: Node, lead: str, branch: str, title: str = "") -> None:
        label = f"{labels[node]} " if node in labels else ""
        if node in drawn:
            lines.append(f"{lead}{branch}{title}{label}(drawn above)")
            return
        drawn.add(node)
        note = f"  [{notes[node]}]" if notes and node in notes else ""
        lines.append(f"{lead}{branch}{title}{label}{describe(node)}{note}")
        inputs = [(child, "") for child in node.children]
        inputs += [(s.plan, f":{s.name} = ") for s in node.subqueries]
        below = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        for position, (child, name) in enumerate(inputs):
            draw(child, below, "└─ " if position == len(inputs) - 1 else "├─ ", name)

    draw(plan.root, "", "└─ ")
    return "\n".join(lines)


def describe(node: Node) -> str:
    """One operator in one line, shortened where it is very long."""
    line = _describe(node)
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 1] + "…"


def readable(text: str) -> str:
    """Canonical text without the back-ticks that a reader does not need."""
    plain = substitute(
        text, lambda name: name if _PLAIN_NAME.fullmatch(name) else quote(name)
    )
    return plain[1:-1] if re.fullmatch(r"\([^()]*\)", plain) else plain


@singledispatch
def _describe(node: Node) -> str:
    return node.kind


@_describe.register
def _(node: Scan) -> str:
    columns = ", ".join(
        c.field if c.field == c.column.name else f"{c.field} AS {c.column.name}"
        for c in node.columns
    )
    return f"Scan {node.source.table}: {columns or 'no columns'}"


@_describe.register
def _(node: StateScan) -> str:
    return f"StateScan {node.state} of run {node.run}: {', '.join(node.column_names)}"


@_describe.register
def _(node: Values) -> str:
    count = len(node.rows)
    return f"Values: {count} {'row' if count == 1 else 'rows'} of {', '.join(node.column_names) or 'no columns'}"


@_describe.register
def _(node: Filter) -> str:
    return f"Filter {readable(node.condition.text)}"


@_describe.register
def _(node: Project) -> str:
    return f"Project {_outputs(node.outputs)}"


@_describe.register
def _(node: Join) -> str:
    conditions = [_key(key) for key in node.keys]
    if node.residual is not None:
        conditions.append(readable(node.residual.text))
    on = f" on {' and '.join(conditions)}" if conditions else ""
    exists = f" as {node.exists}" if node.exists else ""
    return f"Join {node.join.replace('_', ' ')}{on}{exists}, build {node.build}"


@_describe.register
def _(node: Aggregate) -> str:
    keys = f" by {_outputs(node.keys)}" if node.keys else ""
    calls = ", ".join(f"{readable(c.text)} AS {c.column.name}" for c in node.aggregates)
    return f"Aggregate{keys}{f': {calls}' if calls else ''}"


@_describe.register
def _(node: Window) -> str:
    partition = _texts(node.partition_by)
    by = f" by {partition}" if partition else ""
    order = f" order {_sort_keys(node.order_by)}" if node.order_by else ""
    calls = ", ".join(
        f"{readable(c.text)}{f' {c.frame.lower()}' if c.frame else ''} AS {c.column.name}"
        for c in node.calls
    )
    return f"Window{by}{order}: {calls}"


@_describe.register
def _(node: Sort) -> str:
    return f"Sort {_sort_keys(node.keys)}"


@_describe.register
def _(node: Limit) -> str:
    count = "all" if node.count is None else str(node.count)
    return f"Limit {count}{f' after {node.offset}' if node.offset else ''}"


@_describe.register
def _(node: Union) -> str:
    return f"Union of {len(node.inputs)}: {', '.join(node.column_names)}"


@_describe.register
def _(node: Expand) -> str:
    rows = "; ".join(_texts(row) for row in node.projections)
    return f"Expand to {', '.join(node.column_names)}: {rows}"


@_describe.register
def _(node: Generate) -> str:
    outer = " outer" if node.outer else ""
    made = ", ".join(column.name for column in node.columns)
    return f"Generate{outer} {readable(node.generator.text)} AS {made}"


def _outputs(outputs: Iterable[Named]) -> str:
    return ", ".join(
        output.name
        if output.expression.column == output.name
        else f"{readable(output.expression.text)} AS {output.name}"
        for output in outputs
    )


def _texts(expressions: Iterable[Expression]) -> str:
    return ", ".join(readable(expression.text) for expression in expressions)


def _key(key: JoinKey) -> str:
    sign = "<=>" if key.null_safe else "="
    return f"{readable(key.left.text)} {sign} {readable(key.right.text)}"


def _sort_keys(keys: Iterable[SortKey]) -> str:
    """Only what differs from the default (ascending, nulls first; descending, nulls last)."""
    texts = []
    for key in keys:
        text = readable(key.expression.text) + ("" if key.ascending else " desc")
        if key.nulls_first != key.ascending:
            text += " nulls first" if key.nulls_first else " nulls last"
        texts.append(text)
    return ", ".join(texts)
