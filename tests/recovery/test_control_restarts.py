"""The control store is killed, and the coordinator thrown away, in the middle of real queries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import redis

from headway.pipelined.control.store import open_control_store
from headway.pipelined.execution import Execution
from headway.testing.crew import Crew, Sample
from headway.testing.faulty_worker import Fault
from headway.testing.redis_server import RedisServer
from headway.testing.restarted_execution import ReopenedStore, RestartedExecution

QUERIES = ("q03", "q05", "q09", "q18", "q21")
FIRST = Fault("say_done", "before", nth=8)
Samples = Callable[[str], Sample]


def first_is_quick(names: tuple[str, ...]) -> list[object]:
    return [names[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in names[1:])]


@pytest.fixture
def redis_server(redis_program: str, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(redis_program, tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.mark.parametrize("faults", [(), (FIRST,)], ids=["alone", "with a worker"])
@pytest.mark.parametrize("name", first_is_quick(QUERIES))
def test_redis_is_killed_and_started_again(
    name: str, faults: tuple[Fault, ...], crew: Crew, sample: Samples, redis_server: RedisServer
) -> None:
    restarts: list[int] = []

    def restart(execution: Execution) -> None:
        for tasks in (25, 60):
            while execution.report.tasks < tasks:
                time.sleep(0.002)
            redis_server.kill()
            time.sleep(0.2)
            redis_server.start()
            restarts.append(execution.report.tasks)

    threads: list[threading.Thread] = []

    def started(execution: Execution) -> None:
        threads.append(threading.Thread(target=restart, args=(execution,)))
        threads[0].start()

    crew.check(sample(name), *faults, control=redis_server.url, started=started)
    threads[0].join(30.0)
    assert len(restarts) == 2, restarts
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.dbsize() == 0


@pytest.fixture
def restarting(crew: Crew) -> Iterator[None]:
    crew.session.cluster.execution = RestartedExecution
    yield
    del crew.session.cluster.execution


@pytest.mark.usefixtures("restarting")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("faults", [(), (FIRST,)], ids=["alone", "with a worker"])
@pytest.mark.parametrize("name", first_is_quick(QUERIES))
def test_a_new_coordinator_goes_on_from_the_tables(
    name: str,
    faults: tuple[Fault, ...],
    when: Literal["before", "after"],
    crew: Crew,
    sample: Samples,
) -> None:
    """Before and after it has written what it was about to say."""
    executions: list[RestartedExecution] = []

    def started(execution: Execution) -> None:
        assert isinstance(execution, RestartedExecution)
        execution.restart_at, execution.when = frozenset({1, 7, 20, 21, 40, 60}), when
        executions.append(execution)

    session = crew.session
    address = f"sqlite:{session.folder / 'control'}"
    query = crew.next_name()
    store = ReopenedStore(lambda: open_control_store(address, session.run.run_id, query))
    crew.check(sample(name), *faults, control=store, started=started)
    assert executions[0].restarts >= 4
