"""A query's result: run by Spark, kept in the run, opened again as a DataFrame in its order.

A small result is collected by the driver, as the user would, and written in one piece. A large one
is written by the executors, a piece per partition. Pieces are Arrow streams.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headway.base.errors import InternalError, PieceMissing
from headway.base.ids import check_id
from headway.storage import Run, open_store

_PIECE_SCHEMA = "name string, rows bigint, bytes bigint"


@dataclass(frozen=True, slots=True)
class KeptResult:
    """The pieces of a result in the order of its rows; a result without rows may have none.

    `rows` is -1 where nobody counted them; `schema` is Spark's JSON; `collected` says that the
    frame itself was run, by the driver.
    """

    rows: int
    bytes: int
    pieces: tuple[str, ...]
    schema: str
    kept: bool = True
    collected: bool = False


def collect_result(frame: DataFrame, run: Run, query: str, *, keep: bool) -> KeptResult:
    """Run the query, collect its rows in the driver, and keep them."""
    table = frame.toArrow()
    pieces: tuple[str, ...] = ()
    if keep:
        pieces = (piece_name(query, 0, "driver"),)
        run.write_piece(pieces[0], _to_bytes(table))
    return KeptResult(table.num_rows, table.nbytes, pieces, frame.schema.json(), keep, True)


def write_result(frame: DataFrame, run: Run, query: str) -> KeptResult:
    """Run the query and have the executors keep its rows, without them passing the driver."""
    written = frame.mapInArrow(_writer(run.store.url, run.run_id, query), _PIECE_SCHEMA)
    rows = sorted(written.collect(), key=lambda row: str(row.name))
    return KeptResult(
        sum(row.rows for row in rows),
        sum(row.bytes for row in rows),
        tuple(str(row.name) for row in rows),
        frame.schema.json(),
    )


def discard_result(frame: DataFrame) -> KeptResult:
    """Run the query for its own sake: its types have no Arrow form, so nothing can be kept."""
    frame.write.format("noop").mode("overwrite").save()
    return KeptResult(-1, 0, (), frame.schema.json(), kept=False)


def open_result(spark: SparkSession, run: Run, kept: KeptResult) -> DataFrame:
    """The kept rows as a DataFrame, in their order."""
    schema = StructType.fromJson(json.loads(kept.schema))
    if len(kept.pieces) <= 1:
        if not kept.pieces:
            return spark.createDataFrame([], schema)
        table = pa.ipc.open_stream(run.read_piece(kept.pieces[0])).read_all()
        return spark.createDataFrame(table, schema=schema)
    missing = set(kept.pieces) - set(run.pieces())
    if missing:
        raise PieceMissing(f"pieces {', '.join(sorted(missing))} of run {run.run_id} are missing")
    numbers = spark.range(0, len(kept.pieces), 1, len(kept.pieces))
    return numbers.mapInArrow(_reader(run.store.url, run.run_id, kept.pieces), schema)


def has_arrow_form(frame: DataFrame) -> bool:
    """Whether every type of the result can be kept."""
    try:
        to_arrow_schema(frame.schema)
    except PySparkException:
        return False
    return True


def piece_name(query: str, partition: int, attempt: str) -> str:
    return f"results/{check_id(query, 'query name')}/{partition:06d}-{attempt}"


def _to_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=_compressed()) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _compressed() -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(compression="lz4")


def _writer(url: str, run_id: str, query: str) -> Any:
    """What an executor does with a partition: one piece, under a name no other attempt has."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise InternalError("a partition is written outside a Spark task")
        name = piece_name(query, context.partitionId(), f"{context.taskAttemptId()}")
        first = next(batches, None)
        if first is None:
            return
        rows = size = 0
        run = Run.open(open_store(url), run_id)
        with (
            run.piece_writer(name) as sink,
            pa.ipc.new_stream(_Sink(sink), first.schema, options=_compressed()) as writer,
        ):
            for batch in chain([first], batches):
                writer.write_batch(batch)
                rows, size = rows + batch.num_rows, size + batch.nbytes
        yield pa.RecordBatch.from_pydict({"name": [name], "rows": [rows], "bytes": [size]})

    return write


def _reader(url: str, run_id: str, pieces: tuple[str, ...]) -> Any:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        run = Run.open(open_store(url), run_id)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from pa.ipc.open_stream(run.read_piece(pieces[number]))

    return read


class _Sink(io.RawIOBase):
    """A piece writer as the file that Arrow wants."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        block = bytes(data)
        self._writer.write(block)
        return len(block)
