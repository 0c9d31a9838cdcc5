"""The pipelined engine in a session: workers from Spark, the query's dataflow, its result."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headway.base.config import Settings
from headway.base.errors import InternalError
from headway.lineage.topology import Protection
from headway.pipelined.cluster import Cluster
from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.control.store import ControlStore, open_control_store
from headway.pipelined.core.events import Options
from headway.pipelined.execution import Execution, Report
from headway.pipelined.programs import Dataflow, TableInput
from headway.plan.nodes import Scan
from headway.session.planning import PIPELINED, PlannedQuery
from headway.storage import ReliableStore, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.spark.adaptive import PipelineCount
    from headway.spark.hosting import WorkerHost
    from headway.spark.results import KeptResult

_START_SECONDS = 90.0


class ExecutionWatch:
    """Counts what a running query has behind it: the inputs of its channels."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution

    @property
    def report(self) -> Report:
        return self._execution.report

    def count(self) -> PipelineCount:
        from headway.spark.adaptive import PipelineCount

        report = self._execution.report
        return PipelineCount(min(report.sides_done, report.sides_total), report.sides_total)


class PipelinedEngine:
    """Queries on workers that are started with the first one and stay. Safe from several threads.

    `close` ends the workers.
    """

    name = PIPELINED

    def __init__(self, spark: SparkSession, settings: Settings, store: ReliableStore) -> None:
        self._spark = spark
        self._settings = settings
        self._store = store
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None
        self._host: WorkerHost | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def workers(self) -> int:
        """How many there are, or would be."""
        if self._cluster is not None:
            return max(1, len(self._cluster.workers))
        from headway.spark.executors import list_executors

        return self._settings.pipelined.workers or max(1, len(list_executors(self._spark)))

    def dataflow(
        self, query: PlannedQuery, staged: dict[Scan, TableInput] | None = None
    ) -> Dataflow:
        """The stages of a query, for the workers there are."""
        if query.plan is None or query.estimates is None:
            raise InternalError(f"query {query.name} has no plan")
        wanted = self._settings.pipelined
        choices = Choices(
            workers=self.workers,
            protection=Protection(wanted.protection),
            broadcast_bytes=wanted.broadcast_limit,
        )
        return compile_plan(query.plan, query.estimates, choices, staged)

    def execute(
        self,
        query: PlannedQuery,
        run: Run,
        *,
        started: Callable[[ExecutionWatch, Callable[[], None]], None],
    ) -> KeptResult:
        """Run the query to its end; its rows are in the run. `started` gets a watch on it and a
        function that stops it."""
        from headway.spark.results import KeptResult
        from headway.spark.staging import stage_tables

        assert query.plan is not None and query.frame is not None
        cluster = self._started()
        staged = stage_tables(
            self._spark, query.plan, run, query.name, session_frames=query.session_frames
        )
        wanted = self._settings.pipelined
        pieces = cluster.execute(
            self.dataflow(query, staged),
            f"{run.run_id}-{query.name}"[:64],
            store=self._control_store(run, query),
            store_url=run.store.url,
            run_id=run.run_id,
            options=Options(
                task_bytes=wanted.task_size,
                inputs_per_task=wanted.inputs_per_task or None,
                blocking=wanted.blocking,
            ),
            started=lambda execution: started(ExecutionWatch(execution), execution.cancel),
        )
        names = tuple(piece.piece for piece in pieces)
        size = sum(run.piece_sizes(f"results/{query.name}").values())
        rows = sum(piece.rows for piece in pieces)
        return KeptResult(rows, size, names, query.frame.schema.json())

    def close(self) -> None:
        with self._lock:
            if self._cluster is not None:
                self._cluster.close()
            if self._host is not None:
                self._host.stop()
            if self._folder is not None:
                with suppress(OSError):
                    self._folder.cleanup()
            self._cluster = self._host = self._folder = None

    def _started(self) -> Cluster:
        from headway.spark.executors import driver_address
        from headway.spark.hosting import WorkerHost, WorkerPlan

        with self._lock:
            if self._cluster is not None:
                return self._cluster
            wanted = self._settings.pipelined
            cluster = Cluster(
                host=driver_address(self._spark).host,
                lease_seconds=wanted.lease,
                on_lost=lambda worker, reason: self._lost(worker),
            )
            plan = WorkerPlan(cluster.address, cluster.token, memory=wanted.memory or None)
            host = WorkerHost(self._spark, plan)
            try:
                there = host.start(wanted.workers or None)
                cluster.await_workers(len(there), _START_SECONDS)
            except BaseException:
                cluster.close()
                host.stop()
                raise
            host.watch()
            self._host, self._cluster = host, cluster
            return cluster

    def _lost(self, worker: str) -> None:
        host = self._host
        if host is not None:
            host.lost(worker)

    def _control_store(self, run: Run, query: PlannedQuery) -> ControlStore:
        url = self._settings.pipelined.control_store
        if url == "sqlite":
            with self._lock:
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="headway-control-")
                url = f"sqlite:{Path(self._folder.name)}"
        return open_control_store(url, run.run_id, query.name)
