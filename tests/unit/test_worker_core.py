"""Messages and answers in, effects out: a worker's core by itself."""

from __future__ import annotations

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.records import Lineage
from headway.lineage.topology import Feed, Partitioning, Protection, Side, Stage, Topology
from headway.pipelined.core.effects import (
    Arrived,
    Close,
    Delete,
    Deliver,
    Delivered,
    Discard,
    Drop,
    Effect,
    Execute,
    Executed,
    ExecutionFailed,
    Keep,
    Kept,
    Open,
    Reception,
    Resend,
    Resent,
    Say,
    Stop,
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
    Release,
    Replay,
    Replayed,
    Report,
    Run,
)
from headway.pipelined.core.worker import WorkerCore

SCAN = Side(Feed.SHARED, (1,) * 9, keeps=False)
READ = Side(Feed.EXCHANGE, (), 0, Partitioning.GATHER)
READER = Destination(ChannelId(1, 0), 0, 0, "w1")
SIZES = ((1,),)


def core(protection: Protection = Protection.BACKUP) -> WorkerCore:
    topology = Topology((Stage((SCAN,), 1, protection), Stage((READ,), 1, result=True)))
    return WorkerCore("w0", topology)


def task(sequence: int, stage: int = 0) -> TaskId:
    return TaskId(stage, 0, sequence)


def scan(sequence: int, epoch: int = 0, **more: object) -> Run:
    lineage = Lineage(0, -1, sequence, 1)
    return Run(task(sequence), epoch, lineage, (), (READER,), **more)  # type: ignore[arg-type]


def executed(sequence: int, epoch: int = 0, rows: int = 1) -> Executed:
    return Executed(task(sequence), epoch, SIZES if rows else ((0,),), rows, False)


def done(sequence: int, epoch: int = 0, retained: bool = True) -> Done:
    return Done(task(sequence), epoch, SIZES, 1, False, (READER,), None, retained)


def arrived(output: TaskId, epoch: int = 0, reader_epoch: int = 0) -> Arrived:
    return Arrived(ChannelId(1, 0), 0, reader_epoch, output, epoch)


def read(output: TaskId, epoch: int = 0, reader_epoch: int = 0) -> Run:
    return Run(task(0, 1), reader_epoch, Lineage(0, 0, 0, 1), (Input(output, epoch),))


def finished(worker: WorkerCore, sequence: int) -> list[Effect]:
    """Executes, keeps and delivers a task that was told."""
    worker.handle(executed(sequence))
    worker.handle(Kept(task(sequence), 0))
    return worker.handle(Delivered(task(sequence), 0, (READER,)))


def test_a_task_is_executed_then_kept_and_delivered_side_by_side_and_then_done() -> None:
    worker = core()
    assert worker.handle(Assign(ChannelId(0, 0), 0)) == [Open(ChannelId(0, 0), 0)]
    assert worker.handle(scan(0)) == [Execute(scan(0))]
    assert worker.handle(executed(0)) == [Keep(task(0), 0), Deliver(task(0), 0, (READER,))]
    assert worker.handle(Delivered(task(0), 0, (READER,))) == []
    assert worker.handle(Kept(task(0), 0)) == [Say(done(0))]
    assert worker.handle(Committed(task(0), 0)) == [Drop(task(0), 0)]


def test_the_next_output_is_made_but_not_delivered_before_the_former_is_committed() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    assert worker.handle(scan(1)) == []
    assert Execute(scan(1)) in worker.handle(executed(0))
    assert worker.handle(executed(1)) == [Keep(task(1), 0)]
    worker.handle(Kept(task(1), 0))
    worker.handle(Kept(task(0), 0))
    assert worker.handle(Delivered(task(0), 0, (READER,))) == [Say(done(0))]
    assert worker.handle(Committed(task(0), 0)) == [
        Drop(task(0), 0),
        Deliver(task(1), 0, (READER,)),
    ]
    assert worker.handle(Delivered(task(1), 0, (READER,))) == [Say(done(1))]


def test_an_output_without_rows_is_done_at_once() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    said = Done(task(0), 0, ((0,),), 0, False, (), None, retained=False)
    assert worker.handle(executed(0, rows=0)) == [Say(said)]


def test_a_task_that_is_told_twice_is_run_once_and_answered_twice() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    assert worker.handle(scan(0)) == []
    finished(worker, 0)
    assert worker.handle(scan(0)) == [Say(done(0))]


def test_a_failed_backup_stops_the_worker_and_nothing_is_done() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    worker.handle(executed(0))
    worker.handle(Delivered(task(0), 0, (READER,)))
    said, stop = worker.handle(Kept(task(0), 0, problem="no space left"))
    assert isinstance(said, Say) and isinstance(said.message, Failed) and not said.message.fatal
    assert isinstance(stop, Stop)
    assert worker.handle(scan(1)) == []
    assert worker.receive(arrived(task(0))) is Reception.REFUSE


def test_a_task_waits_for_inputs_of_the_right_version() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(1, 0), 0))
    assert worker.handle(read(task(0), epoch=1)) == []
    assert worker.receive(arrived(task(0), epoch=0)) is Reception.TAKE
    assert worker.handle(arrived(task(0), epoch=0)) == []  # void: it was never committed
    assert worker.receive(arrived(task(0), epoch=2)) is Reception.TAKE
    (execute,) = worker.handle(arrived(task(0), epoch=2))
    assert isinstance(execute, Execute) and execute.run.inputs == (Input(task(0), 2),)


def test_what_a_task_read_is_discarded_when_it_is_committed() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(1, 0), 0))
    worker.receive(arrived(task(0)))
    worker.handle(read(task(0)))
    worker.handle(Executed(task(0, 1), 0, (), 1, False))
    said = worker.handle(Kept(task(0, 1), 0, piece="p"))
    assert said == [Say(Done(task(0, 1), 0, (), 1, False, (), "p", retained=False))]
    assert worker.handle(Committed(task(0, 1), 0)) == [
        Drop(task(0, 1), 0),
        Discard(ChannelId(1, 0), 0, (Input(task(0), 0),)),
    ]


def test_slices_are_taken_once_and_early_ones_are_kept() -> None:
    worker = core()
    assert worker.receive(arrived(task(0), reader_epoch=1)) is Reception.TAKE  # Assign is late
    assert worker.receive(arrived(task(0), reader_epoch=1)) is Reception.HAVE
    assert worker.receive(arrived(task(0), reader_epoch=0)) is Reception.REFUSE
    worker.handle(Assign(ChannelId(1, 0), 1))
    assert worker.receive(arrived(task(1), reader_epoch=0)) is Reception.REFUSE
    assert worker.receive(arrived(task(0), epoch=1, reader_epoch=1)) is Reception.TAKE
    assert worker.receive(arrived(task(0), epoch=0, reader_epoch=1)) is Reception.HAVE
    worker.handle(Release(ChannelId(1, 0), 1))
    assert worker.receive(arrived(task(0), reader_epoch=1)) is Reception.REFUSE
    assert worker.receive(arrived(task(0), reader_epoch=2)) is Reception.TAKE


def test_the_same_output_for_two_sides_is_two_slices() -> None:
    worker = core()
    assert worker.receive(arrived(task(0))) is Reception.TAKE
    other = Arrived(ChannelId(1, 0), 1, 0, task(0), 0)
    assert worker.receive(other) is Reception.TAKE


def test_a_new_epoch_begins_with_nothing() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(1, 0), 0))
    worker.receive(arrived(task(0)))
    worker.receive(arrived(task(1), reader_epoch=1))
    assert worker.handle(Assign(ChannelId(1, 0), 1)) == [
        Close(ChannelId(1, 0), 0),
        Discard(ChannelId(1, 0), 0, (Input(task(0), 0),)),
        Open(ChannelId(1, 0), 1),
    ]
    assert worker.handle(Assign(ChannelId(1, 0), 0)) == []
    assert worker.handle(Release(ChannelId(1, 0), 0)) == []


def test_a_released_channel_is_closed_when_its_task_is_over() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    assert worker.handle(Release(ChannelId(0, 0), 0)) == []
    assert worker.handle(executed(0)) == [Close(ChannelId(0, 0), 0), Drop(task(0), 0)]


def test_a_released_channel_leaves_no_backup_that_was_not_committed() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    finished(worker, 0)
    worker.handle(Committed(task(0), 0))
    worker.handle(scan(1))
    worker.handle(executed(1))
    worker.handle(Kept(task(1), 0))
    worker.handle(scan(2))
    worker.handle(executed(2))
    effects = worker.handle(Release(ChannelId(0, 0), 0))
    assert Delete((Input(task(1), 0),)) in effects
    assert Delete((Input(task(0), 0),)) not in effects
    assert worker.handle(Kept(task(2), 0)) == [Delete((Input(task(2), 0),))]  # it was on its way


def test_replays_come_from_the_disk_and_from_the_reliable_store() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    finished(worker, 0)
    worker.handle(Committed(task(0), 0))
    replay = Replay(task(0), 0, (READER,))
    assert worker.handle(replay) == [Resend(task(0), 0, (READER,), None)]
    assert worker.handle(Resent(task(0), 0, (READER,), True)) == [
        Say(Replayed(task(0), 0, (READER,), True))
    ]
    piece = Replay(task(5), 0, (READER,), piece="spool")
    assert worker.handle(piece) == [Resend(task(5), 0, (READER,), "spool")]
    nothing = Replay(task(6), 0, (READER,))
    assert worker.handle(nothing) == [Say(Replayed(task(6), 0, (), False))]
    assert worker.handle(Forget((task(0), task(7)))) == [Delete((Input(task(0), 0),))]
    assert worker.handle(replay) == [Say(Replayed(task(0), 0, (), False))]


def test_an_output_without_a_copy_is_replayed_from_memory_until_it_is_committed() -> None:
    worker = core(Protection.NONE)
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    assert worker.handle(executed(0)) == [Deliver(task(0), 0, (READER,))]
    worker.handle(Delivered(task(0), 0, ()))
    assert worker.handle(Replay(task(0), 0, (READER,))) == [Deliver(task(0), 0, (READER,))]
    assert worker.handle(Delivered(task(0), 0, (READER,))) == [
        Say(Replayed(task(0), 0, (READER,), True))
    ]
    worker.handle(Committed(task(0), 0))
    assert worker.handle(Replay(task(0), 0, (READER,))) == [Say(Replayed(task(0), 0, (), False))]


def test_a_task_of_a_stateless_stage_is_repeated_by_any_worker() -> None:
    worker = core()
    run = scan(3, epoch=2, repeated=True)
    assert worker.handle(run) == [Execute(run)]
    effects = worker.handle(Executed(task(3), 2, SIZES, 1, False))
    assert effects == [Keep(task(3), 2), Deliver(task(3), 2, (READER,))]
    worker.handle(Kept(task(3), 2))
    assert worker.handle(Delivered(task(3), 2, (READER,))) == [Say(done(3, epoch=2))]


def test_repeated_tasks_do_not_wait_for_commits() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 1))
    for sequence in (0, 1):
        worker.handle(scan(sequence, epoch=1, repeated=True))
    worker.handle(executed(0, epoch=1))
    assert worker.handle(executed(1, epoch=1)) == [
        Keep(task(1), 1),
        Deliver(task(1), 1, (READER,)),
    ]


def test_a_report_says_what_waits_and_what_is_committed() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(1, 0), 0))
    worker.receive(arrived(task(0)))
    worker.receive(arrived(task(1), epoch=3))
    worker.handle(read(task(0)))
    worker.handle(Executed(task(0, 1), 0, (), 0, False))
    worker.handle(Committed(task(0, 1), 0))
    holds = Holds(ChannelId(1, 0), 0, ((0, Input(task(1), 3)),), (0,))
    assert worker.handle(Report(ChannelId(1, 0), 0)) == [Say(holds)]


def test_a_failed_task_is_said_again_when_it_is_asked_for_again() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(0, 0), 0))
    worker.handle(scan(0))
    failed = Failed(task(0), 0, "QUERY_FAILED", "by zero", None, fatal=True)
    error = ExecutionFailed(task(0), 0, "QUERY_FAILED", "by zero")
    assert worker.handle(error) == [Say(failed)]
    assert worker.handle(scan(0)) == [Say(failed)]


def test_a_slice_that_arrives_again_while_it_is_read_outlives_the_commit() -> None:
    worker = core()
    worker.handle(Assign(ChannelId(1, 0), 0))
    worker.receive(arrived(task(0)))
    worker.handle(read(task(0)))
    assert worker.receive(arrived(task(0))) is Reception.HAVE  # for the task to be repeated
    worker.handle(Executed(task(0, 1), 0, (), 0, False))
    assert worker.handle(Committed(task(0, 1), 0)) == [Drop(task(0, 1), 0)]
    assert worker.receive(arrived(task(0))) is Reception.HAVE
