"""A worker killed in the middle of a query, and what that costs: the second half of the demo."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.cli.interrupts import interrupts
from headway.cli.statements import Statement
from headway.cli.steps import spinner

if TYPE_CHECKING:
    import pyarrow as pa

    from headway.pipelined.execution import Report
    from headway.session import Session

_ATTEMPTS = 5
_LOOK = 0.002
_WORKERS_BACK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Loss:
    """A query without and with the loss of a worker."""

    query: str
    worker: str
    workers: int
    seconds: float
    seconds_with_loss: float
    rows_equal: bool
    report: Report

    def to_builtins(self) -> dict[str, Any]:
        return {
            "query": self.query,
            "killed": self.worker,
            "workers": self.workers,
            "seconds": round(self.seconds, 3),
            "seconds_with_loss": round(self.seconds_with_loss, 3),
            "rows_equal": self.rows_equal,
            "tasks": self.report.tasks,
            "tasks_repeated": self.report.repeated,
            "outputs_replayed": self.report.replayed,
        }


def lose_a_worker(session: Session, statement: Statement, *, quiet: bool) -> Loss | None:
    """Run a query twice, the second time with a SIGKILL to a worker when half of its tasks are
    done; None when the pipelined engine does not run it, or each time it was too quick."""
    with spinner(f"killing a worker in the middle of {statement.name}", quiet=quiet):
        began = time.monotonic()
        expected, usual = _run(session, statement)
        seconds = time.monotonic() - began
        if usual is None:
            return None
        for _ in range(_ATTEMPTS):
            if interrupts.requested:
                return None
            found = _with_loss(session, statement, usual, expected, seconds)
            _await_workers(session)
            if found is not None:
                return found
    return None


def _run(session: Session, statement: Statement) -> tuple[pa.Table, Report | None]:
    handle = session.run(session.sql(statement.sql, name=statement.name))
    handle.wait()
    return handle.arrow(), handle.report()


def _with_loss(
    session: Session, statement: Statement, usual: Report, expected: pa.Table, seconds: float
) -> Loss | None:
    workers = session.workers.processes
    victim = max(workers)
    began = time.monotonic()
    handle = session.run(session.sql(statement.sql, name=statement.name))
    while not handle.finished:
        report = handle.report()
        if report is not None and report.tasks >= usual.tasks // 2:
            os.kill(workers[victim], signal.SIGKILL)
            break
        time.sleep(_LOOK)
    handle.wait()
    rows = handle.arrow()
    took = time.monotonic() - began
    report = handle.report()
    if report is None or not report.workers_lost:
        return None
    equal = _counted(rows) == _counted(expected)
    return Loss(statement.name, victim, len(workers), seconds, took, equal, report)


def _counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _await_workers(session: Session) -> None:
    """Spark gives the executor a new worker, which the next query will find there."""
    wanted = session.workers.count_at_start
    deadline = time.monotonic() + _WORKERS_BACK_SECONDS
    while len(session.workers.processes) < wanted and time.monotonic() < deadline:
        time.sleep(0.05)
