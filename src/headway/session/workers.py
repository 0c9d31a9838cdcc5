"""The workers of a Spark session: started with the first query that needs them, and kept."""

from __future__ import annotations

import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from headway.base.config import Settings
from headway.base.errors import HeadwayError, WorkerNotStarted
from headway.pipelined.cluster import Cluster
from headway.pipelined.control.store import ControlStore, open_control_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.spark.hosting import WorkerHost

_START_SECONDS = 90.0


class Workers:
    """Safe from several threads; several sessions may share one. `close` ends the workers."""

    def __init__(self, spark: SparkSession, settings: Settings) -> None:
        self._spark = spark
        self._settings = settings.pipelined
        self._lock = threading.Lock()
        self._begun = False
        self._closed = False
        self._cluster: Cluster | None = None
        self._host: WorkerHost | None = None
        self.count_at_start = 0
        """How many the first query found; one that is lost is replaced."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def count(self) -> int:
        """How many there are, or would be."""
        if self._cluster is not None:
            return max(1, len(self._cluster.workers))
        from headway.spark.executors import list_executors

        return self._settings.workers or max(1, len(list_executors(self._spark)))

    @property
    def executors(self) -> dict[str, str]:
        """The executor of every worker, by the worker's name."""
        if self._cluster is None:
            return {}
        return {name: hello.executor for name, hello in self._cluster.workers.items()}

    @property
    def processes(self) -> dict[str, int]:
        """The process of every worker, by the worker's name."""
        if self._cluster is None:
            return {}
        return {name: hello.pid for name, hello in self._cluster.workers.items()}

    def start(self) -> Cluster:
        """All of them; those that are there already when called again."""
        from headway.spark.executors import driver_address
        from headway.spark.hosting import WorkerHost, WorkerPlan

        with self._lock:
            if self._cluster is not None:
                return self._cluster
            if self._closed:
                raise WorkerNotStarted("the session is closed")
            driver = driver_address(self._spark)
            cluster = Cluster(
                host=driver.bind,
                lease_seconds=self._settings.lease,
                on_lost=lambda worker, reason: self._lost(worker),
            )
            plan = WorkerPlan(
                (driver.host, cluster.port), cluster.token, memory=self._settings.memory or None
            )
            host = WorkerHost(self._spark, plan)
            try:
                there = host.start(self._settings.workers or None)
                cluster.await_workers(len(there), _START_SECONDS)
            except BaseException:
                cluster.close()
                host.stop()
                raise
            host.watch()
            self.count_at_start = len(there)
            self._host, self._cluster = host, cluster
            return cluster

    def start_soon(self) -> None:
        """Begin to start them beside whatever else is to be done; `start` waits for that."""
        if self._cluster is None and not self._begun:
            self._begun = True
            threading.Thread(target=self._try_to_start, daemon=True).start()

    def _try_to_start(self) -> None:
        with suppress(HeadwayError):  # whoever needs them asks again, and is told
            self.start()

    def control_store(self, url: str, run_id: str, query: str) -> ControlStore:
        """The one for a query, at that address; `sqlite` alone is a folder of this session."""
        if url == "sqlite":
            with self._lock:
                if self._folder is None:
                    self._folder = tempfile.TemporaryDirectory(prefix="headway-control-")
                url = f"sqlite:{self._folder.name}"
        return open_control_store(url, run_id, query)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if self._cluster is not None:
                self._cluster.close()
            if self._host is not None:
                self._host.stop()
            if self._folder is not None:
                with suppress(OSError):
                    self._folder.cleanup()
            self._cluster = self._host = self._folder = None

    def _lost(self, worker: str) -> None:
        host = self._host
        if host is not None:
            host.lost(worker)
