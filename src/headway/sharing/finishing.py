"""From the shared result back to a query: its own rows, under its own names, in its own plan."""

from __future__ import annotations

from headway.base.errors import InternalError
from headway.plan.expressions import Column, Expression, column_reference
from headway.plan.graph import replace_nodes, with_root
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Named,
    Node,
    Project,
    QueryPlan,
    StateScan,
)
from headway.sharing.members import Member
from headway.sharing.routing import Share


def finished(plan: QueryPlan, shares: list[tuple[Member, Share, StateScan]]) -> QueryPlan:
    """The query's plan over shared results: each member's node made from rows of its state."""
    replaced = {
        member.top: own_rows(member, share, _renamed(state, number))
        for number, (member, share, state) in enumerate(shares, 1)
    }
    return with_root(plan, replace_nodes(plan.root, replaced))


def _renamed(state: StateScan, number: int) -> tuple[Node, dict[str, str]]:
    """The state under names that no other use of a state in the plan has."""
    names = {c.name: f"shared_{number}.{c.name}" for c in state.columns}
    outputs = tuple(Named(names[c.name], column_reference(c)) for c in state.columns)
    return Project(state, outputs), names


def own_rows(member: Member, share: Share, state: tuple[Node, dict[str, str]]) -> Node:
    """The rows of a member, with the schema of the node that it stands for."""
    node, names = state
    rows: Node = Filter(node, share.test.rename(names))
    if share.wholes is None:
        values = [_value(share, output, names) for output in share.outputs]
    else:
        rows, values = _merged(member, share, rows, names)
    columns = member.top.schema
    outputs = []
    for column, value in zip(columns, values, strict=True):
        if value.type != column.type:
            raise InternalError(f"{column.name} is {column.type}, and was made as {value.type}")
        outputs.append(Named(column.name, value))
    return Project(rows, tuple(outputs))


def _value(share: Share, output: Expression, names: dict[str, str]) -> Expression:
    column = share.keys[output.text]
    return column_reference(Column(names[column.name], column.type, True))


def _merged(
    member: Member, share: Share, rows: Node, names: dict[str, str]
) -> tuple[Node, list[Expression]]:
    """Groups merged across the sets of queries that they were apart by."""
    keys = []
    values = []
    for output, expression in zip(member.outputs, share.outputs, strict=True):
        name = f"{output.name}.group"
        keys.append(Named(name, _value(share, expression, names)))
        values.append(column_reference(Column(name, expression.type, True)))
    calls: list[AggregateCall] = []
    for call, whole in zip(member.calls or (), share.wholes or (), strict=True):
        merged: list[Expression] = []
        for part, (function, ddl) in zip(whole.parts, whole.merge, strict=True):
            column = share.parts[part]
            made = Column(f"{call.column.name}.{len(merged)}", ddl, True)
            argument = column_reference(Column(names[column.name], column.type, True))
            calls.append(AggregateCall(made, function, (argument,)))
            merged.append(column_reference(made))
        text = whole.compute(tuple(merged))
        values.append(Expression(text, call.column.type, call.column.nullable))
    return Aggregate(rows, tuple(keys), tuple(calls)), values
