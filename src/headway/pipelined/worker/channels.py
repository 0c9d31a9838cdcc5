"""The channels of a query that this worker runs, with their kernels."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from headway.lineage.names import ChannelId
from headway.lineage.records import Lineage
from headway.pipelined.worker.interfaces import ChannelKernel, QueryKernels, TaskOutput


class _Running:
    """A channel under one epoch. The lock is held while a task of it runs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kernel: ChannelKernel | None = None

    def close(self) -> None:
        with self.lock:
            if self.kernel is not None:
                self.kernel.close()
                self.kernel = None


class Channels:
    """Safe from several threads; tasks of different channels run side by side."""

    def __init__(self, kernels: QueryKernels) -> None:
        self._kernels = kernels
        self._lock = threading.Lock()
        self._running: dict[tuple[ChannelId, int], _Running] = {}

    def open(self, channel: ChannelId, epoch: int) -> None:
        """Its state is made when its first task runs."""
        with self._lock:
            self._running[channel, epoch] = _Running()

    def execute(
        self, channel: ChannelId, epoch: int, lineage: Lineage, inputs: list[pa.Table]
    ) -> TaskOutput:
        """Of a channel that is open."""
        with self._lock:
            running = self._running[channel, epoch]
        with running.lock:
            if running.kernel is None:
                running.kernel = self._kernels.open(channel)
            return running.kernel.execute(lineage, inputs)

    def execute_alone(self, channel: ChannelId, lineage: Lineage) -> TaskOutput:
        """A task of a stage without state, which need not be of a channel that is open here."""
        kernel = self._kernels.open(channel)
        try:
            return kernel.execute(lineage, [])
        finally:
            kernel.close()

    def read(
        self, channel: ChannelId, sql: str, columns: tuple[tuple[str, str], ...]
    ) -> pa.Table | None:
        """State of a channel as it is between two tasks; None where it has none here."""
        with self._lock:
            epochs = [epoch for name, epoch in self._running if name == channel]
            running = self._running[channel, max(epochs)] if epochs else None
        if running is None:
            return None
        with running.lock:
            return None if running.kernel is None else running.kernel.read(sql, columns)

    def is_open(self, channel: ChannelId, epoch: int) -> bool:
        with self._lock:
            return (channel, epoch) in self._running

    def close(self, channel: ChannelId, epoch: int) -> Callable[[], None]:
        """No task of it begins from now on. What is returned drops its state, and waits for a task
        that runs."""
        with self._lock:
            running = self._running.pop((channel, epoch), None)
        return running.close if running is not None else lambda: None

    def close_all(self) -> None:
        """Waits for the tasks that run."""
        with self._lock:
            left = list(self._running.values())
            self._running.clear()
        for running in left:
            running.close()
