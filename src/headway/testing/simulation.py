"""A whole cluster in one thread, from one seed: the real cores with everything else faked.

`simulate(seed)` runs a random query on random workers while they crash, pause and join, messages
are late, lost or repeated, disks and the store fail and the coordinator is started again. It checks
the engine's invariants after every step, and in the end the rows. From a shell:

    python -m headway.testing.simulation --seed 17
"""

from __future__ import annotations

import argparse
import heapq
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout
from headway.lineage.records import Tables
from headway.pipelined.core.coordinator import Coordinator
from headway.pipelined.core.effects import Arrived
from headway.pipelined.core.events import (
    Command,
    Event,
    Fail,
    Finish,
    Options,
    Received,
    Send,
    Start,
    Tick,
    WorkerJoined,
    WorkerLost,
    Write,
)
from headway.pipelined.core.messages import Destination, Message, Run
from headway.pipelined.core.worker import WorkerCore
from headway.testing.simulated_queries import FakeOutput, Rows, expected_rows, random_query
from headway.testing.simulated_workers import SimulatedWorker
from headway.testing.simulation_checks import Checks

Story = list[tuple[float, str, object]]

_CALM = 4000.0
"""How long a query may take after the last fault."""


class SimulationFailed(AssertionError):
    """An invariant did not hold, or the rows are wrong."""

    def __init__(self, seed: int, problem: str, story: Story) -> None:
        replay = f"python -m headway.testing.simulation --seed {seed} --story"
        super().__init__(f"seed {seed}: {problem}\nTo replay it: {replay}")
        self.seed = seed
        self._story = story

    @property
    def story(self) -> list[str]:
        """Everything that happened, with its time."""
        return [f"{time:8.2f} {what}{about or ''}" for time, what, about in self._story]


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """What a simulated query took."""

    steps: int
    tasks: int
    repeated: int
    faults: tuple[str, ...]


def simulate(
    seed: int,
    *,
    faults: bool = True,
    coordinator: type[Coordinator] = Coordinator,
    worker: type[WorkerCore] = WorkerCore,
) -> SimulationResult:
    """Raises SimulationFailed, which says how to replay it."""
    simulation = Simulation(seed, faults, coordinator, worker)
    try:
        return simulation.run()
    except SimulationFailed:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise SimulationFailed(seed, problem, simulation.story) from error


class Simulation:
    """The clock, the network, the store and the driver."""

    def __init__(
        self,
        seed: int,
        faults: bool,
        coordinator: type[Coordinator],
        worker: type[WorkerCore],
    ) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.query = random_query(self.rng)
        self.layout = Layout(self.query.topology)
        self.options = _random_options(self.rng)
        self.tables = Tables()
        self.pieces: dict[str, FakeOutput] = {}
        self.story: Story = []
        self.checks = Checks(self.query.topology, self.layout, self.tables)
        self._coordinator_class = coordinator
        self._worker_class = worker
        self._now = 0.0
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._steps = 0
        self._workers: dict[str, SimulatedWorker] = {}
        self._links: dict[tuple[str, str], float] = {}
        self._coordinator = coordinator(self.query.topology, self.options)
        self._generation = 0
        self._inbox: list[Event] = []
        self._busy = False
        self._outcome: Finish | Fail | None = None
        self._struck: list[str] = []
        self._rates = _random_rates(self.rng) if faults else {}
        self._calm_from = self._plan_faults() if faults else 0.0

    def run(self) -> SimulationResult:
        for _ in range(self.rng.randint(1, 4)):
            self._join()
        self._tell(Start())
        self._tick()
        while self._outcome is None:
            if not self._agenda or self._now > self._calm_from + _CALM:
                self.fail("the query does not end")
            self._now, _, action, arguments = heapq.heappop(self._agenda)
            self._steps += 1
            action(*arguments)
        self._check_result(self._outcome)
        repeated = self.checks.repeated
        return SimulationResult(
            self._steps, len(self.tables.lineage), repeated, tuple(self._struck)
        )

    def fail(self, problem: str) -> None:
        raise SimulationFailed(self.seed, problem, self.story)

    def note(self, what: str, about: object = None) -> None:
        self.story.append((self._now, what, about))  # as text only when it is asked for

    def _check_result(self, outcome: Finish | Fail) -> None:
        if isinstance(outcome, Fail):
            self.fail(f"the query failed: {outcome.error}: {outcome.message}")
            return
        rows: Counter[int] = Counter()
        for each in outcome.pieces:
            rows.update(self.pieces[each.piece].rows)
        kept = [str(task) for task, row in self.tables.lineage.items() if row.holder is not None]
        if kept:
            self.fail(f"backups of {', '.join(kept)} are kept to the end")
        expected = expected_rows(self.query)
        if rows != expected:
            self.fail(
                f"wrong rows: {sum((expected - rows).values())} are missing and "
                f"{sum((rows - expected).values())} too many of {sum(expected.values())}"
            )

    # Time.

    def later(self, action: Callable[..., None], *arguments: Any) -> None:
        self._at(self._now + self.rng.expovariate(1.0), action, *arguments)

    def _at(self, time: float, action: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._agenda, (time, next(self._order), action, arguments))

    def _tick(self) -> None:
        self._tell(Tick())
        self._at(self._now + 5.0, self._tick)

    # Faults.

    def strikes(self, fault: str) -> bool:
        if self._now >= self._calm_from or self.rng.random() >= self._rates.get(fault, 0.0):
            return False
        self.note(f"fault: {fault}")
        self._struck.append(fault)
        return True

    def _plan_faults(self) -> float:
        """Some faults at random moments; the time of the last."""
        end = self.rng.uniform(5.0, 100.0)
        kinds = (
            self._crash_some,
            self._crash_some,
            self._pause_one,
            self._cut_off,
            self._join,
            self._restart,
        )
        for _ in range(self.rng.choice((0, 1, 2, 3, 4, 6))):
            self._at(self.rng.uniform(0.0, end), self.rng.choice(kinds))
        return end

    def _alive(self) -> list[SimulatedWorker]:
        return [w for w in self._workers.values() if not w.crashed and not w.declared_lost]

    def _crash_some(self) -> None:
        alive = self._alive()
        for worker in self.rng.sample(alive, min(len(alive), self.rng.choice((1, 1, 1, 2)))):
            self.leave(worker)

    def leave(self, worker: SimulatedWorker) -> None:
        """It dies, and after a moment everybody knows."""
        self.note(f"{worker.name} dies")
        self._struck.append("crash")
        worker.crashed = True
        self._at(self._now + self.rng.uniform(0.1, 4.0), self._declare_lost, worker)

    def _pause_one(self) -> None:
        alive = [worker for worker in self._alive() if not worker.paused]
        if not alive:
            return
        worker = self.rng.choice(alive)
        self.note(f"{worker.name} pauses")
        self._struck.append("pause")
        worker.paused = True
        self._at(self._now + self.rng.uniform(3.0, 6.0), self._lease_is_over, worker)
        self._at(self._now + self.rng.uniform(1.0, 15.0), self._wake, worker)

    def _lease_is_over(self, worker: SimulatedWorker) -> None:
        if worker.paused:
            self._declare_lost(worker)

    def _wake(self, worker: SimulatedWorker) -> None:
        self.note(f"{worker.name} wakes up")
        if worker.declared_lost:  # goes on until it hears that it was declared lost
            self._at(self._now + self.rng.uniform(0.0, 30.0), self._fence, worker)
        worker.wake()

    def _cut_off(self) -> None:
        """Its connection to the driver breaks, which it does not notice at once."""
        alive = self._alive()
        if alive:
            worker = self.rng.choice(alive)
            self._struck.append("cut off")
            self._declare_lost(worker)
            self._at(self._now + self.rng.uniform(0.0, 30.0), self._fence, worker)

    def _fence(self, worker: SimulatedWorker) -> None:
        worker.crashed = True

    def _declare_lost(self, worker: SimulatedWorker) -> None:
        if worker.declared_lost:
            return
        self.note(f"{worker.name} is lost")
        worker.declared_lost = True
        self._tell(WorkerLost(worker.name))
        if not self._alive():
            self._at(self._now + self.rng.uniform(1.0, 10.0), self._join)

    def _join(self) -> None:
        name = f"w{len(self._workers)}"
        self._workers[name] = SimulatedWorker(name, self, self._worker_class)
        self.note(f"{name} joins")
        self._tell(WorkerJoined(name, name))

    # The driver and its store.

    def _restart(self) -> None:
        """The coordinator dies; another one starts from the tables. Connections break."""
        self.note("the coordinator is started again")
        self._struck.append("restart")
        self._generation += 1
        self._inbox.clear()
        self._busy = False
        tables = _copied(self.tables)
        self._coordinator = self._coordinator_class.load(self.query.topology, self.options, tables)
        alive = {worker.name for worker in self._workers.values() if not worker.declared_lost}
        for worker, row in self.tables.workers.items():
            if row.alive and worker not in alive:
                self._tell(WorkerLost(worker))
        for worker in sorted(alive - set(self.tables.workers)):
            self._tell(WorkerJoined(worker, worker))
        self._tell(Start())

    def _tell(self, event: Event) -> None:
        self._inbox.append(event)
        self._at(self._now, self._work)

    def _work(self) -> None:
        if self._inbox and not self._busy and self._outcome is None:
            event = self._inbox.pop(0)
            if not isinstance(event, Tick):
                self.note("< ", event)
            commands = iter(self._coordinator.handle(event))
            self._busy = True
            self._carry_out(commands, self._generation)

    def _carry_out(self, commands: Iterator[Command], generation: int) -> None:
        """In order; a write that fails is tried again before anything else is done."""
        if generation != self._generation:
            return
        for command in commands:
            match command:
                case Write():
                    if self._write(command, commands):
                        return
                case Send(worker, message):
                    self._send(worker, message)
                case Finish() | Fail():
                    self._outcome = command
        self._busy = False
        if self._inbox:
            self._at(self._now, self._work)

    def _write(self, write: Write, rest: Iterator[Command]) -> bool:
        """Whether the driver must wait, or has died."""
        if self.strikes("dies before a write"):
            self._restart()
            return True
        if self.strikes("write fails"):
            again = iter([write, *rest])
            self._at(self._now + 1.0, self._carry_out, again, self._generation)
            return True
        gone = {(w.name, output) for w in self._workers.values() for output in w.rotten}
        self.checks.apply(write.changes, gone, self._lost())
        if self.rng.random() < 0.02 and self.tables != self._coordinator.tables:
            self.fail("the store and the coordinator differ")
        if self.strikes("dies after a write"):
            self._restart()
            return True
        return False

    def _lost(self) -> set[str]:
        return {w.name for w in self._workers.values() if w.declared_lost or w.crashed}

    # The network.

    def _send(self, name: str, message: Message) -> None:
        self.note(f"> {name} ", message)
        worker = self._workers[name]
        if isinstance(message, Run) and message.repeated:
            self.checks.repeated += 1
        self._in_order("driver", name, lambda: worker.handle(message))

    def report(self, worker: SimulatedWorker, message: Message) -> None:
        self._in_order(worker.name, "driver", lambda: self._tell(Received(worker.name, message)))

    def _in_order(self, sender: str, receiver: str, action: Callable[[], None]) -> None:
        """Between two ends nothing is lost or overtaken, unless the connection breaks."""
        time = max(self._links.get((sender, receiver), 0.0), self._now)
        self._links[sender, receiver] = time + self.rng.expovariate(2.0)
        generation = self._generation

        def arrive() -> None:
            if generation == self._generation:
                action()

        self._at(self._links[sender, receiver], arrive)

    def push(
        self,
        sender: SimulatedWorker,
        output: TaskId,
        epoch: int,
        rows: dict[Destination, Rows],
        answer: Callable[[tuple[Destination, ...]], None],
    ) -> None:
        """Every slice by itself: it may be late, lost or repeated, and its answer may be lost."""
        if not rows:
            self.later(answer, ())
            return
        waiting = set(rows)
        delivered: list[Destination] = []

        def answered(destination: Destination, accepted: bool) -> None:
            if destination not in waiting:
                return
            waiting.discard(destination)
            if accepted:
                delivered.append(destination)
            if not waiting:
                answer(tuple(delivered))

        for destination, slice_rows in rows.items():
            arrived = Arrived(
                destination.channel, destination.side, destination.epoch, output, epoch
            )
            self._push_one(destination, arrived, slice_rows, answered)

    def _push_one(
        self,
        destination: Destination,
        arrived: Arrived,
        rows: Rows,
        answered: Callable[[Destination, bool], None],
    ) -> None:
        receiver = self._workers[destination.worker]
        lost_answer = self.strikes("answer lost")

        def arrive() -> None:
            accepted = receiver.arrive(arrived, rows)
            if not lost_answer:
                self.later(answered, destination, accepted)

        if not self.strikes("slice lost"):
            self.later(receiver.when_awake, arrive)
        if self.strikes("slice repeated"):
            self._at(self._now + self.rng.uniform(0.0, 60.0), receiver.when_awake, arrive)
        self._at(self._now + 20.0, answered, destination, False)

    # What workers check.

    def check_open(self, worker: SimulatedWorker, channel: ChannelId, epoch: int) -> None:
        self.checks.open(worker.name, channel, epoch)

    def check_execute(self, run: Run) -> None:
        self.checks.execute(run)

    def check_made(self, run: Run, output: FakeOutput) -> None:
        self.checks.made(run, output)

    def check_deliver(self, output: TaskId, epoch: int) -> None:
        self.checks.deliver(output)

    def check_resend(self, worker: SimulatedWorker, output: TaskId, found: bool) -> None:
        if not found and output not in worker.rotten:
            self.checks.resend(worker.name, output)

    def check_delete(self, worker: SimulatedWorker, output: TaskId) -> None:
        if worker.name not in self._lost():
            self.checks.delete(worker.name, output)


def _copied(tables: Tables) -> Tables:
    return Tables(
        dict(tables.workers), dict(tables.channels), dict(tables.lineage), dict(tables.tasks)
    )


def _random_options(rng: random.Random) -> Options:
    return Options(
        task_bytes=rng.choice((20, 60, 1000)),
        least_bytes=rng.choice((0, 0, 40)),
        inputs_per_task=rng.choice((None, None, None, 1, 2)),
        blocking=rng.random() < 0.1,
        ahead=rng.choice((1, 2, 2, 3)),
        held_bytes=rng.choice((30, 100, 10_000)),
    )


def _random_rates(rng: random.Random) -> dict[str, float]:
    """Each kind of fault is absent from many runs, so that others are seen alone."""
    rates = {
        "slice lost": 0.05,
        "answer lost": 0.05,
        "slice repeated": 0.1,
        "write fails": 0.05,
        "dies before a write": 0.01,
        "dies after a write": 0.01,
        "disk full": 0.01,
        "unreadable": 0.3,
    }
    return {fault: rate for fault, rate in rates.items() if rng.random() < 0.35}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, help="how many to try")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--story", action="store_true", help="print what happened")
    chosen = parser.parse_args(arguments)
    first, last = chosen.first, chosen.first + chosen.seeds
    if chosen.seed is not None:
        first, last = chosen.seed, chosen.seed + 1
    totals: Counter[str] = Counter()
    for seed in range(first, last):
        try:
            result = simulate(seed)
        except SimulationFailed as failure:
            lines = [*failure.story, str(failure)] if chosen.story else [str(failure)]
            sys.stdout.write("\n".join(lines) + "\n")
            return 1
        totals.update(result.faults)
        totals.update(tasks=result.tasks, repeated=result.repeated, steps=result.steps)
    summary = ", ".join(f"{name} {number}" for name, number in sorted(totals.items()))
    sys.stdout.write(f"{last - first} seeds: {summary}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
