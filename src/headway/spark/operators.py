"""Catalyst's logical operators as nodes of a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headway.base.errors import PlanNotImportable
from headway.plan.expressions import (
    Column,
    Expression,
    Subquery,
    column_reference,
    conjunction,
)
from headway.plan.nodes import (
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
    Sort,
    SortKey,
    StateScan,
    Union,
    Values,
    Window,
    WindowCall,
)
from headway.plan.sources import FileSource, Source
from headway.plan.states import IMAGE, image_state
from headway.plan.statistics import TableStatistics
from headway.spark.aggregates import exact, read_aggregate, read_call, select
from headway.spark.expressions import ExpressionReader
from headway.spark.functions import function_name
from headway.spark.relations import read_relation
from headway.spark.tree import Handle, Tree, tree_of
from headway.spark.types import ddl_of

_ATTRIBUTE = re.compile(r"#(\d+)[A-Za-z]*$")
_JOINS = {
    "Inner": JoinKind.INNER,
    "Cross": JoinKind.INNER,
    "LeftOuter": JoinKind.LEFT,
    "RightOuter": JoinKind.RIGHT,
    "FullOuter": JoinKind.FULL,
    "LeftSemi": JoinKind.SEMI,
    "LeftAnti": JoinKind.ANTI,
}


FileSources = dict[str, tuple[Handle, FileSource | None]]
"""Tables of files by what the JVM says of them."""


class OperatorReader:
    """Reads one plan, with its subqueries: names for its attributes, frames for its leaves."""

    def __init__(
        self,
        spark: SparkSession,
        settings: dict[str, str],
        file_sources: FileSources | None = None,
        states: Mapping[int, tuple[str, str]] | None = None,
    ) -> None:
        """`file_sources` are remembered from one plan to the next, where given. Of a plan that is
        being run, `states` are the names and schemas of what is done of it, by their numbers."""
        self.spark = spark
        self.jvm: Any = spark._jvm
        self.file_sources: FileSources = {} if file_sources is None else file_sources
        self.frames: dict[str, DataFrame] = {}
        self.statistics: dict[Source, TableStatistics] = {}
        self.expressions = ExpressionReader(
            lambda attribute: self.name_of(_id_of(attribute), attribute.fields["name"]),
            self._read_subquery,
            lambda tree: function_name(spark, tree),
            settings,
        )
        self.used: set[int] = set()
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        self._subqueries: dict[int, Subquery] = {}
        self._live_states = states or {}
        self.states: dict[int, StateScan] = {}
        """What the plan reads in place of the work that is done."""

    def read(self, tree: Tree) -> Node:
        self._mark_used(tree)
        return self._read(tree)

    def with_outputs(self, root: Node, tree: Tree) -> Node:
        """The node with exactly the columns of Spark's output, in their order.

        Spark may put out one attribute twice; here the second gets a name of its own.
        """
        names = [self._names[i] for i in self.output_ids(tree)]
        if list(root.column_names) == names:
            return root
        columns = {column.name: column for column in root.schema}
        outputs: dict[str, Named] = {}
        for name in names:
            output = self.new_name(name) if name in outputs else name
            outputs[output] = Named(output, column_reference(columns[name]))
        return Project(root, tuple(outputs.values()))

    def name_of(self, expression_id: int, wanted: str) -> str:
        """The plan's name of an attribute: its own, with a number where that is taken."""
        name = self._names.get(expression_id)
        if name is None:
            name = self.new_name(wanted)
            self._names[expression_id] = name
        return name

    def new_name(self, wanted: str) -> str:
        base = re.sub(r"\W+", "_", wanted).strip("_")[:40] or "column"
        name, number = base, 2
        while name.casefold() in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name.casefold())
        return name

    def output_ids(self, tree: Tree) -> list[int]:
        """The expression ids of a plan's output."""
        outputs = tree.plan_facts.outputs
        found = [_ATTRIBUTE.search(item) for item in outputs]
        if any(match is None for match in found):
            raise PlanNotImportable(f"the output {outputs} has attributes without ids")
        return [int(match.group(1)) for match in found if match is not None]

    def column_of(self, attribute: Tree) -> Column:
        return Column(
            self.name_of(_id_of(attribute), attribute.fields["name"]),
            ddl_of(attribute.fields["dataType"]),
            bool(attribute.fields["nullable"]),
        )

    def named(self, item: Tree, ddl: str | None = None, nullable: bool | None = None) -> Named:
        """An element of a select list."""
        name = self.name_of(_id_of(item), item.fields["name"])
        return Named(name, self.expressions.read(item, ddl=ddl, nullable=nullable))

    def output_types(self, tree: Tree) -> list[tuple[str, bool]]:
        """Type and nullability of the output columns."""
        fields = json.loads(tree.schema_json)["fields"]
        return [(ddl_of(field["type"]), field["nullable"]) for field in fields]

    def sort_key(self, tree: Tree) -> SortKey:
        return SortKey(
            self.expressions.read(tree.children[0]),
            ascending=_object_name(tree.fields["direction"]) == "Ascending",
            nulls_first=_object_name(tree.fields["nullOrdering"]) == "NullsFirst",
        )

    def _read(self, tree: Tree) -> Node:
        reader = _READERS.get(tree.name)
        if reader is not None:
            return reader(self, tree)
        if not tree.children:
            return read_relation(self, tree)
        raise PlanNotImportable(
            f"operator {tree.name} has no place in a plan", hint="Spark runs the query unchanged"
        )

    def _read_subquery(self, tree: Tree) -> Subquery:
        if tree.fields["outerAttrs"] or tree.children:
            raise PlanNotImportable("a correlated scalar subquery is left in the optimised plan")
        key = tree.fields["exprId"]["id"]
        if key not in self._subqueries:
            inner = tree.plan("plan")
            self._mark_used(inner)
            node = self.with_outputs(self._read(inner), inner)
            self._subqueries[key] = Subquery(f"subquery_{len(self._subqueries) + 1}", node)
        return self._subqueries[key]

    def _mark_used(self, root: Tree) -> None:
        """Note which attributes anybody reads, so that scans leave out the others."""
        self.used |= _attributes_used(root) | set(self.output_ids(root))
        stack = [root]
        while stack:
            tree = stack.pop()
            stack.extend(tree.children)
            if tree.name in ("Union", "Expand"):
                # They read by position, or what the JSON leaves out.
                for child in tree.children:
                    self.used |= set(self.output_ids(child))

    def read_input(self, tree: Tree) -> Node:
        return self._read(tree.children[0])

    def _project(self, tree: Tree) -> Node:
        source = self.read_input(tree)
        items = tree.expression_list("projectList")
        types = self.output_types(tree)
        outputs = [self.named(item, *kind) for item, kind in zip(items, types, strict=True)]
        return select(source, outputs)

    def _filter(self, tree: Tree) -> Node:
        return Filter(self.read_input(tree), self.expressions.read(tree.expression("condition")))

    def _join(self, tree: Tree) -> Node:
        left, right = (self._read(child) for child in tree.children)
        kind, exists = self._join_kind(tree)
        keys, rest = self._split_condition(tree, left, right)
        if kind is JoinKind.INNER and not keys and rest is None:
            kind = JoinKind.CROSS
        if kind is JoinKind.ANTI and rest is not None and _is_null_aware(tree):
            kind = JoinKind.NULL_AWARE_ANTI
        return Join(left, right, kind, keys, rest, exists)

    def _join_kind(self, tree: Tree) -> tuple[JoinKind, str | None]:
        value = tree.fields["joinType"]
        if "exists" in value:
            attribute = tree.part(value["exists"])
            return JoinKind.EXISTENCE, self.column_of(attribute).name
        name = _object_name(value)
        if name not in _JOINS:
            raise PlanNotImportable(f"a join of the kind {name} has no place in a plan")
        return _JOINS[name], None

    def _split_condition(
        self, tree: Tree, left: Node, right: Node
    ) -> tuple[tuple[JoinKey, ...], Expression | None]:
        if not tree.fields.get("condition"):
            return (), None
        keys, rest = [], []
        for part in _conjuncts(tree.expression("condition")):
            key = self._join_key(part, set(left.column_names), set(right.column_names))
            if key is None:
                rest.append(self.expressions.read(part))
            else:
                keys.append(key)
        return tuple(keys), conjunction(rest)

    def _join_key(self, part: Tree, left: set[str], right: set[str]) -> JoinKey | None:
        if part.name not in ("EqualTo", "EqualNullSafe"):
            return None
        sides = [self.expressions.read(child) for child in part.children]
        if not (sides[0].columns and sides[1].columns):
            return None
        if sides[0].columns <= right and sides[1].columns <= left:
            sides.reverse()
        if not (sides[0].columns <= left and sides[1].columns <= right):
            return None
        return JoinKey(sides[0], sides[1], null_safe=part.name == "EqualNullSafe")

    def _sort(self, tree: Tree) -> Node:
        if not tree.fields["global"]:
            raise PlanNotImportable("a sort within partitions has no place in a plan")
        keys = tuple(self.sort_key(item) for item in tree.expression_list("order"))
        return Sort(self.read_input(tree), keys)

    def _global_limit(self, tree: Tree) -> Node:
        count = _constant(tree.expression("limitExpr"))
        inner = tree.children[0]
        # Spark splits a limit in two; the local one is how Spark gets there.
        source = inner.children[0] if inner.name == "LocalLimit" else inner
        node = self._read(source)
        if isinstance(node, Limit) and node.count is None:
            return Limit(node.input, count, node.offset)
        return Limit(node, count)

    def _local_limit(self, tree: Tree) -> Node:
        # Without its global half it only trims what an offset or a limit above it trims again.
        return self.read_input(tree)

    def _offset(self, tree: Tree) -> Node:
        return Limit(self.read_input(tree), None, _constant(tree.expression("offsetExpr")))

    def _window(self, tree: Tree) -> Node:
        source = self.read_input(tree)
        partition = tuple(self.expressions.read(e) for e in tree.expression_list("partitionSpec"))
        order = tuple(self.sort_key(e) for e in tree.expression_list("orderSpec"))
        items = [exact(item) for item in tree.expression_list("windowExpressions")]
        types = self.output_types(tree)[-len(items) :]
        calls = [self._window_call(i, *kind) for i, kind in zip(items, types, strict=True)]
        return Window(source, partition, order, tuple(calls))

    def _window_call(self, item: Tree, ddl: str, nullable: bool) -> WindowCall:
        expression = item.children[0]
        if item.name != "Alias" or expression.name != "WindowExpression":
            raise PlanNotImportable(f"window expression {expression.name} is not a plain call")
        function, specification = expression.children
        column = Column(self.name_of(_id_of(item), item.fields["name"]), ddl, nullable)
        call = read_call(self, function)
        if call.distinct:
            raise PlanNotImportable("a DISTINCT aggregate over a window has no place in a plan")
        frame = _frame_text(self, specification.children[-1]) if call.framed else None
        return WindowCall(
            column, call.function, call.arguments, frame, call.filter, call.ignore_nulls
        )

    def _union(self, tree: Tree) -> Node:
        inputs = tuple(self.with_outputs(self._read(child), child) for child in tree.children)
        ids = self.output_ids(tree)
        types = self.output_types(tree)
        first = inputs[0].schema
        columns = tuple(
            Column(self.name_of(i, column.name), ddl, nullable)
            for i, column, (ddl, nullable) in zip(ids, first, types, strict=True)
        )
        return Union(inputs, columns)

    def _expand(self, tree: Tree) -> Node:
        source = self.read_input(tree)
        outputs = tree.expression_list("output")
        columns = tuple(self.column_of(attribute) for attribute in outputs)
        rows = tuple(
            tuple(self.expressions.read(item) for item in projection)
            for projection in tree.expression_lists("projections")
        )
        return Expand(source, rows, columns)

    def _finished_stage(self, tree: Tree) -> Node:
        """What adaptive execution puts in place of a stage that has run: the plan it stands for."""
        return self._read(tree_of(tree.handle.logicalPlan()))

    def _held(self, tree: Tree) -> Node:
        """Rows that are there already: columns of a state, under the names of this reader's."""
        number = tree.fields["state"]
        if number not in self.states:
            name, schema = self._live_states[number]
            fields = json.loads(schema)["fields"]
            types = ((ddl_of(field["type"]), field["nullable"]) for field in fields)
            self.states[number] = image_state(name, types)
        return self._columns_of(self.states[number], tree, tree.fields["places"])

    def kept_state(self, tree: Tree) -> Node:
        """A state that the query read from the beginning, since it had been suspended before."""
        attributes = tree.expression_list("output")
        columns = (
            Column(a.fields["name"], ddl_of(a.fields["dataType"]), bool(a.fields["nullable"]))
            for a in attributes
        )
        state = StateScan(IMAGE, tree.fields["state"], tuple(columns))
        return self._columns_of(state, tree, range(len(attributes)))

    def _columns_of(self, state: StateScan, tree: Tree, places: Iterable[int]) -> Node:
        self._taken |= {column.name.casefold() for column in state.columns}
        columns = [self.column_of(each) for each in tree.expression_list("output")]
        outputs = [
            Named(column.name, column_reference(state.columns[place]))
            for column, place in zip(columns, places, strict=True)
        ]
        return select(state, outputs)

    def _empty(self, tree: Tree) -> Node:
        """What Spark has found to have no rows."""
        names = (self.name_of(i, "column") for i in self.output_ids(tree))
        types = self.output_types(tree)
        return Values(tuple(Column(n, *kind) for n, kind in zip(names, types, strict=True)), ())

    def _generate(self, tree: Tree) -> Node:
        source = self.read_input(tree)
        generator = self.expressions.read(tree.expression("generator"), nullable=True)
        outputs = tree.expression_list("generatorOutput")
        columns = tuple(self.column_of(attribute) for attribute in outputs)
        # INTERSECT ALL generates the very columns it reads: those get other names below it.
        clashing = {c.name for c in columns} & set(source.column_names)
        if clashing:
            names = {c: self.new_name(c) if c in clashing else c for c in source.column_names}
            kept = (Named(names[c.name], column_reference(c)) for c in source.schema)
            source, generator = Project(source, tuple(kept)), generator.rename(names)
        return Generate(source, generator, bool(tree.fields["outer"]), columns)


def _id_of(attribute: Tree) -> int:
    return int(attribute.fields["exprId"]["id"])


def _object_name(value: Any) -> str:
    """The simple name of a Scala object or class in the JSON."""
    name = value.get("object") or value.get("product-class") or ""
    return str(name).rsplit(".", 1)[-1].rstrip("$")


def _conjuncts(tree: Tree) -> list[Tree]:
    if tree.name == "And":
        return [part for child in tree.children for part in _conjuncts(child)]
    return [tree]


def _is_null_aware(tree: Tree) -> bool:
    """Spark writes NOT IN as an anti join ON (a = b) OR isnull(a = b)."""
    return any(
        part.name == "Or"
        and part.children[1].name == "IsNull"
        and part.children[0].handle.semanticEquals(part.children[1].children[0].handle)
        for part in _conjuncts(tree.expression("condition"))
    )


def _constant(tree: Tree) -> int:
    if tree.name != "Literal":
        raise PlanNotImportable(f"a limit that is no constant but {tree.name}")
    return int(tree.fields["value"])


def _frame_text(reader: OperatorReader, frame: Tree) -> str:
    if frame.name != "SpecifiedWindowFrame":
        raise PlanNotImportable(f"window frame {frame.name} has no place in a plan")
    kind = "ROWS" if _object_name(frame.fields["frameType"]) == "RowFrame" else "RANGE"
    lower, upper = (_bound_text(reader, bound) for bound in frame.children)
    return f"{kind} BETWEEN {lower} AND {upper}"


def _bound_text(reader: OperatorReader, bound: Tree) -> str:
    fixed = {
        "UnboundedPreceding": "UNBOUNDED PRECEDING",
        "UnboundedFollowing": "UNBOUNDED FOLLOWING",
        "CurrentRow": "CURRENT ROW",
    }.get(bound.name)
    if fixed is not None:
        return fixed
    if bound.name == "Literal" and str(bound.fields["value"]).lstrip("-").isdigit():
        value = int(bound.fields["value"])
        return f"{abs(value)} {'PRECEDING' if value < 0 else 'FOLLOWING'}"
    return f"{reader.expressions.read_text(bound)[0]} FOLLOWING"


def _attributes_used(tree: Tree) -> set[int]:
    """The ids of all attributes that operators read; leaves' own outputs do not count."""
    found: set[int] = set()
    stack: list[Any] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, Tree):
            stack.extend(item.children)
            item = item.fields
        if isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            name = str(item.get("class", ""))
            if name.endswith(".AttributeReference"):
                found.add(int(item["exprId"]["id"]))
            elif not name.endswith(".LogicalRelation"):
                stack.extend(value for value in item.values() if isinstance(value, list | dict))
    return found


_READERS: dict[str, Callable[[OperatorReader, Tree], Node]] = {
    "Project": OperatorReader._project,
    "Filter": OperatorReader._filter,
    "Join": OperatorReader._join,
    "Aggregate": read_aggregate,
    "Window": OperatorReader._window,
    "Sort": OperatorReader._sort,
    "GlobalLimit": OperatorReader._global_limit,
    "LocalLimit": OperatorReader._local_limit,
    "Offset": OperatorReader._offset,
    "Union": OperatorReader._union,
    "Expand": OperatorReader._expand,
    "Generate": OperatorReader._generate,
    # Where rows lie is the engine's to choose.
    "Repartition": OperatorReader.read_input,
    "RepartitionByExpression": OperatorReader.read_input,
    "RebalancePartitions": OperatorReader.read_input,
    "SubqueryAlias": OperatorReader.read_input,
    "LogicalQueryStage": OperatorReader._finished_stage,
    "Held": OperatorReader._held,
    "EmptyRelation": OperatorReader._empty,
    # It keeps rows away early that the filter on the rank above it keeps away anyhow.
    "WindowGroupLimit": OperatorReader.read_input,
}
