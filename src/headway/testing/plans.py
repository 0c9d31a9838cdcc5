"""Random plans for property tests: every kind of node, odd names, shared nodes, subqueries.

Needs hypothesis, which Headway's `dev` extra brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from headway.plan.expressions import (
    Column,
    Expression,
    Subquery,
    column_reference,
    merge_subqueries,
    string_literal,
)
from headway.plan.graph import walk
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKey,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    ScanColumn,
    Side,
    Sort,
    SortKey,
    StateScan,
    Union,
    Values,
    Window,
    WindowCall,
)
from headway.plan.sources import FileSource, RangeSource, SessionSource, Source

ODD_NAMES = (
    "a", "Total", "select", "with space", "back`tick", "``", "dot.ted", "quo'te", 'dou"ble',
    "größe", "価格", ":subquery_1", "new\nline", "back\\slash", "a AND b", "(", "naïve' OR `x",
)  # fmt: skip
ODD_STRINGS = (
    "", "x", "it's", "a AND b", ") OR (", ":subquery_1", "`a`", 'say "no"', "back\\slash", "\\",
    "new\nline", "価格", "CASE WHEN", "100%", "--", "/*",
)  # fmt: skip
TYPES = ("int", "string", "boolean", "bigint", "double", "date", "decimal(15,2)", "array<int>")

_T = TypeVar("_T")
_LITERALS = {
    "int": ("7", "-3", "0"),
    "bigint": ("42L", "-9000000000L"),
    "double": ("1.5D", "-0.25D"),
    "string": tuple(string_literal(text) for text in ODD_STRINGS),
    "boolean": ("true", "false"),
    "date": ("DATE '2020-02-29'", "DATE '1992-01-01'"),
    "decimal(15,2)": ("CAST(1.25BD AS DECIMAL(15,2))",),
    "array<int>": ("array(1, 2)", "array()"),
}
_WIDEST = 6
_MOST_NESTED = 2


def query_plans(max_operators: int = 8) -> st.SearchStrategy[QueryPlan]:
    """Valid plans. Their tables do not exist: they are to be read, not run."""
    return _query_plans(max_operators)


def conditions(columns: Sequence[Column], depth: int = 3) -> st.SearchStrategy[Expression]:
    """Conditions over the columns, with nothing but them and constants."""
    return _conditions(tuple(columns), depth)


def column_names() -> st.SearchStrategy[str]:
    """Names that a table may have and that careless quoting breaks."""
    return st.sampled_from(ODD_NAMES) | st.text(min_size=1, max_size=8)


def rename_columns(root: Node, rename: Callable[[str], str]) -> Node:
    """The same plan with other names for all its columns, down to the scans."""
    done: dict[Node, Node] = {}
    for node in walk(root):
        if isinstance(node, StateScan):  # the names are what it looks for
            outputs = (Named(rename(c.name), column_reference(c)) for c in node.columns)
            done[node] = Project(node, tuple(outputs))
            continue
        changed = {
            field.name: _renamed(getattr(node, field.name), rename, done)
            for field in fields(node)
            if field.init
        }
        if changed.get("exists") is not None:
            changed["exists"] = rename(changed["exists"])
        done[node] = type(node)(**changed)
    return done[root]


def _renamed(value: Any, rename: Callable[[str], str], done: dict[Node, Node]) -> Any:
    if isinstance(value, Node):
        return done[value]
    if isinstance(value, tuple):
        return tuple(_renamed(item, rename, done) for item in value)
    if isinstance(value, Expression):
        renamed = value.rename({name: rename(name) for name in value.columns})
        subqueries = tuple(Subquery(s.name, done[s.plan]) for s in value.subqueries)
        return replace(renamed, subqueries=subqueries)
    if isinstance(value, Column | Named):
        value = replace(value, name=rename(value.name))
    if is_dataclass(value) and not isinstance(value, Source | type):
        items = {f.name: _renamed(getattr(value, f.name), rename, done) for f in fields(value)}
        return type(value)(**items)
    return value


@st.composite
def _query_plans(draw: st.DrawFn, max_operators: int) -> QueryPlan:
    root = PlanMaker(draw).plan(max_operators)
    names = tuple(draw(st.sampled_from(ODD_NAMES)) for _ in root.schema)
    settings = (("spark.sql.ansi.enabled", "true"), ("spark.sql.session.timeZone", "UTC"))
    return QueryPlan(root, names, settings[: draw(st.integers(0, 2))])


@st.composite
def _conditions(draw: st.DrawFn, columns: tuple[Column, ...], depth: int) -> Expression:
    maker = PlanMaker(draw)
    maker.nested = _MOST_NESTED
    return maker.condition(columns, depth)


class PlanMaker:
    """Makes a plan operator by operator; each reads any of those made before.

    What may be made is for others to narrow: the types, their constants, the operators.
    """

    types: Sequence[str] = TYPES
    literals: Mapping[str, Sequence[str]] = _LITERALS

    @property
    def operators(self) -> Sequence[Callable[[Any], Node]]:
        return _OPERATORS

    def __init__(self, draw: st.DrawFn) -> None:
        self.nested = 0
        self._draw = draw
        self._named = 0
        self._made: list[Node] = []
        self._subqueries: list[Subquery] = []

    def plan(self, max_operators: int) -> Node:
        self._made = [self._leaf()]
        for _ in range(self._number(0, max_operators)):
            made = self._pick(self.operators)(self)
            if self._accepts(made):
                self._made.append(self._narrow(made) if len(made.schema) > _WIDEST else made)
        return self._made[-1]

    def _accepts(self, made: Node) -> bool:
        return True

    def _pick(self, items: Sequence[_T]) -> _T:
        return items[self._number(0, len(items) - 1)]

    def _number(self, low: int, high: int) -> int:
        return self._draw(_integers(low, high))

    def _flag(self) -> bool:
        return self._number(0, 1) == 1

    def _name(self) -> str:
        self._named += 1
        return f"{self._pick(ODD_NAMES)}{self._named}"

    def _column(self, ddl: str | None = None) -> Column:
        return Column(self._name(), ddl or self._pick(self.types), self._flag())

    def _columns(self, fewest: int = 0) -> tuple[Column, ...]:
        return tuple(self._column() for _ in range(self._pick((1, 2, 3, fewest))))

    def _input(self) -> Node:
        """Mostly the node made last, so that plans become deep; sometimes another, or a leaf."""
        choice = self._number(0, 9)
        if choice < 6:
            return self._made[-1]
        return self._pick(self._made) if choice < 9 else self._leaf()

    # Leaves

    def _leaf(self) -> Node:
        choice = self._number(0, 4)
        if choice == 3:
            return StateScan("run-1", f"state-{self._number(1, 2)}", self._columns())
        if choice == 4:
            return self._values()
        columns = self._columns()
        if choice == 1:
            return Scan(self._range(), (ScanColumn("id", self._column("bigint")),))
        source = SessionSource("session_1", "view") if choice == 2 else self._files()
        return Scan(source, tuple(ScanColumn(self._pick(ODD_NAMES), c) for c in columns))

    def _range(self) -> Source:
        start, end = self._number(-5, 100), self._number(-5, 100)
        return RangeSource(start, end, self._pick((1, 3, -2)))

    def _files(self) -> Source:
        if self._flag():
            return FileSource("t", "parquet", ("/nowhere/t/a.parquet",))
        options = (("header", "true"), ("sep", self._pick((",", "'", "\\"))))
        files = ("/nowhere/d=1/a b.csv", "/nowhere/d=2/%20.csv")
        return FileSource("größe", "csv", files, "/nowhere", options, "`a b` INT, d INT")

    def _values(self) -> Node:
        columns = self._columns()
        rows = range(self._number(0, 3))
        texts = tuple(tuple(self._pick(self.literals[c.type]) for c in columns) for _ in rows)
        return Values(columns, texts)

    # Expressions

    def _literal(self, ddl: str) -> Expression:
        return Expression(self._pick(self.literals[ddl]), ddl, False)

    def _expression(self, ddl: str, columns: tuple[Column, ...], depth: int = 1) -> Expression:
        if ddl == "boolean" and depth > 0 and self._flag():
            return self.condition(columns, depth)
        fitting = [column for column in columns if column.type == ddl]
        choice = self._number(0, 3)
        if choice == 0 or (choice < 3 and not fitting) or depth <= 0:
            return column_reference(self._pick(fitting)) if fitting else self._literal(ddl)
        if choice < 3:
            return column_reference(self._pick(fitting))
        left, right = (self._expression(ddl, columns, depth - 1) for _ in range(2))
        if ddl in ("int", "bigint", "double") and self._flag():
            return _combined(f"({left.text} {self._pick('+-*')} {right.text})", ddl, left, right)
        test = self.condition(columns, depth - 1)
        text = f"CASE WHEN {test.text} THEN {left.text} ELSE {right.text} END"
        return _combined(text, ddl, test, left, right)

    def condition(self, columns: tuple[Column, ...], depth: int = 2) -> Expression:
        choice = self._number(0, 9)
        if depth > 0 and choice in (1, 2, 3):
            left = self.condition(columns, depth - 1)
            if choice == 3:
                return _combined(f"(NOT {left.text})", "boolean", left)
            right = self.condition(columns, depth - 1)
            sign = "AND" if choice == 1 else "OR"
            return _combined(f"({left.text} {sign} {right.text})", "boolean", left, right)
        if choice == 4 and self.nested < _MOST_NESTED:
            return self._compared_with_subquery(columns)
        ddl = self._pick(columns).type if columns else "int"
        if ddl == "array<int>":
            return Expression("(size(array(1)) > 0)", "boolean", False)
        tested = self._expression(ddl, columns, depth - 1)
        text = self._pick(_TESTS)
        values = [self._literal(ddl), self._expression(ddl, columns, 0)]
        if ddl == "string" and choice == 5:
            text = "{0} LIKE {1}"
        return _combined(
            f"({text.format(tested.text, *(v.text for v in values))})",
            "boolean",
            tested,
            *values[1:],
        )

    def _compared_with_subquery(self, columns: tuple[Column, ...]) -> Expression:
        subquery = self._subquery()
        column = subquery.plan.schema[0]
        tested = self._expression(column.type, columns, 0)
        parameter = Expression(f":{subquery.name}", column.type, True, (subquery,))
        return _combined(f"({tested.text} >= {parameter.text})", "boolean", tested, parameter)

    def _subquery(self) -> Subquery:
        if self._subqueries and self._number(0, 3) == 3:
            return self._pick(self._subqueries)
        self.nested += 1
        node = self._input() if self._made else self._leaf()
        if self._flag():
            inner = self.nested < _MOST_NESTED and self._flag()
            make = self._compared_with_subquery if inner else self.condition
            node = Filter(node, make(node.schema))
        if self._flag():
            node = Aggregate(node, (), (self._call(node.schema),))
        else:
            output = Named(self._name(), self._expression(self._pick(TYPES[:3]), node.schema))
            node = self._limited(Project(node, (output,)), 1)
        self.nested -= 1
        subquery = Subquery(f"subquery_{len(self._subqueries) + 1}", node)
        self._subqueries.append(subquery)
        return subquery

    # Operators

    def _filter(self) -> Node:
        node = self._input()
        return Filter(node, self.condition(node.schema))

    def _filter_by_value(self) -> Node:
        """A filter with a scalar subquery, whose rows others may read too."""
        node = self._narrow(self._input())
        test = self._compared_with_subquery(node.schema)
        value = test.subqueries[0].plan
        filtered = Filter(node, test)
        if self._flag() or set(value.column_names) & set(node.column_names):
            return filtered
        return Join(filtered, value, JoinKind.CROSS)

    def _project(self) -> Node:
        node = self._input()
        kept = [Named(c.name, column_reference(c)) for c in node.schema if self._flag()]
        made = [self._output(node) for _ in range(self._number(0, 2))]
        return Project(node, (*kept, *made))

    def _output(self, node: Node) -> Named:
        return Named(self._name(), self._expression(self._pick(self.types), node.schema, 2))

    def _narrow(self, node: Node, widest: int = 3) -> Node:
        if len(node.schema) <= widest:
            return node
        return Project(
            node, tuple(Named(c.name, column_reference(c)) for c in node.schema[:widest])
        )

    def _join(self) -> Node:
        left, right = self._narrow(self._input()), self._narrow(self._input())
        if set(left.column_names) & set(right.column_names):
            right = Project(
                right, tuple(Named(self._name(), column_reference(c)) for c in right.schema)
            )
        kind = self._pick(tuple(JoinKind))
        build = self._pick(tuple(Side))
        if kind is JoinKind.CROSS:
            return Join(left, right, kind, build=build)
        keys = tuple(self._join_key(left, right) for _ in range(self._number(0, 2)))
        residual = self.condition((*left.schema, *right.schema)) if self._flag() else None
        exists = self._name() if kind is JoinKind.EXISTENCE else None
        return Join(left, right, kind, keys, residual, exists, build)

    def _join_key(self, left: Node, right: Node) -> JoinKey:
        ddl = self._pick([c.type for c in (*left.schema, *right.schema)] or ["int"])
        sides = (self._expression(ddl, left.schema), self._expression(ddl, right.schema))
        return JoinKey(*sides, null_safe=self._flag())

    def _call(self, columns: tuple[Column, ...]) -> AggregateCall:
        condition = self.condition(columns, 1) if self._number(0, 3) == 3 else None
        ddl = self._pick(("int", "string", "double"))
        argument = self._expression(ddl, columns)
        if self._flag():
            made = Column(self._name(), "bigint", False)
            return AggregateCall(made, "count", (argument,), self._flag(), condition)
        return AggregateCall(Column(self._name(), ddl), "max", (argument,), False, condition)

    def _aggregate(self) -> Node:
        node = self._input()
        keys = [Named(c.name, column_reference(c)) for c in node.schema[:2] if self._flag()]
        keys += [self._output(node) for _ in range(self._number(0, 1))]
        calls = tuple(self._call(node.schema) for _ in range(self._number(0, 2)))
        return Aggregate(node, tuple(keys), calls)

    def _sort_keys(self, node: Node, most: int) -> tuple[SortKey, ...]:
        columns = node.schema[: self._number(1, most)]
        keys = [SortKey(column_reference(c), self._flag(), self._flag()) for c in columns]
        return tuple(keys) or (SortKey(Expression("(1 + 1)", "int", False)),)

    def _window(self) -> Node:
        node = self._input()
        partition = tuple(column_reference(c) for c in node.schema[: self._number(0, 2)])
        order = self._sort_keys(node, 2) if self._flag() else ()
        calls = tuple(self._window_call(node.schema) for _ in range(self._number(1, 2)))
        return Window(node, partition, order, calls)

    def _window_call(self, columns: tuple[Column, ...]) -> WindowCall:
        choice = self._number(0, 2)
        if choice == 0:
            return WindowCall(Column(self._name(), "int", False), "row_number", ())
        argument = self._expression("int", columns)
        column = Column(self._name(), "int")
        if choice == 1:
            return WindowCall(column, "first_value", (argument,), ignore_nulls=self._flag())
        frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW" if self._flag() else None
        condition = self.condition(columns, 1) if self._flag() else None
        return WindowCall(column, "max", (argument,), frame, condition)

    def _sort(self) -> Node:
        node = self._input()
        return Sort(node, self._sort_keys(node, 3))

    def _limit(self) -> Node:
        count = self._pick((10, 0, 1, None))
        return self._limited(self._input(), count, self._pick((0, 0, 5)))

    def _limited(self, node: Node, count: int | None, offset: int = 0) -> Node:
        return Limit(node, count, offset)

    def _union(self) -> Node:
        first = self._input()
        inputs = [first]
        for _ in range(self._number(1, 2)):
            inputs.append(first if self._flag() else self._fitting(self._input(), first))
        columns = [
            Column(c.name, c.type, any(node.schema[position].nullable for node in inputs))
            for position, c in enumerate(first.schema)
        ]
        if self._flag():
            columns = [replace(c, name=self._name()) for c in columns]
        return Union(tuple(inputs), tuple(columns))

    def _fitting(self, node: Node, model: Node) -> Node:
        """A projection of `node` to the types of `model`."""
        outputs = (Named(self._name(), self._expression(c.type, node.schema)) for c in model.schema)
        return Project(node, tuple(outputs))

    def _expand(self) -> Node:
        node = self._input()
        columns = [c for c in node.schema if self._flag()] + [self._column()]
        columns = [replace(c, nullable=True) for c in columns[:3]]
        rows = tuple(
            tuple(self._expand_value(c, node.schema) for c in columns)
            for _ in range(self._number(1, 3))
        )
        return Expand(node, rows, tuple(columns))

    def _expand_value(self, column: Column, columns: tuple[Column, ...]) -> Expression:
        if self._flag():
            return Expression(f"CAST(NULL AS {column.type.upper()})", column.type)
        return self._expression(column.type, columns)

    def _generate(self) -> Node:
        node = self._input()
        array = self._expression("array<int>", node.schema, 0)
        generator = replace(array, text=f"explode({array.text})", type="int")
        return Generate(node, generator, self._flag(), (self._column("int"),))

    def _copy(self) -> Node:
        """What a common table expression used twice becomes: the same again, with other names."""
        node = self._narrow(self._input())
        names: dict[str, str] = {}

        def renamed(name: str) -> str:
            if name not in names:
                names[name] = self._name()
            return names[name]

        copy = rename_columns(node, renamed)
        if self._flag():
            return Join(node, copy, JoinKind.CROSS)
        columns = (replace(c, name=self._name(), nullable=True) for c in node.schema)
        return Union((node, copy), tuple(columns))


_TESTS = (
    "{0} = {1}", "{0} < {1}", "{0} >= {1}", "{0} <> {2}", "{0} <=> {2}", "{0} IS NULL",
    "{0} IS NOT NULL", "{0} IN ({1})", "{0} BETWEEN {1} AND {1}", "{1} <= {0}",
)  # fmt: skip
_OPERATORS = (
    PlanMaker._filter,
    PlanMaker._filter_by_value,
    PlanMaker._project,
    PlanMaker._join,
    PlanMaker._join,
    PlanMaker._aggregate,
    PlanMaker._window,
    PlanMaker._sort,
    PlanMaker._limit,
    PlanMaker._union,
    PlanMaker._expand,
    PlanMaker._generate,
    PlanMaker._copy,
)


@cache
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


def _combined(text: str, ddl: str, *parts: Expression) -> Expression:
    nullable = any(part.nullable for part in parts)
    return Expression(text, ddl, nullable, merge_subqueries(parts))
