"""What a worker needs of the kernels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headway.lineage.names import ChannelId
from headway.lineage.records import Lineage
from headway.pipelined.transport import StartQuery
from headway.pipelined.worker.config import WorkerConfig
from headway.pipelined.worker.slices import Slices


class TaskOutput(Protocol):
    """What a task made. `more`: the end of its side has a further portion."""

    @property
    def table(self) -> pa.Table: ...

    @property
    def rows(self) -> int: ...

    @property
    def more(self) -> bool: ...

    @property
    def slices(self) -> Slices:
        """Of one schema, unless empty. Readers that get the same rows have the same table."""
        ...


class ChannelKernel(Protocol):
    """A channel's operators and state. One call at a time, from any thread."""

    def execute(self, lineage: Lineage, inputs: list[pa.Table]) -> TaskOutput: ...

    def read(self, sql: str, columns: tuple[tuple[str, str], ...]) -> pa.Table:
        """Rows of the state, under these names and of these types of DuckDB's."""
        ...

    def close(self) -> None: ...


class QueryKernels(Protocol):
    """A query's program, ready to run."""

    def open(self, channel: ChannelId) -> ChannelKernel: ...

    def interrupt(self) -> None:
        """Nobody waits for the tasks that run."""
        ...

    def close(self) -> None: ...


StartKernels = Callable[[WorkerConfig, StartQuery, Path], QueryKernels]
"""Makes a query's program ready; it may use the folder. HeadwayError when it cannot."""
