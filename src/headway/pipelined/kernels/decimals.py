"""Arithmetic on decimals: Spark's types, Spark's rounding, and an error where 38 digits overflow.

DuckDB adds and multiplies exactly as long as 38 digits hold the exact result, and rounds half up
when a cast drops digits, as Spark does. Where the exact result may need more, the slow functions
of `connection` compute it with Python's decimals, only for the rows that need it. DuckDB divides
decimals as doubles, so division is written out in integers.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.pipelined.kernels.typed import Translated, cast_text
from headway.pipelined.kernels.types import (
    MAX_PRECISION,
    DecimalType,
    adjusted,
    duckdb_type,
)

NEGATED_EXACTLY = 34  # digits
_LONG_DIGITS = 18
_LONGEST_COPIED = 2_000  # characters; the text of a longer operand is written once


def add(left: Translated, right: Translated, sign: str) -> Translated:
    """left + right, or left - right."""
    a, b = left.decimal, right.decimal
    scale = max(a.scale, b.scale)
    precision = max(a.integral_digits, b.integral_digits) + scale + 1
    result = adjusted(precision, scale)
    exact = result if precision <= MAX_PRECISION else DecimalType(MAX_PRECISION, scale)
    text = (
        f"CAST({cast_text(left, exact.ddl)} {sign} {cast_text(right, exact.ddl)} "
        f"AS {duckdb_type(result.ddl)})"
    )
    if precision > MAX_PRECISION:
        text = _or_slowly(text, "add" if sign == "+" else "subtract", left, right, result)
    narrow = None
    if scale <= _LONG_DIGITS and result.scale == scale:
        ddl = DecimalType(_LONG_DIGITS, scale).ddl
        narrow = _narrowly(left, right, sign, result, ddl)
    return _narrowly_or(text, narrow, result)


def multiply(left: Translated, right: Translated) -> Translated:
    a, b = left.decimal, right.decimal
    scale = a.scale + b.scale
    result = adjusted(a.precision + b.precision + 1, scale)
    if scale > MAX_PRECISION:
        return Translated(_slowly("multiply", left, right, result), result.ddl)
    # Two factors of up to 18 digits would be multiplied as 64-bit integers, and overflow.
    factor = left.text
    if a.precision + b.precision > _LONG_DIGITS and max(a.precision, b.precision) <= _LONG_DIGITS:
        factor = cast_text(left, DecimalType(_LONG_DIGITS + 1, a.scale).ddl)
    text = f"CAST({factor} * {right.text} AS {duckdb_type(result.ddl)})"
    if result.scale < scale and a.precision + b.precision > MAX_PRECISION:
        text = _or_slowly(text, "multiply", left, right, result)
    narrow = None
    if scale < _LONG_DIGITS and result.scale == scale:
        narrow = _narrowly(left, right, "*", result, None)
    return _narrowly_or(text, narrow, result)


def _narrowly(
    left: Translated, right: Translated, sign: str, result: DecimalType, ddl: str | None
) -> str | None:
    """The operation in 64-bit integers, where DuckDB checks for overflow; None if not possible."""
    if result.precision <= _LONG_DIGITS:
        return None
    operands = []
    for operand in (left, right):
        text = operand.text if operand.decimal.precision <= _LONG_DIGITS else operand.narrow
        if text is None or _has_subquery(text):
            return None
        operands.append(text if ddl is None else f"CAST({text} AS {duckdb_type(ddl)})")
    target = DecimalType(_LONG_DIGITS, result.scale).ddl
    return f"CAST({operands[0]} {sign} {operands[1]} AS {duckdb_type(target)})"


def _narrowly_or(text: str, narrow: str | None, result: DecimalType) -> Translated:
    """Wide arithmetic costs several times as much, and few values need it."""
    if narrow is None or len(narrow) > _LONGEST_COPIED:
        return Translated(text, result.ddl)
    text = f"COALESCE(TRY(CAST({narrow} AS {duckdb_type(result.ddl)})), {text})"
    return Translated(text, result.ddl, narrow=narrow)


def _has_subquery(text: str) -> bool:
    """DuckDB takes no subquery inside TRY."""
    return "SELECT" in text.upper()


def divide(left: Translated, right: Translated) -> Translated:
    a, b = left.decimal, right.decimal
    scale = max(6, a.scale + b.precision + 1)
    result = adjusted(a.integral_digits + b.scale + scale, scale)
    slow = _slowly("divide", left, right, result)
    wide = _divided(left, right, result, _WIDE, _WIDE.digits, slow)
    return Translated(_divided(left, right, result, _LONG, _LONG.digits, wide), result.ddl)


def average(total: Translated, count: Translated, result: DecimalType) -> str:
    """The quotient as Spark's avg has it: rounded to 39 places, and from there to `result`.

    That differs from rounding once only for counts of so many digits that a remainder can come
    closer to one half than the 39th place shows.
    """
    slow = _slowly("average", total, count, result)
    return _divided(total, count, result, _LONG, min(_LONG.digits, 39 - result.scale), slow)


@dataclass(frozen=True, slots=True)
class _Integers:
    """A type of DuckDB for which numbers of so many digits are not too long."""

    name: str
    digits: int
    decimal: str
    """That holds all of them."""


_LONG = _Integers("BIGINT", _LONG_DIGITS, "DECIMAL(19,0)")
_WIDE = _Integers("HUGEINT", MAX_PRECISION, "DECIMAL(38,0)")


def _divided(
    left: Translated,
    right: Translated,
    result: DecimalType,
    integers: _Integers,
    right_digits: int,
    otherwise: str,
) -> str:
    """The quotient, rounded half up, in integers for operands that leave room for it."""
    a, b = left.decimal, right.decimal
    shift = result.scale + b.scale - a.scale
    left_digits = min(a.precision, integers.digits - shift, MAX_PRECISION - 1 - a.scale)
    right_digits = min(b.precision, right_digits, MAX_PRECISION - 1 - b.scale)
    too_long = max(len(left.text), len(right.text)) > _LONGEST_COPIED
    if shift < 0 or left_digits < 1 or right_digits < 1 or too_long:
        return otherwise
    conditions = [f"{right.text} <> 0"]
    if left_digits < a.precision:
        conditions.append(f"abs({left.text}) < {_power(left_digits - a.scale)}")
    if right_digits < b.precision:
        conditions.append(f"abs({right.text}) < {_power(right_digits - b.scale)}")
    numerator = _unscaled(left, integers)
    if shift:
        numerator = f"({numerator} * CAST('{10**shift}' AS {integers.name}))"
    divisor = _unscaled(right, integers)
    quotient = (
        f"({numerator} // {divisor} + CASE WHEN 2 * abs({numerator} % {divisor}) >= abs({divisor}) "
        f"THEN sign({numerator}) * sign({divisor}) ELSE 0 END)"
    )
    found = _scaled(quotient, integers, result)
    return f"CASE WHEN {' AND '.join(conditions)} THEN {found} ELSE {otherwise} END"


def remainder(left: Translated, right: Translated) -> Translated:
    """left % right, with the sign of left."""
    a, b = left.decimal, right.decimal
    scale = max(a.scale, b.scale)
    result = adjusted(min(a.integral_digits, b.integral_digits) + scale, scale)
    common = max(a.integral_digits, b.integral_digits) + scale
    slow = _slowly("remainder", left, right, result)
    if common > MAX_PRECISION:
        return Translated(slow, result.ddl)
    ddl = DecimalType(common, scale).ddl
    fast = f"CAST({cast_text(left, ddl)} % {cast_text(right, ddl)} AS {duckdb_type(result.ddl)})"
    return Translated(f"CASE WHEN {right.text} <> 0 THEN {fast} ELSE {slow} END", result.ddl)


def negate(value: Translated) -> str:
    """-value. Spark rounds numbers of more than 34 digits on the way, half to even."""
    if value.decimal.precision <= NEGATED_EXACTLY:
        return f"(- {value.text})"
    slow = f"CAST(headway_decimal_negate(CAST({value.text} AS VARCHAR)) AS {_type(value)})"
    short = f"abs({value.text}) < {_power(NEGATED_EXACTLY - value.decimal.scale)}"
    return f"CASE WHEN {short} THEN (- {value.text}) ELSE {slow} END"


def checked(text: str, type_: DecimalType) -> str:
    """A sum that DuckDB made, which knows no limit at 38 nines, brought to its type."""
    if type_.precision < MAX_PRECISION:
        return f"CAST({text} AS {duckdb_type(type_.ddl)})"
    limit = "9" * (MAX_PRECISION - type_.scale) + "." + "9" * type_.scale
    most = f"CAST('{limit.rstrip('.')}' AS {duckdb_type(type_.ddl)})"
    error = "error('[ARITHMETIC_OVERFLOW] a sum of decimals overflows')"
    return (
        f"CASE WHEN abs({text}) > {most} THEN CAST({error} AS {duckdb_type(type_.ddl)}) "
        f"ELSE {text} END"
    )


def _type(value: Translated) -> str:
    return duckdb_type(value.type)


def _slowly(operation: str, left: Translated, right: Translated, result: DecimalType) -> str:
    call = (
        f"headway_decimal_{operation}(CAST({left.text} AS VARCHAR), "
        f"CAST({right.text} AS VARCHAR), {result.scale})"
    )
    return f"CAST({call} AS {duckdb_type(result.ddl)})"


def _or_slowly(
    text: str, operation: str, left: Translated, right: Translated, result: DecimalType
) -> str:
    """The exact way where 38 digits hold every step; what overflows there is computed slowly."""
    too_long = max(len(left.text), len(right.text)) > _LONGEST_COPIED
    if too_long or _has_subquery(left.text) or _has_subquery(right.text):
        return _slowly(operation, left, right, result)
    return f"COALESCE(TRY({text}), {_slowly(operation, left, right, result)})"


def _power(exponent: int) -> str:
    if exponent >= 0:
        return f"CAST('{10**exponent}' AS DECIMAL(38,0))"
    return f"CAST('0.{'0' * (-exponent - 1)}1' AS DECIMAL({-exponent},{-exponent}))"


def _unscaled(value: Translated, integers: _Integers) -> str:
    """The integer behind a decimal that is not too long for it."""
    scale = value.decimal.scale
    if scale == 0:
        return f"CAST({value.text} AS {integers.name})"
    wide = cast_text(value, DecimalType(MAX_PRECISION, scale).ddl)
    return f"CAST({wide} * CAST({10**scale} AS DECIMAL({scale + 1},0)) AS {integers.name})"


def _scaled(integer: str, integers: _Integers, result: DecimalType) -> str:
    """An integer as the decimal that it stands for."""
    number = f"CAST({integer} AS {integers.decimal})"
    if result.scale:
        number = f"{number} * {_power(-result.scale)}"
    return f"CAST({number} AS {duckdb_type(result.ddl)})"
