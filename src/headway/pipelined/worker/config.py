"""What a worker process is told when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from headway.base.errors import WrongUsage
from headway.base.ids import check_id

C = TypeVar("C", bound="WorkerConfig")


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One line of JSON on the process's standard input.

    The process serves the driver at `driver_host`, and its peers on `bind_host`; it ends when one
    of the processes in `watch` does. `scratch` becomes a private folder, gone at the end.
    """

    worker: str
    driver_host: str
    driver_port: int
    token: str
    bind_host: str
    scratch: str
    cores: int = 1
    memory: int = 1 << 30
    watch: tuple[int, ...] = ()
    executor: str = ""
    readable: tuple[str, ...] = ()
    """Folders of the tables, which the kernels may read."""
    heartbeat_seconds: float = 0.3
    put_seconds: float = 5.0
    """A peer that gives no sign of life for so long does not get the output."""
    inbox_bytes: int = 0
    """Inputs of a query that wait in memory; 0 for a fifth of `memory`."""
    backup_bytes: int | None = None
    """Copies of a query's outputs that stay in memory; None for a tenth of `memory`."""

    def __post_init__(self) -> None:
        check_id(self.worker, "worker id")
        if not Path(self.scratch).is_absolute():
            raise WrongUsage(f"the scratch folder {self.scratch!r} is not an absolute path")
        if self.cores < 1 or self.memory < 1 or not self.token:
            raise WrongUsage("a worker needs a core, memory and a token")

    @property
    def inbox_limit(self) -> int:
        return self.inbox_bytes or self.memory // 5

    @property
    def backup_limit(self) -> int:
        return self.memory // 10 if self.backup_bytes is None else self.backup_bytes

    @property
    def piece_limit(self) -> int:
        """Pieces of the reliable store that are kept for the next query."""
        return self.memory // 10

    @property
    def kernel_memory(self) -> int:
        """What the kernels may use; the rest is for inputs, copies of outputs and Python itself."""
        return self.memory * 3 // 5


def read_config(line: str | bytes, kind: type[C]) -> C:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise WrongUsage(f"a worker's configuration is not readable: {error}") from error
