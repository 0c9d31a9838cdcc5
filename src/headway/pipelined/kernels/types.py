"""Types in their three spellings: Spark's DDL (what plans hold), DuckDB's, and Arrow's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow

from headway.base.errors import NotSupported

MAX_PRECISION = 38
_MINIMUM_ADJUSTED_SCALE = 6

INTEGRAL = ("tinyint", "smallint", "int", "bigint")
FLOATING = ("float", "double")
TEMPORAL = ("date", "timestamp", "timestamp_ntz")

_DUCKDB = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}
_SPARK = {duckdb: spark for spark, duckdb in _DUCKDB.items()}
_ARROW = {
    "boolean": pyarrow.bool_(),
    "tinyint": pyarrow.int8(),
    "smallint": pyarrow.int16(),
    "int": pyarrow.int32(),
    "bigint": pyarrow.int64(),
    "float": pyarrow.float32(),
    "double": pyarrow.float64(),
    "string": pyarrow.string(),
    "date": pyarrow.date32(),
    "timestamp": pyarrow.timestamp("us", tz="UTC"),
    "timestamp_ntz": pyarrow.timestamp("us"),
}
_UTC = {"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "UCT", "Zulu", "+00:00"}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A decimal's digits in all, and after the point."""

    precision: int
    scale: int

    @property
    def ddl(self) -> str:
        return f"decimal({self.precision},{self.scale})"

    @property
    def integral_digits(self) -> int:
        return self.precision - self.scale


def decimal_type(ddl: str) -> DecimalType | None:
    match = _DECIMAL.fullmatch(ddl)
    return None if match is None else DecimalType(int(match.group(1)), int(match.group(2)))


def bounded(precision: int, scale: int) -> DecimalType:
    """Cut off at 38 digits, as Spark types what it adds up."""
    return DecimalType(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def adjusted(precision: int, scale: int) -> DecimalType:
    """At most 38 digits: Spark gives up digits after the point, but keeps six of them."""
    if precision <= MAX_PRECISION:
        return DecimalType(precision, scale)
    least = min(scale, _MINIMUM_ADJUSTED_SCALE)
    return DecimalType(MAX_PRECISION, max(MAX_PRECISION - (precision - scale), least))


def duckdb_type(ddl: str) -> str:
    """DuckDB's name of a Spark type; NotSupported for nested and other types."""
    found = decimal_type(ddl)
    if found is not None:
        return f"DECIMAL({found.precision},{found.scale})"
    if ddl not in _DUCKDB:
        raise NotSupported(f"type {ddl}", _why_not(ddl))
    return _DUCKDB[ddl]


def spark_type(duckdb: str) -> str:
    """The Spark type that a DuckDB type stands for."""
    if decimal_type(duckdb) is not None:
        return duckdb.lower()
    if duckdb not in _SPARK:
        raise NotSupported(f"type {duckdb}", "no Spark type corresponds to it")
    return _SPARK[duckdb]


def arrow_type(ddl: str) -> Any:
    """The Arrow type in which batches carry a Spark type."""
    found = decimal_type(ddl)
    if found is not None:
        return pyarrow.decimal128(found.precision, found.scale)
    if ddl not in _ARROW:
        raise NotSupported(f"type {ddl}", _why_not(ddl))
    return _ARROW[ddl]


def check_type(ddl: str, settings: Mapping[str, str]) -> None:
    """Refuses what no kernel can hold, and moments when the session's clock is not UTC."""
    duckdb_type(ddl)
    zone = settings.get("spark.sql.session.timeZone", "UTC")
    if ddl == "timestamp" and zone not in _UTC:
        raise NotSupported("type timestamp", f"the session's time zone is {zone}, not UTC")


def _why_not(ddl: str) -> str:
    if ddl.startswith(("array", "map", "struct")):
        return "the kernels hold no nested values"
    return "the kernels have no such type"
