"""Which tables a directory holds: what `headway run --tables DIR` means.

Every sub-folder with data files is a table, and so is every data file directly in the directory.
Inside a table's folder, `column=value` folders are partitions, as Hive and Spark write them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headway.base.errors import (
    FileNotReadable,
    InvalidIdentifier,
    InvalidPath,
    TableNotFound,
    WrongUsage,
)
from headway.workloads.data import MARKER

FORMATS = ("parquet", "orc", "csv", "json")
_COMPRESSIONS = ("gz", "bz2", "zst", "lz4", "snappy", "deflate")
_NAME = re.compile(r"\w[\w -]{0,127}")
# Folders whose data files alone are not the table: a log says which of them count.
_TABLE_LOGS = {"_delta_log": "Delta", ".hoodie": "Hudi"}


@dataclass(frozen=True, slots=True)
class TableFiles:
    """One table; `path` is the folder or file to hand to a reader, `files` all that it holds."""

    name: str
    format: str
    path: Path
    files: tuple[Path, ...]
    partitioned: bool = False


def find_tables(directory: Path | str) -> dict[str, TableFiles]:
    """The tables in `directory` by name, sorted; an error when there are none or they clash."""
    root = Path(directory).expanduser().absolute()
    if not root.is_dir():
        problem = "is not a directory" if root.exists() else "does not exist"
        raise InvalidPath(
            f"{root} {problem}", hint="name a directory with a folder or a file per table"
        )
    tables: dict[str, TableFiles] = {}
    for entry in _visible_entries(root):
        if entry.is_dir() and "=" in entry.name:
            raise WrongUsage(
                f"{root} is one partitioned table ({entry.name}), not a directory of tables",
                hint=f"name the directory above it: {root.parent}",
            )
        table = _table_in_folder(entry) if entry.is_dir() else _table_in_file(entry)
        if table is not None:
            tables[_free_name(table, tables)] = table
    if not tables:
        raise TableNotFound(
            f"{root} holds no tables",
            hint=f"a table is a folder of {', '.join(FORMATS)} files, or one such file",
        )
    return dict(sorted(tables.items()))


def _free_name(table: TableFiles, tables: dict[str, TableFiles]) -> str:
    """The table's name, when it can be one and none of `tables` has it: Spark ignores case."""
    if not _NAME.fullmatch(table.name):
        raise InvalidIdentifier(
            f"{table.path} cannot be a table: {table.name!r} is not a valid name",
            hint="rename it to letters, digits, underscores, hyphens and spaces",
        )
    for other in tables.values():
        if other.name.casefold() == table.name.casefold():
            raise WrongUsage(
                f"{other.path} and {table.path} are both table {table.name.lower()}",
                hint="rename one of them; names that differ only by case are the same to Spark",
            )
    return table.name


def _table_in_file(file: Path) -> TableFiles | None:
    format = _format_of(file)
    if format is None:
        return None
    return TableFiles(_table_name(file), format, file, (file,))


def _table_in_folder(folder: Path) -> TableFiles | None:
    for log, kind in _TABLE_LOGS.items():
        if (folder / log).exists():
            raise WrongUsage(
                f"{folder} is a {kind} table, which cannot be read as plain files",
                hint="register it in Spark's catalog and leave it out of this directory",
            )
    found = list(_data_files(folder, ()))
    if not found:
        return None
    formats = sorted({_format_of(file) or "" for file, _ in found})
    if len(formats) > 1:
        raise WrongUsage(
            f"{folder} mixes formats: {', '.join(formats)}",
            hint="keep the files of one table in one format",
        )
    layouts = sorted({columns for _, columns in found})
    if len(layouts) > 1:
        shown = " and ".join("/".join(columns) or "no partition" for columns in layouts[:2])
        raise WrongUsage(
            f"{folder} mixes partition layouts: {shown}",
            hint="every file of a table must lie under the same partition columns",
        )
    files = tuple(file for file, _ in found)
    name = _table_name(folder)
    return TableFiles(name, formats[0], folder, files, partitioned=layouts[0] != ())


def _data_files(folder: Path, columns: tuple[str, ...]) -> Iterable[tuple[Path, tuple[str, ...]]]:
    """Every data file under `folder` with the partition columns on the way to it."""
    entries = _visible_entries(folder)
    in_table = columns != () or any("=" in e.name or _is_data_file(e) for e in entries)
    for entry in entries:
        if not entry.is_dir():
            if _is_data_file(entry):
                yield entry, columns
        elif "=" in entry.name:
            yield from _data_files(entry, (*columns, entry.name.partition("=")[0]))
        elif in_table and any(map(_is_data_file, _visible_entries(entry))):
            raise WrongUsage(
                f"{entry} lies inside a table's folder but is not a partition (column=value)",
                hint="move its files up, or make it a table of its own",
            )


def _table_name(path: Path) -> str:
    """The name without format and compression; Spark's own output may be a folder t.parquet."""
    name = path.name
    while name.rpartition(".")[2].lower() in (*FORMATS, *_COMPRESSIONS) and "." in name:
        name = name.rpartition(".")[0]
    return name


def _is_data_file(path: Path) -> bool:
    return _format_of(path) is not None and not path.is_dir()


def _format_of(path: Path) -> str | None:
    """The format that the file's name tells: sales.csv and sales.csv.gz are both csv."""
    suffixes = [suffix.lstrip(".").lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in FORMATS else None


def _visible_entries(folder: Path) -> list[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise FileNotReadable(
            f"{folder} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
    return [entry for entry in entries if not _is_hidden(entry.name)]


def _is_hidden(name: str) -> bool:
    """As Spark decides it; a partition column may begin with an underscore."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name == MARKER
