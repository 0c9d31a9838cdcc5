"""Random queries on real workers, some of which leave in the middle: the rows are right."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from headway.pipelined.execution import Execution
from headway.pipelined.worker.process import Worker
from headway.testing.local_session import LocalSession
from headway.testing.simulated_kernels import SimulatedProgram, result_rows, start_simulated
from headway.testing.simulated_queries import expected_rows, random_query

QUERIES = 30


class Session(LocalSession):
    """Three workers in threads, or as many as a test has left of them."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.names = (f"w{number}" for number in count())
        self.there: list[Worker] = []

    def fill_up(self, inbox_bytes: int) -> None:
        while len(self.there) < 3:
            worker = self.workers.in_thread(
                next(self.names), start_simulated, cores=2, inbox_bytes=inbox_bytes
            )
            self.there.append(worker)
        self.cluster.await_workers(3, 10.0)

    def lose(self, rng: random.Random) -> None:
        if len(self.there) > 1:
            worker = self.there.pop(rng.randrange(len(self.there)))
            worker.leave("a test", tell=rng.random() < 0.5)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    opened = Session(tmp_path)
    yield opened
    opened.close()


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_random_queries(session: Session, losses: int) -> None:
    first = random.SystemRandom().randrange(1 << 32)
    for seed in range(first, first + QUERIES):
        print(f"seed {seed}, {losses} losses")
        rng = random.Random(seed)
        session.fill_up(inbox_bytes=rng.choice((1, 100, 1 << 20)))
        query, name = random_query(rng), f"q{seed}-{losses}"
        timers: list[threading.Timer] = []

        def started(
            execution: Execution,
            rng: random.Random = rng,
            timers: list[threading.Timer] = timers,
        ) -> None:
            for _ in range(losses):
                timer = threading.Timer(rng.random() * 0.1, session.lose, (rng,))
                timer.start()
                timers.append(timer)

        pieces = session.execute(SimulatedProgram(query, 0.002), name, started=started)
        for timer in timers:
            timer.join()
        found = result_rows(session.run, (each.piece for each in pieces))
        assert found == expected_rows(query), f"seed {seed}"
