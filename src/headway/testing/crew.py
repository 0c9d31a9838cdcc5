"""A few worker processes that run one query after the other, some of them to their death.

Whoever was lost in one query is replaced before the next, so that a matrix of failures costs one
start of a process for each.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from headway.base.errors import RunInterrupted
from headway.lineage.topology import Protection
from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.control.store import ControlStore
from headway.pipelined.core.events import Options
from headway.pipelined.execution import Execution, Report
from headway.pipelined.programs import Dataflow
from headway.plan.cardinalities import Estimate
from headway.plan.nodes import Node, QueryPlan
from headway.testing.dataflows import rows_of
from headway.testing.faulty_worker import Fault
from headway.testing.local_session import LocalSession
from headway.testing.local_workers import WorkerProcess

_START_SECONDS = 30.0
_CLAIM_SECONDS = 1.0
_LEAVE_SECONDS = 10.0
_LIMIT_SECONDS = 90.0
SMALL_TASKS = Options(task_bytes=20_000, least_bytes=0)
_LOCK = ".headway-lock"


@dataclass(frozen=True)
class Sample:
    """A query, and the rows that it has, in their order."""

    plan: QueryPlan
    estimates: Mapping[Node, Estimate]
    rows: list[tuple[Any, ...]]

    def dataflow(self, workers: int, protection: Protection = Protection.BACKUP) -> Dataflow:
        """With tables of a few kilobytes treated as if they were large."""
        small = Choices(
            workers, protection, broadcast_bytes=100_000, replicate_bytes=20_000, gather_bytes=0
        )
        return compile_plan(self.plan, self.estimates, small)


@dataclass(frozen=True)
class Outcome:
    """What came of a query. `struck` says for every fault whether it happened; `exits` has the
    exit codes of the workers that it cost."""

    table: pa.Table
    report: Report
    struck: tuple[bool, ...]
    exits: dict[str, int]


class Crew:
    """`count` processes without Spark, below `folder`; they may read the tables in `readable`."""

    def __init__(
        self, folder: Path, *, readable: Path, count: int = 4, lease_seconds: float = 2.0
    ) -> None:
        self.session = LocalSession(folder, lease_seconds=lease_seconds)
        self._count = count
        self._readable = readable
        self._faults = folder / "faults.json"
        self._claims = folder / "claims"
        self._claims.mkdir()
        self._members: dict[str, WorkerProcess] = {}
        self._queries = 0
        self._started = 0

    @property
    def pids(self) -> list[int]:
        """Of the workers that are there."""
        there = self.session.cluster.workers
        return [process.pid for name, process in self._members.items() if name in there]

    def next_name(self) -> str:
        """Of the next query."""
        return f"q{self._queries}"

    def run(
        self,
        dataflow: Dataflow,
        *faults: Fault,
        every: bool = False,
        options: Options | None = None,
        control: str | ControlStore | None = None,
        patience: float = 10.0,
        started: Callable[[Execution], None] = lambda execution: None,
    ) -> Outcome:
        """Each fault strikes the first worker that comes to its step; `every` one that does, if
        asked for. Returns when those that were struck are gone."""
        name = self.next_name()
        self._queries += 1
        armed = [self._claimed(fault, f"{name}.{n}") for n, fault in enumerate(faults)]
        self._write_faults(faults if every else armed)
        self._fill()
        executions: list[Execution] = []

        def begin(execution: Execution) -> None:
            executions.append(execution)
            started(execution)

        watchdog = threading.Timer(_LIMIT_SECONDS, lambda: executions[0].cancel())
        watchdog.start()
        try:
            pieces = self.session.execute(
                dataflow,
                name,
                options=options,
                control=control,
                patience=patience,
                started=begin,
            )
        except RunInterrupted as error:
            error.add_note(f"{faults}: {_story(executions[0])}")
            raise
        finally:
            watchdog.cancel()
            self._write_faults(())
        run = self.session.run
        tables = [pa.ipc.open_stream(run.read_piece(each.piece)).read_all() for each in pieces]
        struck = self._await_claims(armed)
        exits = self._bury(at_least=sum(struck))
        return Outcome(pa.concat_tables(tables), executions[0].report, struck, exits)

    def check(
        self,
        sample: Sample,
        *faults: Fault,
        protection: Protection = Protection.BACKUP,
        control: str | ControlStore | None = None,
        started: Callable[[Execution], None] = lambda execution: None,
    ) -> Outcome:
        """All faults strike while the query runs, its rows are right, and nothing is left of it or
        of those that were struck."""
        dataflow = sample.dataflow(self._count, protection)
        outcome = self.run(
            dataflow,
            *faults,
            options=SMALL_TASKS,
            control=control,
            started=started,
        )
        assert all(outcome.struck), f"{faults}: {outcome.struck} of them struck, {outcome.report}"
        felt = sum(not _may_come_last(each, dataflow) for each in faults)
        assert outcome.report.workers_lost >= felt, outcome.report
        wanted = sorted(0 if each.action == "pause" else -signal.SIGKILL for each in faults)
        found = sorted(outcome.exits.values())
        assert not faults or found == wanted, f"exit codes {outcome.exits}: {self.session.lost}"
        assert rows_of(outcome.table) == sample.rows, f"other rows after {faults}, {outcome.report}"
        left = self.leftovers()
        assert not left, left
        return outcome

    def leftovers(self) -> list[str]:
        """Files of queries that are over, and folders of workers that are gone; those that live
        get a moment to remove them."""
        deadline = time.monotonic() + _LEAVE_SECONDS
        while (found := self._find_leftovers()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def close(self) -> None:
        """The workers leave by themselves, and take with them what those before them left."""
        self.session.cluster.close()
        for process in self._members.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE_SECONDS)
        self.session.close()

    def _fill(self) -> None:
        self._bury()
        missing = self._count - len(self._members)
        names = [f"w{self._started + number}" for number in range(missing)]
        self._started += missing
        start = self.session.workers.in_process
        readable = [str(self._readable)]
        with ThreadPoolExecutor(max(1, missing)) as pool:
            made = pool.map(
                lambda name: start(name, faults_file=str(self._faults), readable=readable), names
            )
            self._members |= {process.name: process for process in made}
        self.session.cluster.await_workers(self._count, _START_SECONDS)

    def _bury(self, at_least: int = 0) -> dict[str, int]:
        """Those that were killed, or declared lost: they are waited for, and forgotten."""
        deadline = time.monotonic() + _LEAVE_SECONDS
        while len(gone := self._gone()) < at_least and time.monotonic() < deadline:
            time.sleep(0.01)
        exits = {process.name: process.wait(_LEAVE_SECONDS) for process in gone}
        self._members = {n: p for n, p in self._members.items() if n not in exits}
        return exits

    def _gone(self) -> list[WorkerProcess]:
        lost = {worker for worker, _, _ in self.session.lost}
        return [p for p in self._members.values() if p.name in lost or p.exit_code is not None]

    def _await_claims(self, faults: Sequence[Fault]) -> tuple[bool, ...]:
        """Which struck. What is needed no more may be deleted just after the query's end."""
        deadline = time.monotonic() + _CLAIM_SECONDS
        while True:
            struck = tuple(Path(each.claim).exists() for each in faults)
            if all(struck) or time.monotonic() > deadline:
                return struck
            time.sleep(0.01)

    def _claimed(self, fault: Fault, name: str) -> Fault:
        return msgspec.structs.replace(fault, claim=str(self._claims / name))

    def _write_faults(self, faults: Sequence[Fault]) -> None:
        self._faults.write_bytes(msgspec.json.encode({"*": list(faults)}))

    def _find_leftovers(self) -> list[str]:
        folder = self.session.folder
        found = [str(each) for each in folder.glob("control/*")]
        for each in folder.glob("scratch/*"):
            if each.name in self._members:
                found += [str(inner) for inner in each.iterdir() if inner.name != _LOCK]
            else:
                found.append(str(each))
        return found


def _may_come_last(fault: Fault, dataflow: Dataflow) -> bool:
    """A query may be over when its driver would notice the loss: with the last word of all, or
    when what is needed no more is deleted."""
    last_word = ("say_done", "after", len(dataflow.stages) - 1)
    return fault.step == "delete" or (fault.step, fault.when, fault.stage) == last_word


def _story(execution: Execution) -> str:
    """What a query waited for that came to no end."""
    state = execution._coordinator._state
    waiting = {channel: each for channel, each in state.progress.channels.items() if not each.ended}
    return (
        f"it did not end in {_LIMIT_SECONDS:.0f} s: {execution.report}, live {state.live}, "
        f"asked {state.asked}, lacking {state.lacking}, tasks {state.tables.tasks}, "
        f"supply {vars(state.supply)}, waiting {waiting}"
    )
