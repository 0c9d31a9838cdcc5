"""The operators of a plan: frozen, checked when they are made, each with its schema.

Column names are unique in a plan: a name that appears in two places is the same column passed
through. So two nodes that are equal are the same node, and a node with two parents is a result
used twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, TypeVar, dataclass_transform

from headway.base.errors import InvalidPlan
from headway.plan.expressions import Column, Expression, Subquery, merge_subqueries, quote
from headway.plan.sources import Source

_T = TypeVar("_T")


def made_of(value: Any) -> tuple[str, ...]:
    """The names of the fields that an object of a dataclass is made of."""
    return _made_of(value.__class__)


@cache
def _made_of(cls: Any) -> tuple[str, ...]:
    return tuple(each.name for each in fields(cls) if each.init)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def operator(cls: type[_T]) -> type[_T]:
    """A frozen dataclass that keeps Node's comparison, its text and its hash, computed once."""
    return dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)


@operator
class Node:
    """An operator. `schema` is its output; `children` its inputs, in order."""

    schema: tuple[Column, ...] = field(init=False, repr=False)
    subqueries: tuple[Subquery, ...] = field(init=False, repr=False)
    """The scalar subqueries that its expressions use."""
    _values: tuple[Any, ...] = field(init=False, repr=False)
    _hash: int = field(init=False, repr=False)

    @property
    def kind(self) -> str:
        """The operator's name, as printed and as stored."""
        return type(self).__name__

    @property
    def children(self) -> tuple[Node, ...]:
        return ()

    def expressions(self) -> tuple[Expression, ...]:
        """Every expression of this node, without those of its inputs."""
        return ()

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.schema)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Node) and self._hash == other._hash and _same(self, other)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        """This operator alone: the text of all below it would double with each shared node."""
        from headway.plan.printer import describe

        return f"<{describe(self)}>"

    def _finish(self, schema: Iterable[Column]) -> None:
        """Called at the end of each node's own checks."""
        columns = tuple(schema)
        seen: set[str] = set()
        for column in columns:
            # Spark and DuckDB fold the case of names: so do we when we ask for uniqueness.
            if column.name.casefold() in seen:
                raise InvalidPlan(f"{self.kind} puts out two columns named {column.name}")
            seen.add(column.name.casefold())
        subqueries = merge_subqueries(self.expressions())
        named = [subquery.name for subquery in subqueries]
        if len(set(named)) != len(named):
            raise InvalidPlan(f"{self.kind} uses one name for two subqueries: {', '.join(named)}")
        values = tuple(getattr(self, name) for name in made_of(self))
        object.__setattr__(self, "schema", columns)
        object.__setattr__(self, "subqueries", subqueries)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_hash", hash((self.kind, values)))

    def _check_reads(self, expressions: Iterable[Expression], *inputs: Node) -> None:
        """Every column that is read is put out by one of the inputs."""
        names = {column.name for child in inputs for column in child.schema}
        for expression in expressions:
            missing = expression.columns - names
            if missing:
                raise InvalidPlan(
                    f"{self.kind} reads {', '.join(sorted(missing))} in {expression.text}, "
                    "which its input does not have",
                    hint=f"existing columns: {', '.join(sorted(names)) or 'none'}",
                )

    def _check_condition(self, condition: Expression | None) -> None:
        if condition is not None and condition.type != "boolean":
            raise InvalidPlan(f"the condition {condition.text} is {condition.type}")


@dataclass(frozen=True, slots=True)
class Named:
    """An expression and the column that holds its value."""

    name: str
    expression: Expression

    @property
    def column(self) -> Column:
        return Column(self.name, self.expression.type, self.expression.nullable)


@dataclass(frozen=True, slots=True)
class ScanColumn:
    """A field of the table, and the plan's name for it."""

    field: str
    column: Column


@operator
class Scan(Node):
    """A table, with only the columns that the plan needs."""

    source: Source
    columns: tuple[ScanColumn, ...]

    def __post_init__(self) -> None:
        self._finish(scanned.column for scanned in self.columns)


@operator
class StateScan(Node):
    """A result that was saved in a run, in place of the operators that made it."""

    run: str
    state: str
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        self._finish(self.columns)


@operator
class Values(Node):
    """Rows written out: each value is the text of a constant."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise InvalidPlan(
                    f"a row of {len(row)} values stands under {len(self.columns)} columns"
                )
        self._finish(self.columns)


@operator
class Filter(Node):
    input: Node
    condition: Expression

    def __post_init__(self) -> None:
        self._check_condition(self.condition)
        self._check_reads([self.condition], self.input)
        self._finish(self.input.schema)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def expressions(self) -> tuple[Expression, ...]:
        return (self.condition,)


@operator
class Project(Node):
    input: Node
    outputs: tuple[Named, ...]

    def __post_init__(self) -> None:
        self._check_reads(self.expressions(), self.input)
        self._finish(output.column for output in self.outputs)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def expressions(self) -> tuple[Expression, ...]:
        return tuple(output.expression for output in self.outputs)


class JoinKind(StrEnum):
    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"
    NULL_AWARE_ANTI = "null_aware_anti"
    """NOT IN: a null on either side keeps a left row out (as its condition spells out)."""
    EXISTENCE = "existence"
    """Every left row once, with a column that says whether a right row matches."""
    CROSS = "cross"


class Side(StrEnum):
    LEFT = "left"
    RIGHT = "right"


_LEFT_ONLY = {JoinKind.SEMI, JoinKind.ANTI, JoinKind.NULL_AWARE_ANTI, JoinKind.EXISTENCE}
_LEFT_NULLABLE = {JoinKind.RIGHT, JoinKind.FULL}
_RIGHT_NULLABLE = {JoinKind.LEFT, JoinKind.FULL}


@dataclass(frozen=True, slots=True)
class JoinKey:
    """left = right, or left <=> right when nulls are equal too."""

    left: Expression
    right: Expression
    null_safe: bool = False

    @property
    def condition(self) -> Expression:
        sign = "<=>" if self.null_safe else "="
        return Expression(
            f"({self.left.text} {sign} {self.right.text})",
            "boolean",
            not self.null_safe and (self.left.nullable or self.right.nullable),
            merge_subqueries((self.left, self.right)),
        )


@operator
class Join(Node):
    """`keys` are the equalities between the sides, `residual` the rest of the condition."""

    left: Node
    right: Node
    join: JoinKind
    keys: tuple[JoinKey, ...] = ()
    residual: Expression | None = None
    exists: str | None = None
    build: Side = Side.RIGHT
    """The side that is collected first; rows of the other side then stream past it."""

    def __post_init__(self) -> None:
        self._check_reads((key.left for key in self.keys), self.left)
        self._check_reads((key.right for key in self.keys), self.right)
        if self.residual is not None:
            self._check_condition(self.residual)
            self._check_reads([self.residual], self.left, self.right)
        if (self.exists is not None) != (self.join is JoinKind.EXISTENCE):
            raise InvalidPlan("an existence join, and only it, names the column it adds")
        if self.join is JoinKind.CROSS and (self.keys or self.residual is not None):
            raise InvalidPlan("a cross join has no condition")
        right = {name.casefold() for name in self.right.column_names}
        overlap = [name for name in self.left.column_names if name.casefold() in right]
        if overlap:
            raise InvalidPlan(f"both sides of a join have {', '.join(sorted(overlap))}")
        self._finish(self._schema())

    def _schema(self) -> list[Column]:
        columns = [_nullable(c, self.join in _LEFT_NULLABLE) for c in self.left.schema]
        if self.exists is not None:
            columns.append(Column(self.exists, "boolean", False))
        if self.join not in _LEFT_ONLY:
            columns += [_nullable(c, self.join in _RIGHT_NULLABLE) for c in self.right.schema]
        return columns

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def build_input(self) -> Node:
        return self.left if self.build is Side.LEFT else self.right

    @property
    def probe_input(self) -> Node:
        return self.right if self.build is Side.LEFT else self.left

    def expressions(self) -> tuple[Expression, ...]:
        sides = tuple(side for key in self.keys for side in (key.left, key.right))
        return sides if self.residual is None else (*sides, self.residual)

    def conditions(self) -> tuple[Expression, ...]:
        """The whole condition as the list of what must hold."""
        keys = tuple(key.condition for key in self.keys)
        return keys if self.residual is None else (*keys, self.residual)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate: function(DISTINCT arguments) FILTER (WHERE filter), as a column."""

    column: Column
    function: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    filter: Expression | None = None

    @property
    def text(self) -> str:
        arguments = ", ".join(argument.text for argument in self.arguments)
        call = f"{self.function}({'DISTINCT ' if self.distinct else ''}{arguments})"
        return call if self.filter is None else f"{call} FILTER (WHERE {self.filter.text})"

    def expressions(self) -> tuple[Expression, ...]:
        return self.arguments if self.filter is None else (*self.arguments, self.filter)


@operator
class Aggregate(Node):
    """Groups by `keys`; with no keys, one row for the whole input."""

    input: Node
    keys: tuple[Named, ...]
    aggregates: tuple[AggregateCall, ...]

    def __post_init__(self) -> None:
        for call in self.aggregates:
            self._check_condition(call.filter)
        self._check_reads(self.expressions(), self.input)
        self._finish([key.column for key in self.keys] + [call.column for call in self.aggregates])

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def expressions(self) -> tuple[Expression, ...]:
        keys = tuple(key.expression for key in self.keys)
        return keys + tuple(e for call in self.aggregates for e in call.expressions())


@dataclass(frozen=True, slots=True)
class SortKey:
    expression: Expression
    ascending: bool = True
    nulls_first: bool = True

    @property
    def text(self) -> str:
        direction = "ASC" if self.ascending else "DESC"
        nulls = "NULLS FIRST" if self.nulls_first else "NULLS LAST"
        return f"{self.expression.text} {direction} {nulls}"


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A function over the window that its node describes, within `frame`, as a column."""

    column: Column
    function: str
    arguments: tuple[Expression, ...]
    frame: str | None = None
    filter: Expression | None = None
    ignore_nulls: bool = False

    @property
    def text(self) -> str:
        call = f"{self.function}({', '.join(argument.text for argument in self.arguments)})"
        if self.filter is not None:
            call += f" FILTER (WHERE {self.filter.text})"
        return f"{call} IGNORE NULLS" if self.ignore_nulls else call

    def expressions(self) -> tuple[Expression, ...]:
        return self.arguments if self.filter is None else (*self.arguments, self.filter)


@operator
class Window(Node):
    """Adds columns computed over the rows that share `partition_by`, in the order `order_by`."""

    input: Node
    partition_by: tuple[Expression, ...]
    order_by: tuple[SortKey, ...]
    calls: tuple[WindowCall, ...]

    def __post_init__(self) -> None:
        for call in self.calls:
            self._check_condition(call.filter)
        self._check_reads(self.expressions(), self.input)
        self._finish([*self.input.schema, *(call.column for call in self.calls)])

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def expressions(self) -> tuple[Expression, ...]:
        order = tuple(key.expression for key in self.order_by)
        calls = tuple(e for call in self.calls for e in call.expressions())
        return self.partition_by + order + calls

    def over(self, call: WindowCall) -> str:
        """The call with its OVER clause."""
        parts = []
        if self.partition_by:
            parts.append("PARTITION BY " + ", ".join(e.text for e in self.partition_by))
        if self.order_by:
            parts.append("ORDER BY " + ", ".join(key.text for key in self.order_by))
        if call.frame is not None:
            parts.append(call.frame)
        return f"{call.text} OVER ({' '.join(parts)})"


@operator
class Sort(Node):
    input: Node
    keys: tuple[SortKey, ...]

    def __post_init__(self) -> None:
        if not self.keys:
            raise InvalidPlan("a sort needs a key or more")
        self._check_reads(self.expressions(), self.input)
        self._finish(self.input.schema)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def expressions(self) -> tuple[Expression, ...]:
        return tuple(key.expression for key in self.keys)


@operator
class Limit(Node):
    """Skips `offset` rows, then passes `count` rows (all of them when None)."""

    input: Node
    count: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        if (self.count is not None and self.count < 0) or self.offset < 0:
            raise InvalidPlan(f"a limit of {self.count} rows after {self.offset} is negative")
        self._finish(self.input.schema)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)


@operator
class Union(Node):
    """The rows of all inputs, duplicates kept; columns match by position."""

    inputs: tuple[Node, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if len(self.inputs) < 2:
            raise InvalidPlan("a union needs two inputs or more")
        for child in self.inputs:
            types = tuple(column.type for column in child.schema)
            if types != tuple(column.type for column in self.columns):
                raise InvalidPlan(
                    f"an input of a union has the types {', '.join(types)}, "
                    f"its output {', '.join(column.type for column in self.columns)}"
                )
        self._finish(self.columns)

    @property
    def children(self) -> tuple[Node, ...]:
        return self.inputs


@operator
class Expand(Node):
    """Puts out one row per projection for every input row: how grouping sets are made."""

    input: Node
    projections: tuple[tuple[Expression, ...], ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        if not self.projections:
            raise InvalidPlan("an expand without projections puts out nothing")
        if any(len(row) != len(self.columns) for row in self.projections):
            raise InvalidPlan(f"each projection of an expand has {len(self.columns)} columns")
        self._check_reads(self.expressions(), self.input)
        self._finish(self.columns)

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def expressions(self) -> tuple[Expression, ...]:
        return tuple(expression for row in self.projections for expression in row)


@operator
class Generate(Node):
    """Puts out each input row once per element that `generator` (explode, inline...) yields."""

    input: Node
    generator: Expression
    outer: bool
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        self._check_reads([self.generator], self.input)
        self._finish([*self.input.schema, *self.columns])

    @property
    def children(self) -> tuple[Node, ...]:
        return (self.input,)

    def expressions(self) -> tuple[Expression, ...]:
        return (self.generator,)


NODE_KINDS: tuple[type[Node], ...] = (
    Scan,
    StateScan,
    Values,
    Filter,
    Project,
    Join,
    Aggregate,
    Window,
    Sort,
    Limit,
    Union,
    Expand,
    Generate,
)


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A whole query: its graph, and what the user calls the columns of its result.

    `settings` are those settings of the session that change what the texts mean, such as ANSI mode
    and the time zone: the plan runs under them wherever it runs.
    """

    root: Node
    names: tuple[str, ...]
    settings: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if len(self.names) != len(self.root.schema):
            raise InvalidPlan(
                f"{len(self.names)} names for {len(self.root.schema)} columns of the result"
            )
        if len(dict(self.settings)) != len(self.settings):
            raise InvalidPlan("a setting of the plan has two values")

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the rows is part of the result."""
        node = self.root
        while isinstance(node, Project | Filter | Limit):
            node = node.input
        return isinstance(node, Sort)

    def explain(self) -> str:
        """The graph as text for people."""
        from headway.plan.printer import print_plan

        return print_plan(self)


def _same(a: Node, b: Node) -> bool:
    """Whether two graphs are equal: each pair of nodes is compared once, at any depth."""
    seen: set[tuple[int, int]] = set()
    pairs = [(a, b)]
    while pairs:
        a, b = pairs.pop()
        if a is b or (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if type(a) is not type(b) or a._hash != b._hash:
            return False
        if not _same_values(a._values, b._values, pairs):
            return False
    return True


def _same_values(a: Any, b: Any, pairs: list[tuple[Node, Node]]) -> bool:
    """Whether two values are equal, given that the pairs of nodes found in them are."""
    if a is b:
        return True
    if isinstance(a, Node) and isinstance(b, Node):
        pairs.append((a, b))
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        if len(a) != len(b):
            return False
        return all(_same_values(x, y, pairs) for x, y in zip(a, b, strict=True))
    if is_dataclass(a):
        return all(_same_values(getattr(a, f.name), getattr(b, f.name), pairs) for f in fields(a))
    return bool(a == b)


def _nullable(column: Column, force: bool) -> Column:
    return Column(column.name, column.type, True) if force else column


def column_list(columns: Iterable[Column]) -> str:
    """Columns as Spark's DDL."""
    return ", ".join(f"{quote(column.name)} {column.type}" for column in columns)
