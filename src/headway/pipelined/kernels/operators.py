"""Whether the kernels can run a whole plan, and if not, what stands in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import singledispatch

from headway.base.errors import NotSupported
from headway.pipelined.kernels.aggregates import split_aggregate
from headway.pipelined.kernels.only_values import any_value_of
from headway.pipelined.kernels.sorting import sort_key
from headway.pipelined.kernels.translate import translate
from headway.pipelined.kernels.typed import Translated
from headway.pipelined.kernels.types import check_type
from headway.pipelined.kernels.windows import window_call
from headway.pipelined.programs import BATCH, ROW_NUMBER
from headway.plan.expressions import Column, Expression
from headway.plan.graph import walk
from headway.plan.meaning import SELDOM_CHANGED
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Generate,
    Join,
    Limit,
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

_Check = Callable[[], object]


def explain_support(plan: QueryPlan) -> list[NotSupported]:
    """Everything in the plan that no kernel serves, each once; empty when all of it is served."""
    settings = dict(plan.settings)
    found: dict[str, NotSupported] = {
        name: NotSupported(f"setting {name}", f"only Spark knows what {value} means")
        for name, value in plan.settings
        if name in SELDOM_CHANGED
    }
    for node in walk(plan.root):
        for check in (*_columns(node, settings), *_checks(node, settings)):
            try:
                check()
            except NotSupported as refusal:
                found.setdefault(str(refusal), refusal)
    return list(found.values())


def stand_ins(node: Node) -> dict[str, Translated]:
    """For each subquery of the node a value of its type, to check expressions with."""
    return {
        subquery.name: Translated("NULL", subquery.plan.schema[0].type)
        for subquery in node.subqueries
    }


def input_schema(node: Node) -> dict[str, Column]:
    """The columns that the node's expressions may read, by name."""
    return {column.name: column for child in node.children for column in child.schema}


def _columns(node: Node, settings: Mapping[str, str]) -> Iterator[_Check]:
    fields = [column.field for column in node.columns] if isinstance(node, Scan) else []
    values = [text for row in node.rows for text in row] if isinstance(node, Values) else []
    texts = [*node.column_names, *fields, *values, *(each.text for each in node.expressions())]
    if any(BATCH.strip('"') in text for text in texts):
        yield from _refuse(f"the text {BATCH}", "it stands for something else in the kernels")
    if any(field.lower() == ROW_NUMBER for field in fields):
        yield from _refuse(f"a column {ROW_NUMBER}", "DuckDB numbers the rows of files under it")
    for column in node.schema:
        yield lambda column=column: check_type(column.type, settings)  # type: ignore[misc]


def _translations(
    node: Node, expressions: tuple[Expression, ...], settings: Mapping[str, str]
) -> Iterator[_Check]:
    schema, subqueries = input_schema(node), stand_ins(node)
    for expression in expressions:
        yield lambda e=expression: translate(e, schema, settings, subqueries)  # type: ignore[misc]


def _refuse(what: str, reason: str) -> Iterator[_Check]:
    def check() -> None:
        raise NotSupported(what, reason)

    yield check


@singledispatch
def _checks(node: Node, settings: Mapping[str, str]) -> Iterator[_Check]:
    yield from _refuse(f"operator {node.kind}", "it has no kernel")


@_checks.register(Filter)
@_checks.register(Project)
@_checks.register(Expand)
def _(node: Filter | Project | Expand, settings: Mapping[str, str]) -> Iterator[_Check]:
    yield from _translations(node, node.expressions(), settings)


@_checks.register(Limit)
@_checks.register(Union)
def _(node: Limit | Union, settings: Mapping[str, str]) -> Iterator[_Check]:
    yield from ()


@_checks.register
def _(node: Generate, settings: Mapping[str, str]) -> Iterator[_Check]:
    name = node.generator.text.partition("(")[0]
    yield from _refuse(f"operator Generate ({name})", "the kernels hold no nested values")


@_checks.register(Scan)
@_checks.register(StateScan)
def _(node: Scan | StateScan, settings: Mapping[str, str]) -> Iterator[_Check]:
    yield from ()  # what is not plain Parquet comes in through Spark


@_checks.register
def _(node: Values, settings: Mapping[str, str]) -> Iterator[_Check]:
    for row in node.rows:
        for text, column in zip(row, node.columns, strict=True):
            yield from _translations(node, (Expression(text, column.type),), settings)


@_checks.register
def _(node: Join, settings: Mapping[str, str]) -> Iterator[_Check]:
    yield from _translations(node, node.conditions(), settings)


@_checks.register
def _(node: Aggregate, settings: Mapping[str, str]) -> Iterator[_Check]:
    schema, subqueries = input_schema(node), stand_ins(node)
    yield from _translations(node, tuple(key.expression for key in node.keys), settings)
    for call in node.aggregates:
        known = any_value_of(node, call) or call
        yield lambda c=known: split_aggregate(c, schema, settings, subqueries)  # type: ignore[misc]


@_checks.register
def _(node: Window, settings: Mapping[str, str]) -> Iterator[_Check]:
    subqueries = stand_ins(node)
    for call in node.calls:
        yield lambda c=call: window_call(node, c, settings, subqueries)  # type: ignore[misc]


@_checks.register
def _(node: Sort, settings: Mapping[str, str]) -> Iterator[_Check]:
    schema, subqueries = input_schema(node), stand_ins(node)
    for key in node.keys:
        yield lambda k=key: sort_key(k, schema, settings, subqueries)  # type: ignore[misc]
