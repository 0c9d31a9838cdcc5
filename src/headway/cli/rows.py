"""The rows that a run has kept, read without Spark: shown, or written as Parquet."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from headway.base.errors import HeadwayError, InvalidPath, QueryFailed, WrongUsage
from headway.cli.output import plural, table
from headway.storage import QUERY_DONE, ReliableStore, Run
from headway.storage.failures import translated

if TYPE_CHECKING:
    from headway.session import QueryProgress, RunHandle

_NARROWEST = 12
_LONGEST_CELL = 60
_NUMBERS = ("byte", "short", "integer", "long", "float", "double", "decimal")


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What a run says of a result that it keeps. `schema` is Spark's JSON."""

    run: Run
    query: str
    count: int
    pieces: tuple[str, ...]
    schema: str

    @property
    def columns(self) -> list[str]:
        return [field["name"] for field in json.loads(self.schema)["fields"]]

    @property
    def number_columns(self) -> list[bool]:
        types = (field["type"] for field in json.loads(self.schema)["fields"])
        return [isinstance(each, str) and each.startswith(_NUMBERS) for each in types]

    def batches(self) -> Iterator[Any]:
        """Arrow batches in the order of the rows."""
        import pyarrow as pa

        for piece in self.pieces:
            yield from pa.ipc.open_stream(self.run.read_piece(piece))

    def first(self, limit: int) -> list[list[Any]]:
        rows: list[list[Any]] = []
        for batch in self.batches() if limit > 0 else ():
            part = batch.slice(0, limit - len(rows))
            rows += map(list, zip(*map(_values, part.columns), strict=True))
            if len(rows) >= limit:
                break
        return rows


def kept_rows(run: Run, query: str) -> KeptRows:
    """The rows of a query that is done; an error that says why there are none otherwise."""
    known = [record.name for record in run.manifest.queries]
    if query not in known:
        raise WrongUsage(
            f"run {run.run_id} has no query {query}", hint=f"its queries: {', '.join(known)}"
        )
    ends = [event for event in run.events() if event.query == query and event.kind == QUERY_DONE]
    if not ends:
        raise QueryFailed(
            f"query {query} of run {run.run_id} is not done",
            hint=f"`headway show {run.run_id}` says how it went",
        )
    data = ends[-1].data
    if data["rows"] < 0 or (data["rows"] and not data["pieces"]):
        raise QueryFailed(
            f"the rows of query {query} were not kept",
            hint="the setting results.keep was off, or a column's type has no Arrow form",
        )
    return KeptRows(run, query, data["rows"], tuple(data["pieces"]), data["schema"])


def print_rows(kept: KeptRows, limit: int, console: Console) -> None:
    """The first rows as a table, as many columns as the terminal has room for."""
    if limit <= 0:
        return
    columns, numbers = kept.columns, kept.number_columns
    room = max(1, console.width // _NARROWEST)
    names = [Text(name or " ") for name in columns[:room]]
    shown = table()
    for name, number in zip(names, numbers, strict=False):
        shown.add_column(
            name, justify="right" if number else "left", no_wrap=True, overflow="ellipsis"
        )
    for row in kept.first(limit):
        shown.add_row(*map(_cell, row[:room]))
    console.print(shown)
    left = []
    if kept.count > limit:
        left.append(f"{plural(kept.count - limit, 'more row')}")
    if len(columns) > room:
        left.append(f"{plural(len(columns) - room, 'more column')}")
    if left:
        console.print(Text(f"... and {' and '.join(left)}", style="dim"))


def prepare_folder(folder: Path) -> Path:
    """The folder for `write_parquet`, made and tried before hours of work."""
    folder = folder.expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise InvalidPath(f"{folder} is not a folder", hint="name a folder for the results")
    with translated("making the folder", str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / _temporary("trial")
        trial.touch()
        trial.unlink()
    return folder


def write_parquet(kept: KeptRows, folder: Path) -> Path:
    """folder/<query>.parquet, all of it or nothing; an older file of that name is replaced."""
    import pyarrow as pa

    file = folder / f"{kept.query}.parquet"
    temporary = folder / _temporary(kept.query)
    try:
        with translated(f"writing {file.name}", str(folder)):
            try:
                _write(kept, temporary)
            except pa.ArrowException as error:
                if isinstance(error, OSError):
                    raise
                raise QueryFailed(
                    f"the rows of {kept.query} have no Parquet form: {error}",
                    hint="cast the column to another type; the rows are kept in the run",
                ) from error
            temporary.replace(file)
            _sync(folder)
    finally:
        temporary.unlink(missing_ok=True)
    return file


def _write(kept: KeptRows, file: Path) -> None:
    import pyarrow.parquet as pq

    batches = kept.batches()
    first = next(batches, None)
    if first is None:
        from headway.spark.schemas import arrow_schema

        schema = arrow_schema(kept.schema)
    else:
        schema = first.schema
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        if first is not None:
            writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    _sync(file)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _temporary(name: str) -> str:
    return f".{name}-{secrets.token_hex(4)}.tmp"


def _values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):  # a date or a time that Python does not have
        import pyarrow as pa

        return list(column.cast(pa.string()).to_pylist())


def _cell(value: Any) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    text = str(value).replace("\n", "⏎").replace("\r", "").replace("\t", " ")
    return Text(text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…")


class ResultFiles:
    """A Parquet file for every query of a run, as soon as it is done; none without a folder."""

    def __init__(self, store: ReliableStore, folder: Path | None) -> None:
        self._store = store
        self._folder = folder
        self._written: set[str] = set()
        self._problems: dict[str, HeadwayError] = {}

    def write_new(self, handle: RunHandle) -> None:
        self.write(handle.id, handle.progress())

    def write(self, run_id: str, queries: Iterable[QueryProgress]) -> dict[str, HeadwayError]:
        """Those that are done and not yet written; what went wrong so far, by query."""
        new = [q.name for q in queries if q.status == "done" and q.name not in self._written]
        if self._folder is None or not new:
            return self._problems
        run = Run.open(self._store, run_id)
        for name in new:
            self._written.add(name)
            try:
                write_parquet(kept_rows(run, name), self._folder)
            except HeadwayError as error:
                self._problems[name] = error
        return self._problems
