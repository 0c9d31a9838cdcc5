"""Tables cut into units, the smallest parts that a task reads: row groups, ranges, pieces."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise

import fsspec
import pyarrow.parquet as parquet

from headway.base.errors import FileNotReadable, NotSupported
from headway.pipelined.kernels.typed import quoted
from headway.pipelined.kernels.types import duckdb_type
from headway.pipelined.programs import FileRange, NumberRange, StoredPiece, TableInput
from headway.plan.expressions import Column
from headway.plan.nodes import Scan
from headway.plan.sources import FileSource, RangeSource

_NUMBERS_PER_UNIT = 4_000_000


def table_input(scan: Scan) -> TableInput:
    """The scan's table in units, with its columns under the plan's names and of its types."""
    if isinstance(scan.source, RangeSource):
        return _numbers(scan, scan.source)
    if isinstance(scan.source, FileSource) and scan.source.format == "parquet":
        return _row_groups(scan, scan.source)
    raise NotSupported(f"table {scan.source.table}", "it was not staged")


def piece_input(
    columns: Iterable[Column], pieces: tuple[StoredPiece, ...], size: int, name: str
) -> TableInput:
    """Pieces of a run that have these columns, about `size` bytes together."""
    each = max(1, size // max(1, len(pieces)))
    return TableInput(
        tuple((f"CAST({quoted(c.name)} AS {duckdb_type(c.type)})", c.name) for c in columns),
        pieces=pieces,
        bytes=(each,) * len(pieces),
        name=name,
    )


def _row_groups(scan: Scan, source: FileSource) -> TableInput:
    fields = frozenset(column.field for column in scan.columns)
    with ThreadPoolExecutor(8) as pool:
        footers = (
            list(pool.map(_footer, source.files))
            if len(source.files) > 1
            else [_footer(file) for file in source.files]
        )
    files: list[FileRange] = []
    sizes: list[int] = []
    for footer in footers:
        first, whole = 0, len(footer.groups) == 1
        for rows, columns in footer.groups:
            present = {name.casefold() for name, _ in columns}  # Spark and DuckDB fold the case
            missing = tuple(sorted(name for name in fields if name.casefold() not in present))
            files.append(FileRange(footer.path, first, rows, whole, missing))
            sizes.append(max(1, sum(size for name, size in columns if name in fields)))
            first += rows
    return TableInput(_columns(scan), files=tuple(files), bytes=tuple(sizes), name=source.table)


def _columns(scan: Scan) -> tuple[tuple[str, str], ...]:
    """A file may hold a column as another type than the table says, such as a narrower number."""
    return tuple(
        (f"CAST({quoted(c.field)} AS {duckdb_type(c.column.type)})", c.column.name)
        for c in scan.columns
    )


def _numbers(scan: Scan, source: RangeSource) -> TableInput:
    total = max(0, -(-(source.end - source.start) // source.step))
    starts = [source.start + first * source.step for first in range(0, total, _NUMBERS_PER_UNIT)]
    ranges = tuple(NumberRange(*ends, source.step) for ends in pairwise([*starts, source.end]))
    columns = tuple(('"range"', c.column.name) for c in scan.columns)
    return TableInput(
        columns,
        numbers=ranges,
        bytes=tuple(8 * len(range(r.start, r.end, r.step)) for r in ranges),
        name=source.table,
    )


class _Footer:
    """The rows of each row group, and the bytes of its columns."""

    def __init__(self, path: str, groups: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]):
        self.path = path
        self.groups = groups


def _footer(url: str) -> _Footer:
    try:
        filesystem, path = fsspec.core.url_to_fs(url)
        if "file" not in _protocols(filesystem.protocol):
            raise NotSupported(f"file {url}", "the kernels read local files")
        info = filesystem.info(path)
        return _read_footer(path, int(info["size"]), str(info.get("mtime")))
    except OSError as error:
        raise FileNotReadable(f"{url}: {error}") from error


def _protocols(protocol: str | Iterable[str]) -> tuple[str, ...]:
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


@lru_cache(maxsize=4_096)
def _read_footer(path: str, size: int, changed: str) -> _Footer:
    metadata = parquet.read_metadata(path)
    groups = []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(position) for position in range(group.num_columns))
        sizes = tuple(
            (c.path_in_schema.split(".", 1)[0], c.total_uncompressed_size) for c in columns
        )
        groups.append((group.num_rows, sizes))
    return _Footer(path, tuple(groups))
