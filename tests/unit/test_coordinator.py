"""Events in, commands out: the coordinator on small queries."""

from __future__ import annotations

import itertools
import sys

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.records import ChannelRow, Lineage, Tables
from headway.lineage.topology import Feed, Partitioning, Protection, Side, Stage, Topology
from headway.pipelined.core.coordinator import Coordinator
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
from headway.pipelined.core.messages import (
    Assign,
    Committed,
    Destination,
    Done,
    Failed,
    Forget,
    Holds,
    Input,
    Message,
    Release,
    Replay,
    Replayed,
    Report,
    Run,
)

MIB = 1 << 20


def scan(*units: int, channels: int = 1, protection: Protection = Protection.BACKUP) -> Stage:
    return Stage((Side(Feed.SHARED, units, keeps=False),), channels, protection)


def gathered(upstream: int, **more: object) -> Side:
    return Side(Feed.EXCHANGE, (), upstream, Partitioning.GATHER, **more)  # type: ignore[arg-type]


class Query:
    """A coordinator with its store, and workers that do what they are told when asked to."""

    def __init__(self, *stages: Stage, workers: int = 1, options: Options | None = None) -> None:
        self.topology = Topology(stages)
        self.options = options or Options(least_bytes=0)
        self.coordinator = Coordinator(self.topology, self.options)
        self.stored = Tables()
        self.sent: list[Send] = []
        self.outcome: Finish | Fail | None = None
        for number in range(workers):
            self.tell(WorkerJoined(f"w{number}", ""))
        self.tell(Start())

    def tell(self, event: Event) -> list[Command]:
        commands = self.coordinator.handle(event)
        for command in commands:
            match command:
                case Write(changes):
                    self.stored.apply(changes)
                case Send():
                    self.sent.append(command)
                case Finish() | Fail():
                    self.outcome = command
        assert self.stored == self.coordinator.tables
        return commands

    def said(self, kind: type[Message]) -> list[tuple[str, Message]]:
        """And forget it."""
        found = [each for each in self.sent if isinstance(each.message, kind)]
        self.sent = [each for each in self.sent if each not in found]
        return [(each.worker, each.message) for each in found]

    def runs(self) -> list[Run]:
        return [message for _, message in self.said(Run) if isinstance(message, Run)]

    def done(self, run: Run, sizes: object = None, **more: object) -> list[Command]:
        """The worker that runs it says that it is done, and delivered everywhere."""
        stage = self.topology.stages[run.task.stage]
        consumers = self.topology.consumers[run.task.stage]
        full = tuple(
            tuple(MIB for _ in self.topology.readers(run.task.of, each)) for each in consumers
        )
        values: dict[str, object] = {
            "sizes": full if sizes is None else sizes,
            "rows": 1,
            "more": False,
            "delivered": run.destinations,
            "piece": f"piece-{run.task}" if stage.result else None,
            "retained": not stage.result and stage.protection is Protection.BACKUP,
        }
        worker = more.pop("worker", self.stored.channels[run.task.of].worker)
        message = Done(run.task, run.epoch, **(values | more))  # type: ignore[arg-type]
        return self.tell(Received(str(worker), message))


def test_channels_are_placed_and_the_first_tasks_given_out() -> None:
    query = Query(scan(8, 8, 8, 8, channels=2), Stage((gathered(0),), 1, result=True), workers=2)

    assert query.stored.channels == {
        ChannelId(0, 0): ChannelRow("w0"),
        ChannelId(0, 1): ChannelRow("w1"),
        ChannelId(1, 0): ChannelRow("w0"),
    }
    assert {(w, m.channel) for w, m in query.said(Assign)} == {  # type: ignore[attr-defined]
        ("w0", ChannelId(0, 0)),
        ("w1", ChannelId(0, 1)),
        ("w0", ChannelId(1, 0)),
    }
    runs = query.runs()
    assert {run.task: run.lineage for run in runs} == {
        task: row.lineage for task, row in query.stored.tasks.items()
    }
    units = sorted(
        u for r in runs for u in range(r.lineage.first, r.lineage.first + r.lineage.count)
    )
    assert units == [0, 1, 2, 3]


def test_the_write_comes_before_what_depends_on_it() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True))
    commands = query.done(query.runs()[0])

    assert isinstance(commands[0], Write)
    tables = [(change.table, change.row is None) for change in commands[0].changes]
    assert ("lineage", False) in tables  # what was done,
    assert ("tasks", True) in tables  # that it need not be done any more,
    assert ("tasks", False) in tables  # and what can be done next: one transaction
    assert not any(isinstance(command, Write) for command in commands[1:])


def test_a_paused_query_gives_out_no_further_task() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True))
    (run,) = query.runs()
    assert query.coordinator.ended_sides() == frozenset()
    query.coordinator.pause()
    query.done(run)
    assert query.runs() == [] and query.outcome is None
    assert query.coordinator.ended_sides() == {(0, 0)}
    assert query.coordinator.owners() == {ChannelId(0, 0): ("w0", 0), ChannelId(1, 0): ("w0", 0)}
    query.coordinator.go_on()
    query.tell(Tick())
    assert query.runs()


def test_a_side_has_not_ended_where_its_rows_were_lost() -> None:
    joined = Stage((gathered(0), gathered(1, after=frozenset({0}))), 1, result=True)
    query = Query(scan(8), scan(8), joined, workers=2)
    reader = ChannelId(2, 0)
    (built,) = [run for run in query.runs() if run.task.of == ChannelId(0, 0)]
    query.done(built)
    (collected,) = [run for run in query.runs() if run.task.of == reader]
    query.done(collected)
    assert query.coordinator.ended_sides() == {(0, 0), (2, 0)}
    query.tell(WorkerLost(query.stored.channels[reader].worker))
    assert (2, 0) not in query.coordinator.ended_sides()
    assert (2, 0) in query.coordinator.open_sides()
    for _ in range(4):  # whatever has to be done again, until the reader has its rows
        for run in query.runs():
            query.done(run)
        for worker, replay in query.said(Replay):
            assert isinstance(replay, Replay)
            answer = Replayed(replay.output, replay.epoch, replay.destinations, True)
            query.tell(Received(worker, answer))
    assert query.outcome is not None or (2, 0) in query.coordinator.ended_sides()


def test_a_side_that_was_read_by_a_moved_channel_has_been_read() -> None:
    """Whether its rows are there is another question: only what somebody needs is done again."""
    middle = Stage((gathered(0),), 1)
    query = Query(scan(8), middle, Stage((gathered(1),), 1, result=True), workers=3)
    read = ChannelId(1, 0)
    for run in query.runs():
        query.done(run)
    assert [run.task.of for run in query.runs()] == [read], "it is lost with its worker"
    query.tell(WorkerLost(query.stored.channels[read].worker))
    assert query.stored.channels[read].epoch == 1 and (1, 0) in query.coordinator.open_sides()
    for worker, replay in query.said(Replay):
        assert isinstance(replay, Replay)
        answer = Replayed(replay.output, replay.epoch, replay.destinations, True)
        query.tell(Received(worker, answer))
    (run,) = query.runs()
    query.done(run)
    assert (1, 0) not in query.coordinator.open_sides() | query.coordinator.ended_sides()


def test_a_query_goes_through_to_its_result() -> None:
    query = Query(scan(8, 8), Stage((gathered(0),), 1, result=True))
    while query.outcome is None:
        (run, *_) = [r for r in query.runs() if r.task in query.stored.tasks]
        query.sent += [
            Send("w0", query.coordinator._state.new_run(task))
            for task in query.stored.tasks
            if task != run.task
        ]
        query.done(run)

    assert isinstance(query.outcome, Finish)
    assert [each.task for each in query.outcome.pieces] == [TaskId(1, 0, 0)]
    assert query.stored.channels[ChannelId(0, 0)].ended == 1
    assert query.coordinator.handle(Tick()) == []


def test_one_upstream_channel_at_a_time_and_the_one_with_the_most_bytes() -> None:
    query = Query(scan(8, 8, channels=2), Stage((gathered(0),), 1, result=True))
    first, second = [run for run in query.runs() if run.lineage.count]
    query.done(first, sizes=((10,),))
    (reading,) = [run for run in query.runs() if run.task.stage == 1]
    assert reading.lineage == Lineage(0, first.task.channel, 0, 1)
    assert reading.inputs == (Input(first.task, 0),)
    query.done(second, sizes=((20,),))
    query.done(reading)
    assert [r.lineage.channel for r in query.runs() if r.task.stage == 1] == [second.task.channel]


def test_a_task_waits_for_more_inputs_as_long_as_they_may_come() -> None:
    options = Options(task_bytes=100, least_bytes=100, ahead=3)
    query = Query(scan(99, 99, 99), Stage((gathered(0),), 1, result=True), options=options)
    first, second, third = query.runs()
    query.done(first, sizes=((60,),))
    assert query.runs() == []
    query.done(second, sizes=((60,),))
    assert [run.lineage for run in query.runs()] == [Lineage(0, 0, 0, 2)]
    query.done(third, sizes=((10,),))
    assert [run.lineage for run in query.runs()] == [Lineage(0, 0, 2, 1, ends=True)]


def test_a_task_waits_for_a_multiple_of_what_it_is_joined_with() -> None:
    probe = gathered(1, after=frozenset({0}))
    options = Options(task_bytes=100, least_bytes=0, ahead=3)
    query = Query(
        scan(99), scan(99, 99, 99), Stage((gathered(0), probe), 1, result=True), options=options
    )
    build, first, second, _ = sorted(query.runs(), key=lambda run: run.task)
    query.done(build, sizes=((10,),))
    query.done(query.runs()[0])
    query.done(first, sizes=((30,),))
    assert query.runs() == []
    query.done(second, sizes=((30,),))
    assert [run.lineage for run in query.runs()] == [Lineage(1, 0, 0, 2)]
    loaded = Coordinator.load(query.topology, options, query.stored)._state
    assert loaded.progress.channels[ChannelId(2, 0)].sides[0].bytes_taken == 10


def test_outputs_without_rows_for_the_reader_are_stepped_over() -> None:
    query = Query(
        scan(8, 8, 8), Stage((gathered(0),), 1, result=True), options=Options(task_bytes=8, ahead=3)
    )
    runs = query.runs()
    query.done(runs[0], sizes=((0,),), rows=0, retained=False)
    query.done(runs[1])
    (reading,) = query.runs()
    assert reading.lineage == Lineage(0, 0, 0, 2)
    assert reading.inputs == (Input(runs[1].task, 0),)


def test_a_fixed_number_of_inputs_per_task() -> None:
    query = Query(
        scan(8, 8, 8),
        Stage((gathered(0),), 1, result=True),
        options=Options(inputs_per_task=2, ahead=9),
    )
    runs = query.runs()
    assert [run.lineage.count for run in runs] == [2, 1]
    query.done(runs[0])
    assert query.runs() == []
    query.done(runs[1])
    assert [run.lineage for run in query.runs()] == [Lineage(0, 0, 0, 2, ends=True)]


def test_one_stage_at_a_time() -> None:
    query = Query(
        scan(8, 8),
        Stage((gathered(0),), 1, result=True),
        options=Options(blocking=True, task_bytes=8),
    )
    first, second = query.runs()
    query.done(first)
    assert query.runs() == []
    query.done(second)
    assert [run.task for run in query.runs()] == [TaskId(1, 0, 0), TaskId(1, 0, 1)]


def test_a_side_waits_for_those_before_it_and_build_sides_come_first() -> None:
    probe = gathered(1, keeps=False, after=frozenset({0}))
    query = Query(scan(8), scan(8), Stage((gathered(0), probe), 1, result=True))
    build, probed = sorted(query.runs(), key=lambda run: run.task)
    query.done(probed)
    assert query.runs() == []
    query.done(build)
    (reading,) = query.runs()
    assert reading.lineage == Lineage(0, 0, 0, 1, ends=True)
    query.done(reading)
    (reading,) = query.runs()
    assert reading.lineage == Lineage(1, 0, 0, 1, ends=True)


def test_further_portions_are_tasks_of_their_own() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True))
    query.done(query.runs()[0])
    (reading,) = query.runs()
    query.done(reading, more=True)
    (portion,) = query.runs()
    assert portion.lineage == Lineage(0, ends=True, portion=1)
    assert query.stored.channels[ChannelId(1, 0)].ended is None
    query.done(portion)
    assert query.stored.channels[ChannelId(1, 0)].ended == 2


def test_producers_are_held_back_while_their_readers_are_behind() -> None:
    probe = gathered(1, keeps=False, after=frozenset({0}))
    query = Query(
        scan(8),
        scan(*[8] * 9),
        Stage((gathered(0), probe), 1, result=True),
        options=Options(task_bytes=8, ahead=1, held_bytes=MIB),
    )
    build, *probes = sorted(query.runs(), key=lambda run: run.task)
    query.done(probes[0])
    query.done(query.runs()[0])  # two slices wait now
    assert query.runs() == []
    query.done(build)  # nothing else could be done at all but to read it
    assert [run.task.stage for run in query.runs()] == [2]


def test_done_of_a_former_owner_is_refused() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True), workers=2)
    owner = query.stored.channels[ChannelId(0, 0)].worker
    (run,) = query.runs()
    query.tell(WorkerLost(owner))
    query.done(run, worker=owner)
    assert not query.stored.lineage
    query.done(run, worker="w1" if owner == "w0" else "w0")  # and not a stale epoch either
    assert not query.stored.lineage
    assert query.said(Release)


def test_units_of_a_lost_task_are_given_to_whoever_comes_first() -> None:
    options = Options(task_bytes=16, least_bytes=8)
    stages = scan(*[8] * 8, channels=2), Stage((gathered(0),), 1, result=True)
    query = Query(*stages, workers=2, options=options)
    rows = query.stored.channels.items()
    (lost,) = [c for c, row in rows if row.worker == "w1" and c.stage == 0]
    taken = [row.lineage for task, row in query.stored.tasks.items() if task.of == lost]
    assert taken
    query.tell(WorkerLost("w1"))
    while query.outcome is None:
        task = min(query.stored.tasks)
        query.done(query.coordinator._state.new_run(task))
    read = [
        unit
        for task, row in query.stored.lineage.items()
        if task.stage == 0
        for unit in range(row.lineage.first, row.lineage.first + row.lineage.count)
    ]
    assert sorted(read) == list(range(8))
    assert all(row.epoch == 1 for task, row in query.stored.lineage.items() if task.of == lost)


def test_a_reader_that_did_not_get_an_output_has_it_replayed() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True), workers=2)
    (run,) = query.runs()
    query.done(run, delivered=())
    holder = query.stored.channels[ChannelId(0, 0)].worker
    reader = query.stored.channels[ChannelId(1, 0)].worker
    where = Destination(ChannelId(1, 0), 0, 0, reader)
    assert query.said(Replay) == [(holder, Replay(run.task, 0, (where,)))]
    assert query.runs() == []
    query.tell(Received(holder, Replayed(run.task, 0, (), True)))
    query.tell(Tick())  # it did not arrive: once more
    assert query.said(Replay) == [(holder, Replay(run.task, 0, (where,)))]
    query.tell(Received(holder, Replayed(run.task, 0, (where,), True)))
    assert [r.task for r in query.runs()] == [TaskId(1, 0, 0)]


def test_an_output_without_a_copy_is_not_committed_before_its_readers_have_it() -> None:
    query = Query(scan(8, protection=Protection.NONE), Stage((gathered(0),), 1, result=True))
    (run,) = query.runs()
    query.done(run, delivered=())
    assert not query.stored.lineage
    ((worker, replay),) = query.said(Replay)
    assert isinstance(replay, Replay) and replay.destinations == run.destinations
    query.tell(Received(worker, Replayed(run.task, 0, run.destinations, True)))
    assert list(query.stored.lineage) == [run.task]


def test_an_unreadable_backup_is_made_again() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True))
    (run,) = query.runs()
    query.done(run, delivered=())
    query.tell(Received("w0", Replayed(run.task, 0, (), False)))
    (again,) = query.runs()
    assert again.repeated and again.task == run.task and again.lineage == run.lineage


def test_backups_are_forgotten_when_no_rewind_can_need_them() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True))
    (run,) = query.runs()
    query.done(run)
    assert query.stored.lineage[run.task].holder == "w0"
    (reading,) = query.runs()
    query.done(reading)
    assert query.said(Forget) == [("w0", Forget((run.task,)))]
    assert query.stored.lineage[run.task].holder is None


def test_a_rewound_channel_follows_its_log_and_is_dynamic_after_it() -> None:
    query = Query(
        scan(8, 8, 8, 8),
        Stage((gathered(0),), 1, result=True),
        workers=2,
        options=Options(task_bytes=8, ahead=1),
    )
    reader = query.stored.channels[ChannelId(1, 0)].worker
    for _ in range(3):
        (run,) = [r for r in query.runs() if r.task.stage == 0]
        query.done(run)
        for reading in [r for r in query.runs() if r.task.stage == 1][:1]:
            if reading.task.sequence == 0:
                query.done(reading)
        query.sent += [Send("", query.coordinator._state.new_run(t)) for t in query.stored.tasks]
    logged = query.stored.lineage[TaskId(1, 0, 0)].lineage
    query.sent.clear()

    query.tell(WorkerLost(reader))

    repeated = [run for run in query.runs() if run.task.stage == 1]
    assert [(r.task, r.lineage, r.repeated) for r in repeated] == [(TaskId(1, 0, 0), logged, True)]
    assert all(task.stage == 0 for task in query.stored.tasks)


def test_a_channel_that_does_not_get_on_is_asked_what_it_has() -> None:
    query = Query(
        scan(8, 8),
        Stage((gathered(0),), 1, result=True),
        workers=2,
        options=Options(task_bytes=8, ahead=1),
    )
    (run,) = query.runs()
    query.done(run)
    (reading,) = [each for each in query.runs() if each.task.stage == 1]
    query.done(reading)
    query.tell(WorkerLost(query.stored.channels[ChannelId(1, 0)].worker))
    ((holder, replay),) = query.said(Replay)
    assert isinstance(replay, Replay)
    query.tell(Received(holder, Replayed(run.task, 0, replay.destinations, True)))  # as it seems

    for _ in range(11):
        query.tell(Tick())

    owner = query.stored.channels[ChannelId(1, 0)]
    assert query.said(Report) == [(owner.worker, Report(ChannelId(1, 0), owner.epoch))]
    query.tell(Received(owner.worker, Holds(ChannelId(1, 0), owner.epoch, (), ())))
    ((_, replay),) = query.said(Replay)
    assert isinstance(replay, Replay) and replay.output == run.task


def test_a_failed_task_fails_the_query_and_a_failed_worker_does_not() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True), workers=2)
    (run,) = query.runs()
    owner = query.stored.channels[ChannelId(0, 0)].worker
    disk = Failed(run.task, 0, "WORKER_FAILED", "no space left", None, fatal=False)
    query.tell(Received(owner, disk))
    assert not query.stored.workers[owner].alive and query.outcome is None
    (run,) = query.runs()
    other = query.stored.channels[ChannelId(0, 0)].worker
    query.tell(Received(other, Failed(run.task, 1, "QUERY_FAILED", "by zero", "why", fatal=True)))
    assert query.outcome == Fail("QUERY_FAILED", "by zero", "why")


def test_a_new_worker_takes_over_stateless_channels() -> None:
    query = Query(scan(*[8] * 8, channels=4), Stage((gathered(0),), 1, result=True))
    query.sent.clear()
    query.tell(WorkerJoined("w1", ""))
    moved = [c for c, row in query.stored.channels.items() if row.worker == "w1"]
    assert len(moved) == 2 and all(c.stage == 0 for c in moved)
    assert {query.stored.channels[c].epoch for c in moved} == {1}
    assert {m.channel for _, m in query.said(Release)} == set(moved)  # type: ignore[attr-defined]
    assert {r.task.of for r in query.runs()} == set(moved)


def test_without_any_worker_the_query_waits_for_one() -> None:
    query = Query(scan(8), Stage((gathered(0),), 1, result=True))
    query.sent.clear()
    query.tell(WorkerLost("w0"))
    assert query.sent == []
    query.tell(WorkerJoined("w1", ""))
    assert {row.worker for row in query.stored.channels.values()} == {"w1"}
    assert len(query.runs()) == 1


def test_it_goes_on_from_the_tables_alone() -> None:
    query = Query(scan(8, 8), Stage((gathered(0),), 1, result=True), options=Options(task_bytes=8))
    first, second = query.runs()
    query.done(first)
    (reading,) = query.runs()
    query.sent.clear()

    query.coordinator = Coordinator.load(query.topology, query.options, query.coordinator.tables)
    query.tell(Start())

    assert {m.channel for _, m in query.said(Report)} == {  # type: ignore[attr-defined]
        ChannelId(0, 0),
        ChannelId(1, 0),
    }
    query.done(second)
    assert second.task not in query.stored.lineage  # it is said again, in good time
    query.tell(Received("w0", Holds(ChannelId(0, 0), 0, (), ())))
    assert query.runs() == []
    held = ((0, Input(first.task, 0)),)
    query.tell(Received("w0", Holds(ChannelId(1, 0), 0, held, ())))
    assert {run.task for run in query.runs()} == {second.task, reading.task}
    assert query.said(Committed) == [("w0", Committed(first.task, 0))]
    assert query.said(Replay) == []


def test_what_no_worker_holds_is_replayed_after_a_restart() -> None:
    query = Query(scan(8, 8), Stage((gathered(0),), 1, result=True), options=Options(task_bytes=8))
    first, _ = query.runs()
    query.done(first)
    query.coordinator = Coordinator.load(query.topology, query.options, query.coordinator.tables)
    query.tell(Start())
    for stage in (0, 1):
        query.tell(Received("w0", Holds(ChannelId(stage, 0), 0, (), ())))
    ((_, replay),) = query.said(Replay)
    assert isinstance(replay, Replay) and replay.output == first.task


def test_an_event_takes_no_longer_when_much_is_done() -> None:
    """Ten stages of eight channels; counted in calls, which no busy machine changes."""
    calls = _calls_per_event()
    early, late = calls[200:700], calls[-500:]
    assert sum(late) < 1.5 * sum(early)


def _calls_per_event() -> list[int]:
    stages = [Stage((Side(Feed.SHARED, (MIB,) * 400, keeps=False),), 8)]
    for number in range(1, 9):
        side = Side(Feed.EXCHANGE, (), number - 1, Partitioning.HASH, keeps=False)
        stages.append(Stage((side,), 8))
    stages.append(Stage((Side(Feed.EXCHANGE, (), 8, Partitioning.HASH),), 8, result=True))
    coordinator = Coordinator(Topology(tuple(stages)), Options(task_bytes=MIB))
    commands: list[Command] = []
    for number in range(8):
        commands += coordinator.handle(WorkerJoined(f"w{number}", ""))
    commands += coordinator.handle(Start())
    runs = [c for c in commands if isinstance(c, Send) and isinstance(c.message, Run)]
    counted: list[int] = []
    while runs and len(counted) < 3000:
        send = runs.pop(0)
        run = send.message
        assert isinstance(run, Run)
        sizes: tuple[tuple[int, ...], ...] = ((MIB // 8,) * 8,)
        if run.task.stage == 9:
            sizes = ()
        piece = "piece" if run.task.stage == 9 else None
        done = Done(run.task, run.epoch, sizes, 8, False, run.destinations, piece, piece is None)
        calls = itertools.count()
        sys.setprofile(lambda frame, what, argument, calls=calls: next(calls))
        try:
            commands = coordinator.handle(Received(send.worker, done))
        finally:
            sys.setprofile(None)
        counted.append(next(calls))
        runs += [c for c in commands if isinstance(c, Send) and isinstance(c.message, Run)]
    return counted
