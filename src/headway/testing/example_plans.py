"""Small plans by hand, for tests that read better with a plan that one knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from headway.pipelined.kernels.types import arrow_type
from headway.plan.expressions import Column, Expression, column_reference
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Join,
    JoinKey,
    JoinKind,
    Named,
    Node,
    QueryPlan,
    Scan,
    ScanColumn,
    Side,
)
from headway.plan.sources import FileSource, SessionSource


def table(name: str, **types: str) -> Scan:
    """A scan of a table of the session: `table("orders", o_id="int", o_price="double")`."""
    columns = (Column(column, ddl) for column, ddl in types.items())
    source = SessionSource(f"session_{name}", name)
    return Scan(source, tuple(ScanColumn(column.name, column) for column in columns))


def parquet_table(
    folder: Path,
    types: Mapping[str, str],
    rows: Sequence[tuple[Any, ...]],
    *,
    files: int = 1,
    group_rows: int = 1_000_000,
) -> Scan:
    """Rows written to Parquet files in a new folder, and the scan of all their columns.

    Doubles have no statistics: Arrow's leave out that a value is NaN, and Spark, which takes NaN
    for the largest value, would pass over such rows as soon as it looks for large ones.
    """
    folder.mkdir()
    paths = []
    counted = [name for name, ddl in types.items() if ddl not in ("double", "float")]
    for number in range(files):
        part = rows[len(rows) * number // files : len(rows) * (number + 1) // files]
        arrays = {
            name: pa.array([row[position] for row in part], arrow_type(ddl))
            for position, (name, ddl) in enumerate(types.items())
        }
        paths.append(str(folder / f"part {number}.parquet"))
        parquet.write_table(
            pa.table(arrays), paths[-1], row_group_size=group_rows, write_statistics=counted
        )
    source = FileSource(folder.name, "parquet", tuple(paths))
    return Scan(source, tuple(ScanColumn(name, Column(name, ddl)) for name, ddl in types.items()))


def renamed(scan: Scan, suffix: str) -> Scan:
    """The same table once more, for a plan that reads it twice."""
    columns = (
        ScanColumn(c.field, Column(f"{c.column.name}{suffix}", c.column.type)) for c in scan.columns
    )
    return Scan(scan.source, tuple(columns))


def condition(text: str) -> Expression:
    return Expression(text, "boolean")


def reference(node: Node, name: str) -> Expression:
    """The column of the node's output."""
    return column_reference(node.schema[node.column_names.index(name)])


def passed(node: Node, *names: str) -> tuple[Named, ...]:
    """Columns of the node's output under the names they have, as outputs or keys."""
    return tuple(Named(name, reference(node, name)) for name in names)


def call(function: str, argument: Expression, name: str) -> AggregateCall:
    return AggregateCall(Column(name, argument.type), function, (argument,))


def equal(left: Node, left_name: str, right: Node, right_name: str) -> JoinKey:
    return JoinKey(reference(left, left_name), reference(right, right_name))


def running_example() -> QueryPlan:
    """The customers with the highest revenue: figure 2 of the paper on state separation.

    Its pipelines, in the order in which they run: (1) customer into the join by id, (2) orders past
    it into the revenue per customer, (3) that into the highest revenue, (4) that into the join
    max <= revenue, (5) customer into the second join by id, (6) revenues past both joins.
    """
    customer = table("customer", id="int")
    orders = table("orders", customer_id="int", price="double")
    bought = Join(
        customer, orders, JoinKind.INNER, (equal(customer, "id", orders, "customer_id"),),
        build=Side.LEFT,
    )  # fmt: skip
    revenue = Aggregate(
        bought, passed(bought, "id"), (call("sum", reference(bought, "price"), "revenue"),)
    )
    highest = Aggregate(revenue, (), (call("max", reference(revenue, "revenue"), "max"),))
    person = table("customer", person_id="int", birthday="date")
    known = Join(
        person, revenue, JoinKind.INNER, (equal(person, "person_id", revenue, "id"),),
        build=Side.LEFT,
    )  # fmt: skip
    best = condition("(`max` <= `revenue`)")
    root = Join(highest, known, JoinKind.INNER, residual=best, build=Side.LEFT)
    return QueryPlan(root, ("max", "person", "birthday", "id", "revenue"))
