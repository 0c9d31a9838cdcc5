"""A round: orders for executors, carried out by Spark tasks that land on them.

Spark runs a task where it likes. So there is a job for every order, each with one task and its own
job group and driver thread; a task reports where it landed, takes the order of that executor, and
holds its slot until the round is over. One that lands where nothing is to be done holds its slot
as well, and another job goes out. After the round all slots are free again.
"""

from __future__ import annotations

import hmac
import re
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headway.pipelined.wire import Link, listen
from headway.spark.errors import named_error
from headway.spark.executors import (
    SPARK_GONE,
    Executor,
    driver_address,
    executor_of_task,
    list_executors,
    one_task_on,
)
from headway.spark.launching import ACCEPTED, Landed, Order, Outcome, take_part

_FRAME_LIMIT = 1 << 20
_FIRST_FRAME_SECONDS = 5.0
_LOOK_SECONDS = 1.0
_JOIN_SECONDS = 5.0
_MARGIN_SECONDS = 5.0
_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception)(?::.*)?$", re.MULTILINE)


class Round:
    """Run once, by `run`. `abandon` ends it early from another thread."""

    def __init__(self, spark: SparkSession, orders: Mapping[Executor, Order]) -> None:
        self._spark = spark
        self._executors = {executor.id: executor for executor in orders}
        self._open_orders = {executor.id: order for executor, order in orders.items()}
        launches = (order.launch for order in orders.values() if order.launch is not None)
        self._launch_seconds = _MARGIN_SECONDS + max((each.seconds for each in launches), default=0)
        self._outcomes: dict[str, Outcome] = {}
        self._token = secrets.token_hex(16)
        self._changed = threading.Condition()
        self._over = False
        self._held: list[Link] = []
        self._jobs: dict[str, threading.Thread] = {}
        self._travelling: set[str] = set()
        """The groups of jobs whose task has not reported yet."""

    def run(self, seconds: float) -> dict[str, Outcome]:
        """The outcomes by executor id. An executor that no task reached in time has a problem,
        one that was lost meanwhile may have none."""
        driver = driver_address(self._spark)
        server = listen(driver.bind)
        address = (driver.host, int(server.getsockname()[1]))
        threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        deadline = time.monotonic() + seconds
        try:
            while self._goes_on(address, deadline):
                self._drop_lost_executors()
            with self._changed:
                for id in self._open_orders:
                    self._outcomes[id] = Outcome(problem="no task reached it in time")
                self._open_orders.clear()
                # A worker that is being started is waited for: its task has its own deadline.
                self._changed.wait_for(
                    lambda: self._over or not self._under_way(), self._launch_seconds
                )
                self._over = True
                return dict(self._outcomes)
        finally:
            self._end(server)

    def abandon(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _goes_on(self, address: tuple[str, int], deadline: float) -> bool:
        """Sends the jobs that are due and waits for news; False when there is no more to wait
        for."""
        with self._changed:
            settled = self._over or not (self._open_orders or self._under_way())
            left = deadline - time.monotonic()
            if settled or left <= 0:
                return False
            self._send_jobs(address)
            self._changed.wait(min(_LOOK_SECONDS, left))
            return True

    def _under_way(self) -> bool:
        claimed = self._executors.keys() - self._open_orders.keys()
        return bool(claimed - self._outcomes.keys())

    def _send_jobs(self, address: tuple[str, int]) -> None:
        """As many jobs travel as there are orders that no task has taken."""
        for id in list(self._open_orders)[len(self._travelling) :]:
            group = f"headway-worker-{self._token[:8]}-{len(self._jobs)}"
            run = partial(self._run_job, group, self._executors[id], address)
            self._travelling.add(group)
            self._jobs[group] = threading.Thread(target=run, name=group, daemon=True)
            self._jobs[group].start()

    def _run_job(self, group: str, executor: Executor, address: tuple[str, int]) -> None:
        context = self._spark.sparkContext
        problem = None
        try:
            context.setJobGroup(group, f"Headway: worker on executor {executor.id}", True)
            task = partial(take_part, *address, f"{self._token}:{group}")
            problem = next(iter(one_task_on(context, executor).mapPartitions(task).collect()), None)
        except SPARK_GONE as error:
            problem = _reason(error)
        with self._changed:
            self._travelling.discard(group)
            if problem is not None and self._open_orders.pop(executor.id, None) is not None:
                self._outcomes[executor.id] = Outcome(problem=problem)
            self._changed.notify_all()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # closed: the round is over
                return
            link = Link(connection, limit=_FRAME_LIMIT)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: Link) -> None:
        """One task from its report to the end of the round."""
        link.set_timeout(_FIRST_FRAME_SECONDS)
        landed, group = self._check(link.receive())
        link.set_timeout(None)
        if landed is None:
            link.close()
            return
        id = self._look_up(landed)
        with self._changed:
            self._held.append(link)
            self._travelling.discard(group)
            order = None if self._over else self._open_orders.pop(id, None)
            self._changed.notify_all()
        link.send(msgspec.json.encode(order or Order()))
        outcome = self._outcome(link.receive())
        with self._changed:
            if self._over:
                link.close()  # a task that is not thanked for its worker ends it again
                return
            link.send(ACCEPTED)
            if order is not None:
                self._outcomes[id] = outcome
            self._changed.notify_all()

    def _check(self, frame: bytes | None) -> tuple[Landed | None, str]:
        """The report of a task of this round, and the group of its job."""
        try:
            landed = msgspec.json.decode(frame or b"", type=Landed)
        except msgspec.DecodeError:
            return None, ""
        token, _, group = landed.token.partition(":")
        valid = hmac.compare_digest(token.encode(), self._token.encode())
        return (landed, group) if valid else (None, "")

    def _look_up(self, landed: Landed) -> str:
        try:
            return executor_of_task(self._spark, landed.stage, landed.task) or ""
        except SPARK_GONE:
            return ""  # Spark is being stopped

    def _outcome(self, frame: bytes | None) -> Outcome:
        if frame is None:
            return Outcome(problem="its executor was lost while it started")
        try:
            return msgspec.json.decode(frame, type=Outcome)
        except msgspec.DecodeError as error:
            return Outcome(problem=f"its executor answered nonsense: {error}")

    def _drop_lost_executors(self) -> None:
        try:
            alive = {executor.id for executor in list_executors(self._spark)}
        except SPARK_GONE:
            self.abandon()  # Spark is being stopped
            return
        with self._changed:
            for id in self._open_orders.keys() - alive:
                del self._open_orders[id]
                self._outcomes[id] = Outcome(problem="its executor was lost")

    def _end(self, server: socket.socket) -> None:
        """Every task returns, and every job that has not begun is taken back."""
        with self._changed:
            self._over = True
            travelling, held = list(self._travelling), list(self._held)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        server.close()
        for link in held:
            link.close(flush_seconds=_FIRST_FRAME_SECONDS)
        for group in travelling:
            with suppress(*SPARK_GONE):
                self._spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(group)
        deadline = time.monotonic() + _JOIN_SECONDS
        for thread in list(self._jobs.values()):
            thread.join(max(0.0, deadline - time.monotonic()))


def _reason(error: Exception) -> str:
    """Why a job failed: the last line of the traceback where Python raised it."""
    if isinstance(error, Py4JJavaError):
        raised = _PYTHON_ERROR.findall(str(error.java_exception))
        told = [line for line in raised if not line.startswith("org.apache.spark")]
        if told:
            return str(told[-1])
    return named_error(error).message
