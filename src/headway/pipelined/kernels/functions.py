"""Functions on numbers, strings and dates, by the meaning that Spark gives them."""

from __future__ import annotations

from headway.base.errors import NotSupported
from headway.pipelined.kernels import decimals
from headway.pipelined.kernels.arithmetic import (
    Writer,
    literal_integer,
    literal_string,
    need,
    need_same,
)
from headway.pipelined.kernels.casts import kind_of
from headway.pipelined.kernels.typed import Context, Translated, string_text
from headway.pipelined.kernels.types import bounded, duckdb_type


def absolute(context: Context, value: Translated) -> Translated:
    need("abs", value, "integral", "decimal", "floating")
    if kind_of(value.type) == "integral":
        context.require_ansi("abs")
    if value.is_decimal and value.decimal.precision > decimals.NEGATED_EXACTLY:
        text = f"CASE WHEN {value.text} < 0 THEN {decimals.negate(value)} ELSE {value.text} END"
        return Translated(text, value.type)
    return Translated(f"abs({value.text})", value.type)


def square_root(context: Context, value: Translated) -> Translated:
    need("sqrt", value, "floating")
    return Translated(
        f"CASE WHEN {value.text} < 0 THEN CAST('NaN' AS DOUBLE) ELSE sqrt({value.text}) END",
        "double",
    )


def to_whole(name: str) -> Writer:
    """ceil and floor."""

    def write(context: Context, value: Translated) -> Translated:
        need(name, value, "integral", "decimal", "floating")
        if value.is_decimal:
            result = bounded(value.decimal.integral_digits + 1, 0)
            if value.decimal.scale == 0:
                return Translated(f"CAST({value.text} AS {duckdb_type(result.ddl)})", result.ddl)
            text = f"CAST({name}({value.text}) AS {duckdb_type(result.ddl)})"
            return Translated(text, result.ddl)
        if kind_of(value.type) == "integral":
            return Translated(f"CAST({value.text} AS BIGINT)", "bigint")
        context.require_ansi(name)
        text = (
            f"CASE WHEN isnan({value.text}) THEN CAST(0 AS BIGINT) "
            f"ELSE CAST({name}({value.text}) AS BIGINT) END"
        )
        return Translated(text, "bigint")

    return write


def rounding(name: str) -> Writer:
    """round (half away from zero) and bround (half to even), to a constant number of places."""

    def write(context: Context, value: Translated, places: Translated | None = None) -> Translated:
        need(name, value, "integral", "decimal", "floating")
        digits = 0 if places is None else literal_integer(name, places)
        if digits < 0:
            raise NotSupported(name, "digits before the point are not rounded here")
        if kind_of(value.type) == "integral":
            return value
        if value.type == "double":
            mode = "ROUND_HALF_UP" if name == "round" else "ROUND_HALF_EVEN"
            rounded = f"headway_round_double({value.text}, {digits}, '{mode}')"
            # A Python function's NaN would come back as null.
            text = f"CASE WHEN isfinite({value.text}) THEN {rounded} ELSE {value.text} END"
            return Translated(text, "double")
        return _round_decimal(name, value, digits)

    return write


def _round_decimal(name: str, value: Translated, digits: int) -> Translated:
    before = value.decimal
    scale = min(before.scale, digits)
    result = bounded(before.integral_digits + 1 + scale, scale)
    if name == "bround" and scale < before.scale:
        text = f"headway_round_half_even(CAST({value.text} AS VARCHAR), {scale})"
    else:
        text = value.text
    return Translated(f"CAST({text} AS {duckdb_type(result.ddl)})", result.ddl)


def is_nan(context: Context, value: Translated) -> Translated:
    need("isnan", value, "floating")
    return Translated(f"COALESCE(isnan({value.text}), false)", "boolean")


def change_case(name: str) -> Writer:
    """DuckDB maps letter by letter; Spark maps ß to SS. What is not ASCII goes the slow way."""

    def write(context: Context, value: Translated) -> Translated:
        need(name, value, "string")
        text = (
            f"CASE WHEN strlen({value.text}) = length({value.text}) THEN {name}({value.text}) "
            f"ELSE headway_{name}({value.text}) END"
        )
        return Translated(text, "string")

    return write


def concat(context: Context, *values: Translated) -> Translated:
    for value in values:
        need("concat", value, "string")
    if not values:
        raise NotSupported("concat", "it has no arguments")
    return Translated(f"({' || '.join(v.text for v in values)})", "string")


def trim(name: str) -> Writer:
    """Only spaces, as Spark does; DuckDB's default is any white space."""

    def write(context: Context, value: Translated) -> Translated:
        need(name, value, "string")
        return Translated(f"{name}({value.text}, ' ')", "string")

    return write


def length(context: Context, value: Translated) -> Translated:
    need("length", value, "string")
    return Translated(f"CAST(length({value.text}) AS INTEGER)", "int")


def test_of(name: str) -> Writer:
    """starts_with, ends_with and contains."""

    def write(context: Context, value: Translated, part: Translated) -> Translated:
        need(name, value, "string")
        need(name, part, "string")
        return Translated(f"{name}({value.text}, {part.text})", "boolean")

    return write


def replace(context: Context, value: Translated, search: Translated, new: Translated) -> Translated:
    for part in (value, search, new):
        need("replace", part, "string")
    text = f"replace({value.text}, {search.text}, {new.text})"
    return Translated(text, "string")


def substring(
    context: Context, value: Translated, position: Translated, count: Translated | None = None
) -> Translated:
    """Position 0 is 1; a negative one counts from the end, and may lie before the start."""
    need("substring", value, "string")
    first = literal_integer("substring", position)
    size = 2**31 - 1 if count is None else literal_integer("substring", count)
    if size <= 0:
        return Translated(f"substring({value.text}, 1, 0)", "string")
    if first >= 0:
        return Translated(f"substring({value.text}, {max(first, 1)}, {size})", "string")
    start = f"(length({value.text}) - {-first})"
    until = f"({start} + {size})"
    text = (
        f"substring({value.text}, greatest({start}, 0) + 1, "
        f"greatest({until} - greatest({start}, 0), 0))"
    )
    return Translated(text, "string")


def like(
    context: Context, value: Translated, pattern: Translated, escape: Translated | None = None
) -> Translated:
    need("LIKE", value, "string")
    text = literal_string("LIKE", pattern)
    sign = "\\" if escape is None else literal_string("LIKE", escape)
    _check_escapes(text, sign)
    clause = f" ESCAPE {string_text(sign)}" if sign in text else ""
    return Translated(f"({value.text} LIKE {string_text(text)}{clause})", "boolean")


def _check_escapes(pattern: str, sign: str) -> None:
    """Spark raises an error for an escape of anything but a wildcard or itself."""
    position = 0
    while position < len(pattern):
        if pattern[position] == sign:
            position += 1
            if position == len(pattern) or pattern[position] not in ("%", "_", sign):
                raise NotSupported("LIKE", f"the pattern {pattern!r} escapes no wildcard")
        position += 1


def date_part(text: str) -> Writer:
    """A number read off a date; `text` says how, with {} for the date."""

    def write(context: Context, value: Translated) -> Translated:
        need("a part of a date", value, "date")
        return Translated(f"CAST({text.format(value.text)} AS INTEGER)", "int")

    return write


def time_part(name: str) -> Writer:
    def write(context: Context, value: Translated) -> Translated:
        need(name, value, "timestamp")
        return Translated(f"CAST({name}({value.text}) AS INTEGER)", "int")

    return write


def add_days(sign: str) -> Writer:
    def write(context: Context, value: Translated, days: Translated) -> Translated:
        need("date_add", value, "date")
        need("date_add", days, "integral")
        return Translated(f"({value.text} {sign} CAST({days.text} AS INTEGER))", "date")

    return write


def days_between(context: Context, end: Translated, start: Translated) -> Translated:
    need("datediff", end, "date")
    need("datediff", start, "date")
    return Translated(f"CAST({end.text} - {start.text} AS INTEGER)", "int")


def add_months(context: Context, value: Translated, months: Translated) -> Translated:
    need("add_months", value, "date")
    need("add_months", months, "integral")
    text = f"CAST({value.text} + to_months(CAST({months.text} AS INTEGER)) AS DATE)"
    return Translated(text, "date")


def last_day(context: Context, value: Translated) -> Translated:
    need("last_day", value, "date")
    return Translated(f"last_day({value.text})", "date")


_TRUNCATIONS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MON", "MM"), "month"),
    "WEEK": "week",
}


def truncate(context: Context, value: Translated, unit: Translated) -> Translated:
    need("trunc", value, "date")
    name = literal_string("trunc", unit)
    if name.upper() not in _TRUNCATIONS:
        raise NotSupported("trunc", f"the unit {name} is not supported")
    return Translated(
        f"CAST(date_trunc('{_TRUNCATIONS[name.upper()]}', {value.text}) AS DATE)", "date"
    )


def constant_array(context: Context, *values: Translated) -> Translated:
    """Of constants. As a subquery it is made once, and not for every vector of rows."""
    ddl = need_same("array", *values)
    whole = all(isinstance(value.literal, int) for value in values)
    texts = (str(value.literal) if whole else value.text for value in values)
    return Translated(f"(SELECT [{', '.join(texts)}]::{duckdb_type(ddl)}[])", f"array<{ddl}>")


def element_at(context: Context, array: Translated, place: Translated) -> Translated:
    """Null beyond the end; an error at 0, as Spark counts from 1."""
    need("try_element_at", place, "integral")
    if not array.type.startswith("array<"):
        raise NotSupported("try_element_at", "it is not of an array of constants")
    wrong = "error('[INVALID_INDEX_OF_ZERO] The index 0 is invalid')"
    checked = f"CASE WHEN {place.text} = 0 THEN CAST({wrong} AS INTEGER) ELSE {place.text} END"
    return Translated(f"{array.text}[{checked}]", array.type[len("array<") : -1])
