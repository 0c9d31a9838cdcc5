"""Schemas of kept results, as Arrow has them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headway.plan.expressions import Column, quote
from headway.plan.nodes import QueryPlan
from headway.spark.types import ddl_of


def schema_of(plan: QueryPlan) -> str:
    """Spark's JSON of the plan's result."""
    pairs = zip(plan.names, plan.root.schema, strict=True)
    schema = StructType.fromDDL(", ".join(f"{quote(n)} {c.type}" for n, c in pairs))
    return str(schema.json())


def schema_of_columns(columns: Iterable[Column]) -> str:
    """Spark's JSON of rows with these columns."""
    schema = StructType.fromDDL(", ".join(f"{quote(c.name)} {c.type}" for c in columns))
    return str(schema.json())


def columns_of_schema(schema: str) -> tuple[Column, ...]:
    """From Spark's JSON."""
    fields = json.loads(schema)["fields"]
    return tuple(Column(f["name"], ddl_of(f["type"]), bool(f["nullable"])) for f in fields)


def arrow_schema(schema: str) -> pa.Schema:
    """From Spark's JSON: all there is of a result without rows. No JVM is needed."""
    return to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")


def has_arrow_form(schema: StructType) -> bool:
    """Whether rows of all its types can be kept: Spark collects none with structs that have two
    fields of one name."""
    try:
        to_arrow_schema(schema, timezone="UTC", error_on_duplicated_field_names_in_struct=True)
    except PySparkException:
        return False
    return True
