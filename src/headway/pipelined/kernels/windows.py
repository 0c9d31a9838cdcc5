"""Window functions with their OVER clause."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headway.base.errors import NotSupported
from headway.pipelined.kernels.aggregates import AGGREGATES, recipe_of
from headway.pipelined.kernels.arithmetic import literal_integer
from headway.pipelined.kernels.sorting import sort_key
from headway.pipelined.kernels.translate import normalised_key, translate
from headway.pipelined.kernels.typed import Context, Translated
from headway.plan.expressions import Column
from headway.plan.nodes import Window, WindowCall

RANKS = {
    "rank": "int",
    "dense_rank": "int",
    "row_number": "int",
    "percent_rank": "double",
    "cume_dist": "double",
}
OFFSETS = ("lag", "lead")
POSITIONS = ("first_value", "last_value")

_BOUND = r"(?:UNBOUNDED PRECEDING|UNBOUNDED FOLLOWING|CURRENT ROW|\d+ PRECEDING|\d+ FOLLOWING)"
_FRAME = re.compile(rf"(ROWS|RANGE) BETWEEN ({_BOUND}) AND ({_BOUND})")
_SPREAD_OUT = "squared deviations over a moving frame have no kernel"


def window_call(
    window: Window,
    call: WindowCall,
    settings: Mapping[str, str],
    subqueries: Mapping[str, Translated] | None = None,
) -> Translated:
    """The call as a DuckDB expression over the window's input."""
    schema = {column.name: column for column in window.input.schema}
    arguments = [translate(e, schema, settings, subqueries) for e in call.arguments]
    if call.ignore_nulls:
        raise NotSupported(f"window function {call.function}", "IGNORE NULLS is not supported")
    over = f" OVER ({_specification(window, call, schema, settings, subqueries)})"
    if call.filter is not None:
        if call.function not in AGGREGATES:
            raise NotSupported(f"window function {call.function}", "it takes no filter")
        condition = translate(call.filter, schema, settings, subqueries).text
        over = f" FILTER (WHERE {condition}){over}"
    found = _write(call, arguments, over, Context(schema, settings))
    if found.type != call.column.type:
        raise NotSupported(
            f"window function {call.function}",
            f"it gives {found.type} where Spark gives {call.column.type}",
        )
    return found


def _write(
    call: WindowCall, arguments: list[Translated], over: str, context: Context
) -> Translated:
    name = call.function
    if name in RANKS and not arguments:
        cast = "INTEGER" if RANKS[name] == "int" else "DOUBLE"
        return Translated(f"CAST({name}(){over} AS {cast})", RANKS[name])
    if name in OFFSETS:
        return _offset(name, arguments, over)
    if name in POSITIONS and len(arguments) == 1:
        return Translated(f"{name}({arguments[0].text}){over}", arguments[0].type)
    if name not in AGGREGATES:
        raise NotSupported(f"window function {name}", "it is not in the table of functions")
    recipe = recipe_of(name, arguments, context)
    if len(recipe.parts) > 2:
        raise NotSupported(f"window function {name}", _SPREAD_OUT)
    texts = [part.rows.replace("{}", over) for part in recipe.parts]
    return Translated(recipe.finish(*texts), recipe.type)


def _offset(name: str, arguments: list[Translated], over: str) -> Translated:
    value, offset, *default = arguments
    distance = literal_integer(name, offset)
    if default and default[0].type not in (value.type, "void"):
        raise NotSupported(f"window function {name}", "its default is of another type")
    rest = "".join(f", {other.text}" for other in default)
    return Translated(f"{name}({value.text}, {distance}{rest}){over}", value.type)


def _specification(
    window: Window,
    call: WindowCall,
    schema: Mapping[str, Column],
    settings: Mapping[str, str],
    subqueries: Mapping[str, Translated] | None,
) -> str:
    parts = []
    if window.partition_by:
        keys = (translate(e, schema, settings, subqueries) for e in window.partition_by)
        parts.append("PARTITION BY " + ", ".join(map(normalised_key, keys)))
    if window.order_by:
        keys_text = (sort_key(key, schema, settings, subqueries) for key in window.order_by)
        parts.append("ORDER BY " + ", ".join(keys_text))
    if call.frame is not None:
        parts.append(_frame(call.frame))
    return " ".join(parts)


def _frame(text: str) -> str:
    match = _FRAME.fullmatch(text)
    if match is None:
        raise NotSupported(f"window frame {text}", "it is not supported")
    if match.group(1) == "RANGE" and any(part[0].isdigit() for part in match.groups()[1:]):
        raise NotSupported(f"window frame {text}", "distances between values are not supported")
    return text
