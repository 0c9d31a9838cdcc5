"""Workers in Spark's executors: one process on each, started by Spark and warm from then on.

A worker is a process beside the executor's JVM. It is started by a Spark task, which ends when all
workers of its round are there (see rounds.py): Spark's own queries have all slots. The worker ends
with the JVM, whose process it watches, and with its connection to the driver.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from headway.base.errors import WorkerNotStarted, WrongUsage
from headway.spark.errors import named_error
from headway.spark.executors import (
    MEMORY_SHARE,
    SPARK_GONE,
    Executor,
    await_executors,
    bind_host,
    driver_address,
    list_executors,
    worker_memory,
)
from headway.spark.launching import Launch, Order, Outcome
from headway.spark.machines import Leftover, clear_away, runs_here
from headway.spark.rounds import Round
from headway.storage.processes import ProcessRecord

WORKER_MODULE = "headway.pipelined.worker"

_ROUND_SECONDS = 15.0
_LEAVING_SECONDS = 2.0
_SHORT_LIFE = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 2.0, 60.0


@dataclass(frozen=True, slots=True)
class HostedWorker:
    """A worker process and the executor that hosts it."""

    id: str
    executor: Executor
    process: ProcessRecord
    scratch: str
    cores: int
    memory: int
    started_at: float
    """By the driver's monotonic clock."""

    @property
    def leftover(self) -> Leftover:
        return Leftover(self.process, self.scratch)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """How workers are started.

    They connect to `driver` and show `token`. `cores` and `memory` (bytes) are the executor's own
    unless given. `options` are further fields of their configuration.
    """

    driver: tuple[str, int]
    token: str
    module: str = WORKER_MODULE
    cores: int | None = None
    memory: int | None = None
    options: Mapping[str, Any] | None = None
    start_seconds: float = 60.0
    look_seconds: float = 1.0
    """Time between two looks for new executors."""


class WorkerHost:
    """One worker on every executor of a Spark session. Safe from several threads."""

    def __init__(self, spark: SparkSession, plan: WorkerPlan) -> None:
        self._spark = spark
        self._plan = plan
        self._lock = threading.Lock()
        self._one_round = threading.Lock()
        self._round: Round | None = None
        self._workers: dict[str, HostedWorker] = {}
        self._leftovers: dict[str, list[Leftover]] = {}
        """Of lost workers, by executor: their processes may only have paused."""
        self._problems: dict[str, _Problem] = {}
        self._lost_early: set[str] = set()
        """Workers that were lost before their round was over."""
        self._count: int | None = None
        self._numbered = 0
        self._wake = threading.Event()
        self._stopping = False
        self._watcher: threading.Thread | None = None

    @property
    def workers(self) -> tuple[HostedWorker, ...]:
        """Those that were started and are not known to be lost."""
        with self._lock:
            return tuple(self._workers.values())

    @property
    def problems(self) -> dict[str, str]:
        """Why an executor has no worker, by its id."""
        with self._lock:
            return {id: problem.text for id, problem in self._problems.items()}

    def start(self, count: int | None = None) -> tuple[HostedWorker, ...]:
        """Starts a worker on each executor, on `count` of them if given, and returns when they
        are ready; WorkerNotStarted when there is none. An executor without one is in
        `problems`."""
        if count is not None and count < 1:
            raise WrongUsage(f"{count} is no number of workers")
        self._count = count
        try:
            executors = await_executors(self._spark, count, self._plan.start_seconds)
            self._give_workers(executors, max(_ROUND_SECONDS, self._plan.start_seconds))
        except SPARK_GONE as error:
            raise named_error(error) from error
        if not self.workers:
            raise self._none_started(executors)
        return self.workers

    def watch(self, on_new_executor: Callable[[HostedWorker], object] | None = None) -> None:
        """From now on, an executor that appears gets a worker, and one whose worker was lost a
        new one; `on_new_executor` is called with each."""
        if self._watcher is not None:
            raise WrongUsage("the executors are watched already")
        watch = threading.Thread(target=self._watch, args=(on_new_executor,), daemon=True)
        self._watcher = watch
        watch.start()

    def lost(self, worker: str) -> HostedWorker | None:
        """To be told when a worker is lost; returns what is known of it. Its process, should it
        only have paused, is ended before the executor gets a new one."""
        with self._lock:
            known = self._workers.pop(worker, None)
            if known is None and self._round is not None:
                self._lost_early.add(worker)
            if known is not None:
                id = known.executor.id
                self._leftovers.setdefault(id, []).append(known.leftover)
                if time.monotonic() - known.started_at < _SHORT_LIFE:
                    # What ended it so soon may end the next one too.
                    self._problems[id] = _Problem.after(None, f"worker {worker} was lost")
        self._wake.set()
        return known

    def stop(self, patience: float = _LEAVING_SECONDS) -> None:
        """Ends what is left of the workers. They leave by themselves when their connection to
        the driver closes: it should be closed before, and `patience` is the time they get."""
        self._stopping = True
        self._wake.set()
        with self._lock:
            if self._round is not None:
                self._round.abandon()
        if self._watcher is not None:
            self._watcher.join()
        with self._one_round, self._lock:
            left = {worker.executor.id: [worker.leftover] for worker in self._workers.values()}
            for id, leftovers in self._leftovers.items():
                left.setdefault(id, []).extend(leftovers)
            self._workers.clear()
            self._leftovers.clear()
        self._clear_away(left, patience)

    def _watch(self, on_new_executor: Callable[[HostedWorker], object] | None) -> None:
        while not self._stopping:
            self._wake.wait(self._plan.look_seconds)
            self._wake.clear()
            try:
                executors = list_executors(self._spark)
                self._forget_lost_executors({executor.id for executor in executors})
                started = self._give_workers(executors, _ROUND_SECONDS)
            except SPARK_GONE:
                return  # its executors are gone too, and the workers with them
            for worker in started:
                if on_new_executor is not None:
                    on_new_executor(worker)

    def _forget_lost_executors(self, alive: set[str]) -> None:
        """A worker that watched its JVM is gone with it."""
        with self._lock:
            for worker in list(self._workers.values()):
                if worker.executor.id not in alive:
                    del self._workers[worker.id]
            for id in self._leftovers.keys() - alive:
                del self._leftovers[id]
            for id in self._problems.keys() - alive:
                del self._problems[id]

    def _give_workers(
        self, executors: Iterable[Executor], seconds: float
    ) -> tuple[HostedWorker, ...]:
        """One round for those that have none and may have one; the workers that came of it."""
        executors = tuple(executors)
        with self._one_round:
            orders = {each: self._order(each, executors) for each in self._wanting(executors)}
            with self._lock:
                if self._stopping or not orders:
                    return ()
                current = self._round = Round(self._spark, orders)
            try:
                outcomes = current.run(seconds)
                with self._lock:
                    noted = [self._note(e, orders[e], outcomes.get(e.id)) for e in orders]
            finally:
                with self._lock:
                    self._round = None
                    self._lost_early, lost = set(), self._lost_early
        made = [worker for worker in noted if worker is not None]
        for worker in made:
            if worker.id in lost:
                self.lost(worker.id)
        return tuple(worker for worker in made if worker.id not in lost)

    def _wanting(self, executors: tuple[Executor, ...]) -> tuple[Executor, ...]:
        now = time.monotonic()
        with self._lock:
            served = {worker.executor.id for worker in self._workers.values()}
            due = [
                executor
                for executor in executors
                if executor.id not in served
                and (executor.id not in self._problems or self._problems[executor.id].due <= now)
            ]
            return tuple(due if self._count is None else due[: max(0, self._count - len(served))])

    def _order(self, executor: Executor, executors: Iterable[Executor]) -> Order:
        plan = self._plan
        self._numbered += 1
        neighbours = Counter(each.host for each in executors)[executor.host]
        config = {
            **(plan.options or {}),
            "worker": f"w{self._numbered}",
            "executor": executor.id,
            "driver_host": plan.driver[0],
            "driver_port": plan.driver[1],
            "token": plan.token,
            "bind_host": bind_host(executor, driver_address(self._spark)),
            "cores": plan.cores or executor.cores,
        }
        launch = Launch(
            plan.module,
            config,
            memory=plan.memory or worker_memory(self._spark),
            memory_share=0.0 if plan.memory else MEMORY_SHARE / max(1, neighbours),
            seconds=plan.start_seconds,
        )
        with self._lock:
            return Order(tuple(self._leftovers.get(executor.id, ())), launch)

    def _note(
        self, executor: Executor, order: Order, outcome: Outcome | None
    ) -> HostedWorker | None:
        """With the lock held."""
        if outcome is None or outcome.process is None or order.launch is None:
            before = self._problems.get(executor.id)
            text = outcome.problem if outcome is not None else None
            self._problems[executor.id] = _Problem.after(before, text or "it was not started")
            return None
        config = order.launch.config
        worker = HostedWorker(
            id=config["worker"],
            executor=executor,
            process=outcome.process,
            scratch=outcome.scratch,
            cores=config["cores"],
            memory=outcome.memory,
            started_at=time.monotonic(),
        )
        self._problems.pop(executor.id, None)
        self._leftovers.pop(executor.id, None)
        self._workers[worker.id] = worker
        return worker

    def _clear_away(self, left: dict[str, list[Leftover]], patience: float) -> None:
        """On this machine at once; on others by a round of tasks, as far as Spark still runs."""
        deadline = time.monotonic() + patience
        for leftovers in left.values():
            for leftover in leftovers:
                clear_away(leftover, max(0.0, deadline - time.monotonic()))
        elsewhere = {
            id: Order(tuple(each for each in leftovers if not runs_here(each.process)))
            for id, leftovers in left.items()
            if not all(runs_here(each.process) for each in leftovers)
        }
        if elsewhere:
            with suppress(*SPARK_GONE):
                executors = list_executors(self._spark)
                orders = {e: elsewhere[e.id] for e in executors if e.id in elsewhere}
                Round(self._spark, orders).run(_ROUND_SECONDS)

    def _none_started(self, executors: tuple[Executor, ...]) -> WorkerNotStarted:
        if not executors:
            return WorkerNotStarted(
                "Spark has no executor to host a worker",
                hint="does the master have workers with free cores and memory?",
            )
        told = dict.fromkeys(self.problems.values())
        return WorkerNotStarted(
            f"no worker could be started: {'; '.join(told) or 'the start was abandoned'}",
            hint="the executors' Python must be one that can import headway: install it there, and "
            "name that Python in spark.pyspark.python or PYSPARK_PYTHON",
        )


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why an executor has no worker, and when to try again."""

    text: str
    pause: float
    due: float

    @classmethod
    def after(cls, before: _Problem | None, text: str) -> _Problem:
        pause = min(_LONGEST_PAUSE, before.pause * 2) if before else _FIRST_PAUSE
        return cls(text, pause, time.monotonic() + pause)
