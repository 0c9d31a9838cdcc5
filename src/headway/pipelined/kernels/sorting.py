"""Sort keys: where nulls stand is always written out; NaN is the greatest in both engines."""

from __future__ import annotations

from collections.abc import Mapping

from headway.pipelined.kernels.translate import normalised_key, translate
from headway.pipelined.kernels.typed import Translated
from headway.plan.expressions import Column
from headway.plan.nodes import SortKey


def sort_key(
    key: SortKey,
    schema: Mapping[str, Column],
    settings: Mapping[str, str],
    subqueries: Mapping[str, Translated] | None = None,
) -> str:
    """The key as DuckDB's ORDER BY takes it."""
    value = normalised_key(translate(key.expression, schema, settings, subqueries))
    direction = "ASC" if key.ascending else "DESC"
    return f"{value} {direction} NULLS {'FIRST' if key.nulls_first else 'LAST'}"
