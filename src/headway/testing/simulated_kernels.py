"""Queries of the simulation on real workers: their rows as Arrow tables, in place of DuckDB's.

A query takes as long as it is told to, so that a test can strike in the middle.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa

from headway.base.errors import InternalError
from headway.lineage.names import ChannelId
from headway.lineage.reading import Layout
from headway.lineage.records import Lineage
from headway.lineage.topology import Topology
from headway.pipelined.transport import StartQuery
from headway.pipelined.worker.config import WorkerConfig
from headway.pipelined.worker.slices import Slices
from headway.storage import Run
from headway.testing.simulated_queries import FakeKernel, Rows, SimulatedQuery

_SCHEMA = pa.schema([("row", pa.int64())])


@dataclass(frozen=True)
class SimulatedProgram:
    """Stands for a dataflow: every task of the query takes `seconds`."""

    query: SimulatedQuery
    seconds: float = 0.0

    @property
    def topology(self) -> Topology:
        return self.query.topology

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)


@dataclass(frozen=True)
class ArrowOutput:
    table: pa.Table
    slices: Slices
    more: bool

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)


class ArrowKernel:
    def __init__(self, program: SimulatedProgram, channel: ChannelId) -> None:
        self._kernel = FakeKernel(program.query, Layout(program.topology), channel)
        self._seconds = program.seconds

    def execute(self, lineage: Lineage, inputs: list[pa.Table]) -> ArrowOutput:
        time.sleep(self._seconds)
        made = self._kernel.execute(lineage, [_rows(table) for table in inputs])
        tables: dict[Rows, pa.Table] = {}

        def table(rows: Rows) -> pa.Table:
            return tables.setdefault(rows, _table(rows))

        slices = tuple(tuple(map(table, readers)) for readers in made.slices)
        return ArrowOutput(table(made.rows), slices, made.more)

    def read(self, sql: str, columns: tuple[tuple[str, str], ...]) -> pa.Table:
        raise InternalError("simulated channels have no tables")

    def close(self) -> None:
        pass


class ArrowKernels:
    def __init__(self, program: SimulatedProgram) -> None:
        self._program = program

    def open(self, channel: ChannelId) -> ArrowKernel:
        return ArrowKernel(self._program, channel)

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass


def start_simulated(config: WorkerConfig, start: StartQuery, folder: Path) -> ArrowKernels:
    return ArrowKernels(msgspec.msgpack.decode(start.program, type=SimulatedProgram))


def result_rows(run: Run, pieces: Iterable[str]) -> Counter[int]:
    """The rows of a result, to be compared with `expected_rows`."""
    found: Counter[int] = Counter()
    for piece in pieces:
        found.update(_rows(pa.ipc.open_stream(run.read_piece(piece)).read_all()))
    return found


def _rows(table: pa.Table) -> Rows:
    return tuple(table.column("row").to_pylist())


def _table(rows: Rows) -> pa.Table:
    return pa.table({"row": pa.array(rows, pa.int64())}, schema=_SCHEMA)
