"""The kernels that worker processes use: DuckDB's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pyarrow as pa

from headway.pipelined.kernels.channel import Databases, QueryKernels
from headway.pipelined.programs import StoredPiece
from headway.pipelined.transport import StartQuery
from headway.pipelined.worker.config import WorkerConfig
from headway.storage import Run, open_store


def start_kernels(config: WorkerConfig, start: StartQuery, folder: Path) -> QueryKernels:
    def read_piece(piece: StoredPiece) -> pa.Table:
        run = Run.open(open_store(start.store_url), piece.run)
        return pa.ipc.open_stream(run.read_piece(piece.name)).read_all()

    return QueryKernels(
        start.program,
        _databases(config.cores, config.kernel_memory),
        scratch=folder / "kernels",
        read_piece=read_piece,
    )


@cache
def _databases(threads: int, memory: int) -> Databases:
    """Those of this process."""
    return Databases(threads=threads, memory=memory)
