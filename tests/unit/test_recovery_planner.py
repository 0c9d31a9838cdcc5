"""What is done again after a loss, for small logs written down by hand."""

from __future__ import annotations

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Layout, Slice
from headway.lineage.records import ChannelRow, Lineage, LineageRow, Tables, WorkerRow
from headway.lineage.recovery import Recovery, Repeat, Resupply, Surviving, plan_recovery
from headway.lineage.topology import Feed, Partitioning, Protection, Side, Stage, Topology

SCAN = Side(Feed.SHARED, (1,) * 20, keeps=False)


def hashed(upstream: int, *, keeps: bool = True, after: frozenset[int] = frozenset()) -> Side:
    return Side(Feed.EXCHANGE, (), upstream, Partitioning.HASH, after, keeps)


class Log:
    """Tables in which channel c of every stage is run by worker wc, unless they say otherwise."""

    def __init__(self, *stages: Stage, workers: int = 3) -> None:
        self.topology = Topology(stages)
        self._layout = Layout(self.topology)
        self.workers = [f"w{number}" for number in range(workers)]
        self.tables = Tables({worker: WorkerRow("") for worker in self.workers})
        for channel in self.topology.channels:
            self.tables.channels[channel] = ChannelRow(f"w{channel.channel % workers}")
        self.delivered: dict[ChannelId, set[Slice]] = {c: set() for c in self.topology.channels}

    def commit(self, stage: int, channel: int, lineage: Lineage, empty: bool = False) -> TaskId:
        """The channel's next task; its output is with all readers, and what it read is used up."""
        owner = ChannelId(stage, channel)
        number = sum(task.of == owner for task in self.tables.lineage)
        worker = self.tables.channels[owner].worker
        consumers = self.topology.consumers[stage]
        sizes = tuple(
            tuple(0 if empty else 1 for _ in self.topology.readers(owner, each))
            for each in consumers
        )
        row = LineageRow(lineage, 0, sizes, rows=1, holder=worker)
        self.tables.lineage[owner.task(number)] = row
        for each in self._layout.inputs(owner, lineage, self.tables.lineage):
            self.delivered[owner].discard(each)
        for each in self._layout.slices(owner.task(number), sizes):
            self.delivered[each.reader].add(each)
        return owner.task(number)

    def end(self, stage: int, channel: int) -> None:
        owner = ChannelId(stage, channel)
        count = sum(task.of == owner for task in self.tables.lineage)
        row = self.tables.channels[owner]
        self.tables.channels[owner] = ChannelRow(row.worker, row.epoch, count)

    def plan(self, *lost: str, **surviving: object) -> Recovery:
        live = [worker for worker in self.workers if worker not in lost]
        known = Surviving(delivered=self.delivered, **surviving)  # type: ignore[arg-type]
        return plan_recovery(self.topology, self.tables, set(lost), live, known)


def unit(number: int) -> Lineage:
    return Lineage(0, -1, number, 1)


def outputs(channel: int, first: int, count: int, side: int = 0) -> Lineage:
    return Lineage(side, channel, first, count)


def replayed(recovery: Recovery) -> set[tuple[TaskId, str | None, ChannelId]]:
    return {(r.slice.output, r.holder, r.slice.reader) for r in recovery.replays}


def repeated(recovery: Recovery) -> dict[ChannelId, list[TaskId]]:
    return {each.channel: [r.task for r in each.repeats] for each in recovery.rewinds}


def figure_five() -> Log:
    """Three workers, one channel of each of three stages on each. Stage 0 reads the input and has
    no state."""
    log = Log(Stage((SCAN,), 3), Stage((hashed(0),), 3), Stage((hashed(1),), 3, result=True))
    for channel in range(3):
        for number in (0, 1):
            log.commit(0, channel, unit(2 * channel + number))
    for channel in range(3):
        log.commit(1, channel, outputs(channel, 0, 2))
    for channel in range(3):
        log.commit(2, channel, outputs(channel, 0, 1))
    return log


def test_figure_five_of_the_paper() -> None:
    plan = figure_five().plan("w2")

    # (1, 2, 0) and (2, 2, 0) are relaunched on different machines, from the initial state.
    assert repeated(plan) == {
        ChannelId(1, 2): [TaskId(1, 2, 0)],
        ChannelId(2, 2): [TaskId(2, 2, 0)],
    }
    assert {each.worker for each in plan.rewinds} == {"w0", "w1"}
    assert all(each.epoch == 1 for each in plan.rewinds)
    # (0, 2, 0) and (0, 2, 1) are lost and needed: any worker can make them, side by side.
    tasks = {each.repeat.task: each.worker for each in plan.input_tasks}
    assert set(tasks) == {TaskId(0, 2, 0), TaskId(0, 2, 1)}
    assert set(tasks.values()) == {"w0", "w1"}
    # Four outputs in all are reconstructed, as many as the failed machine had.
    made_again = [task for tasks in repeated(plan).values() for task in tasks]
    assert len(made_again) + len(plan.input_tasks) == 4
    # What the others hold is replayed: (0, 0, 0), (0, 1, 0), ...
    assert replayed(plan) == {
        (TaskId(0, holder, number), f"w{holder}", ChannelId(1, 2))
        for holder in (0, 1)
        for number in (0, 1)
    } | {(TaskId(1, holder, 0), f"w{holder}", ChannelId(2, 2)) for holder in (0, 1)}
    # The reader's next task goes on elsewhere.
    assert [each.channel for each in plan.moves] == [ChannelId(0, 2)]


def test_a_repeated_output_goes_to_those_who_need_it() -> None:
    plan = figure_five().plan("w2")

    (rewind,) = (each for each in plan.rewinds if each.channel == ChannelId(1, 2))
    needed = Slice(ChannelId(2, 2), 0, TaskId(1, 2, 0))
    assert rewind.repeats == (Repeat(TaskId(1, 2, 0), (needed,)),)
    (rewind,) = (each for each in plan.rewinds if each.channel == ChannelId(2, 2))
    assert rewind.repeats == (Repeat(TaskId(2, 2, 0)),)


def test_survivors_keep_what_they_have_in_memory() -> None:
    plan = figure_five().plan("w2")

    readers = {each.slice.reader for each in plan.replays}
    readers |= {s.reader for each in plan.input_tasks for s in each.repeat.needed}
    assert readers == {ChannelId(1, 2), ChannelId(2, 2)}


def test_what_was_delivered_to_the_lost_worker_and_not_read_is_replayed() -> None:
    log = Log(Stage((SCAN,), 2), Stage((hashed(0),), 2, result=True), workers=2)
    output = log.commit(0, 0, unit(0))

    plan = log.plan("w1")

    assert replayed(plan) == {(output, "w0", ChannelId(1, 1))}
    assert repeated(plan) == {ChannelId(1, 1): []}


def test_a_survivor_gets_what_only_the_lost_worker_had() -> None:
    log = Log(Stage((SCAN,), 2), Stage((hashed(0),), 2, result=True), workers=2)
    output = log.commit(0, 1, unit(0))
    log.delivered[ChannelId(1, 0)].clear()  # it was on its way

    plan = log.plan("w1")

    (task,) = plan.input_tasks
    assert task.repeat.task == output
    assert {each.reader for each in task.repeat.needed} == {ChannelId(1, 0), ChannelId(1, 1)}


def test_an_ended_channel_is_rewound_when_its_outputs_are_needed() -> None:
    log = chain()
    log.end(1, 1)

    plan = log.plan("w1")

    assert repeated(plan)[ChannelId(1, 1)] == [TaskId(1, 1, 0)]


def test_an_ended_channel_whose_outputs_nobody_needs_stays_as_it_is() -> None:
    log = chain()
    for stage in range(3):
        log.end(stage, 1)

    assert log.plan("w1") == Recovery()


def test_an_ended_channel_repeats_no_more_than_is_needed() -> None:
    log = Log(Stage((SCAN,), 2), Stage((hashed(0),), 2), Stage((hashed(1),), 2, result=True))
    log.workers = ["w0", "w1"]
    for number in range(3):
        log.commit(0, 0, unit(number))
    for number in range(3):
        log.commit(1, 1, outputs(0, number, 1))
    log.end(1, 1)
    log.delivered[ChannelId(2, 0)].discard(Slice(ChannelId(2, 0), 0, TaskId(1, 1, 1)))
    for number in range(3):
        log.commit(2, 1, outputs(1, number, 1))
    log.end(2, 1)

    plan = log.plan("w1")

    assert repeated(plan) == {ChannelId(1, 1): [TaskId(1, 1, 0), TaskId(1, 1, 1)]}


def chain() -> Log:
    """Two workers, three stages, one task in every channel."""
    log = Log(
        Stage((SCAN,), 2), Stage((hashed(0),), 2), Stage((hashed(1),), 2, result=True), workers=2
    )
    for channel in range(2):
        log.commit(0, channel, unit(channel))
    for channel in range(2):
        log.commit(1, channel, outputs(channel, 0, 1))
    for channel in range(2):
        log.commit(2, channel, outputs(channel, 0, 1))
    return log


def test_tasks_without_a_trace_are_not_repeated_unless_their_outputs_are_needed() -> None:
    probe = hashed(0, keeps=False, after=frozenset({0}))
    log = Log(Stage((SCAN,), 1), Stage((hashed(0), probe), 1), Stage((hashed(1),), 1, result=True))
    log.tables.channels[ChannelId(1, 0)] = ChannelRow("w1")
    log.tables.channels[ChannelId(2, 0)] = ChannelRow("w2")
    for number in range(4):
        log.commit(0, 0, unit(number))
    log.commit(1, 0, outputs(0, 0, 4), empty=True)
    log.commit(1, 0, Lineage(0, ends=True), empty=True)
    for number in range(4):
        log.commit(1, 0, outputs(0, number, 1, side=1))
    log.commit(2, 0, outputs(0, 0, 4))

    build, end = TaskId(1, 0, 0), TaskId(1, 0, 1)
    assert repeated(log.plan("w1")) == {ChannelId(1, 0): [build, end]}
    both = log.plan("w1", "w2")
    # Task 2.0.0 read the probe's first two outputs, and the last two wait for it.
    assert repeated(both)[ChannelId(1, 0)] == [build, end, *(TaskId(1, 0, n) for n in range(2, 6))]


def test_the_side_tells_two_inputs_from_the_same_channel_apart() -> None:
    log = Log(Stage((SCAN,), 1), Stage((hashed(0), hashed(0)), 1, result=True), workers=2)
    log.tables.channels[ChannelId(1, 0)] = ChannelRow("w1")
    first = log.commit(0, 0, unit(0))
    log.commit(1, 0, outputs(0, 0, 1, side=1))

    plan = log.plan("w1")

    reader = ChannelId(1, 0)
    assert set(plan.replays) == {
        Resupply(Slice(reader, 1, first), holder="w0"),  # for the repeated task
        Resupply(Slice(reader, 0, first), holder="w0"),  # not read so far
    }


def test_nothing_is_read_from_a_lost_worker() -> None:
    log = chain()
    for lost in ("w0", "w1"):
        plan = log.plan(lost)
        workers = {each.worker for each in (*plan.rewinds, *plan.moves, *plan.input_tasks)}
        assert lost not in workers | {each.holder for each in plan.replays}


def test_pieces_in_the_reliable_store_are_never_made_again() -> None:
    log = Log(
        Stage((SCAN,), 1),
        Stage((hashed(0),), 1, Protection.SPOOL),
        Stage((hashed(1),), 1, result=True),
        workers=2,
    )
    for stage in (1, 2):
        log.tables.channels[ChannelId(stage, 0)] = ChannelRow("w1")
    log.commit(0, 0, unit(0))
    output = log.commit(1, 0, outputs(0, 0, 1))
    log.tables.lineage[output] = LineageRow(outputs(0, 0, 1), 0, ((1,),), 1, piece="spool/1")
    log.end(1, 0)

    plan = log.plan("w1")

    assert repeated(plan) == {ChannelId(2, 0): []}
    assert plan.replays == (Resupply(Slice(ChannelId(2, 0), 0, output), piece="spool/1"),)


def test_slices_without_rows_are_not_missed() -> None:
    log = Log(Stage((SCAN,), 1), Stage((hashed(0),), 1, result=True), workers=2)
    log.tables.channels[ChannelId(1, 0)] = ChannelRow("w1")
    log.commit(0, 0, unit(0), empty=True)

    plan = log.plan("w1")

    assert plan.replays == () and plan.input_tasks == ()


def test_a_live_channel_without_copies_is_rewound_for_what_its_state_went_beyond() -> None:
    log = Log(
        Stage((SCAN,), 1),
        Stage((hashed(0),), 1, Protection.NONE),
        Stage((hashed(1),), 1, result=True),
        workers=2,
    )
    log.tables.channels[ChannelId(2, 0)] = ChannelRow("w1")
    log.commit(0, 0, unit(0))
    output = log.commit(1, 0, outputs(0, 0, 1))
    row = log.tables.lineage[output]
    log.tables.lineage[output] = LineageRow(row.lineage, 0, row.sizes, 1, holder=None)

    plan = log.plan("w1")

    assert repeated(plan) == {ChannelId(1, 0): [output], ChannelId(2, 0): []}
    assert replayed(plan) == {(TaskId(0, 0, 0), "w0", ChannelId(1, 0))}


def test_a_live_channel_repeats_tasks_without_a_trace_as_it_is() -> None:
    probe = hashed(0, keeps=False)
    log = Log(
        Stage((SCAN,), 1),
        Stage((probe,), 1, Protection.NONE),
        Stage((hashed(1),), 1, result=True),
        workers=2,
    )
    log.tables.channels[ChannelId(2, 0)] = ChannelRow("w1")
    log.commit(0, 0, unit(0))
    output = log.commit(1, 0, outputs(0, 0, 1))
    row = log.tables.lineage[output]
    log.tables.lineage[output] = LineageRow(row.lineage, 0, row.sizes, 1, holder=None)

    plan = log.plan("w1")

    assert repeated(plan) == {ChannelId(2, 0): []}
    assert plan.again == (Repeat(output, (Slice(ChannelId(2, 0), 0, output),)),)


def test_planning_again_waits_for_what_is_being_repeated() -> None:
    log = chain()
    log.tables.channels[ChannelId(1, 1)] = ChannelRow("w0", 1)  # rewound, and not done yet
    log.tables.channels[ChannelId(2, 1)] = ChannelRow("w0", 1)
    log.tables.channels[ChannelId(0, 1)] = ChannelRow("w0", 1)
    log.delivered[ChannelId(1, 1)] = {Slice(ChannelId(1, 1), 0, TaskId(0, 0, 0))}
    log.delivered[ChannelId(2, 1)] = {Slice(ChannelId(2, 1), 0, TaskId(1, 0, 0))}
    pending = {TaskId(0, 1, 0), TaskId(1, 1, 0), TaskId(2, 1, 0)}

    assert log.plan("w1", pending=pending) == Recovery()
    less = log.plan("w1", pending=pending - {TaskId(0, 1, 0)})
    assert [each.repeat.task for each in less.input_tasks] == [TaskId(0, 1, 0)]
