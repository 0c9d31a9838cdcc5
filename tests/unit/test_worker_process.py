"""Workers at work: in threads, and in processes that are killed, paused and left alone."""

from __future__ import annotations

import errno
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.base.errors import QueryFailed
from headway.lineage.topology import Feed, Partitioning, Protection, Side, Stage, Topology
from headway.pipelined.execution import Execution
from headway.pipelined.worker.query import QueryWork
from headway.pipelined.worker.scratch import Scratch, sweep
from headway.testing.faulty_worker import Fault, Step
from headway.testing.local_session import LocalSession
from headway.testing.local_workers import WorkerProcess
from headway.testing.simulated_kernels import SimulatedProgram, result_rows, start_simulated
from headway.testing.simulated_queries import Role, SimulatedQuery, expected_rows

STEPS: tuple[Step, ...] = ("execute", "keep", "deliver", "say_done", "resend", "delete")


class Session(LocalSession):
    def threads(self, count: int, **more: Any) -> None:
        for number in range(count):
            self.workers.in_thread(f"thread{number}", start_simulated, **more)

    def check(
        self,
        query: SimulatedQuery,
        *,
        seconds: float = 0.0,
        name: str = "q1",
        started: Callable[[Execution], None] = lambda execution: None,
    ) -> None:
        """The query gives just the rows that it should."""
        pieces = self.execute(SimulatedProgram(query, seconds), name, started=started)
        assert result_rows(self.run, (each.piece for each in pieces)) == expected_rows(query)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    opened = Session(tmp_path, lease_seconds=1.0)
    yield opened
    opened.close()


def join_query(protection: Protection = Protection.BACKUP, units: int = 24) -> SimulatedQuery:
    """Two scans, a join of them with its build side, an aggregate, and the result."""
    scan = Stage((Side(Feed.SHARED, (10,) * units, keeps=False),), 3, protection)
    build = Side(Feed.EXCHANGE, (), 0, Partitioning.HASH)
    probe = Side(Feed.EXCHANGE, (), 1, Partitioning.HASH, frozenset({0}), keeps=False)
    join = Stage((build, probe), 3, protection)
    total = Stage((Side(Feed.EXCHANGE, (), 2, Partitioning.HASH),), 3, protection)
    result = Stage((Side(Feed.EXCHANGE, (), 3, Partitioning.GATHER),), 1, result=True)
    return SimulatedQuery(
        Topology((scan, scan, join, total, result)),
        (
            (Role.STREAM,),
            (Role.STREAM,),
            (Role.BUILD, Role.STREAM),
            (Role.TALLY,),
            (Role.BUFFER,),
        ),
    )


@pytest.mark.parametrize("protection", list(Protection))
def test_workers_in_threads_run_a_query(session: Session, protection: Protection) -> None:
    session.threads(3, cores=2)
    session.cluster.await_workers(3, 5.0)
    session.check(join_query(protection))
    spooled = [name for name in session.run.pieces() if name.startswith("spool/")]
    assert bool(spooled) == (protection is Protection.SPOOL)
    assert not session.lost


def test_one_worker_needs_no_network(session: Session) -> None:
    session.threads(1)
    session.cluster.await_workers(1, 5.0)
    for number in range(3):
        session.check(join_query(), name=f"q{number}")


def test_inputs_that_do_not_fit_in_memory(session: Session) -> None:
    session.threads(3, inbox_bytes=1)
    session.cluster.await_workers(3, 5.0)
    session.check(join_query())


def test_nothing_of_a_query_stays_on_the_workers(session: Session) -> None:
    session.threads(2)
    session.cluster.await_workers(2, 5.0)
    session.check(join_query())
    scratch = session.folder / "scratch"

    def left() -> list[str]:
        return [each.name for each in scratch.rglob("*") if each.parent != scratch]

    eventually(lambda: set(left()) == {".headway-lock"})
    assert not list((session.folder / "control").iterdir())


def test_a_program_that_is_not_readable_fails_the_query(session: Session) -> None:
    def refuse(*_: object) -> Any:
        raise QueryFailed("no such program", hint="write another")

    session.workers.in_thread("w1", refuse)
    session.cluster.await_workers(1, 5.0)
    with pytest.raises(QueryFailed, match="no such program"):
        session.check(join_query())


def test_a_name_serves_for_one_query(session: Session) -> None:
    session.threads(1)
    session.cluster.await_workers(1, 5.0)
    session.check(join_query())
    with pytest.raises(QueryFailed, match="q1 was run before"):
        session.check(join_query())


def test_a_task_that_fails_fails_the_query(session: Session) -> None:
    session.threads(2)
    session.cluster.await_workers(2, 5.0)
    query = join_query()
    broken = replace(query, roles=query.roles[:2])  # there is nothing for the join to do
    with pytest.raises(QueryFailed, match="IndexError"):
        session.check(broken)
    session.check(query, name="q2")


def test_a_worker_joins_in_the_middle(session: Session) -> None:
    session.threads(1)
    session.cluster.await_workers(1, 5.0)

    def started(execution: Execution) -> None:
        session.workers.in_thread("late", start_simulated)

    session.check(join_query(), seconds=0.005, started=started)


class FullDisk(QueryWork):
    def keep(self, *_: Any) -> Any:
        raise OSError(errno.ENOSPC, "no space left")


def test_a_full_disk_sends_the_worker_away_and_the_others_go_on(session: Session) -> None:
    session.threads(2)
    session.workers.in_thread("broken", start_simulated).query_work = FullDisk
    session.cluster.await_workers(3, 5.0)
    session.check(join_query())
    ((worker, why, _),) = session.lost
    assert worker == "broken" and "no space left" in why


# Processes.


def test_a_process_works_and_leaves_nothing(session: Session) -> None:
    process = session.workers.in_process("w1", simulated=True)
    assert process.ready
    scratch = session.folder / "scratch" / "w1"
    assert stat.S_IMODE(scratch.stat().st_mode) == 0o700
    session.cluster.await_workers(1, 5.0)
    assert session.cluster.workers["w1"].pid == process.pid
    session.check(join_query())
    session.cluster.close()
    assert process.wait(5.0) == 0
    assert not scratch.exists()


def test_the_real_program_starts_and_ends_with_its_driver(session: Session) -> None:
    process = session.workers.in_process("w1", module="headway.pipelined.worker")
    assert process.ready
    session.cluster.await_workers(1, 5.0)
    session.cluster.close()
    assert process.wait(5.0) == 0


def test_a_killed_process_is_replaced_by_the_others(session: Session) -> None:
    session.threads(2)
    process = session.workers.in_process("victim", simulated=True)
    session.cluster.await_workers(3, 5.0)
    killed: list[float] = []

    def started(execution: Execution) -> None:
        def kill() -> None:
            killed.append(time.monotonic())
            process.signal(signal.SIGKILL)

        threading.Timer(0.3, kill).start()

    session.check(join_query(), seconds=0.02, started=started)
    (victim, _, lost_at) = session.lost[0]
    assert victim == "victim" and lost_at - killed[0] < 1.0, "not by its silence"
    eventually(lambda: not (session.folder / "scratch" / "victim").exists())


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_every_step(session: Session, step: Step, when: Any) -> None:
    victim = _strike(session, Fault(step, when, nth=1 if step in ("resend", "delete") else 2))
    assert victim.wait(5.0) == -signal.SIGKILL
    eventually(lambda: "victim" in [worker for worker, _, _ in session.lost])
    eventually(lambda: not (session.folder / "scratch" / "victim").exists())


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_paused_at_every_step(session: Session, step: Step) -> None:
    """Declared lost, it comes back when its work is done by others, and leaves."""
    victim = _strike(session, Fault(step, "after", action="pause"))
    assert victim.await_pause(5.0)
    eventually(lambda: "victim" in [worker for worker, _, _ in session.lost])
    victim.signal(signal.SIGCONT)
    assert victim.wait(5.0) == 0
    assert not (session.folder / "scratch" / "victim").exists()


def _strike(session: Session, fault: Fault) -> WorkerProcess:
    """A query with that fault. A resend happens only where another worker was lost."""
    session.threads(2)
    victim = session.workers.in_process("victim", simulated=True, faults=[fault])
    if fault.step == "resend":
        first = Fault("say_done", nth=12)
        session.workers.in_process("first", simulated=True, faults=[first])
    session.cluster.await_workers(4 if fault.step == "resend" else 3, 10.0)
    session.check(join_query(), seconds=0.003)
    return victim


def test_a_worker_ends_with_the_process_that_it_serves(session: Session) -> None:
    served = subprocess.Popen(["sleep", "60"])
    process = session.workers.in_process("w1", simulated=True, watch=[served.pid])
    session.cluster.await_workers(1, 5.0)
    served.kill()
    assert process.wait(5.0) == 0
    eventually(lambda: bool(session.lost))
    assert session.lost[0][1] == f"process {served.pid} ended"
    assert not (session.folder / "scratch" / "w1").exists()
    served.wait()


def test_a_worker_without_a_driver_says_so(session: Session, tmp_path: Path) -> None:
    config = {**session.workers.config("w1"), "driver_port": 1}
    found = _run_worker(str(config).replace("'", '"'))
    assert found.returncode == 1
    assert "DRIVER_UNREACHABLE" in found.stderr and "Hint:" in found.stderr
    assert not list(tmp_path.glob("scratch/w1"))


@pytest.mark.parametrize("line", ["", "{}", '{"worker": "../x"}', "nonsense"])
def test_a_configuration_that_is_wrong_is_refused(line: str) -> None:
    found = _run_worker(line)
    assert found.returncode == 1
    assert "WRONG_USAGE" in found.stderr or "INVALID_IDENTIFIER" in found.stderr


def _run_worker(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headway.pipelined.worker"],
        input=line + "\n",
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_scratch_folders_of_the_dead_are_swept(tmp_path: Path) -> None:
    living = Scratch(tmp_path / "living")
    code = (
        "import os, sys; from pathlib import Path;"
        "from headway.pipelined.worker.scratch import Scratch;"
        "scratch = Scratch(Path(sys.argv[1]));"
        "(scratch.folder / 'q').mkdir(); (scratch.folder / 'q' / 'f').write_text('x');"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "dead")], check=False)
    (tmp_path / "other").mkdir()
    assert (tmp_path / "dead" / "q" / "f").exists()
    sweep(tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {"living", "other"}
    living.remove()
    living.remove()
    assert {each.name for each in tmp_path.iterdir()} == {"other"}


def eventually(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
