"""Tables that the kernels cannot read by themselves come in through Spark, as Arrow.

They are staged: written once into the run by the executors, with the columns that the plan needs.
From then on a piece is read any number of times with the same rows in the same order, whatever
becomes of the source.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headway.base.errors import NotSupported
from headway.base.ids import check_id
from headway.pipelined.kernels.typed import quoted
from headway.pipelined.kernels.types import duckdb_type
from headway.pipelined.programs import StoredPiece, TableInput
from headway.pipelined.units import piece_input
from headway.plan.expressions import Expression
from headway.plan.graph import walk
from headway.plan.nodes import Named, Node, Project, QueryPlan, Scan, ScanColumn, StateScan, Union
from headway.plan.sources import FileSource, RangeSource, Source
from headway.spark.frames import frame_of
from headway.spark.results import KeptResult, WrittenPiece, write_pieces
from headway.spark.schemas import arrow_schema, has_arrow_form
from headway.storage import Run

PIECE_BYTES = 64 << 20

# Only the number of rows matters, and every piece has to have some column.
_NO_COLUMNS = Named("no_columns", Expression("true", "boolean", nullable=False))


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A table in a run: Arrow streams in the order of its rows, none for a table without rows.

    The columns have the names of the table's fields. `schema` is Spark's JSON.
    """

    run: str
    pieces: tuple[WrittenPiece, ...]
    schema: str

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    @property
    def arrow_schema(self) -> pa.Schema:
        return arrow_schema(self.schema)

    def input_of(self, scan: Scan) -> TableInput:
        """The table as that scan reads it, a piece as a unit. A column that is not staged, since
        nothing in the plan looks at it, is null."""
        staged = {name: quoted(name) for name in self.arrow_schema.names}
        return TableInput(
            tuple(
                (
                    f"CAST({staged.get(c.field, 'NULL')} AS {duckdb_type(c.column.type)})",
                    c.column.name,
                )
                for c in scan.columns
            ),
            pieces=tuple(StoredPiece(self.run, piece.name) for piece in self.pieces),
            bytes=tuple(max(1, piece.bytes) for piece in self.pieces),
        )


def needs_staging(source: Source) -> bool:
    """All but ranges and plain Parquet on this file system: a partition column is in no file, and
    other stores want Spark's credentials."""
    if isinstance(source, FileSource):
        local = all(re.match(r"file:|/", file) for file in source.files)
        return source.format != "parquet" or source.root is not None or not local
    return not isinstance(source, RangeSource)


def stage_tables(
    spark: SparkSession,
    plan: QueryPlan,
    run: Run,
    query: str,
    *,
    session_frames: Mapping[str, DataFrame] | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> dict[Node, TableInput]:
    """Stages every table of the plan that needs it, one that is scanned twice only once, with the
    columns of all its scans. NotSupported before any is staged when one has no Arrow form.

    Runs jobs of the calling thread's job group.
    """
    read = _columns_read(plan)
    scans: dict[Source, list[Scan]] = {}
    for node in walk(plan.root):
        if isinstance(node, Scan) and needs_staging(node.source):
            scans.setdefault(node.source, []).append(node)
    frames = {
        source: frame_of(spark, _reading(plan, source, found, read), session_frames=session_frames)
        for source, found in scans.items()
    }
    for source, frame in frames.items():
        if not has_arrow_form(frame.schema):
            raise NotSupported(f"table {source.table}", "a column's type has no Arrow form")
    inputs: dict[Node, TableInput] = {}
    for source, frame in frames.items():
        staged = stage_source(frame, run, query, piece_bytes=piece_bytes)
        inputs |= {scan: staged.input_of(scan) for scan in scans[source]}
    return inputs


def state_inputs(
    plan: QueryPlan, run: Run, states: Mapping[str, KeptResult]
) -> dict[Node, TableInput]:
    """The saved states that the plan reads, each a result in the run."""
    inputs: dict[Node, TableInput] = {}
    for node in walk(plan.root):
        if isinstance(node, StateScan):
            kept = states[node.state]
            pieces = tuple(StoredPiece(kept.run or run.run_id, piece) for piece in kept.pieces)
            inputs[node] = piece_input(node.columns, pieces, kept.bytes, node.state)
    return inputs


def stage_source(
    frame: DataFrame, run: Run, query: str, *, piece_bytes: int = PIECE_BYTES
) -> StagedTable:
    """The rows of the frame as they are now, in a folder that no other attempt has."""
    folder = f"staged/{check_id(query, 'query name')}/{secrets.token_hex(8)}"
    pieces = write_pieces(frame, run, folder, most_bytes=piece_bytes)
    return StagedTable(run.run_id, pieces, frame.schema.json())


def _columns_read(plan: QueryPlan) -> set[str]:
    """The columns that an operator looks at or the query returns, not only passes on."""
    read = set(plan.root.column_names)
    for node in walk(plan.root):
        for expression in node.expressions():
            read |= expression.columns
        for subquery in node.subqueries:
            read |= set(subquery.plan.column_names)
        if isinstance(node, Union):  # by position
            read |= {name for child in node.inputs for name in child.column_names}
    return read


def _reading(plan: QueryPlan, source: Source, scans: Iterable[Scan], read: set[str]) -> QueryPlan:
    """A plan that reads the fields of all these scans of the source, under the fields' names."""
    fields: dict[str, ScanColumn] = {}
    for scan in scans:
        for found in scan.columns:
            if found.column.name in read:
                fields.setdefault(found.field, found)
    columns = tuple(
        replace(found, column=replace(found.column, name=f"column_{number}"))
        for number, found in enumerate(fields.values(), 1)
    )
    table = Scan(source, columns)
    if not columns:
        return QueryPlan(Project(table, (_NO_COLUMNS,)), (_NO_COLUMNS.name,), plan.settings)
    return QueryPlan(table, tuple(fields), plan.settings)
