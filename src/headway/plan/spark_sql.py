"""A plan as one Spark SQL text.

Operators are nested selects; a node used twice is a common table expression, written once. (One
expression per operator would read better, but Spark takes many times as long to analyse it.) The
relations that scans read are named by the caller: temporary views, or whatever FROM takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import singledispatch

from headway.base.errors import InternalError
from headway.plan.expressions import quote, substitute
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    Sort,
    StateScan,
    Union,
    Values,
    Window,
)

Relations = Callable[[Scan | StateScan], str]

_JOINS = {
    JoinKind.INNER: "INNER JOIN",
    JoinKind.LEFT: "LEFT OUTER JOIN",
    JoinKind.RIGHT: "RIGHT OUTER JOIN",
    JoinKind.FULL: "FULL OUTER JOIN",
    JoinKind.SEMI: "LEFT SEMI JOIN",
    JoinKind.ANTI: "LEFT ANTI JOIN",
    JoinKind.NULL_AWARE_ANTI: "LEFT ANTI JOIN",
    JoinKind.CROSS: "CROSS JOIN",
}


def to_spark_sql(plan: QueryPlan, relations: Relations) -> str:
    """The query as text; the result's columns are named as the user named them."""
    uses = use_counts(plan.root)
    names: dict[Node, str] = {}
    tables = []
    for number, node in enumerate(walk(plan.root), 1):
        text = _select_with_subqueries(node, names, relations)
        if uses[node] > 1:
            names[node] = f"n{number}"
            tables.append(f"n{number} AS (\n{text}\n)")
        else:
            names[node] = f"(\n{text}\n)"
    renamed = _list(
        f"{quote(column)} AS {quote(name)}"
        for column, name in zip(plan.root.column_names, plan.names, strict=True)
    )
    # Nothing orders rows above the last ORDER BY, so Spark keeps the order that it makes.
    shared = f"WITH {', '.join(tables)}\n" if tables else ""
    return f"{shared}SELECT {renamed} FROM {names[plan.root]}"


def _select_with_subqueries(node: Node, names: dict[Node, str], relations: Relations) -> str:
    text = _select(node, names, relations)
    if not node.subqueries:
        return text
    values = {
        subquery.name: f"(SELECT * FROM {names[subquery.plan]})" for subquery in node.subqueries
    }
    return substitute(text, quote, lambda name: values[name])


def _list(items: Iterable[str]) -> str:
    # A relation without columns (only its number of rows matters) still needs a select list.
    return ", ".join(items) or "NULL AS `no_columns`"


def _named(output: Named) -> str:
    column = output.expression.column
    text = output.expression.text
    return text if column == output.name else f"{text} AS {quote(output.name)}"


@singledispatch
def _select(node: Node, names: dict[Node, str], relations: Relations) -> str:
    raise InternalError(f"{node.kind} has no Spark SQL form")


@_select.register
def _(node: Scan, names: dict[Node, str], relations: Relations) -> str:
    columns = (f"{quote(c.field)} AS {quote(c.column.name)}" for c in node.columns)
    return f"SELECT {_list(columns)} FROM {relations(node)}"


@_select.register
def _(node: StateScan, names: dict[Node, str], relations: Relations) -> str:
    return f"SELECT {_list(quote(c.name) for c in node.columns)} FROM {relations(node)}"


@_select.register
def _(node: Values, names: dict[Node, str], relations: Relations) -> str:
    columns = ", ".join(quote(column.name) for column in node.columns)
    if not node.rows:
        nulls = (f"CAST(NULL AS {c.type}) AS {quote(c.name)}" for c in node.columns)
        return f"SELECT {_list(nulls)} WHERE FALSE"
    if not node.columns:
        return f"SELECT NULL AS `no_columns` FROM range({len(node.rows)})"
    rows = ", ".join(f"({', '.join(row)})" for row in node.rows)
    return f"SELECT * FROM VALUES {rows} AS v({columns})"


@_select.register
def _(node: Filter, names: dict[Node, str], relations: Relations) -> str:
    return f"SELECT * FROM {names[node.input]} WHERE {node.condition.text}"


@_select.register
def _(node: Project, names: dict[Node, str], relations: Relations) -> str:
    return f"SELECT {_list(map(_named, node.outputs))} FROM {names[node.input]}"


@_select.register
def _(node: Join, names: dict[Node, str], relations: Relations) -> str:
    left, right = names[node.left], names[node.right]
    conditions = " AND ".join(f"({c.text})" for c in node.conditions()) or "TRUE"
    columns = _list(map(quote, node.column_names))
    if node.exists is not None:
        kept = _list(map(quote, node.left.column_names))
        return (
            f"SELECT {kept}, EXISTS (SELECT 1 FROM {right} WHERE {conditions}) "
            f"AS {quote(node.exists)} FROM {left}"
        )
    text = f"SELECT {columns} FROM {left} {_JOINS[node.join]} {right}"
    return text if node.join is JoinKind.CROSS else f"{text} ON {conditions}"


@_select.register
def _(node: Aggregate, names: dict[Node, str], relations: Relations) -> str:
    keys = [_named(key) for key in node.keys]
    calls = [f"{call.text} AS {quote(call.column.name)}" for call in node.aggregates]
    # Without keys there is one row even when nothing is aggregated, which a count brings about.
    outputs = keys + calls or ["count(1) AS `no_columns`"]
    text = f"SELECT {', '.join(outputs)} FROM {names[node.input]}"
    if not node.keys:
        return text
    return f"{text} GROUP BY {', '.join(key.expression.text for key in node.keys)}"


@_select.register
def _(node: Window, names: dict[Node, str], relations: Relations) -> str:
    kept = [quote(name) for name in node.input.column_names]
    calls = [f"{node.over(call)} AS {quote(call.column.name)}" for call in node.calls]
    return f"SELECT {_list(kept + calls)} FROM {names[node.input]}"


@_select.register
def _(node: Sort, names: dict[Node, str], relations: Relations) -> str:
    keys = ", ".join(key.text for key in node.keys)
    return f"SELECT * FROM {names[node.input]} ORDER BY {keys}"


@_select.register
def _(node: Limit, names: dict[Node, str], relations: Relations) -> str:
    count = "" if node.count is None else f" LIMIT {node.count}"
    offset = f" OFFSET {node.offset}" if node.offset else ""
    return f"SELECT * FROM {names[node.input]}{count}{offset}"


@_select.register
def _(node: Union, names: dict[Node, str], relations: Relations) -> str:
    first, *rest = node.inputs
    columns = zip(first.column_names, node.columns, strict=True)
    renamed = _list(f"{quote(name)} AS {quote(column.name)}" for name, column in columns)
    parts = [f"SELECT {renamed} FROM {names[first]}"]
    for child in rest:
        parts.append(f"SELECT {_list(map(quote, child.column_names))} FROM {names[child]}")
    return "\nUNION ALL\n".join(parts)


@_select.register
def _(node: Expand, names: dict[Node, str], relations: Relations) -> str:
    values = ", ".join(e.text for projection in node.projections for e in projection)
    columns = ", ".join(quote(column.name) for column in node.columns)
    return (
        f"SELECT stack({len(node.projections)}, {values}) AS ({columns}) FROM {names[node.input]}"
    )


@_select.register
def _(node: Generate, names: dict[Node, str], relations: Relations) -> str:
    kept = [f"s.{quote(name)}" for name in node.input.column_names]
    made = [f"g.{quote(column.name)}" for column in node.columns]
    columns = ", ".join(quote(column.name) for column in node.columns)
    outer = " OUTER" if node.outer else ""
    return (
        f"SELECT {_list(kept + made)} FROM {names[node.input]} s "
        f"LATERAL VIEW{outer} {node.generator.text} g AS {columns}"
    )
