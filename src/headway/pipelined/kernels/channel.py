"""Channels at work: each has a DuckDB connection, and the tables in it are its state."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from headway.base.errors import InternalError
from headway.lineage.names import ChannelId
from headway.lineage.records import Lineage
from headway.lineage.topology import Partitioning, Topology
from headway.pipelined.kernels.connection import add_functions, seal, set_up
from headway.pipelined.kernels.reading import folders_of, rows_of_units
from headway.pipelined.kernels.typed import quoted, string_text
from headway.pipelined.kernels.types import arrow_type, spark_type
from headway.pipelined.programs import (
    BATCH,
    Action,
    ColumnType,
    Dataflow,
    StageProgram,
    Statement,
    StoredPiece,
    decode_dataflow,
)

_OUTPUT_BYTES = 64 << 20
_FEWEST_ROWS = 1 << 16
_COMPACT_ROWS = 1 << 20
_WIDTHS = {"VARCHAR": 32, "BOOLEAN": 1, "TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "FLOAT": 4}
_OUT = '"#out"'
_NO_FLOATS = ("FLOAT", "DOUBLE")

ReadPiece = Callable[[StoredPiece], pa.Table]


@dataclass(frozen=True)
class Output:
    """What a task made: the slices for each consumer of the stage and each of its readers.

    `more` says that the end of the side has a further portion to put out.
    """

    table: pa.Table
    slices: tuple[tuple[pa.Table, ...], ...]
    more: bool = False

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @property
    def sizes(self) -> tuple[tuple[int, ...], ...]:
        """The bytes of every slice; 0 only where there are no rows."""
        return tuple(
            tuple(max(1, int(s.nbytes)) if s.num_rows else 0 for s in slices)
            for slices in self.slices
        )


class Databases:
    """Databases for queries: the next one is made while nobody waits for it.

    `threads` and `memory` (bytes) are what each may use.
    """

    def __init__(self, *, threads: int = 1, memory: int | None = None) -> None:
        self._config: dict[str, Any] = {"threads": threads}
        if memory is not None:
            self._config["memory_limit"] = f"{memory // 1024}KiB"
        self._lock = threading.Lock()
        self._spare: duckdb.DuckDBPyConnection | None = None

    def take(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            spare, self._spare = self._spare, None
        return spare if spare is not None else self._make()

    def prepare(self) -> None:
        """Make the next one."""
        with self._lock:
            if self._spare is None:
                self._spare = self._make()

    def _make(self) -> duckdb.DuckDBPyConnection:
        database = duckdb.connect(":memory:", config=self._config)
        database.execute("SET parquet_metadata_cache = true")
        add_functions(database)
        set_up(database)
        return database


class QueryKernels:
    """One query in one worker: a database with a connection for every channel.

    What does not fit into memory goes to `scratch`. `read_piece` opens tables that were staged in
    the reliable store.
    """

    def __init__(
        self,
        payload: bytes,
        databases: Databases | None = None,
        *,
        scratch: Path | None = None,
        read_piece: ReadPiece | None = None,
    ) -> None:
        self.dataflow: Dataflow = decode_dataflow(payload)
        self._read_piece = read_piece
        self._lock = threading.Lock()
        self._connections: list[duckdb.DuckDBPyConnection] = []
        self._databases = databases
        self._database = (databases or Databases()).take()
        if scratch is not None:
            self._database.execute(f"SET temp_directory = {string_text(str(scratch))}")
        seal(self._database, folders_of(self.dataflow))

    @property
    def topology(self) -> Topology:
        return self.dataflow.topology

    def open(self, channel: ChannelId) -> ChannelKernel:
        """A channel with nothing in its state."""
        connection = self._database.cursor()
        with self._lock:
            self._connections.append(connection)
        return ChannelKernel(self.dataflow, channel, connection, self._read_piece)

    def interrupt(self) -> None:
        """Nobody waits for the tasks that run: they fail as soon as they can."""
        with self._lock:
            connections = tuple(self._connections)
        for connection in connections:
            with suppress(duckdb.Error):  # one that is closed has nothing to stop
                connection.interrupt()

    def close(self) -> None:
        self._database.close()
        if self._databases is not None:
            self._databases.prepare()  # now that no query waits for the processor


class ChannelKernel:
    """Runs the tasks of one channel, one at a time, from any thread."""

    def __init__(
        self,
        dataflow: Dataflow,
        channel: ChannelId,
        connection: duckdb.DuckDBPyConnection,
        read_piece: ReadPiece | None,
    ) -> None:
        self._program: StageProgram = dataflow.stages[channel.stage]
        self._connection = connection
        self._read_piece = read_piece
        set_up(connection)
        topology = dataflow.topology
        consumers = topology.consumers[channel.stage]
        self._readers = [len(topology.readers(channel, consumer)) for consumer in consumers]
        self._keys = [
            dataflow.stages[c.stage].sides[c.side].keys
            if c.partitioning is Partitioning.HASH
            else ()
            for c in consumers
        ]
        self._result = dataflow.names if topology.stages[channel.stage].result else None
        self._ordered = dataflow.ordered
        self._grown: dict[str, int] = {}
        self._compacted: dict[str, int] = {}
        self._portions = 0
        self._users = Counter(
            statement.table
            for side in self._program.sides
            for statement in side.end
            if statement.action is Action.DROP
        )
        for name, columns in self._program.tables.items():
            self._execute(f"CREATE TEMP TABLE {quoted(name)} ({_declared(columns)})")
        self._run(self._program.begin, BATCH)

    def execute(self, lineage: Lineage, inputs: Iterable[pa.Table]) -> Output:
        """Run a task: `inputs` are its batches from upstream, in their order."""
        if lineage.portion:
            return self._portion(lineage.portion)
        side = self._program.sides[lineage.side]
        made: list[pa.Table] = []
        tables = list(inputs)
        if side.table is not None and lineage.count:
            rows = self._units(lineage)
            made += self._run(side.batch, rows)
        elif tables:
            self._connection.register(BATCH.strip('"'), pa.concat_tables(tables))
            made += self._run(side.batch, BATCH)
            self._connection.unregister(BATCH.strip('"'))
        if lineage.ends:
            return self._end(side.end, made)
        return self._sliced(made, more=False)

    def read(self, sql: str, columns: tuple[tuple[str, str], ...]) -> pa.Table:
        """Rows of the state, under these names and of these types of DuckDB's."""
        return _as_kept(self._execute(sql).to_arrow_table(), columns)

    def close(self) -> None:
        self._connection.close()

    def _units(self, lineage: Lineage) -> str:
        table = self._program.sides[lineage.side].table
        assert table is not None
        units = range(lineage.first, lineage.first + lineage.count)
        if table.pieces:
            if self._read_piece is None:
                raise InternalError("a staged table is read where no store is open")
            pieces = [self._read_piece(table.pieces[number]) for number in units]
            self._connection.register("#pieces", pa.concat_tables(pieces))
        return rows_of_units(table, units)

    def _run(self, statements: Iterable[Statement], batch: str) -> list[pa.Table]:
        """Run the statements over a batch; what they put out."""
        made = []
        for statement in statements:
            sql = statement.sql.replace(BATCH, batch) if batch != BATCH else statement.sql
            if statement.action is Action.EMIT:
                made.append(self._fetch(sql))
            else:
                self._change(statement, sql)
        return made

    def _change(self, statement: Statement, sql: str) -> None:
        assert statement.table is not None
        table = quoted(statement.table)
        if statement.action is Action.APPEND:
            added = self._execute(f"INSERT INTO {table} {sql}").fetchone()
            self._grown[statement.table] = self._grown.get(statement.table, 0) + (
                added[0] if added else 0
            )
        elif statement.action is Action.DROP:
            self._users[statement.table] -= 1
            if not self._users[statement.table]:  # in whichever order the sides have ended
                self._execute(f"DROP TABLE {table}")
        elif statement.action is Action.COMPACT:
            self._compact(statement.table, sql)

    def _compact(self, name: str, sql: str) -> None:
        """Once the table has doubled since the last time; never while it is small."""
        if self._grown.get(name, 0) < max(_COMPACT_ROWS, 2 * self._compacted.get(name, 0)):
            return
        self._execute(f'CREATE TEMP TABLE "#compact" AS {sql}')
        self._execute(f"DROP TABLE {quoted(name)}")
        self._execute(f'ALTER TABLE "#compact" RENAME TO {quoted(name)}')
        counted = self._execute(f"SELECT count(*) FROM {quoted(name)}").fetchone()
        self._grown[name] = self._compacted[name] = counted[0] if counted else 0

    def _end(self, statements: tuple[Statement, ...], made: list[pa.Table]) -> Output:
        limit = max(_FEWEST_ROWS, _OUTPUT_BYTES // _width(self._program.output))
        put_out = self._run(statements, BATCH)
        total = sum(table.num_rows for table in put_out)
        if total <= limit:  # by rows alone, which a repeated task has as many of
            return self._sliced(made + put_out, more=False)
        self._keep_output(put_out)
        self._portions = -(-total // limit)
        if made:
            raise InternalError("a side puts out rows both with its batches and at its end")
        return self._portion(0)

    def _keep_output(self, tables: list[pa.Table]) -> None:
        self._connection.register("#all", pa.concat_tables(tables))
        self._execute(f'CREATE TEMP TABLE {_OUT} AS SELECT * FROM "#all"')
        self._connection.unregister("#all")

    def _portion(self, number: int) -> Output:
        """Rows that belong together by their values, so that a repeated task puts out the same;
        those of an ordered result by their position."""
        if self._result is not None and self._ordered:
            limit = max(_FEWEST_ROWS, _OUTPUT_BYTES // _width(self._program.output))
            sql = f"SELECT * FROM {_OUT} LIMIT {limit} OFFSET {number * limit}"
        else:
            columns = [quoted(c.name) for c in self._program.output if c.type not in _NO_FLOATS]
            by = f"hash({', '.join(columns)})" if columns else "0"
            sql = f"SELECT * FROM {_OUT} WHERE {by} % {self._portions} = {number}"
        table = self._execute(sql).to_arrow_table()
        more = number + 1 < self._portions
        if not more:
            self._execute(f"DROP TABLE {_OUT}")
        return self._sliced([table], more=more)

    def _fetch(self, sql: str) -> pa.Table:
        """The rows, with the number of the reader that each goes to, per hashed consumer."""
        parts = "".join(
            f', CAST(hash({", ".join(keys)}) % {readers} AS USMALLINT) AS "#{number}"'
            for number, (keys, readers) in enumerate(zip(self._keys, self._readers, strict=True))
            if keys and readers > 1
        )
        text = f"SELECT *{parts} FROM ({sql})" if parts else sql
        return self._execute(text).to_arrow_table()

    def _sliced(self, tables: list[pa.Table], *, more: bool) -> Output:
        tables = [table for table in tables if table.num_rows]
        if not tables:
            empty = pa.schema([]).empty_table()
            return Output(empty, tuple(tuple([empty] * n) for n in self._readers), more)
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        width = len(self._program.output)
        rows = table.select(list(range(width)))
        if self._result is not None:
            return Output(self._as_result(rows), (), more)
        slices: list[tuple[pa.Table, ...]] = []
        for number, (keys, readers) in enumerate(zip(self._keys, self._readers, strict=True)):
            if keys and readers > 1:
                slices.append(_split(rows, table.column(f"#{number}"), readers))
            else:
                slices.append(tuple([rows] * readers))
        return Output(rows, tuple(slices), more)

    def _as_result(self, rows: pa.Table) -> pa.Table:
        """The columns as the user named them, of the types that Spark gives them."""
        assert self._result is not None
        if not self._result:
            return rows
        types = (column.type for column in self._program.output)
        return _as_kept(rows, zip(self._result, types, strict=True))

    def _execute(self, sql: str) -> duckdb.DuckDBPyConnection:
        return self._connection.execute(sql)


def _as_kept(rows: pa.Table, columns: Iterable[tuple[str, str]]) -> pa.Table:
    """The columns under these names, of the types that Spark has for DuckDB's."""
    fields = [pa.field(name, arrow_type(spark_type(type_))) for name, type_ in columns]
    arrays = [c.cast(field.type) for c, field in zip(rows.columns, fields, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _split(rows: pa.Table, parts: pa.ChunkedArray, readers: int) -> tuple[pa.Table, ...]:
    """The rows of each reader, as slices of one table in the readers' order."""
    numbers = parts.to_numpy()
    order = np.argsort(numbers, kind="stable")
    sorted_rows = rows.take(pa.array(order))
    bounds = np.searchsorted(numbers[order], np.arange(readers + 1))
    return tuple(
        sorted_rows.slice(int(start), int(stop - start)) for start, stop in pairwise(bounds)
    )


def _declared(columns: Iterable[ColumnType]) -> str:
    return ", ".join(f"{quoted(column.name)} {column.type}" for column in columns)


def _width(columns: Iterable[ColumnType]) -> int:
    """About how many bytes a row takes; the same wherever it is asked."""
    return max(1, sum(_WIDTHS.get(c.type, 16 if "(" in c.type else 8) for c in columns))
