"""Whether a table's key is unique: looked up in its files, once for each state that they are in."""

from __future__ import annotations

import re
from functools import cache, lru_cache

import duckdb

from headway.pipelined.kernels.typed import quoted, string_text
from headway.plan.sources import FileSource, Source
from headway.storage import fingerprint_files

_MOST_BYTES = 256 << 20
_PLAIN_PATH = re.compile(r"(?:file:|/)[^*?\[\]{}]*$")
"""Without what DuckDB would take for a pattern."""


def is_unique_key(source: Source, fields: tuple[str, ...]) -> bool:
    """No two rows have the same values in these fields; rows with a null in one do not count.

    False where it would take long to find out, or nobody but Spark can look.
    """
    if not isinstance(source, FileSource) or source.format != "parquet" or source.root is not None:
        return False
    if not fields or not all(_PLAIN_PATH.match(file) for file in source.files):
        return False
    try:
        found = tuple(fingerprint_files(source.files))
        if sum(file.size for file in found) > _MOST_BYTES:
            return False
        return _is_unique(source.files, fields, str(found))
    except Exception:  # noqa: BLE001 - whoever reads the table will say what is wrong with it
        return False


@lru_cache(maxsize=1_024)
def _is_unique(files: tuple[str, ...], fields: tuple[str, ...], state: str) -> bool:
    paths = ", ".join(string_text(file.removeprefix("file:")) for file in files)
    names = ", ".join(map(quoted, fields))
    present = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in fields)
    lower = ", ".join(string_text(name.lower()) for name in fields)
    with _database().cursor() as connection:
        alike = connection.execute(
            f"SELECT 1 FROM parquet_schema([{paths}]) WHERE lower(name) IN ({lower}) "
            "GROUP BY file_name, lower(name) HAVING count(*) > 1 LIMIT 1"
        ).fetchall()
        if alike:  # such as k and K, of which DuckDB would take the first
            return False
        twice = connection.execute(
            f"SELECT 1 FROM read_parquet([{paths}]) WHERE {present} "
            f"GROUP BY {names} HAVING count(*) > 1 LIMIT 1"
        ).fetchall()
    return not twice


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all questions: each would take as long to open as many of them to answer."""
    return duckdb.connect(config={"threads": 2})
