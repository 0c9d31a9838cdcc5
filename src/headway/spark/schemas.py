"""Schemas of kept results, as Arrow has them."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headway.plan.expressions import quote
from headway.plan.nodes import QueryPlan


def schema_of(plan: QueryPlan) -> str:
    """Spark's JSON of the plan's result."""
    pairs = zip(plan.names, plan.root.schema, strict=True)
    schema = StructType.fromDDL(", ".join(f"{quote(n)} {c.type}" for n, c in pairs))
    return str(schema.json())


def arrow_schema(schema: str) -> pa.Schema:
    """From Spark's JSON: all there is of a result without rows. No JVM is needed."""
    return to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")
