"""Units of tables as DuckDB reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headway.pipelined.kernels.typed import quoted, string_text
from headway.pipelined.programs import Dataflow, FileRange, TableInput


def folders_of(dataflow: Dataflow) -> list[str]:
    """The folders of all files that the query reads."""
    tables = (side.table for stage in dataflow.stages for side in stage.sides)
    files = (file.path for table in tables if table is not None for file in table.files)
    return sorted({str(Path(path).parent) for path in files})


def rows_of_units(table: TableInput, units: Iterable[int]) -> str:
    """A subquery with the rows of these units."""
    columns = ", ".join(f"{text} AS {quoted(name)}" for text, name in table.columns)
    columns = columns or "NULL AS no_columns"
    if table.pieces:
        return f'(SELECT {columns} FROM "#pieces")'
    if table.numbers:
        ranges = (table.numbers[number] for number in units)
        # The least number would be read as a larger one, negated.
        sources = [
            f"range(CAST({r.start} AS BIGINT), CAST({r.end} AS BIGINT), {r.step})" for r in ranges
        ]
    else:
        sources = _file_sources(_joined(table.files[number] for number in units))
    return "(" + " UNION ALL ".join(f"SELECT {columns} FROM {source}" for source in sources) + ")"


def _joined(ranges: Iterable[FileRange]) -> list[FileRange]:
    """Ranges that follow one another in a file as one."""
    found: list[FileRange] = []
    for each in ranges:
        last = found[-1] if found else None
        if last is not None and last.path == each.path and last.first + last.rows == each.first:
            found[-1] = FileRange(last.path, last.first, last.rows + each.rows, last.whole)
        else:
            found.append(each)
    return found


def _file_sources(ranges: list[FileRange]) -> list[str]:
    whole = [string_text(r.path) for r in ranges if r.whole]
    sources = [f"read_parquet([{', '.join(whole)}])"] if whole else []
    return sources + [
        f"(SELECT * FROM read_parquet([{string_text(r.path)}], file_row_number = true) "
        f"WHERE file_row_number BETWEEN {r.first} AND {r.first + r.rows - 1})"
        for r in ranges
        if not r.whole
    ]
