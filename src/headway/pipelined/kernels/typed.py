"""What passes between the writers of the translation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headway.base.errors import NotSupported
from headway.pipelined.kernels.types import DecimalType, decimal_type, duckdb_type

if TYPE_CHECKING:
    from headway.plan.expressions import Column  # workers start without the plan's parser


@dataclass(frozen=True, slots=True)
class Translated:
    """DuckDB text, with the Spark type of its value."""

    text: str
    type: str
    literal: str | int | None = None
    """The value, when the text is a string's or an integer's constant."""
    narrow: str | None = None
    """A wide decimal computed in 64 bits, which raises an error where they do not hold it."""

    @property
    def decimal(self) -> DecimalType:
        found = decimal_type(self.type)
        if found is None:
            raise NotSupported(f"type {self.type}", "a decimal is needed here")
        return found

    @property
    def is_decimal(self) -> bool:
        return decimal_type(self.type) is not None


@dataclass(frozen=True, slots=True)
class Context:
    """What a translation depends on besides the expression."""

    schema: Mapping[str, Column]
    settings: Mapping[str, str] = field(default_factory=dict)
    subqueries: Mapping[str, Translated] = field(default_factory=dict)

    def setting(self, name: str, default: str) -> str:
        return self.settings.get(f"spark.sql.{name}", default)

    @property
    def ansi(self) -> bool:
        return self.setting("ansi.enabled", "true") == "true"

    def require_ansi(self, what: str) -> None:
        """Refuses what would give null or wrap around where ANSI mode raises an error."""
        if not self.ansi:
            raise NotSupported(what, "ANSI mode is off, and the kernels raise where it raises")

    def require_decimal_rules(self) -> None:
        if self.setting("decimalOperations.allowPrecisionLoss", "true") != "true":
            raise NotSupported("decimal arithmetic", "allowPrecisionLoss is off")


def quoted(name: str) -> str:
    """`name` as an identifier of DuckDB."""
    return '"' + name.replace('"', '""') + '"'


def string_text(value: str) -> str:
    """`value` as a string literal of DuckDB."""
    if "\0" in value:
        raise NotSupported("string literal", "DuckDB's texts hold no zero byte")
    return "'" + value.replace("'", "''") + "'"


def cast_text(value: Translated, ddl: str) -> str:
    """DuckDB's own cast; nothing when the type is the same already."""
    if value.type == ddl:
        return value.text
    return f"CAST({value.text} AS {duckdb_type(ddl)})"


def raise_text(name: str, message: str, ddl: str) -> str:
    """An expression that raises when it is evaluated, with Spark's name of the error."""
    return f"CAST(error({string_text(f'[{name}] {message}')}) AS {duckdb_type(ddl)})"
