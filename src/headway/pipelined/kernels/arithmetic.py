"""Operators on numbers, comparisons and logic."""

from __future__ import annotations

from collections.abc import Callable

from headway.base.errors import NotSupported
from headway.pipelined.kernels import decimals
from headway.pipelined.kernels.casts import kind_of
from headway.pipelined.kernels.typed import Context, Translated, raise_text

Writer = Callable[..., Translated]
"""Takes the context and the translated arguments."""


def need(what: str, value: Translated, *kinds: str) -> None:
    """Refuses an argument of another kind."""
    if kind_of(value.type) not in kinds:
        raise NotSupported(f"{what} on {value.type}", f"only {', '.join(kinds)} is supported")


def need_same(what: str, *values: Translated) -> str:
    """The one type of all values. Spark's optimised plans spell out every cast."""
    types = list(dict.fromkeys(value.type for value in values))
    if len(types) > 1 or types[0] == "void":
        raise NotSupported(f"{what} on {' and '.join(types)}", "the types differ")
    return types[0]


def literal_integer(what: str, value: Translated) -> int:
    if not isinstance(value.literal, int):
        raise NotSupported(what, "its argument is no constant")
    return value.literal


def literal_string(what: str, value: Translated) -> str:
    if not isinstance(value.literal, str):
        raise NotSupported(what, "its argument is no constant")
    return value.literal


def _both_decimals(what: str, context: Context, left: Translated, right: Translated) -> bool:
    if not (left.is_decimal and right.is_decimal):
        return False
    context.require_ansi(f"{what} on decimals")
    context.require_decimal_rules()
    return True


def _numbers(what: str, context: Context, left: Translated, right: Translated) -> str:
    ddl = need_same(what, left, right)
    need(what, left, "integral", "floating")
    if kind_of(ddl) == "integral":
        context.require_ansi(f"{what} on {ddl}")
    return ddl


def plus_or_minus(sign: str) -> Writer:
    def write(context: Context, left: Translated, right: Translated) -> Translated:
        if _both_decimals(sign, context, left, right):
            return decimals.add(left, right, sign)
        ddl = _numbers(sign, context, left, right)
        return Translated(f"({left.text} {sign} {right.text})", ddl)

    return write


def times(context: Context, left: Translated, right: Translated) -> Translated:
    if _both_decimals("*", context, left, right):
        return decimals.multiply(left, right)
    ddl = _numbers("*", context, left, right)
    return Translated(f"({left.text} * {right.text})", ddl)


def divided_by(context: Context, left: Translated, right: Translated) -> Translated:
    if _both_decimals("/", context, left, right):
        return decimals.divide(left, right)
    need_same("/", left, right)
    need("/", left, "floating")
    context.require_ansi("/")
    return _unless_zero("DIVIDE_BY_ZERO", f"{left.text} / {right.text}", left, right, left.type)


def integral_divided_by(context: Context, left: Translated, right: Translated) -> Translated:
    need_same("DIV", left, right)
    need("DIV", left, "integral")
    context.require_ansi("DIV")
    quotient = f"CAST({left.text} AS BIGINT) // CAST({right.text} AS BIGINT)"
    return _unless_zero("DIVIDE_BY_ZERO", quotient, left, right, "bigint")


def modulo(context: Context, left: Translated, right: Translated) -> Translated:
    if _both_decimals("%", context, left, right):
        return decimals.remainder(left, right)
    ddl = _numbers("%", context, left, right)
    context.require_ansi("%")
    rest = f"{left.text} % {right.text}"
    if kind_of(ddl) == "integral":  # DuckDB overflows on the smallest number % -1
        rest = f"CASE WHEN {right.text} = -1 THEN {left.text} & 0 ELSE {rest} END"
    return _unless_zero("REMAINDER_BY_ZERO", rest, left, right, ddl)


def _unless_zero(
    error: str, text: str, left: Translated, right: Translated, ddl: str
) -> Translated:
    """Nulls come first: null divided by zero is null."""
    raised = raise_text(error, "division by zero", ddl)
    condition = f"{right.text} = 0 AND {left.text} IS NOT NULL"
    return Translated(f"CASE WHEN {condition} THEN {raised} ELSE {text} END", ddl)


def negative(context: Context, value: Translated) -> Translated:
    need("unary -", value, "integral", "decimal", "floating")
    if kind_of(value.type) == "integral":
        context.require_ansi("unary -")
    if value.is_decimal:
        return Translated(decimals.negate(value), value.type)
    return Translated(f"(- {value.text})", value.type)


def bitwise(sign: str) -> Writer:
    def write(context: Context, left: Translated, right: Translated) -> Translated:
        ddl = need_same(sign, left, right)
        need(sign, left, "integral")
        if sign == "^":
            return Translated(f"xor({left.text}, {right.text})", ddl)
        return Translated(f"({left.text} {sign} {right.text})", ddl)

    return write


def bitwise_not(context: Context, value: Translated) -> Translated:
    need("~", value, "integral")
    return Translated(f"(~ {value.text})", value.type)


def shift_right(context: Context, value: Translated, count: Translated) -> Translated:
    need("shiftright", value, "integral")
    bits = 64 if value.type == "bigint" else 32
    shift = literal_integer("shiftright", count) % bits  # as Java does
    return Translated(f"({value.text} >> CAST({shift} AS {_shift_type(value.type)}))", value.type)


def _shift_type(ddl: str) -> str:
    return "BIGINT" if ddl == "bigint" else "INTEGER"


def comparison(sign: str) -> Writer:
    """NaN equals NaN and is the greatest, strings compare by bytes: DuckDB as Spark."""

    def write(context: Context, left: Translated, right: Translated) -> Translated:
        need_same(sign, left, right)
        return Translated(f"({left.text} {sign} {right.text})", "boolean")

    return write


def logical(word: str) -> Writer:
    def write(context: Context, left: Translated, right: Translated) -> Translated:
        need(word, left, "boolean")
        need(word, right, "boolean")
        return Translated(f"({left.text} {word} {right.text})", "boolean")

    return write


def negation(context: Context, value: Translated) -> Translated:
    need("NOT", value, "boolean")
    return Translated(f"(NOT {value.text})", "boolean")


def is_null(context: Context, value: Translated) -> Translated:
    return Translated(f"({value.text} IS NULL)", "boolean")


def is_in(context: Context, value: Translated, *items: Translated) -> Translated:
    need_same("IN", value, *items)
    return Translated(f"({value.text} IN ({', '.join(i.text for i in items)}))", "boolean")


def case(context: Context, *parts: Translated) -> Translated:
    """Conditions and values in turn, then perhaps the value otherwise."""
    pairs = list(zip(parts[:-1:2], parts[1::2], strict=False))
    otherwise = parts[-1:] if len(parts) % 2 else ()
    ddl = need_same("CASE", *(value for _, value in pairs), *otherwise)
    for condition, _ in pairs:
        need("CASE", condition, "boolean")
    texts = [f" WHEN {condition.text} THEN {value.text}" for condition, value in pairs]
    texts += [f" ELSE {value.text}" for value in otherwise]
    return Translated(f"CASE{''.join(texts)} END", ddl)


def coalesce(context: Context, *values: Translated) -> Translated:
    ddl = need_same("coalesce", *values)
    return Translated(f"COALESCE({', '.join(v.text for v in values)})", ddl)


def extreme(name: str) -> Writer:
    """greatest and least: nulls are passed over, NaN is the greatest."""

    def write(context: Context, *values: Translated) -> Translated:
        ddl = need_same(name, *values)
        return Translated(f"{name}({', '.join(v.text for v in values)})", ddl)

    return write
