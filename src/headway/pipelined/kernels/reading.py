"""Units of tables as DuckDB reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from headway.pipelined.kernels.typed import quoted, string_text
from headway.pipelined.programs import (
    ROW_NUMBER,
    Dataflow,
    FileRange,
    NumberRange,
    TableInput,
)


def folders_of(dataflow: Dataflow) -> list[str]:
    """The folders of all files that the query reads."""
    tables = (side.table for stage in dataflow.stages for side in stage.sides)
    files = (file.path for table in tables if table is not None for file in table.files)
    return sorted({str(Path(path).parent) for path in files})


def rows_of_units(table: TableInput, units: Iterable[int]) -> str:
    """A subquery with the rows of these units."""
    if table.pieces:
        return f'(SELECT {_columns(table)} FROM "#pieces")'
    if table.numbers:
        ranges = (table.numbers[number] for number in units)
        selects = [f"SELECT {_columns(table)} FROM {_numbers(each)}" for each in ranges]
    else:
        sources = _file_sources(_joined(table.files[number] for number in units))
        selects = [f"SELECT {_columns(table, missing)} FROM {text}" for text, missing in sources]
    return "(" + " UNION ALL ".join(selects) + ")"


def _columns(table: TableInput, missing: Iterable[str] = ()) -> str:
    columns = ", ".join(f"{text} AS {quoted(name)}" for text, name in table.columns)
    for field in missing:
        columns = columns.replace(f"CAST({quoted(field)} AS ", "CAST(NULL AS ")
    return columns or "NULL AS no_columns"


def _numbers(each: NumberRange) -> str:
    # The least number would be read as a larger one, negated.
    start, end = f"CAST({each.start} AS BIGINT)", f"CAST({each.end} AS BIGINT)"
    return f"range({start}, {end}, {each.step})"


def _joined(ranges: Iterable[FileRange]) -> list[FileRange]:
    """Ranges that follow one another in a file as one."""
    found: list[FileRange] = []
    for each in ranges:
        last = found[-1] if found else None
        if last is not None and last.path == each.path and last.first + last.rows == each.first:
            found[-1] = msgspec.structs.replace(last, rows=last.rows + each.rows)
        else:
            found.append(each)
    return found


def _file_sources(ranges: list[FileRange]) -> list[tuple[str, tuple[str, ...]]]:
    """What to select from, and the columns that are missing there."""
    whole: dict[tuple[str, ...], list[str]] = {}
    sources = []
    for each in ranges:
        path = string_text(each.path)
        if each.whole:
            whole.setdefault(each.missing, []).append(path)
            continue
        rows = f"BETWEEN {each.first} AND {each.first + each.rows - 1}"
        text = (
            f"(SELECT * FROM read_parquet([{path}], {ROW_NUMBER} = true) WHERE {ROW_NUMBER} {rows})"
        )
        sources.append((text, each.missing))
    return [(f"read_parquet([{', '.join(w)}])", m) for m, w in whole.items()] + sources
