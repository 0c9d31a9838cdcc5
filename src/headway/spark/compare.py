"""Whether two frames hold the same result. Plain Spark is the oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Verdict:
    equal: bool
    rows: int
    difference: str | None = None


def same_result(expected: DataFrame, found: DataFrame) -> Verdict:
    """Names, types and every row, exactly; the order too where the expected query orders.

    Only the last digits of floating-point sums may differ: Spark itself adds them in any order.
    """
    wanted = [(f.name, f.dataType) for f in expected.schema.fields]
    got = [(f.name, f.dataType) for f in found.schema.fields]
    if wanted != got:
        return Verdict(False, 0, f"columns {got} instead of {wanted}")
    left = [_comparable(row) for row in expected.collect()]
    right = [_comparable(row) for row in found.collect()]
    if _is_ordered(expected) and left != right and Counter(left) == Counter(right):
        return Verdict(False, len(left), "the rows come in another order")
    missing, extra = Counter(left) - Counter(right), Counter(right) - Counter(left)
    if missing or extra:
        example = next(iter(missing or extra))
        return Verdict(
            False,
            len(left),
            f"{missing.total()} rows are missing and {extra.total()} are too many, such as "
            f"{example}",
        )
    return Verdict(True, len(left))


def _is_ordered(frame: DataFrame) -> bool:
    """By Spark's own plan, so that one that lost its order on the way cannot hide it."""
    node = frame._jdf.queryExecution().optimizedPlan()
    while node.getClass().getSimpleName() in ("Project", "Filter", "GlobalLimit", "LocalLimit"):
        node = node.children().apply(0)
    return str(node.getClass().getSimpleName()) == "Sort"


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if value != value else float(f"{value:.11g}")
    if isinstance(value, dict):
        return tuple(sorted((str(k), _comparable(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return tuple(_comparable(item) for item in value)
    if isinstance(value, bytearray):
        return bytes(value)
    return value
