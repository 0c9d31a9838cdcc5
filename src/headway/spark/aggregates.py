"""Catalyst's aggregates: calls with a name each, and what is computed from them above.

Catalyst puts any expression over aggregates into one operator. Here an Aggregate holds its keys and
its calls and nothing else, so that an engine can split, share and checkpoint it; the rest becomes a
projection on top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.base.errors import PlanNotImportable
from headway.plan.expressions import Column, Expression, quote
from headway.plan.nodes import Aggregate, AggregateCall, Named, Node, Project
from headway.spark.tree import FACTS, Tree

if TYPE_CHECKING:
    from headway.spark.operators import OperatorReader


@dataclass(frozen=True, slots=True)
class Call:
    """An aggregate or window function, before it has a column."""

    function: str
    arguments: tuple[Expression, ...]
    distinct: bool = False
    filter: Expression | None = None
    ignore_nulls: bool = False
    framed: bool = True
    """Whether a frame may be written with it: ranks and offsets have one of their own."""


_RANKS = {"Rank": "rank", "DenseRank": "dense_rank", "PercentRank": "percent_rank"}
_UNFRAMED = {"RowNumber": "row_number", "CumeDist": "cume_dist", "NTile": "ntile"}
_OFFSETS = {"Lag": "lag", "Lead": "lead"}
_POSITIONAL = {"First": "first_value", "Last": "last_value", "NthValue": "nth_value"}
_PLAIN = {"Sum": "sum", "Average": "avg", "Count": "count", "Min": "min", "Max": "max"}


def read_call(reader: OperatorReader, tree: Tree) -> Call:
    """An aggregate expression or a window function."""
    if tree.name == "AggregateExpression":
        inner = _function(reader, tree.children[0])
        condition = None
        if len(tree.children) > 1:
            condition = reader.expressions.read(tree.children[1])
        return Call(
            inner.function,
            inner.arguments,
            bool(tree.fields["isDistinct"]),
            condition,
            inner.ignore_nulls,
        )
    return _function(reader, tree)


def _function(reader: OperatorReader, tree: Tree) -> Call:
    name = tree.name
    if name in _RANKS:
        return Call(_RANKS[name], (), framed=False)
    if name in _UNFRAMED:
        return Call(_UNFRAMED[name], _arguments(reader, tree.children), framed=False)
    if name in _OFFSETS:
        return _offset_call(reader, tree)
    if name in _POSITIONAL:
        ignore = bool(tree.fields["ignoreNulls"])
        return Call(_POSITIONAL[name], _arguments(reader, tree.children), ignore_nulls=ignore)
    if name in _PLAIN:
        if "evalMode" in tree.fields or "evalContext" in tree.fields:
            mode = reader.expressions.eval_mode(tree)
            if mode == "TRY":
                return Call(f"try_{_PLAIN[name]}", _arguments(reader, tree.children))
            reader.expressions.check_mode(tree)
        return Call(_PLAIN[name], _arguments(reader, tree.children))
    function = reader.expressions.function_name(tree)
    reader.expressions.check_options(tree)
    return Call(function, _arguments(reader, tree.children))


def _offset_call(reader: OperatorReader, tree: Tree) -> Call:
    source, offset, default = tree.children
    arguments = list(_arguments(reader, (source, offset)))
    if not (default.name == "Literal" and default.fields["value"] is None):
        arguments.append(reader.expressions.read(default))
    ignore = bool(tree.fields["ignoreNulls"])
    return Call(_OFFSETS[tree.name], tuple(arguments), ignore_nulls=ignore, framed=False)


def _arguments(
    reader: OperatorReader, children: list[Tree] | tuple[Tree, ...]
) -> tuple[Expression, ...]:
    return tuple(reader.expressions.read(child) for child in children)


def read_aggregate(reader: OperatorReader, tree: Tree) -> Node:
    source = reader.read_input(tree)
    return _AggregateReader(reader, source).read(tree)


def select(source: Node, outputs: list[Named]) -> Node:
    """A projection, unless `source` puts out just these columns already.

    A select list that names one attribute twice means it once: those who read it cannot tell.
    """
    distinct = {output.name: output for output in outputs}
    if tuple(distinct) == source.column_names and all(
        output.expression.column == name for name, output in distinct.items()
    ):
        return source
    return Project(source, tuple(distinct.values()))


def exact(tree: Tree) -> Tree:
    """The expression without what Spark makes of sums and averages of short decimals in plans that
    it runs: it sums their digits as integers, and averages them as doubles."""
    tree.children[:] = [exact(child) for child in tree.children]
    if tree.name == "MakeDecimal" and _reads_digits(tree.children[0], "Sum"):
        return _with_type_of(tree, tree.children[0])
    if tree.name == "Cast" and tree.children[0].name == "Divide":
        inner = tree.children[0].children[0]
        if _reads_digits(inner, "Average"):
            return _with_type_of(tree, inner)
    return tree


def _reads_digits(tree: Tree, function: str) -> bool:
    """Whether it is that function of digits; if so, it is made one of the decimals."""
    while tree.name in ("WindowExpression", "AggregateExpression"):
        tree = tree.children[0]
    if tree.name != function or tree.children[0].name != "UnscaledValue":
        return False
    tree.children[0] = tree.children[0].children[0]
    return True


def _with_type_of(outer: Tree, inner: Tree) -> Tree:
    inner.fields[FACTS] = [outer.fields[FACTS][0], *inner.fields[FACTS][1:]]
    return inner


class _AggregateReader:
    def __init__(self, reader: OperatorReader, source: Node) -> None:
        self._reader = reader
        self._source = source
        self._keys: dict[str, Named] = {}
        self._calls: dict[str, AggregateCall] = {}

    def read(self, tree: Tree) -> Node:
        reader = self._reader
        for item in tree.expression_list("groupingExpressions"):
            self._add_key(item)
        items = [exact(item) for item in tree.expression_list("aggregateExpressions")]
        types = reader.output_types(tree)
        made = [self._output(item, *kind) for item, kind in zip(items, types, strict=True)]
        node = Aggregate(self._source, tuple(self._keys.values()), tuple(self._calls.values()))
        return select(node, made)

    def _add_key(self, item: Tree) -> None:
        expression = self._reader.expressions.read(item)
        name = expression.column or self._reader.new_name("group_key")
        self._keys[expression.text] = Named(name, expression)

    def _output(self, item: Tree, ddl: str, nullable: bool) -> Named:
        reader = self._reader
        name = reader.name_of(int(item.fields["exprId"]["id"]), item.fields["name"])
        inner = item.children[0] if item.name == "Alias" else item
        if inner.name == "AggregateExpression":
            column = self._call(inner, Column(name, ddl, nullable))
            return Named(name, Expression(quote(column), ddl, nullable))
        stand_ins: dict[int, str] = {}
        self._find_stand_ins(inner, stand_ins)
        expression = reader.expressions.with_stand_ins(inner, stand_ins, ddl=ddl, nullable=nullable)
        return Named(name, expression)

    def _find_stand_ins(self, tree: Tree, found: dict[int, str]) -> None:
        """Where the expression reads an aggregate or a key, the column that holds it."""
        if tree.name == "AggregateExpression":
            found[id(tree)] = self._call(tree, None)
            return
        if tree.name == "ScalarSubquery":
            return
        key = self._keys.get(self._key_text(tree)) if self._keys else None
        if key is not None:
            found[id(tree)] = key.name
            return
        for child in tree.children:
            self._find_stand_ins(child, found)
        if tree.name == "AttributeReference":
            raise PlanNotImportable(
                f"column {tree.fields['name']} is neither grouped by nor aggregated"
            )

    def _key_text(self, tree: Tree) -> str:
        if tree.name == "AttributeReference":
            return self._reader.expressions.attribute(tree)
        if any(key.expression.column is None for key in self._keys.values()):
            try:
                return self._reader.expressions.read_text(tree)[0]
            except PlanNotImportable:
                return ""
        return ""

    def _call(self, tree: Tree, column: Column | None) -> str:
        """The column that holds this aggregate: the same aggregate is computed once."""
        reader = self._reader
        call = read_call(reader, tree)
        if call.ignore_nulls:
            call = _with_ignore_nulls(call)
        column = column or Column("?", "?")
        made = AggregateCall(column, call.function, call.arguments, call.distinct, call.filter)
        known = self._calls.get(made.text)
        if known is not None:
            return known.column.name
        if column.name == "?":
            ddl, nullable = reader.expressions.type_of(tree), reader.expressions.nullable(tree)
            column = Column(reader.new_name(call.function), ddl, nullable)
        self._calls[made.text] = AggregateCall(
            column, call.function, call.arguments, call.distinct, call.filter
        )
        return column.name


def _with_ignore_nulls(call: Call) -> Call:
    argument, *rest = call.arguments
    if rest:
        raise PlanNotImportable(f"{call.function} with IGNORE NULLS has no place in a plan")
    flag = Expression("true", "boolean", False)
    return Call(call.function, (argument, flag), call.distinct, call.filter)
