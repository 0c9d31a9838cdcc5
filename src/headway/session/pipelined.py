"""The pipelined engine in a session: workers from Spark, the query's dataflow, its result."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.base.config import Settings
from headway.base.errors import HeadwayError, InternalError
from headway.lineage.topology import Protection
from headway.pipelined.cluster import Cluster
from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.core.events import Options
from headway.pipelined.execution import Execution, Report
from headway.pipelined.programs import Dataflow, TableInput
from headway.plan.graph import walk
from headway.plan.nodes import Node, Scan
from headway.session.planning import PIPELINED, PlannedQuery
from headway.session.workers import Workers
from headway.storage import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.spark.adaptive import PipelineCount
    from headway.spark.results import KeptResult

_LEAST_PART = 16
"""A task waits for this part of its full size while more is to come."""
_MOST_SERVED = 4
"""Tasks that work for several queries read less, down to this part: what is lost with a worker is
to be no more than of other queries."""

_SMALL_BYTES = 32 << 20
"""One worker reads a kept result of this size sooner than several have shared it out."""


def _is_small(query: PlannedQuery) -> bool:
    """Whether there is nothing to read but results that were kept, and little of them."""
    assert query.plan is not None
    if not query.states or any(isinstance(node, Scan) for node in walk(query.plan.root)):
        return False
    return sum(state.bytes for state in query.states.values()) <= _SMALL_BYTES


class ExecutionWatch:
    """Counts what a running query has behind it: the inputs of its channels. `query` is its name
    among all queries of the workers."""

    def __init__(
        self, execution: Execution, cluster: Cluster, dataflow: Dataflow, query: str
    ) -> None:
        self.execution = execution
        self.cluster = cluster
        self.dataflow = dataflow
        self.query = query

    @property
    def report(self) -> Report:
        return self.execution.report

    def count(self) -> PipelineCount:
        from headway.spark.adaptive import PipelineCount

        report = self.execution.report
        return PipelineCount(min(report.sides_done, report.sides_total), report.sides_total)

    def let_go(self) -> None:
        """Workers have nothing of a query that is over."""


class StagingWatch:
    """Of a query whose tables are brought to the workers: nothing else of it has begun."""

    def count(self) -> PipelineCount:
        from headway.spark.adaptive import PipelineCount

        return PipelineCount(0, 1)

    def let_go(self) -> None:
        """What was brought there is removed by whoever brought it."""


Started = Callable[["ExecutionWatch | StagingWatch", Callable[[], None]], None]


class PipelinedEngine:
    """Queries on the workers of a Spark session. Safe from several threads."""

    name = PIPELINED

    def __init__(self, spark: SparkSession, settings: Settings, workers: Workers) -> None:
        self._spark = spark
        self._settings = settings
        self._workers = workers

    def start(self) -> None:
        """Returns when the workers are there; WorkerNotStarted when there can be none."""
        self._workers.start()

    def dataflow(
        self, query: PlannedQuery, staged: Mapping[Node, TableInput] | None = None
    ) -> Dataflow:
        """The stages of a query, for the workers there are."""
        if query.plan is None or query.estimates is None:
            raise InternalError(f"query {query.name} has no plan")
        wanted = self._settings.pipelined
        choices = Choices(
            workers=1 if _is_small(query) else self._workers.count,
            protection=Protection(wanted.protection),
            broadcast_bytes=wanted.broadcast_limit,
        )
        return compile_plan(query.plan, query.estimates, choices, staged)

    def explained(self, query: PlannedQuery) -> PlannedQuery:
        """With its stages, where this engine would run it. Nothing is staged for that."""
        from headway.spark.staging import needs_staging

        if query.engine != PIPELINED or query.plan is None or query.error is not None:
            return query
        scans = (node for node in walk(query.plan.root) if isinstance(node, Scan))
        staged: dict[Node, TableInput] = {
            scan: TableInput(()) for scan in scans if needs_staging(scan.source)
        }
        try:
            return replace(query, dataflow=self.dataflow(query, staged))
        except HeadwayError as error:  # a file that is gone, for instance
            return replace(query, error=error)

    def execute(
        self,
        query: PlannedQuery,
        run: Run,
        *,
        keep: bool,
        started: Started,
    ) -> KeptResult:
        """Run the query to its end; its rows are in the run where they are to be kept. `started`
        gets a watch on it and a function that stops it; another one before that, where tables are
        staged for it."""
        from headway.spark.staging import needs_staging

        assert query.plan is not None
        name = f"{query.name[:40]}-{secrets.token_hex(6)}"  # among all queries of the workers
        scans = (node for node in walk(query.plan.root) if isinstance(node, Scan))
        if not any(needs_staging(scan.source) for scan in scans):
            return self._execute(query, name, run, keep, started, {})
        try:
            staged = self._staged(query, name, run, started)
            return self._execute(query, name, run, keep, started, staged)
        finally:
            with suppress(HeadwayError):  # what is left there is in nobody's way
                run.remove_pieces([f"staged/{name}"])

    def _staged(
        self, query: PlannedQuery, name: str, run: Run, started: Started
    ) -> dict[Node, TableInput]:
        """Tables that the workers cannot read, as they can."""
        from headway.spark.engine import cancel_jobs, job_group
        from headway.spark.errors import named_error
        from headway.spark.staging import stage_tables

        assert query.plan is not None
        group = f"headway-{run.run_id}-{name}-tables"
        started(StagingWatch(), lambda: cancel_jobs(self._spark, group))
        try:
            with job_group(self._spark, group):
                frames = query.session_frames
                return stage_tables(self._spark, query.plan, run, name, session_frames=frames)
        except Exception as error:
            raise named_error(error) from error

    def _execute(
        self,
        query: PlannedQuery,
        name: str,
        run: Run,
        keep: bool,
        started: Started,
        staged: dict[Node, TableInput],
    ) -> KeptResult:
        from headway.spark.results import KeptResult
        from headway.spark.schemas import schema_of
        from headway.spark.staging import state_inputs

        assert query.plan is not None
        cluster = self._workers.start()
        inputs = staged | state_inputs(query.plan, run, query.states)
        wanted = self._settings.pipelined
        task_bytes = wanted.task_size // min(query.serves, _MOST_SERVED)
        dataflow = self.dataflow(query, inputs)
        try:
            pieces = cluster.execute(
                dataflow,
                name,
                store=self._workers.control_store(wanted.control_store, run.run_id, query.name),
                store_url=run.store.url,
                run_id=run.run_id,
                options=Options(
                    task_bytes=task_bytes,
                    least_bytes=task_bytes // _LEAST_PART,
                    inputs_per_task=wanted.inputs_per_task or None,
                    blocking=wanted.blocking,
                ),
                started=lambda execution: started(
                    ExecutionWatch(execution, cluster, dataflow, name), execution.cancel
                ),
            )
        except BaseException:
            with suppress(HeadwayError):  # the error that there is already is the one to tell
                run.remove_pieces([f"results/{name}", f"spool/{name}"])
            raise
        if wanted.protection == Protection.SPOOL.value:
            run.remove_pieces([f"spool/{name}"])  # it was there for losses, which are over
        names = tuple(piece.piece for piece in pieces)
        sizes = run.piece_sizes(f"results/{name}")
        # What a lost worker wrote and could not commit is no part of the result.
        run.remove_pieces(set(sizes) - (set(names) if keep else set()))
        rows = sum(piece.rows for piece in pieces)
        size = sum(sizes.get(piece, 0) for piece in names)
        schema = query.schema or schema_of(query.plan)
        return KeptResult(rows, size, names if keep else (), schema, keep)
