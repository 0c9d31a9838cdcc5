"""Spark's types and constants as the texts that a plan holds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

from headway.plan.expressions import quote, string_literal, type_text

_SIMPLE = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ddl_of(json_type: Any) -> str:
    """A type as Spark's JSON has it, in Spark's DDL."""
    if isinstance(json_type, str):
        return _SIMPLE.get(json_type, json_type)
    kind = json_type["type"]
    if kind == "array":
        return f"array<{ddl_of(json_type['elementType'])}>"
    if kind == "map":
        return f"map<{ddl_of(json_type['keyType'])},{ddl_of(json_type['valueType'])}>"
    if kind == "struct":
        # A plain name without back-ticks, and a space: it must not read as a column, nor `:int`
        # as a parameter. An expression that holds an odd name is refused for reading it so.
        inner = (f"{_field_name(f['name'])}: {ddl_of(f['type'])}" for f in json_type["fields"])
        return f"struct<{','.join(inner)}>"
    return str(kind)


def _field_name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else quote(name)


def constant_text(value: str | None, ddl: str) -> str | None:
    """The text of a constant from Catalyst's own text of it; None when that does not suffice."""
    if value is None:
        return "NULL" if ddl == "void" else f"CAST(NULL AS {type_text(ddl)})"
    if ddl in ("boolean", "int"):
        return value
    if ddl == "string":
        return string_literal(value)
    if ddl == "date":
        return f"DATE '{value}'"
    if ddl == "double" and value not in ("NaN", "Infinity", "-Infinity"):
        return f"{value}D"
    if ddl in ("double", "float"):
        return f"CAST('{value}' AS {ddl.upper()})"
    if ddl.startswith("decimal"):
        return _decimal_text(value, ddl)
    suffix = {"bigint": "L", "smallint": "S", "tinyint": "Y"}.get(ddl)
    return None if suffix is None else f"{value}{suffix}"


def _decimal_text(value: str, ddl: str) -> str:
    whole, _, fraction = value.lstrip("-").partition(".")
    digits = len(fraction) + len(whole.lstrip("0"))
    natural = f"decimal({max(digits, len(fraction), 1)},{len(fraction)})"
    literal = f"{value}BD"
    return literal if natural == ddl and "E" not in value else f"CAST({literal} AS {ddl.upper()})"


def timestamp_text(microseconds: int, *, zoned: bool) -> str | None:
    """A moment as a constant that means the same in every time zone; None beyond year 9999."""
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
    text = moment.strftime("%Y-%m-%d %H:%M:%S.%f").zfill(26)
    return f"TIMESTAMP '{text}Z'" if zoned else f"TIMESTAMP_NTZ '{text}'"
