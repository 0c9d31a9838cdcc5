"""A plan as a tree for people. A node used twice is drawn once, and named at its other uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import singledispatch

from headway.plan.expressions import Expression, quote, substitute
from headway.plan.graph import use_counts
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

LONGEST_LINE = 200
_LONGEST_DESCRIPTION = 160
_LONGEST_NOTE = 60
_LONGEST_TITLE = 30
_DEEPEST_LEAD = 60
_BELOW = {"├─ ": "│  ", "└─ ": "   "}
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


def print_plan(plan: QueryPlan, notes: Mapping[Node, str] | None = None) -> str:
    """The whole graph, subqueries after the operator that uses them, with a note per node.

    No line is longer than LONGEST_LINE: very deep nodes are drawn with only the end of their
    branches.
    """
    lines = [_cut(f"Result: {', '.join(map(_name, plan.names)) or 'no columns'}", LONGEST_LINE)]
    uses = use_counts(plan.root)
    labels: dict[Node, str] = {}
    drawn: set[Node] = set()
    stack = [(plan.root, "", "└─ ", "")]
    while stack:
        node, lead, branch, title = stack.pop()
        start = f"{_shortened(lead)}{branch}{_cut(title, _LONGEST_TITLE)}"
        if uses[node] > 1:
            start += labels.setdefault(node, f"#{len(labels) + 1}") + " "
        if node in drawn:
            lines.append(f"{start}(drawn above)")
            continue
        drawn.add(node)
        note = _cut(f"  [{notes[node]}]", _LONGEST_NOTE) if notes and node in notes else ""
        room = LONGEST_LINE - len(start) - len(note)
        lines.append(start + _cut(describe(node), room) + note)
        inputs = [(child, "") for child in node.children]
        inputs += [(s.plan, f":{s.name} = ") for s in node.subqueries]
        branches = ["├─ "] * (len(inputs) - 1) + ["└─ "] * bool(inputs)
        below = [
            (child, lead + _BELOW[branch], input_branch, name)
            for (child, name), input_branch in zip(inputs, branches, strict=True)
        ]
        stack.extend(reversed(below))
    return "\n".join(lines)


def describe(node: Node) -> str:
    """One operator in one line, shortened where it is very long."""
    return _cut(_describe(node), _LONGEST_DESCRIPTION)


def readable(text: str) -> str:
    """Canonical text without the back-ticks that a reader does not need."""
    plain = substitute(text, _name)
    return plain[1:-1] if re.fullmatch(r"\([^()]*\)", plain) else plain


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else quote(name)


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(_name, columns)) or "no columns"


def _shortened(lead: str) -> str:
    if len(lead) <= _DEEPEST_LEAD:
        return lead
    depth = f"({len(lead) // 3} deep) "
    return depth + lead[-(_DEEPEST_LEAD - 3 * (-(-len(depth) // 3))) :]


def _cut(text: str, longest: int) -> str:
    """The text on one line and no longer than asked for; control characters as escapes."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


@singledispatch
def _describe(node: Node) -> str:
    return node.kind


@_describe.register
def _(node: Scan) -> str:
    columns = ", ".join(
        _name(c.field)
        if c.field == c.column.name
        else f"{_name(c.field)} AS {_name(c.column.name)}"
        for c in node.columns
    )
    return f"Scan {node.source.table}: {columns or 'no columns'}"


@_describe.register
def _(node: StateScan) -> str:
    return f"StateScan {node.state} of run {node.run}: {_names(node.column_names)}"


@_describe.register
def _(node: Values) -> str:
    count = len(node.rows)
    rows = "row" if count == 1 else "rows"
    return f"Values: {count} {rows} of {_names(node.column_names)}"


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
    exists = f" as {_name(node.exists)}" if node.exists else ""
    return f"Join {node.join.replace('_', ' ')}{on}{exists}, build {node.build}"


@_describe.register
def _(node: Aggregate) -> str:
    keys = f" by {_outputs(node.keys)}" if node.keys else ""
    calls = ", ".join(f"{readable(c.text)} AS {_name(c.column.name)}" for c in node.aggregates)
    return f"Aggregate{keys}{f': {calls}' if calls else ''}"


@_describe.register
def _(node: Window) -> str:
    partition = _texts(node.partition_by)
    by = f" by {partition}" if partition else ""
    order = f" order {_sort_keys(node.order_by)}" if node.order_by else ""
    calls = ", ".join(
        f"{readable(c.text)}{f' {c.frame.lower()}' if c.frame else ''} AS {_name(c.column.name)}"
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
    return f"Union of {len(node.inputs)}: {_names(node.column_names)}"


@_describe.register
def _(node: Expand) -> str:
    rows = "; ".join(_texts(row) for row in node.projections)
    return f"Expand to {_names(node.column_names)}: {rows}"


@_describe.register
def _(node: Generate) -> str:
    outer = " outer" if node.outer else ""
    made = _names(column.name for column in node.columns)
    return f"Generate{outer} {readable(node.generator.text)} AS {made}"


def _outputs(outputs: Iterable[Named]) -> str:
    texts = (
        _name(output.name)
        if output.expression.column == output.name
        else f"{readable(output.expression.text)} AS {_name(output.name)}"
        for output in outputs
    )
    return ", ".join(texts) or "no columns"


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
