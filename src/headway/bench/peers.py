"""The same query run by different engines on the same files, and whether they agree."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import exp, isnan, log
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    import pyarrow as pa

    from headway.session import Session

_RESAMPLES = 500
_DIGITS = 10  # to which sums of doubles agree, whatever the order of their rows


class DuckDb:
    """DuckDB alone, over the same Parquet files."""

    def __init__(self, tables: Mapping[str, Path], threads: int) -> None:
        self._connection = duckdb.connect(config={"threads": threads})
        for name, folder in tables.items():
            files = str(folder / "*.parquet").replace("'", "''")
            view = f"""CREATE VIEW "{name}" AS SELECT * FROM read_parquet('{files}')"""
            self._connection.execute(view)

    def run(self, text: str) -> pa.Table:
        return self._connection.execute(text.replace("`", '"')).to_arrow_table()

    def close(self) -> None:
        self._connection.close()


def run_in(session: Session, text: str, name: str) -> pa.Table:
    """The rows of a query from its text, as a user of the session would get them."""
    handle = session.run(session.sql(text, name=name))
    handle.wait()
    return handle.arrow()


def timed(work: Callable[[], pa.Table]) -> tuple[float, pa.Table]:
    began = time.perf_counter()
    table = work()
    return time.perf_counter() - began, table


def same_rows(ours: pa.Table, theirs: pa.Table) -> bool:
    """The same rows in any order: exactly, but for the last digits of doubles."""
    return _rows(ours) == _rows(theirs)


def digest_of(table: pa.Table) -> str:
    """The same for the same rows in any order."""
    rows = sorted(map(repr, _rows(table).items()))
    return hashlib.blake2b("\n".join(rows).encode(), digest_size=16).hexdigest()


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return Counter(tuple(map(_comparable, row)) for row in zip(*columns, strict=True))


def _comparable(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if isnan(value) else float(f"{value:.{_DIGITS}g}")
    return value


def geometric_mean(values: Iterable[float]) -> float | None:
    found = [log(value) for value in values if value > 0]
    return exp(sum(found) / len(found)) if found else None


def middle_half(values: list[float]) -> tuple[float, float]:
    """The mean of the middle half of them, which nothing rare moves, and its standard error."""

    def mean(found: list[float]) -> float:
        ordered = sorted(found)
        return statistics.mean(ordered[len(ordered) // 4 : len(ordered) - len(ordered) // 4])

    draw = Random(len(values))
    others = [mean(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    return mean(values), statistics.stdev(others)


def middle(seconds: list[float]) -> float:
    return statistics.median(seconds)
