"""Casts, by the kinds of type they lead from and to. What is not listed is refused."""

from __future__ import annotations

from collections.abc import Callable

from headway.base.errors import NotSupported
from headway.pipelined.kernels.typed import Context, Translated, raise_text
from headway.pipelined.kernels.types import (
    FLOATING,
    INTEGRAL,
    decimal_type,
    duckdb_type,
)

CastWriter = Callable[[Translated, str], str]

_BLANK = r"[\x00-\x20\x7F]*"
_LIMITS = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_EXACT_IN_DOUBLE = 15  # decimal digits


def cast(value: Translated, ddl: str, context: Context) -> Translated:
    """`value` as the type `ddl`, with an error where Spark's ANSI cast raises one."""
    if value.type == ddl:
        return value
    duckdb_type(ddl)
    if value.type == "void":
        return Translated(f"CAST(NULL AS {duckdb_type(ddl)})", ddl)
    pair = (kind_of(value.type), kind_of(ddl))
    writer = CASTS.get(pair)
    what = f"CAST from {value.type} to {ddl}"
    if writer is None:
        raise NotSupported(what, _REFUSED.get(pair, "it is not in the table of casts"))
    if not _never_fails(value.type, ddl):
        context.require_ansi(what)
    return Translated(writer(value, ddl), ddl)


def kind_of(ddl: str) -> str:
    if ddl in INTEGRAL:
        return "integral"
    if ddl in FLOATING:
        return "floating"
    return "decimal" if decimal_type(ddl) is not None else ddl


def _never_fails(source: str, target: str) -> bool:
    """Whether ANSI mode makes no difference."""
    if source in INTEGRAL and target in INTEGRAL:
        return INTEGRAL.index(source) <= INTEGRAL.index(target)
    a, b = decimal_type(source), decimal_type(target)
    if source in _DIGITS and b is not None:
        return b.integral_digits >= _DIGITS[source]
    if a is not None and b is not None:
        return a.scale <= b.scale and a.integral_digits <= b.integral_digits
    if target == "double":
        return source != "string"
    return target == "string" and a is None


def _plain(value: Translated, ddl: str) -> str:
    return f"CAST({value.text} AS {duckdb_type(ddl)})"


def _not_zero(value: Translated, ddl: str) -> str:
    return f"({value.text} <> 0)"


def _truncated(value: Translated, ddl: str) -> str:
    return f"CAST(trunc({value.text}) AS {duckdb_type(ddl)})"


def _floating_to_integral(value: Translated, ddl: str) -> str:
    # The largest double that Spark lets through is the limit itself, cut to the largest integer.
    limit = f"CAST({_LIMITS[ddl]} AS DOUBLE)"
    most = f"CAST({_LIMITS[ddl] - 1} AS {duckdb_type(ddl)})"
    cut = f"CAST(trunc({value.text}) AS {duckdb_type(ddl)})"
    if ddl != "bigint":
        return cut
    return f"CASE WHEN {value.text} = {limit} THEN {most} ELSE {cut} END"


def _decimal_to_floating(value: Translated, ddl: str) -> str:
    if ddl == "float":
        raise NotSupported(f"CAST from {value.type} to float", "it would round twice")
    if value.decimal.precision <= _EXACT_IN_DOUBLE:
        return _plain(value, ddl)
    return f"CAST(CAST({value.text} AS VARCHAR) AS DOUBLE)"


def _floating_to_decimal(value: Translated, ddl: str) -> str:
    target = decimal_type(ddl)
    assert target is not None
    if value.type == "float":
        raise NotSupported(f"CAST from float to {ddl}", "Spark reads the float's own digits")
    text = f"headway_decimal_of_double({value.text}, {target.scale})"
    # What is no number becomes null, in ANSI mode too.
    return f"CASE WHEN isfinite({value.text}) THEN CAST({text} AS {duckdb_type(ddl)}) END"


def _floating_to_floating(value: Translated, ddl: str) -> str:
    if ddl == "float":
        raise NotSupported("CAST from double to float", "DuckDB raises where Spark gives infinity")
    return _plain(value, ddl)


def _integral_to_floating(value: Translated, ddl: str) -> str:
    return _plain(value, ddl)


def _string_to_integral(value: Translated, ddl: str) -> str:
    error = raise_text("CAST_INVALID_INPUT", f"a string is no {ddl}", ddl)
    digits = rf"regexp_extract({value.text}, '[+-]?[0-9]+')"
    return (
        f"CASE WHEN {value.text} IS NULL THEN NULL "
        f"WHEN regexp_full_match({value.text}, '{_BLANK}[+-]?[0-9]+{_BLANK}', 's') "
        f"THEN CAST(ltrim({digits}, '+') AS {duckdb_type(ddl)}) ELSE {error} END"
    )


def _string_to_decimal(value: Translated, ddl: str) -> str:
    target = decimal_type(ddl)
    assert target is not None
    return f"CAST(headway_parse_decimal({value.text}, {target.scale}) AS {duckdb_type(ddl)})"


def _string_to_floating(value: Translated, ddl: str) -> str:
    if ddl == "float":
        raise NotSupported("CAST from string to float", "it would round twice")
    return f"CAST(headway_parse_double({value.text}) AS DOUBLE)"


def _string_to_date(value: Translated, ddl: str) -> str:
    return f"headway_parse_date({value.text})"


def _string_to_boolean(value: Translated, ddl: str) -> str:
    word = rf"lower(regexp_replace({value.text}, '^{_BLANK}|{_BLANK}$', '', 'gs'))"
    error = raise_text("CAST_INVALID_INPUT", "a string is no boolean", ddl)
    return (
        f"CASE WHEN {value.text} IS NULL THEN NULL "
        f"WHEN {word} IN ('t', 'true', 'y', 'yes', '1') THEN true "
        f"WHEN {word} IN ('f', 'false', 'n', 'no', '0') THEN false ELSE {error} END"
    )


def _date_to_string(value: Translated, ddl: str) -> str:
    error = raise_text("KERNEL_NOT_SUPPORTED", "a date outside the years 1 to 9999 as text", ddl)
    return (
        f"CASE WHEN {value.text} IS NULL THEN NULL "
        f"WHEN year({value.text}) BETWEEN 1 AND 9999 THEN CAST({value.text} AS VARCHAR) "
        f"ELSE {error} END"
    )


CASTS: dict[tuple[str, str], CastWriter] = {
    ("boolean", "integral"): _plain,
    ("boolean", "string"): _plain,
    ("integral", "integral"): _plain,
    ("integral", "decimal"): _plain,
    ("integral", "floating"): _integral_to_floating,
    ("integral", "string"): _plain,
    ("integral", "boolean"): _not_zero,
    ("decimal", "integral"): _truncated,
    ("decimal", "decimal"): _plain,
    ("decimal", "floating"): _decimal_to_floating,
    ("decimal", "string"): _plain,
    ("decimal", "boolean"): _not_zero,
    ("floating", "integral"): _floating_to_integral,
    ("floating", "decimal"): _floating_to_decimal,
    ("floating", "floating"): _floating_to_floating,
    ("string", "integral"): _string_to_integral,
    ("string", "decimal"): _string_to_decimal,
    ("string", "floating"): _string_to_floating,
    ("string", "date"): _string_to_date,
    ("string", "boolean"): _string_to_boolean,
    ("date", "string"): _date_to_string,
    ("date", "timestamp"): _plain,
    ("timestamp", "date"): _plain,
}

_REFUSED = {
    ("floating", "string"): "DuckDB writes floating-point numbers in other digits than Spark",
    ("timestamp", "string"): "DuckDB writes moments in another form than Spark",
    ("string", "timestamp"): "the forms in which Spark reads moments have no kernel",
}
