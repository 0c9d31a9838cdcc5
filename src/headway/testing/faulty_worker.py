"""A worker process that dies or stands still at a chosen step of its work.

`python -m headway.testing.faulty_worker` takes the configuration of a worker, with more fields:
`faults`, and `simulated` for a worker that runs queries of the simulation. Without `faults`, they
are in a file, read when a query starts: {"<worker>": [...]}, or "*" for every worker. The field
`faults_file` names it, or the variable HEADWAY_FAULTS for a worker that somebody else starts.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from headway.lineage.names import TaskId
from headway.pipelined.core.effects import Delivered, Executed, Kept, Resent
from headway.pipelined.core.messages import Destination, Done, Input, Message, Run
from headway.pipelined.transport import StartQuery
from headway.pipelined.worker.config import WorkerConfig
from headway.pipelined.worker.duckdb_kernels import start_kernels
from headway.pipelined.worker.interfaces import QueryKernels, StartKernels, TaskOutput
from headway.pipelined.worker.process import Worker
from headway.pipelined.worker.query import QueryWork
from headway.pipelined.worker.run import run_worker
from headway.testing.simulated_kernels import start_simulated

Step = Literal["execute", "repeat", "keep", "deliver", "say_done", "resend", "delete"]
FAULTS_VARIABLE = "HEADWAY_FAULTS"
T = TypeVar("T")


class Fault(msgspec.Struct, frozen=True):
    """Strikes at the nth such step (of that stage): SIGKILL, or SIGSTOP. A pause lasts until
    somebody sends SIGCONT, or `seconds`. To repeat is to execute once more after a loss."""

    step: Step
    when: Literal["before", "after"] = "before"
    nth: int = 1
    action: Literal["kill", "pause"] = "kill"
    stage: int | None = None
    seconds: float | None = None
    claim: str = ""
    """A file that is not there yet: of all workers with this fault, only the one that makes it
    is struck."""


class FaultyConfig(WorkerConfig, frozen=True, kw_only=True):
    faults: tuple[Fault, ...] = ()
    faults_file: str = ""
    simulated: bool = False


class Faults:
    """Counts the steps of a worker and strikes when it is time."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self._faults = faults
        self._lock = threading.Lock()
        self._counts = [0] * len(faults)

    def step(self, name: Step, stage: int, work: Callable[[], T]) -> T:
        due = self._due(name, stage)
        for fault in due:
            if fault.when == "before":
                _strike(fault)
        result = work()
        for fault in due:
            if fault.when == "after":
                _strike(fault)
        return result

    def _due(self, name: Step, stage: int) -> list[Fault]:
        found = []
        with self._lock:
            for number, fault in enumerate(self._faults):
                if fault.step == name and fault.stage in (None, stage):
                    self._counts[number] += 1
                    if self._counts[number] == fault.nth:
                        found.append(fault)
        return found


def _strike(fault: Fault) -> None:
    if fault.claim and not _claimed(Path(fault.claim)):
        return
    if fault.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault.seconds is not None:
        subprocess.Popen(["sh", "-c", f"sleep {fault.seconds}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def _claimed(file: Path) -> bool:
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class FaultyQueryWork(QueryWork):
    @property
    def _faults(self) -> Faults:
        assert isinstance(self._around, FaultyWorker)
        return self._around.faults

    def execute(self, run: Run) -> Executed:
        work, faults, stage = super().execute, self._faults, run.task.stage
        if not run.repeated:
            return faults.step("execute", stage, lambda: work(run))
        return faults.step(
            "execute", stage, lambda: faults.step("repeat", stage, lambda: work(run))
        )

    def keep(self, output: TaskId, epoch: int, made: TaskOutput) -> Kept:
        work = super().keep
        return self._faults.step("keep", output.stage, lambda: work(output, epoch, made))

    def deliver(
        self, output: TaskId, epoch: int, made: TaskOutput, destinations: tuple[Destination, ...]
    ) -> Delivered:
        work = super().deliver
        return self._faults.step(
            "deliver", output.stage, lambda: work(output, epoch, made, destinations)
        )

    def resend(
        self, output: TaskId, epoch: int, destinations: tuple[Destination, ...], piece: str | None
    ) -> Resent:
        work = super().resend
        return self._faults.step(
            "resend", output.stage, lambda: work(output, epoch, destinations, piece)
        )

    def delete(self, outputs: tuple[Input, ...]) -> None:
        work = super().delete
        self._faults.step("delete", outputs[0].output.stage, lambda: work(outputs))

    def say(self, message: Message) -> None:
        work = super().say
        if isinstance(message, Done):
            self._faults.step("say_done", message.task.stage, lambda: work(message))
        else:
            work(message)


class FaultyWorker(Worker):
    query_work = FaultyQueryWork

    def __init__(
        self, config: WorkerConfig, start_kernels: StartKernels, ended: Callable[[str], None]
    ) -> None:
        assert isinstance(config, FaultyConfig)
        self._faults_file = config.faults_file or os.environ.get(FAULTS_VARIABLE, "")
        self._in_file = bool(self._faults_file) and not config.faults
        self.faults = Faults(config.faults)
        super().__init__(config, start_kernels, ended)

    def _start_query(self, start: StartQuery) -> None:
        if self._in_file:
            self.faults = Faults(_from_file(self._faults_file, self.worker))
        super()._start_query(start)


def _from_file(file: str, worker: str) -> tuple[Fault, ...]:
    found = msgspec.json.decode(Path(file).read_bytes(), type=dict[str, tuple[Fault, ...]])
    return found.get(worker, found.get("*", ()))


def _start_kernels(config: WorkerConfig, start: StartQuery, folder: Path) -> QueryKernels:
    if isinstance(config, FaultyConfig) and config.simulated:
        return start_simulated(config, start, folder)
    return start_kernels(config, start, folder)


if __name__ == "__main__":
    run_worker(_start_kernels, FaultyWorker, FaultyConfig)
