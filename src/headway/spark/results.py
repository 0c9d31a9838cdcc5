"""A query's result: run by Spark, kept in the run, opened again as a DataFrame in its order.

A small result is collected by the driver, as the user would, and written in one piece. A large one
is written by the executors, a piece per partition. Pieces are Arrow streams.
"""

from __future__ import annotations

import io
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headway.base.errors import InternalError, PieceMissing
from headway.base.ids import check_id
from headway.spark.frames import in_session
from headway.spark.schemas import arrow_schema
from headway.spark.tree_text import counted, sized
from headway.storage import RESULTS, Run, open_store

_PIECE_SCHEMA = "name string, rows bigint, bytes bigint, seconds double"
_DRIVER_BYTES = 32 << 20
"""What is larger than this is read by the executors, and never passes the driver. They would start
Python processes for it, which takes a second or two."""
_ALL_DRIVER_BYTES = 256 << 20
"""Of all states of a plan together."""
_FETCHED_TOGETHER = 8
_LEAST_ROWS = 10_000
"""Of a part that the driver hands out."""


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
    run: str | None = None
    """The run that has the pieces, where that is another one."""
    write_seconds: float = 0.0
    """What the store took to write the piece that took longest."""
    broadcast: bool = False
    """Of a state: whether Spark had it as a broadcast table."""


def collect_result(
    frame: DataFrame, run: Run, query: str, folder: str = RESULTS, *, keep: bool = True
) -> KeptResult:
    """Run the query, collect its rows in the driver, and keep them."""
    return keep_table(frame.toArrow(), frame.schema, run, query, folder, keep=keep)


def keep_table(
    table: pa.Table,
    schema: StructType,
    run: Run,
    query: str,
    folder: str = RESULTS,
    *,
    keep: bool = True,
) -> KeptResult:
    """Keep rows that the driver has."""
    pieces: tuple[str, ...] = ()
    began = time.monotonic()
    if keep:
        pieces = (f"{_folder(query, folder)}/{0:06d}-{_attempt()}",)
        run.write_piece(pieces[0], _to_bytes(table))
    return KeptResult(
        table.num_rows,
        table.nbytes,
        pieces,
        schema.json(),
        keep,
        collected=True,
        write_seconds=time.monotonic() - began,
    )


def write_result(
    frame: DataFrame,
    run: Run,
    query: str,
    folder: str = RESULTS,
    running: Callable[[DataFrame], None] = lambda frame: None,
) -> KeptResult:
    """Run the query and have the executors keep its rows, without them passing the driver.
    `running` is told the frame that does it."""
    pieces = write_pieces(frame, run, _folder(query, folder), running=running)
    return KeptResult(
        sum(piece.rows for piece in pieces),
        sum(piece.bytes for piece in pieces),
        tuple(piece.name for piece in pieces),
        frame.schema.json(),
        write_seconds=max((piece.seconds for piece in pieces), default=0.0),
    )


@dataclass(frozen=True, slots=True)
class WrittenPiece:
    """An Arrow stream in a run. `bytes` is its size in memory, without compression; `seconds` is
    what the store took to write it."""

    name: str
    rows: int
    bytes: int
    seconds: float


def write_pieces(
    frame: DataFrame,
    run: Run,
    folder: str,
    *,
    most_bytes: int = sys.maxsize,
    running: Callable[[DataFrame], None] = lambda frame: None,
) -> tuple[WrittenPiece, ...]:
    """The rows of the frame in the order of its partitions, written by the executors below a
    folder of the run. A partition without rows has no piece, one of more than `most_bytes` has
    several."""
    writer = _writer(run.store.url, run.run_id, folder, _attempt(), most_bytes)
    writing = frame.mapInArrow(writer, _PIECE_SCHEMA)
    running(writing)
    written = writing.collect()
    pieces = (
        WrittenPiece(str(row.name), int(row.rows), int(row.bytes), float(row.seconds))
        for row in written
    )
    return tuple(sorted(pieces, key=lambda piece: piece.name))


def discard_result(frame: DataFrame) -> KeptResult:
    """Run the query for its own sake: its types have no Arrow form, so nothing can be kept. What
    runs is the plan of the frame, for whoever looks at it, not that of something written."""
    return KeptResult(counted(frame._jdf), 0, (), frame.schema.json(), kept=False)


def open_result(spark: SparkSession, run: Run, kept: KeptResult) -> DataFrame:
    """The kept rows as a DataFrame, in their order."""
    run = _run_of(run, kept)
    schema = StructType.fromJson(json.loads(kept.schema))
    if not kept.pieces or kept.bytes <= _DRIVER_BYTES:
        beside = partial(table_session, spark)
        return _of_table(spark, read_result(run, kept), schema, beside)
    return _of_pieces(spark, run, kept, schema)


def _of_pieces(spark: SparkSession, run: Run, kept: KeptResult, schema: StructType) -> DataFrame:
    """Executors read them, each time that they are scanned."""
    missing = set(kept.pieces) - set(run.pieces())
    if missing:
        raise PieceMissing(
            f"pieces {', '.join(sorted(missing))} of run {run.run_id} are missing",
            hint="bring them back from a copy of the store, or run the query again",
        )
    numbers = spark.range(0, len(kept.pieces), 1, len(kept.pieces))
    return numbers.mapInArrow(_reader(run.store.url, run.run_id, kept.pieces), schema)


def table_session(spark: SparkSession) -> SparkSession:
    """A session beside `spark` that makes frames of tables, one after the other. Their rows stay as
    they are until they are read: as a relation of single rows, which is what Spark makes of a table
    by itself, they would be looked through whenever a plan is."""
    beside = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    beside.conf.set("spark.sql.execution.arrow.localRelationThreshold", "0")
    return beside


def _of_table(
    spark: SparkSession, table: pa.Table, schema: StructType, beside: Callable[[], SparkSession]
) -> DataFrame:
    with _active_session_kept():
        return _frame_of_table(spark, table, schema, beside)


@contextmanager
def _active_session_kept() -> Iterator[None]:
    """Whoever makes a frame of rows makes its session the active one."""
    before = SparkSession._activeSession
    try:
        yield
    finally:
        SparkSession._activeSession = before


def _frame_of_table(
    spark: SparkSession, table: pa.Table, schema: StructType, beside: Callable[[], SparkSession]
) -> DataFrame:
    if not table.num_rows:
        return spark.createDataFrame([], schema)
    session = beside()
    parts = 2 * spark.sparkContext.defaultParallelism
    rows = max(_LEAST_ROWS, -(-table.num_rows // parts))
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(rows))
    return in_session(spark, session.createDataFrame(table, schema=schema))


def fetch_small(run: Run, states: Mapping[str, KeptResult]) -> dict[str, pa.Table]:
    """Small states of a plan, all read at the same time: executors would start Python processes
    for them. Beyond a limit for all together, the smallest ones."""
    small: list[str] = []
    total = 0
    for name in sorted(states, key=lambda each: states[each].bytes):
        total += states[name].bytes
        if states[name].bytes > _DRIVER_BYTES or total > _ALL_DRIVER_BYTES:
            break
        small.append(name)
    with ThreadPoolExecutor(_FETCHED_TOGETHER, "headway-fetch") as pool:
        parts = {
            name: [pool.submit(_read_piece, of, piece) for piece in states[name].pieces]
            for name in small
            for of in [_run_of(run, states[name])]
        }
        return {
            name: _joined([part.result() for part in found], states[name])
            for name, found in parts.items()
        }


def state_rows(
    spark: SparkSession,
    run: Run,
    kept: KeptResult,
    table: pa.Table | None,
    beside: Callable[[], SparkSession],
) -> DataFrame:
    """Rows that were kept for a plan. The session `beside` makes a frame of their `table`; without
    one, they are fetched by each scan."""
    schema = StructType.fromJson(json.loads(kept.schema))
    if table is None:
        return _of_pieces(spark, _run_of(run, kept), kept, schema)
    return _of_table(spark, table, schema, beside)


def sized_state(
    spark: SparkSession,
    rows: DataFrame,
    name: str,
    kept: KeptResult,
    size: int,
    *,
    in_one_task: bool = False,
) -> DataFrame:
    """Those rows under the name of their state, with a `size` for Spark to plan by."""
    told = (name, max(1, size), max(0, kept.rows))
    return DataFrame(sized(rows._jdf, *told, in_one_task=in_one_task), spark)


def read_result(run: Run, kept: KeptResult) -> pa.Table:
    """The kept rows in this process, in their order."""
    run = _run_of(run, kept)
    return _joined([_read_piece(run, name) for name in kept.pieces], kept)


def _read_piece(run: Run, name: str) -> pa.Table:
    return pa.ipc.open_stream(run.read_piece(name)).read_all()


def _joined(parts: list[pa.Table], kept: KeptResult) -> pa.Table:
    return pa.concat_tables(parts) if parts else arrow_schema(kept.schema).empty_table()


def _run_of(run: Run, kept: KeptResult) -> Run:
    return run if kept.run is None else Run.open(run.store, kept.run)


def _folder(query: str, folder: str) -> str:
    return f"{folder}/{check_id(query, 'query name')}"


def _attempt() -> str:
    """Part of the names of pieces: whoever was stopped and still writes has others."""
    return secrets.token_hex(4)


def _to_bytes(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=_compressed()) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _compressed() -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(compression="lz4")


def _writer(url: str, run_id: str, folder: str, attempt: str, most_bytes: int) -> Any:
    """What an executor does with a partition: pieces under names that no other attempt has."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise InternalError("a partition is written outside a Spark task")
        first = f"{folder}/{context.partitionId():06d}-{attempt}-{context.taskAttemptId()}"
        run = None
        for number, numbered in groupby(_numbered(batches, most_bytes), key=itemgetter(0)):
            run = run or Run.open(open_store(url), run_id)
            name = f"{first}-{number:06d}" if number else first
            rows, size, seconds = _write_piece(run, name, (batch for _, batch in numbered))
            told = {"name": [name], "rows": [rows], "bytes": [size], "seconds": [seconds]}
            yield pa.RecordBatch.from_pydict(told)

    return write


def _numbered(
    batches: Iterable[pa.RecordBatch], most_bytes: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batches with the number of the piece that they belong to, large ones cut up."""
    number = size = 0
    for batch in batches:
        parts = max(1, -(-batch.nbytes // most_bytes))
        step = max(1, -(-batch.num_rows // parts))
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            if size and size + part.nbytes > most_bytes:
                number, size = number + 1, 0
            size += part.nbytes
            yield number, part


def _write_piece(run: Run, name: str, batches: Iterator[pa.RecordBatch]) -> tuple[int, int, float]:
    """Rows, bytes, and the seconds without the wait for the next rows."""
    batch: pa.RecordBatch | None = next(batches)
    assert batch is not None
    rows = size = 0
    began, waited = time.monotonic(), 0.0
    with (
        run.piece_writer(name) as sink,
        pa.ipc.new_stream(_Sink(sink), batch.schema, options=_compressed()) as writer,
    ):
        while batch is not None:
            writer.write_batch(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            since = time.monotonic()
            batch = next(batches, None)
            waited += time.monotonic() - since
    return rows, size, time.monotonic() - began - waited


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
