"""Aggregates in three steps that are ordinary SELECTs: partial, merge, final.

Rows are aggregated before they are exchanged (`partial`, one or a few columns per aggregate),
partial results of one group are merged into columns of the same names (`merge`), and `final` makes
the value. `whole` does it all over the input's rows at once, which is the only way for DISTINCT.
Sums of doubles depend on the order of their rows, here as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headway.base.errors import NotSupported
from headway.pipelined.kernels import decimals
from headway.pipelined.kernels.arithmetic import need
from headway.pipelined.kernels.casts import kind_of
from headway.pipelined.kernels.only_values import ONLY_VALUE, any_value_of
from headway.pipelined.kernels.translate import normalised_key, translate
from headway.pipelined.kernels.typed import Context, Translated, cast_text, quoted
from headway.pipelined.kernels.types import bounded, duckdb_type
from headway.plan.expressions import Column, Expression
from headway.plan.nodes import Aggregate, AggregateCall

_COUNT = "decimal(20,0)"  # as which Spark divides by a count


@dataclass(frozen=True, slots=True)
class PartialColumn:
    """A column that an aggregate keeps between its steps."""

    name: str
    text: str
    type: str


@dataclass(frozen=True, slots=True)
class SplitAggregate:
    """How one aggregate is computed. Without `splittable`, only `whole` is there."""

    partial: tuple[PartialColumn, ...]
    merge: tuple[str, ...]
    final: str
    whole: str
    type: str
    splittable: bool = True


@dataclass(frozen=True, slots=True)
class Part:
    """One running value: how it is made of rows, and how of partial values.

    Both are texts with {} for what follows the aggregate's call: a filter, a window.
    """

    name: str
    rows: str
    merged: str
    type: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """The running values of an aggregate, and the value that they come to."""

    parts: tuple[Part, ...]
    finish: Callable[..., str]
    type: str


def split_aggregates(
    node: Aggregate,
    settings: Mapping[str, str],
    subqueries: Mapping[str, Translated] | None = None,
) -> list[SplitAggregate]:
    """All aggregates of an operator."""
    schema = {column.name: column for column in node.input.schema}
    return [
        split_aggregate(any_value_of(node, call) or call, schema, settings, subqueries)
        for call in node.aggregates
    ]


def split_aggregate(
    call: AggregateCall,
    schema: Mapping[str, Column],
    settings: Mapping[str, str],
    subqueries: Mapping[str, Translated] | None = None,
) -> SplitAggregate:
    """One aggregate in DuckDB's SQL, or NotSupported."""

    def read(expression: Expression) -> Translated:
        return translate(expression, schema, settings, subqueries)

    arguments = [read(argument) for argument in call.arguments]
    condition = None if call.filter is None else read(call.filter).text
    context = Context(schema, settings)
    if call.distinct:
        return _distinct(call, arguments, condition, context)
    recipe = recipe_of(call.function, arguments, context)
    _check_type(call.function, recipe.type, call.column.type)
    suffix = "" if condition is None else f" FILTER (WHERE {condition})"
    rows = [part.rows.replace("{}", suffix) for part in recipe.parts]
    names = [f"{call.column.name}:{part.name}" for part in recipe.parts]
    return SplitAggregate(
        tuple(
            PartialColumn(name, text, part.type)
            for name, text, part in zip(names, rows, recipe.parts, strict=True)
        ),
        tuple(_merge(part, names, recipe) for part in recipe.parts),
        recipe.finish(*(quoted(name) for name in names)),
        recipe.finish(*rows),
        recipe.type,
    )


def recipe_of(function: str, arguments: list[Translated], context: Context) -> Recipe:
    """The aggregate `function`, as aggregates and windows share it."""
    maker = AGGREGATES.get(function)
    if maker is None:
        raise NotSupported(
            f"aggregate {function}", _REFUSED.get(function, "it is not in the table of aggregates")
        )
    if function != "count" and len(arguments) != 1:
        raise NotSupported(f"aggregate {function}", f"{len(arguments)} arguments")
    return maker(function, arguments, context)


def _merge(part: Part, names: list[str], recipe: Recipe) -> str:
    columns = {p.name: quoted(name) for p, name in zip(recipe.parts, names, strict=True)}
    text = part.merged.replace("{}", "")
    for name, column in columns.items():
        text = text.replace(f"<{name}>", column)
    return text


def _check_type(function: str, found: str, wanted: str) -> None:
    if found != wanted:
        raise NotSupported(f"aggregate {function}", f"it gives {found} where Spark gives {wanted}")


def _distinct(
    call: AggregateCall, arguments: list[Translated], condition: str | None, context: Context
) -> SplitAggregate:
    if call.function in ("min", "max"):
        recipe = recipe_of(call.function, arguments, context)
    elif call.function in ("count", "sum", "avg"):
        recipe = recipe_of(call.function, _distinct_arguments(call, arguments), context)
    else:
        raise NotSupported(f"aggregate {call.function}(DISTINCT)", "only its values are summed")
    _check_type(call.function, recipe.type, call.column.type)
    suffix = "" if condition is None else f" FILTER (WHERE {condition})"
    whole = recipe.finish(*(part.rows.replace("{}", suffix) for part in recipe.parts))
    return SplitAggregate((), (), "", whole, recipe.type, splittable=False)


def _distinct_arguments(call: AggregateCall, arguments: list[Translated]) -> list[Translated]:
    keys = [Translated(normalised_key(argument), argument.type) for argument in arguments]
    if len(keys) == 1:
        return [Translated(f"DISTINCT {keys[0].text}", keys[0].type)]
    if call.function != "count" or not keys:
        raise NotSupported(f"aggregate {call.function}(DISTINCT)", f"{len(keys)} arguments")
    present = " AND ".join(f"{key.text} IS NOT NULL" for key in keys)
    row = f"struct_pack({', '.join(f'c{i} := {key.text}' for i, key in enumerate(keys))})"
    return [Translated(f"DISTINCT CASE WHEN {present} THEN {row} END", "struct")]


def _same(value: str) -> str:
    return value


def _count(function: str, arguments: list[Translated], context: Context) -> Recipe:
    if not arguments:
        raise NotSupported("aggregate count", "it has no argument")
    counted = arguments[0].text
    if len(arguments) > 1:
        present = " AND ".join(f"{argument.text} IS NOT NULL" for argument in arguments)
        counted = f"CASE WHEN {present} THEN 1 END"
    part = Part("count", f"count({counted}){{}}", "CAST(sum(<count>){} AS BIGINT)", "bigint")
    return Recipe((part,), lambda count: f"COALESCE({count}, 0)", "bigint")


def _sum(function: str, arguments: list[Translated], context: Context) -> Recipe:
    value = arguments[0]
    part = _sum_part(value, context)
    return Recipe((part,), _same, part.type)


def _sum_part(value: Translated, context: Context) -> Part:
    need("sum", value, "integral", "decimal", "floating")
    if value.is_decimal:
        context.require_ansi("sum of decimals")
        total = bounded(value.decimal.precision + 10, value.decimal.scale)
        rows = decimals.checked(f"sum({value.text}){{}}", total)
        return Part("sum", rows, decimals.checked("sum(<sum>){}", total), total.ddl)
    if kind_of(value.type) == "integral":
        context.require_ansi("sum of integers")
        rows = f"CAST(sum({value.text}){{}} AS BIGINT)"
        return Part("sum", rows, "CAST(sum(<sum>){} AS BIGINT)", "bigint")
    return _double_sum(value)


def _double_sum(value: Translated) -> Part:
    distinct = "DISTINCT " if value.text.startswith("DISTINCT ") else ""
    inner = Translated(value.text.removeprefix("DISTINCT "), value.type)
    return Part("sum", f"sum({distinct}{cast_text(inner, 'double')}){{}}", "sum(<sum>){}", "double")


def _avg(function: str, arguments: list[Translated], context: Context) -> Recipe:
    value = arguments[0]
    need("avg", value, "integral", "decimal", "floating")
    count = _count("count", [value], context).parts[0]
    if not value.is_decimal:
        total = _double_sum(value)
        return Recipe(
            (total, count),
            lambda sums, counts: f"CASE WHEN {counts} > 0 THEN {sums} / {counts} END",
            "double",
        )
    total = _sum_part(value, context)
    result = bounded(value.decimal.precision + 4, value.decimal.scale + 4)

    def finish(sums: str, counts: str) -> str:
        # The sum of no rows is null; a divisor of null keeps the division from seeing zero rows.
        divisor = f"CAST(NULLIF({counts}, 0) AS {duckdb_type(_COUNT)})"
        return decimals.average(Translated(sums, total.type), Translated(divisor, _COUNT), result)

    return Recipe((total, count), finish, result.ddl)


def _extreme(function: str, arguments: list[Translated], context: Context) -> Recipe:
    value = arguments[0]
    name = "any_value" if function == ONLY_VALUE else function
    part = Part(name, f"{name}({value.text}){{}}", f"{name}(<{name}>){{}}", value.type)
    return Recipe((part,), _same, value.type)


# Two groups of values are merged by their counts, means and sums of squared deviations, which
# loses no digits as sums of squares would.
_STATE = "struct_pack(n := <count>, mean := <mean>, m2 := <m2>)"
_PAIR = (
    "struct_pack(n := a.n + b.n, mean := a.mean + (b.mean - a.mean) * (b.n / (a.n + b.n)), "
    "m2 := a.m2 + b.m2 + (b.mean - a.mean) * (b.mean - a.mean) * (a.n * b.n / (a.n + b.n)))"
)
_REDUCED = (
    f"list_reduce(list({_STATE}) FILTER (WHERE <count> > 0), lambda a, b: {_PAIR}, "
    "struct_pack(n := CAST(0 AS DOUBLE), mean := CAST(0 AS DOUBLE), m2 := CAST(0 AS DOUBLE)))"
)


def _variance(function: str, arguments: list[Translated], context: Context) -> Recipe:
    value = arguments[0]
    need(function, value, "floating")
    finite = f"CASE WHEN isfinite({value.text}) THEN {value.text} END"
    not_finite = f"count(CASE WHEN NOT isfinite({value.text}) THEN 1 END){{}} > 0"
    nan = "CAST('NaN' AS DOUBLE)"
    parts = (
        Part("count", f"CAST(count({value.text}){{}} AS DOUBLE)", _field("n"), "double"),
        Part("mean", _or(not_finite, nan, f"avg({finite}){{}}"), _field("mean"), "double"),
        Part(
            "m2",
            _or(not_finite, nan, f"var_pop({finite}){{}} * count({value.text}){{}}"),
            _field("m2"),
            "double",
        ),
    )
    sample = function not in ("stddev_pop", "var_pop")
    root = function in ("stddev", "std", "stddev_samp", "stddev_pop")

    def finish(count: str, mean: str, m2: str) -> str:
        variance = f"{m2} / ({count} - 1)" if sample else f"{m2} / {count}"
        least = 1 if sample else 0
        wanted = f"sqrt({variance})" if root else variance
        return f"CASE WHEN {count} > {least} THEN {wanted} END"

    return Recipe(parts, finish, "double")


def _field(name: str) -> str:
    return f"({_REDUCED}).{name}"


def _or(condition: str, value: str, otherwise: str) -> str:
    return f"CASE WHEN {condition} THEN {value} ELSE {otherwise} END"


AGGREGATES: dict[str, Callable[[str, list[Translated], Context], Recipe]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "mean": _avg,
    "min": _extreme,
    "max": _extreme,
    ONLY_VALUE: _extreme,
    **dict.fromkeys(("stddev", "std", "stddev_samp", "stddev_pop"), _variance),
    **dict.fromkeys(("variance", "var_samp", "var_pop"), _variance),
}
_ORDER = "its value depends on the order of the rows"
_REFUSED = {
    **dict.fromkeys(("first", "first_value", "last", "last_value", "any_value"), _ORDER),
    **dict.fromkeys(("collect_list", "collect_set"), "the kernels hold no nested values"),
    **dict.fromkeys(("try_sum", "try_avg"), "it gives null where the kernels raise an error"),
}
