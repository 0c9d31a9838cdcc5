"""The parts of queries that can be shared: tables joined, filtered, and grouped.

A member is a tree of joins over tables with all that is between them, written over the tables' own
fields: projections are resolved, conditions taken apart. One query can have several members, as
the arms of a union; what is above a member stays with its query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

from headway.plan.conjunctions import split_conjunction
from headway.plan.expressions import Column, Expression, quote, substitute
from headway.plan.meaning import SELDOM_CHANGED
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    JoinKey,
    JoinKind,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
)
from headway.plan.sources import FileSource, Source
from headway.sharing.parts import is_made_of_parts

_KINDS = {
    JoinKind.INNER: JoinKind.INNER,
    JoinKind.CROSS: JoinKind.INNER,
    JoinKind.LEFT: JoinKind.LEFT,
    JoinKind.RIGHT: JoinKind.LEFT,
    JoinKind.SEMI: JoinKind.SEMI,
    JoinKind.ANTI: JoinKind.ANTI,
}

MATCHED = "\0matched"
"""In place of a field, none of which is called so: whether a left join has found a row."""
_WHOLE_LINES = ("csv", "json")
"""Formats whose rows are judged by the fields that are asked for."""
_CORRUPT = "spark.sql.columnNameOfCorruptRecord"
Settings = tuple[tuple[str, str], ...]
_ANSI = ("spark.sql.ansi.enabled", "true")


@dataclass(frozen=True, slots=True)
class Table:
    """One use of a table. `fields` are those that are read, with their types, by their names."""

    source: Source
    fields: Mapping[str, Column]
    join: JoinKind = JoinKind.INNER
    """How it is joined to those before it: inner, left, semi or anti."""
    keys: tuple[JoinKey, ...] = ()
    """Of a table that is not inner joined: the equalities, its own side on the right."""
    conditions: tuple[Expression, ...] = ()
    """Of a table that is not inner joined: which of its rows take part in the join."""


@dataclass(frozen=True, slots=True)
class Member:
    """Columns in its expressions are named `number.field`, by the table's place in `tables`."""

    query: str
    top: Node
    """The node of the query's plan that the member puts out the rows of."""
    tables: tuple[Table, ...]
    keys: tuple[JoinKey, ...]
    """Equalities between inner joined tables."""
    conditions: tuple[Expression, ...]
    outputs: tuple[Named, ...]
    """The groups of an aggregate, or all columns."""
    calls: tuple[AggregateCall, ...] | None = None
    """None where rows are not grouped."""
    settings: Settings = ()


@dataclass(frozen=True, slots=True)
class NotShared:
    """A part of a query that runs by itself, and why."""

    query: str
    operator: str
    reason: str


@dataclass(slots=True)
class Found:
    members: list[Member] = field(default_factory=list)
    not_shared: list[NotShared] = field(default_factory=list)


def table_of(column: str) -> int:
    """The number of the table that a member's column is of."""
    return int(column.split(".", 1)[0])


def field_of(column: str) -> str:
    return column.split(".", 1)[1]


def tables_read(expression: Expression) -> frozenset[int]:
    return frozenset(map(table_of, expression.columns))


def find_members(query: str, plan: QueryPlan) -> Found:
    """The members of a query, topmost first, and what is none."""
    found = Found()
    seen: set[Node] = set()
    waiting = [plan.root]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        try:
            member = _member(query, node, plan.settings)
        except _NoMember as no:
            found.not_shared.append(NotShared(query, no.operator, no.reason))
            member = None
        if member is not None:
            found.members.append(member)
            continue
        waiting += [s.plan for s in reversed(node.subqueries)]
        waiting += reversed(node.children)
    return found


class _NoMember(Exception):
    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(reason)
        self.operator = operator
        self.reason = reason


def _refuse(node: Node, reason: str) -> NoReturn:
    raise _NoMember(node.kind, reason)


def _member(query: str, node: Node, settings: Settings) -> Member | None:
    """The member with this node on top; None for operators that are always above members."""
    if isinstance(node, Aggregate):
        ansi = _ANSI in settings
        if not all(is_made_of_parts(call, ansi=ansi) for call in node.aggregates):
            return None  # the rows below it may be shared
    top = node.input if isinstance(node, Aggregate) else node
    if not isinstance(top, Project | Filter | Join | Scan):
        return None
    tree = _Tree(settings)
    columns = tree.collect(top)
    if isinstance(node, Aggregate):
        outputs = tuple(Named(k.name, _resolved(k.expression, columns, node)) for k in node.keys)
        calls = tuple(_resolved_call(call, columns, node) for call in node.aggregates)
    elif len(tree.tables) == 1 and not tree.conditions:
        return None  # a table as it is: nothing was done that others could use
    else:
        outputs = tuple(Named(c.name, columns[c.name]) for c in node.schema)
        calls = None
    return Member(
        query,
        node,
        tuple(tree.tables),
        tuple(tree.keys),
        tuple(tree.conditions),
        outputs,
        calls,
        settings,
    )


Columns = dict[str, Expression]


@dataclass(slots=True)
class _Tree:
    """Collects what a tree of joins is made of."""

    settings: Settings
    tables: list[Table] = field(default_factory=list)
    keys: list[JoinKey] = field(default_factory=list)
    conditions: list[Expression] = field(default_factory=list)

    def collect(self, node: Node) -> Columns:
        """What the node's columns are, over the fields of the tables."""
        if isinstance(node, Scan):
            return self._table(node)
        if isinstance(node, Project):
            below = self.collect(node.input)
            return {o.name: _resolved(o.expression, below, node) for o in node.outputs}
        if isinstance(node, Filter):
            below = self.collect(node.input)
            self.conditions += _conjuncts(node.condition, below, node)
            return below
        if isinstance(node, Join):
            return self._join(node)
        _refuse(node, "only tables, filters, projections and joins are shared")

    def _table(self, node: Scan) -> Columns:
        if _is_judged_by_fields(node, self.settings):
            _refuse(node, "which rows it has depends on the columns that are read")
        number = len(self.tables)
        fields = {c.field: replace(c.column, name=c.field) for c in node.columns}
        self.tables.append(Table(node.source, fields))
        return {
            c.column.name: Expression(
                quote(f"{number}.{c.field}"), c.column.type, c.column.nullable
            )
            for c in node.columns
        }

    def _join(self, node: Join) -> Columns:
        kind = _KINDS.get(node.join)
        if kind is None:
            _refuse(node, f"{node.join} joins are not shared")
        turned = node.join is JoinKind.RIGHT
        outer, inner = (node.right, node.left) if turned else (node.left, node.right)
        below = self.collect(outer)
        number, known = len(self.tables), len(self.conditions)
        beside = self.collect(inner)
        keys = [_turned(key) if turned else key for key in node.keys]
        resolved = tuple(
            JoinKey(
                _resolved(key.left, below, node), _resolved(key.right, beside, node), key.null_safe
            )
            for key in keys
        )
        rest = () if node.residual is None else (node.residual,)
        conditions = [c for each in rest for c in _conjuncts(each, {**below, **beside}, node)]
        if kind is JoinKind.INNER:
            self.keys += resolved
            self.conditions += conditions
            self._check_keys(node, resolved)
            return {**below, **beside}
        own, self.conditions = self.conditions[known:], self.conditions[:known]
        self._attach(node, kind, number, resolved, [*own, *conditions])
        if kind is not JoinKind.LEFT:
            return below
        return {**below, **{name: _if_matched(e, number) for name, e in beside.items()}}

    def _check_keys(self, node: Join, keys: tuple[JoinKey, ...]) -> None:
        left = {n for n, table in enumerate(self.tables) if table.join is JoinKind.LEFT}
        if any((tables_read(key.left) | tables_read(key.right)) & left for key in keys):
            _refuse(node, "a join with what a left join added")

    def _attach(
        self,
        node: Join,
        kind: JoinKind,
        number: int,
        keys: tuple[JoinKey, ...],
        conditions: list[Expression],
    ) -> None:
        """The last table is joined in another way than the others."""
        if len(self.tables) != number + 1:
            _refuse(node, f"the second side of a {kind} join is more than a table")
        if not keys:
            _refuse(node, f"a {kind} join without equalities")
        if any(tables_read(condition) != {number} for condition in conditions):
            _refuse(node, f"a {kind} join with a condition on both sides")
        self._check_keys(node, keys)
        self.tables[number] = replace(
            self.tables[number], join=kind, keys=keys, conditions=tuple(conditions)
        )


def _if_matched(expression: Expression, number: int) -> Expression:
    """What a left join adds of its second side, which is empty where it found no row. Columns are
    emptied by themselves; what is computed of them may have a value all the same."""
    if expression.column is not None:
        return replace(expression, nullable=True)
    found = quote(f"{number}.{MATCHED}")
    return Expression(f"CASE WHEN {found} THEN {expression.text} END", expression.type, True)


def _is_judged_by_fields(node: Scan, settings: Settings) -> bool:
    """Whether other rows, or other values, come of a scan that reads more columns."""
    source = node.source
    if not isinstance(source, FileSource) or source.format not in _WHOLE_LINES:
        return False
    told = {key.lower(): value for key, value in source.options}
    permissive = told.get("mode", "PERMISSIVE").upper() == "PERMISSIVE"
    corrupt = dict(settings).get(_CORRUPT, SELDOM_CHANGED[_CORRUPT])
    named = "columnnameofcorruptrecord" in told or corrupt.lower() in (source.schema or "").lower()
    return not permissive or named


def _turned(key: JoinKey) -> JoinKey:
    return JoinKey(key.right, key.left, key.null_safe)


def _conjuncts(condition: Expression, columns: Columns, node: Node) -> Iterator[Expression]:
    whole = _resolved(condition, columns, node)
    for text in split_conjunction(whole.text):
        yield Expression(f"({text})", "boolean", condition.nullable)


def _resolved(expression: Expression, columns: Columns, node: Node) -> Expression:
    """The expression over the fields that its columns stand for."""
    if expression.subqueries:
        _refuse(node, "a scalar subquery in an expression")
    replaced = substitute(expression.text, _text_of(columns))
    return Expression(replaced, expression.type, expression.nullable)


def _text_of(columns: Columns) -> Callable[[str], str]:
    def text(name: str) -> str:
        found = columns[name]
        return found.text if found.column is not None else f"({found.text})"

    return text


def _resolved_call(call: AggregateCall, columns: Columns, node: Node) -> AggregateCall:
    arguments = tuple(_resolved(argument, columns, node) for argument in call.arguments)
    chosen = None if call.filter is None else _resolved(call.filter, columns, node)
    return replace(call, arguments=arguments, filter=chosen)
