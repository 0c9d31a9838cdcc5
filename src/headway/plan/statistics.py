"""What is known of a table before it is read: from Parquet footers, or from who else knows."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as parquet

from headway.plan.sources import FileSource, RangeSource, Source

_MOST_FOOTERS = 64


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Extremes are numbers (dates as days) when known; `bytes` is the size uncompressed."""

    low: float | None = None
    high: float | None = None
    nulls: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class TableStatistics:
    rows: int
    bytes: int
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)


def source_statistics(source: Source) -> TableStatistics | None:
    """What a source tells by itself; files are read once per state that they are in."""
    if isinstance(source, RangeSource):
        numbers = range(source.start, source.end, source.step)
        rows = max(0, -(-(source.end - source.start) // source.step))  # len() ends at 2**63
        if not rows:
            return TableStatistics(0, 0)
        low, high = sorted((float(numbers[0]), float(numbers[-1])))
        return TableStatistics(rows, rows * 8, {"id": ColumnStatistics(low, high, 0, rows * 8)})
    if isinstance(source, FileSource) and source.format == "parquet":
        return parquet_statistics(source.files)
    return None


def parquet_statistics(files: Iterable[str]) -> TableStatistics | None:
    """From the footers. Of very many files a sample is read, and scaled by the files' number."""
    names = tuple(files)
    if not names:
        return TableStatistics(0, 0)
    step = max(1, len(names) // _MOST_FOOTERS)
    sample = names[::step]
    try:
        if any(_local(name) is None for name in sample):
            with ThreadPoolExecutor(min(8, len(sample))) as pool:
                footers = list(pool.map(_footer_statistics, sample))
        else:  # known ones are asked for nothing but their state
            footers = list(map(_footer_statistics, sample))
    except Exception:  # noqa: BLE001 - an estimate keeps no query from running
        # A damaged file, a store that Spark knows and fsspec does not, a service that says no:
        # whoever reads the table will say what is wrong with it.
        return None
    return _merge(footers, len(names) / len(sample))


def _footer_statistics(url: str) -> TableStatistics:
    local = _local(url)
    if local is not None:
        found = Path(local).stat()
        return _read_footer(url, found.st_size, str(found.st_mtime_ns))
    filesystem, path = fsspec.core.url_to_fs(url)
    info = filesystem.info(path)
    changed = info.get("mtime") or info.get("LastModified") or info.get("ETag")
    return _read_footer(url, int(info["size"]), str(changed))


def _local(url: str) -> str | None:
    """The path of a file on this machine."""
    if url.startswith("file:///"):
        return url.removeprefix("file://")
    return None if "://" in url else url


@lru_cache(maxsize=4_096)
def _read_footer(url: str, size: int, changed: str) -> TableStatistics:
    filesystem, path = fsspec.core.url_to_fs(url)
    with filesystem.open(path, "rb") as file:
        metadata = parquet.read_metadata(file)
    columns: dict[str, ColumnStatistics] = {}
    plain = {field.name for field in metadata.schema.to_arrow_schema() if not field.type.num_fields}
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for position in range(row_group.num_columns):
            chunk = row_group.column(position)
            name, found = chunk.path_in_schema, _chunk_statistics(chunk)
            if name not in plain:  # a part of a nested column, which has no extremes of its own
                name, found = name.split(".", 1)[0], ColumnStatistics(bytes=found.bytes)
            columns[name] = _combine(columns.get(name), found)
    total = sum(column.bytes for column in columns.values())
    return TableStatistics(metadata.num_rows, total, columns)


def _chunk_statistics(chunk: Any) -> ColumnStatistics:
    found = chunk.statistics
    low = high = None
    nulls = 0
    if found is not None:
        nulls = found.null_count or 0
        if found.has_min_max:
            try:
                low, high = number_of(found.min), number_of(found.max)
            except (ValueError, OverflowError):  # a date that Python's calendar does not reach
                low = high = None
    return ColumnStatistics(low, high, nulls, chunk.total_uncompressed_size)


def number_of(value: Any) -> float | None:
    """A value on the number line: dates as days, moments as seconds; None for anything else."""
    if isinstance(value, int | float | decimal.Decimal):
        number = float(value)
        return number if isfinite(number) else None
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.UTC).timestamp()
    if isinstance(value, datetime.date):
        return float(value.toordinal())
    return None


def _combine(a: ColumnStatistics | None, b: ColumnStatistics) -> ColumnStatistics:
    if a is None:
        return b
    low = None if a.low is None or b.low is None else min(a.low, b.low)
    high = None if a.high is None or b.high is None else max(a.high, b.high)
    return ColumnStatistics(low, high, a.nulls + b.nulls, a.bytes + b.bytes)


def _merge(footers: list[TableStatistics], scale: float) -> TableStatistics:
    if len(footers) == 1 and scale == 1:
        return footers[0]
    columns: dict[str, ColumnStatistics] = {}
    for footer in footers:
        for name, column in footer.columns.items():
            columns[name] = _combine(columns.get(name), column)
    scaled = {
        name: ColumnStatistics(c.low, c.high, round(c.nulls * scale), round(c.bytes * scale))
        for name, c in columns.items()
    }
    rows = round(sum(footer.rows for footer in footers) * scale)
    return TableStatistics(rows, round(sum(f.bytes for f in footers) * scale), scaled)
