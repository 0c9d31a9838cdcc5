"""Schemas of kept results, as Arrow has them."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema(schema: str) -> pa.Schema:
    """From Spark's JSON: all there is of a result without rows. No JVM is needed."""
    return to_arrow_schema(StructType.fromJson(json.loads(schema)), timezone="UTC")
