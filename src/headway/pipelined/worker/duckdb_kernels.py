"""The kernels that worker processes use: DuckDB's."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cache
from pathlib import Path

import pyarrow as pa

from headway.pipelined.kernels.channel import Databases, QueryKernels
from headway.pipelined.programs import StoredPiece
from headway.pipelined.transport import StartQuery
from headway.pipelined.worker.backups import open_run
from headway.pipelined.worker.config import WorkerConfig


def start_kernels(config: WorkerConfig, start: StartQuery, folder: Path) -> QueryKernels:
    pieces = _pieces(config.piece_limit)
    return QueryKernels(
        start.program,
        _databases(config.cores, config.kernel_memory),
        scratch=folder / "kernels",
        read_piece=lambda piece: pieces.read(start.store_url, piece),
    )


class PieceCache:
    """Pieces that were read lately, up to `limit` bytes: many queries may read the same shared
    result, one after the other. Safe from several threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, StoredPiece], pa.Table] = OrderedDict()
        self._bytes = 0

    def read(self, store_url: str, piece: StoredPiece) -> pa.Table:
        with self._lock:
            known = self._known.get((store_url, piece))
            if known is not None:
                self._known.move_to_end((store_url, piece))
                return known
        run = open_run(store_url, piece.run)
        found = pa.ipc.open_stream(run.read_piece(piece.name)).read_all()
        with self._lock:
            if (store_url, piece) not in self._known:
                self._known[store_url, piece] = found
                self._bytes += found.nbytes
            while self._bytes > self._limit:
                self._bytes -= self._known.popitem(last=False)[1].nbytes
        return found


@cache
def _pieces(limit: int) -> PieceCache:
    """Those of this process."""
    return PieceCache(limit)


@cache
def _databases(threads: int, memory: int) -> Databases:
    """Those of this process."""
    return Databases(threads=threads, memory=memory)
