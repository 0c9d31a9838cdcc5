"""Operators that pass rows on, as SELECTs over their input's SELECT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import repeat

from headway.pipelined.kernels.aggregates import SplitAggregate, split_aggregates
from headway.pipelined.kernels.operators import input_schema
from headway.pipelined.kernels.sorting import sort_key
from headway.pipelined.kernels.translate import normalised_key, translate
from headway.pipelined.kernels.typed import Translated, quoted
from headway.pipelined.kernels.types import FLOATING, duckdb_type
from headway.pipelined.kernels.windows import window_call
from headway.pipelined.programs import ColumnType
from headway.plan.expressions import Column, Expression
from headway.plan.nodes import (
    Aggregate,
    Expand,
    Filter,
    Join,
    JoinKind,
    Limit,
    Node,
    Project,
    Sort,
    Union,
    Values,
    Window,
)

_JOINS = {
    JoinKind.INNER: "INNER JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "SEMI JOIN",
    JoinKind.ANTI: "ANTI JOIN",
    JoinKind.NULL_AWARE_ANTI: "ANTI JOIN",
}
_ONE_ROW = "CAST(max(NULL) AS INTEGER) AS no_columns"  # of all rows, also where there are none


class Writer:
    """Writes the texts of one plan's operators; `subqueries` has a text for each scalar one."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    def expression(self, node: Node, expression: Expression, values: Subqueries) -> Translated:
        return translate(expression, input_schema(node), self._settings, values)

    def key(self, node: Node, expression: Expression) -> str:
        """A key as it is compared and hashed."""
        return normalised_key(self.expression(node, expression, {}))

    def filter(self, node: Filter, rows: str, values: Subqueries) -> str:
        condition = self.expression(node, node.condition, values).text
        return f"SELECT * FROM {_from(rows)} WHERE {condition}"

    def project(self, node: Project, rows: str, values: Subqueries) -> str:
        outputs = (
            f"{self.expression(node, o.expression, values).text} AS {quoted(o.name)}"
            for o in node.outputs
        )
        return f"SELECT {listed(outputs)} FROM {_from(rows)}"

    def expand(self, node: Expand, rows: str, values: Subqueries) -> str:
        names = [quoted(column.name) for column in node.columns]
        selects = " UNION ALL ".join(
            "SELECT "
            + listed(
                f"{self.expression(node, e, values).text} AS {name}"
                for e, name in zip(row, names, strict=True)
            )
            + " FROM expanded"
            for row in node.projections
        )
        return f"WITH expanded AS MATERIALIZED (SELECT * FROM {_from(rows)}) {selects}"

    def values(self, node: Values) -> str:
        if not node.rows:
            return f"SELECT {listed(_empty(node.columns))} WHERE false"
        rows = (
            "(" + listed(map(self._constant, repeat(node), row, node.columns)) + ")"
            for row in node.rows
        )
        if not node.columns:
            return " UNION ALL ".join("SELECT NULL AS no_columns" for _ in node.rows)
        names = listed(quoted(name) for name in node.column_names)
        return f"SELECT * FROM (VALUES {', '.join(rows)}) v({names})"

    def _constant(self, node: Values, text: str, column: Column) -> str:
        value = self.expression(node, Expression(text, column.type), {}).text
        return f"CAST({value} AS {duckdb_type(column.type)})"

    def union(self, node: Union, rows: str) -> str:
        if not node.columns:
            return rows
        names = listed(quoted(column.name) for column in node.columns)
        return f"SELECT * FROM {_from(rows)} u({names})"

    def join(self, node: Join, left: str, right: str, values: Subqueries) -> str:
        if values and node.join is not JoinKind.INNER:
            # DuckDB takes a subquery only in the condition of an inner join: a column elsewhere.
            named = {name: f'"#{name}"' for name in values}
            columns = ", ".join(
                f"{values[name].text} AS {column}" for name, column in named.items()
            )
            left = f"SELECT *, {columns} FROM {_from(left)}"
            values = {n: Translated(column, values[n].type) for n, column in named.items()}
        conditions = " AND ".join(self.expression(node, c, values).text for c in node.conditions())
        if node.exists is not None:
            exists = f"EXISTS (SELECT 1 FROM {_from(right)} WHERE {conditions or 'true'})"
            outputs = [*map(quoted, node.left.column_names), f"{exists} AS {quoted(node.exists)}"]
            return f"SELECT {listed(outputs)} FROM {_from(left)}"
        columns = listed(map(quoted, node.column_names))
        if node.join is JoinKind.CROSS:
            return f"SELECT {columns} FROM {_from(left)} CROSS JOIN {_from(right)}"
        return (
            f"SELECT {columns} FROM {_from(left)} {_JOINS[node.join]} {_from(right)} "
            f"ON {conditions or 'true'}"
        )

    def window(self, node: Window, rows: str, values: Subqueries) -> str:
        calls = (
            f"{window_call(node, call, self._settings, values).text} AS {quoted(call.column.name)}"
            for call in node.calls
        )
        outputs = [*map(quoted, node.input.column_names), *calls]
        return f"SELECT {listed(outputs)} FROM {_from(rows)}"

    def sort(self, node: Sort, rows: str, values: Subqueries, limit: Limit | None = None) -> str:
        schema = input_schema(node)
        keys = [sort_key(key, schema, self._settings, values) for key in node.keys]
        # Rows that tie are told apart by all their columns: run again, the order is the same.
        sorted_by = {key.expression.column for key in node.keys}
        keys += [
            f"{quoted(column.name)} NULLS FIRST"
            for column in node.schema
            if column.name not in sorted_by and column.type not in FLOATING
        ]
        text = f"SELECT * FROM {_from(rows)} ORDER BY {listed(keys)}"
        return text if limit is None else f"{text}{_bounds(limit.count, limit.offset)}"

    def limit(self, node: Limit, rows: str) -> str:
        return f"SELECT * FROM {_from(rows)}{_bounds(node.count, node.offset)}"

    def first_rows(self, node: Limit, rows: str) -> str:
        """As many rows as could be needed of one part of the input."""
        if node.count is None:
            return rows
        return f"SELECT * FROM {_from(rows)}{_bounds(node.count + node.offset, 0)}"

    def aggregate(self, node: Aggregate, values: Subqueries) -> AggregateTexts:
        keys = tuple(
            (normalised_key(self.expression(node, key.expression, values)), key.name)
            for key in node.keys
        )
        return AggregateTexts(node, keys, split_aggregates(node, self._settings, values))


Subqueries = Mapping[str, Translated]


class AggregateTexts:
    """An aggregate's SELECTs: in one step, or partial, merge and final."""

    def __init__(
        self, node: Aggregate, keys: tuple[tuple[str, str], ...], splits: list[SplitAggregate]
    ) -> None:
        self._node = node
        self._keys = keys
        self._splits = splits
        self._names = [quoted(name) for _, name in keys]

    @property
    def splittable(self) -> bool:
        return all(split.splittable for split in self._splits)

    @property
    def partial_columns(self) -> tuple[ColumnType, ...]:
        keys = [ColumnType(k.name, duckdb_type(k.expression.type)) for k in self._node.keys]
        parts = [p for split in self._splits for p in split.partial]
        return (*keys, *(ColumnType(p.name, duckdb_type(p.type)) for p in parts))

    def whole(self, rows: str) -> str:
        calls = zip(self._splits, self._node.aggregates, strict=True)
        outputs = [f"{text} AS {quoted(name)}" for text, name in self._keys]
        outputs += [f"{split.whole} AS {quoted(call.column.name)}" for split, call in calls]
        return self._grouped(outputs, rows)

    def partial(self, rows: str) -> str:
        outputs = [f"{text} AS {quoted(name)}" for text, name in self._keys]
        outputs += [
            f"{p.text} AS {quoted(p.name)}" for split in self._splits for p in split.partial
        ]
        return self._grouped(outputs, rows)

    def merge(self, partials: str) -> str:
        outputs = [
            f"{text} AS {quoted(part.name)}"
            for split in self._splits
            for text, part in zip(split.merge, split.partial, strict=True)
        ]
        return self._grouped([*self._names, *outputs], partials)

    def final(self, merged: str) -> str:
        calls = zip(self._splits, self._node.aggregates, strict=True)
        outputs = [f"{split.final} AS {quoted(call.column.name)}" for split, call in calls]
        return f"SELECT {listed([*self._names, *outputs])} FROM {_from(merged)}"

    def _grouped(self, outputs: list[str], rows: str) -> str:
        keys = ", ".join(str(number + 1) for number in range(len(self._keys)))
        group = f" GROUP BY {keys}" if keys else ""
        return f"SELECT {', '.join(outputs) or _ONE_ROW} FROM {_from(rows)}{group}"


def columns_of(columns: Iterable[Column]) -> tuple[ColumnType, ...]:
    return tuple(ColumnType(c.name, duckdb_type(c.type)) for c in columns)


def listed(items: Iterable[str]) -> str:
    return ", ".join(items) or "NULL AS no_columns"


def _from(rows: str) -> str:
    """A SELECT as a subquery; a table by its name."""
    return rows if rows.startswith('"') else f"({rows})"


def _bounds(count: int | None, offset: int) -> str:
    limit = "" if count is None else f" LIMIT {count}"
    return f"{limit} OFFSET {offset}" if offset else limit


def _empty(columns: Iterable[Column]) -> list[str]:
    return [f"CAST(NULL AS {duckdb_type(c.type)}) AS {quoted(c.name)}" for c in columns]
