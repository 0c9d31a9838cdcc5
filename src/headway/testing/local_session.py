"""A driver with workers of its own and a run in a store, without Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway.pipelined.cluster import Cluster
from headway.pipelined.control.store import ControlStore, open_control_store
from headway.pipelined.core.events import Options, ResultPiece
from headway.pipelined.execution import Execution
from headway.storage import Run, new_manifest, open_store
from headway.testing.local_workers import LocalWorkers


class LocalSession:
    """Everything is below `folder`: the store, the control stores, the workers' scratch folders."""

    def __init__(self, folder: Path, *, lease_seconds: float = 2.0) -> None:
        self.folder = folder
        self.run = Run.create(open_store(str(folder / "store")), new_manifest(()))
        self.lost: list[tuple[str, str, float]] = []
        """Workers, why they were lost, and when by the monotonic clock."""
        self.cluster = Cluster(lease_seconds=lease_seconds, on_lost=self._note_lost)
        self.workers = LocalWorkers(self.cluster.port, self.cluster.token, folder / "scratch")

    def execute(
        self,
        program: Any,
        query: str = "q1",
        *,
        options: Options | None = None,
        control: str | ControlStore | None = None,
        patience: float = 10.0,
        started: Callable[[Execution], None] = lambda execution: None,
    ) -> tuple[ResultPiece, ...]:
        """`program` is a dataflow, or stands for one. `control` is a control store, or the
        address of one, in place of the session's own."""
        if control is None or isinstance(control, str):
            address = control or f"sqlite:{self.folder / 'control'}"
            control = open_control_store(address, self.run.run_id, query)
        return self.cluster.execute(
            program,
            query,
            store=control,
            store_url=self.run.store.url,
            run_id=self.run.run_id,
            options=options,
            patience=patience,
            started=started,
        )

    def close(self) -> None:
        self.cluster.close()
        self.workers.close()

    def _note_lost(self, worker: str, reason: str) -> None:
        self.lost.append((worker, reason, time.monotonic()))
