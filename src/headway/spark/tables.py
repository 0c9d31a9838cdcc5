"""Tables that lie in a folder, as temporary views of a session."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from headway.base.errors import FileNotReadable
from headway.spark.errors import named_error
from headway.spark.frames import escape_glob
from headway.storage.paths import local_path
from headway.workloads.tables import TableFiles

_READ_OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}, "json": {}}


def files_of(frame: DataFrame) -> tuple[str, ...]:
    """Those that Spark would read for it; none where it cannot tell."""
    try:
        named = frame.inputFiles()
    except Exception:  # noqa: BLE001 - what cannot be planned fails by itself when it is run
        return ()
    found = (name if name.startswith("file:") else unquote(name) for name in named)
    return tuple(sorted(name for name in found if not _is_folder(name)))


def _is_folder(name: str) -> bool:
    """Of a table that only Spark's catalog knows."""
    path = local_path(name)
    return path is not None and Path(path).is_dir()


def register_tables(spark: SparkSession, tables: Mapping[str, TableFiles]) -> tuple[str, ...]:
    """A view per table; Spark reads the schemas, several tables at a time."""

    def register(table: TableFiles) -> None:
        try:
            reader = spark.read.options(**_READ_OPTIONS.get(table.format, {}))
            reader.format(table.format).load(escape_glob(str(table.path))).createOrReplaceTempView(
                table.name
            )
        except Exception as error:
            cause = named_error(error)
            raise FileNotReadable(
                f"table {table.name} cannot be read: {cause.message}",
                hint=f"are its files really {table.format}?",
            ) from error

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(register, tables.values()))
    return tuple(tables)
