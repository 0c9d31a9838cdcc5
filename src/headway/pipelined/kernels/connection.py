"""A DuckDB connection set up for the kernels: settings, and the functions that DuckDB lacks.

The functions are slow (Python, row by row) and exact. The translation calls them only for rows
that DuckDB's own operators cannot serve with Spark's meaning.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb

from headway.pipelined.kernels.typed import string_text

_SETTINGS = (
    ("TimeZone", "'UTC'"),
    ("integer_division", "false"),
    ("default_order", "'ASC'"),
    ("default_null_order", "'NULLS_FIRST'"),
    ("ieee_floating_point_ops", "true"),
    ("preserve_insertion_order", "true"),  # what stands above a sort keeps its order
    ("scalar_subquery_error_on_multiple_rows", "true"),
    ("python_enable_replacements", "false"),  # a table's name never means a Python variable
    ("autoinstall_known_extensions", "false"),
    ("autoload_known_extensions", "false"),
    # It tests every row once for each part of an expand, before the parts do.
    ("disabled_optimizers", "'cte_filter_pusher'"),
)
_SET_ALL = "; ".join(f"SET {name} = {value}" for name, value in _SETTINGS)
_EXACT = decimal.Context(prec=500, rounding=decimal.ROUND_HALF_UP)
_LONGEST_QUOTIENT = 39  # digits, of which Spark takes a remainder
_DECIMAL_128 = decimal.Context(prec=34, rounding=decimal.ROUND_HALF_EVEN)  # Scala's default
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_BLANK = "".join(map(chr, range(0x21))) + "\x7f"
_SPECIAL = {"inf": "inf", "infinity": "inf", "nan": "nan"}


def configure(connection: duckdb.DuckDBPyConnection, *, readable: Iterable[str] = ()) -> None:
    """Settings and functions that the translated texts rely on; once per connection and cursor.

    From then on the database reads files only under the folders `readable` of the first call.
    """
    set_up(connection)
    if _is_sealed(connection):
        return
    add_functions(connection)
    seal(connection, readable)


def set_up(connection: duckdb.DuckDBPyConnection) -> None:
    """The settings, which every connection and cursor has of its own."""
    connection.execute(_SET_ALL)


def add_functions(connection: duckdb.DuckDBPyConnection) -> None:
    """The functions that DuckDB lacks; once per database."""
    for name, (function, arguments, result) in FUNCTIONS.items():
        connection.create_function(name, function, list(arguments), result)


def seal(connection: duckdb.DuckDBPyConnection, readable: Iterable[str]) -> None:
    """From now on the database reads files only under these folders."""
    folders = ", ".join(string_text(folder) for folder in readable)
    connection.execute(f"SET allowed_directories = [{folders}]")
    connection.execute("SET enable_external_access = false")


def _is_sealed(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether another connection to the same database was configured before."""
    row = connection.execute("SELECT current_setting('enable_external_access')").fetchone()
    return row is not None and not row[0]


def _rounded(value: Decimal, scale: int) -> str:
    return format(_EXACT.quantize(value, Decimal(1).scaleb(-scale)), "f")


def _add(left: str, right: str, scale: int) -> str:
    return _rounded(_EXACT.add(Decimal(left), Decimal(right)), scale)


def _subtract(left: str, right: str, scale: int) -> str:
    return _rounded(_EXACT.subtract(Decimal(left), Decimal(right)), scale)


def _multiply(left: str, right: str, scale: int) -> str:
    return _rounded(_EXACT.multiply(Decimal(left), Decimal(right)), scale)


def _divide(left: str, right: str, scale: int) -> str:
    divisor = Decimal(right)
    if not divisor:
        raise ZeroDivisionError("[DIVIDE_BY_ZERO] division by zero")
    return format(_quotient(Decimal(left), divisor, scale), "f")


def _average(total: str, count: str, scale: int) -> str:
    return _rounded(_quotient(Decimal(total), Decimal(count), 39), scale)


def _quotient(left: Decimal, right: Decimal, places: int) -> Decimal:
    """Rounded half up to `places`, from the exact remainder."""
    numerator, divisor = left.as_integer_ratio(), right.as_integer_ratio()
    above = numerator[0] * divisor[1] * 10**places
    below = numerator[1] * divisor[0]
    quotient, rest = divmod(abs(above), abs(below))
    quotient += 2 * rest >= abs(below)
    signed = quotient if (above < 0) == (below < 0) else -quotient
    return _EXACT.scaleb(Decimal(signed), -places)


def _remainder(left: str, right: str, scale: int) -> str:
    divisor = Decimal(right)
    if not divisor:
        raise ZeroDivisionError("[REMAINDER_BY_ZERO] remainder by zero")
    quotient = int(_EXACT.divide_int(Decimal(left), divisor))
    beyond = len(str(abs(quotient))) - _LONGEST_QUOTIENT
    if beyond > 0 and quotient % 10**beyond:
        raise ArithmeticError("[ARITHMETIC_OVERFLOW] the quotient has more than 39 digits")
    return _rounded(_EXACT.remainder(Decimal(left), divisor), scale)


def _negate(value: str) -> str:
    return format(_DECIMAL_128.minus(Decimal(value)), "f")


def _parse_decimal(text: str, scale: int) -> str:
    stripped = text.strip(_BLANK)
    if not _NUMBER.fullmatch(stripped):
        raise ValueError(f"[CAST_INVALID_INPUT] {text!r} is no decimal")
    value = Decimal(stripped)
    if value and value.adjusted() > 38:
        raise ValueError(f"[NUMERIC_VALUE_OUT_OF_RANGE] {text!r} has more than 38 digits")
    return _rounded(value, scale)


def _decimal_of_double(value: float, scale: int) -> str:
    return _rounded(Decimal(repr(value)), scale)


def _parse_double(text: str) -> str:
    stripped = text.strip(_BLANK)
    if stripped[-1:] in ("d", "D", "f", "F") and _NUMBER.fullmatch(stripped[:-1]):
        stripped = stripped[:-1]
    if _NUMBER.fullmatch(stripped):
        return repr(float(stripped))
    sign, word = ("-", stripped[1:]) if stripped.startswith("-") else ("", stripped.lstrip("+"))
    special = _SPECIAL.get(word.lower())
    if special is None or (special == "nan" and word is not stripped):
        raise ValueError(f"[CAST_INVALID_INPUT] {text!r} is no double")
    return sign + special


def _parse_date(text: str) -> date:
    match = _DATE.fullmatch(text.strip(_BLANK))
    if match is None:
        raise ValueError(f"[CAST_INVALID_INPUT] {text!r} is no date")
    year, month, day = (int(part or 1) for part in match.groups())
    return date(year, month, day)


def _round_double(value: float, scale: int, mode: str) -> float:
    context = decimal.Context(prec=800, rounding=mode)
    rounded = float(context.quantize(Decimal(repr(value)), Decimal(1).scaleb(-scale)))
    return rounded + 0.0  # Java's decimals have no negative zero


def _round_half_even(value: str, scale: int) -> str:
    context = decimal.Context(prec=200, rounding=decimal.ROUND_HALF_EVEN)
    return format(context.quantize(Decimal(value), Decimal(1).scaleb(-scale)), "f")


_Function = tuple[Callable[..., Any], tuple[str, ...], str]
_DECIMALS = ("VARCHAR", "VARCHAR", "INTEGER")

FUNCTIONS: dict[str, _Function] = {
    "headway_decimal_add": (_add, _DECIMALS, "VARCHAR"),
    "headway_decimal_subtract": (_subtract, _DECIMALS, "VARCHAR"),
    "headway_decimal_multiply": (_multiply, _DECIMALS, "VARCHAR"),
    "headway_decimal_divide": (_divide, _DECIMALS, "VARCHAR"),
    "headway_decimal_average": (_average, _DECIMALS, "VARCHAR"),
    "headway_decimal_remainder": (_remainder, _DECIMALS, "VARCHAR"),
    "headway_decimal_negate": (_negate, ("VARCHAR",), "VARCHAR"),
    "headway_parse_decimal": (_parse_decimal, ("VARCHAR", "INTEGER"), "VARCHAR"),
    "headway_decimal_of_double": (_decimal_of_double, ("DOUBLE", "INTEGER"), "VARCHAR"),
    "headway_parse_double": (_parse_double, ("VARCHAR",), "VARCHAR"),
    "headway_parse_date": (_parse_date, ("VARCHAR",), "DATE"),
    "headway_round_double": (_round_double, ("DOUBLE", "INTEGER", "VARCHAR"), "DOUBLE"),
    "headway_round_half_even": (_round_half_even, ("VARCHAR", "INTEGER"), "VARCHAR"),
    "headway_upper": (str.upper, ("VARCHAR",), "VARCHAR"),
    "headway_lower": (str.lower, ("VARCHAR",), "VARCHAR"),
}
