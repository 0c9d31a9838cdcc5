"""The log of a run: appended by one, read by many, and no event can go missing unseen."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headway.base.errors import (
    PieceMissing,
    StoreConflict,
    StoreCorrupt,
    StoreUnavailable,
    WrongUsage,
)
from headway.storage import Event, EventLog, ReliableStore, Run, new_manifest, open_store
from headway.storage.local import LocalStore
from headway.testing.faults import DiskFault, disk_faults, run_in_child


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(LocalStore(tmp_path / "store"), new_manifest([], run_id="r"))


def event_file(run: Run, number: int) -> Path:
    assert isinstance(run.store, LocalStore)
    return run.store.root / "runs/r/events" / f"{number:08d}.event"


def reopened(run: Run) -> Run:
    return Run.open(run.store, run.run_id)


def test_events_come_back_in_order(store: ReliableStore) -> None:
    run = Run.create(store, new_manifest([], run_id="r"))
    assert run.events() == ()
    first = run.append("query_started", query="q1", attempt=1, worker={"host": "a", "free": None})
    second = run.append("query_done", query="q1", rows=10)
    assert reopened(run).events() == (first, second)
    assert first.data == {"attempt": 1, "worker": {"host": "a", "free": None}}
    assert store.list("runs/r/events") == [
        "runs/r/events/00000001.event",
        "runs/r/events/00000002.event",
    ]
    run.end("done", note="all well")
    assert [event.kind for event in reopened(run).events()] == [
        "query_started",
        "query_done",
        "end",
    ]


def test_a_second_writer_conflicts_and_stays_out(store: ReliableStore) -> None:
    old = Run.create(store, new_manifest([], run_id="r"))
    old.append("one")
    new = Run.open(store, "r")
    new.append("two")
    for _ in range(2):  # it was overtaken: it does not slip in later either
        with pytest.raises(StoreConflict, match=r"runs/r/events/00000002.event"):
            old.append("three")
    new.append("four")
    assert [event.kind for event in new.events()] == ["one", "two", "four"]


@pytest.mark.parametrize("number", range(20))
def test_nothing_comes_after_the_end(run: Run, number: int) -> None:
    """Whoever appends at the same moment comes before it, or not at all."""

    def tick() -> None:
        with suppress(StoreConflict):
            while True:
                run.append("tick")

    threads = [threading.Thread(target=tick) for _ in range(3)]
    for thread in threads:
        thread.start()
    run.end("done")
    for thread in threads:
        thread.join()
    events = reopened(run).events()
    assert [event.kind for event in events].index("end") == len(events) - 1


def test_threads_share_a_handle(run: Run) -> None:
    threads = [
        threading.Thread(target=lambda: [run.append("tick") for _ in range(5)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reopened(run).events()) == 20


def test_a_log_may_grow_while_it_is_read(run: Run) -> None:
    def append_many() -> None:
        for number in range(60):
            run.append("tick", number=number)
        run.end("done")

    seen = [0]
    writer = threading.Thread(target=append_many)
    writer.start()
    while writer.is_alive():
        events = reopened(run).events()
        assert [event.data.get("number") for event in events][:60] == [*range(len(events))][:60]
        assert len(events) >= seen[-1]
        seen.append(len(events))
    writer.join()
    assert len(reopened(run).events()) == 61


def lose_middle(run: Run) -> None:
    event_file(run, 2).unlink()


def lose_last(run: Run) -> None:
    event_file(run, 4).unlink()


def lose_two_last(run: Run) -> None:
    event_file(run, 4).unlink()
    event_file(run, 3).unlink()


def swap(run: Run) -> None:
    first, second = event_file(run, 1), event_file(run, 2)
    one, two = first.read_bytes(), second.read_bytes()
    first.write_bytes(two)
    second.write_bytes(one)


@pytest.mark.parametrize(
    ("damage", "piece"),
    [(lose_middle, 2), (lose_last, 4), (lose_two_last, 3), (swap, 1)],
)
def test_what_happens_to_an_ended_log_is_found(
    run: Run, damage: Callable[[Run], None], piece: int
) -> None:
    for kind in ("one", "two", "three"):
        run.append(kind)
    run.end("done")
    damage(run)
    with pytest.raises(StoreCorrupt, match=f"runs/r/events/{piece:08d}.event"):
        reopened(run).events()


def test_an_event_rewritten_with_a_valid_seal_breaks_the_chain(run: Run) -> None:
    for kind in ("one", "two", "three"):
        run.append(kind)
    path = "runs/r/events/00000002.event"
    record = run.store.read(path).replace(b'"two"', b'"TWO"')
    run.store.write(path, record)
    with pytest.raises(StoreCorrupt, match=r"00000003.event does not continue"):
        run.events()


def test_a_log_without_its_head_is_damaged(run: Run) -> None:
    run.append("one")
    run.store.delete_tree("runs/r/head")
    with pytest.raises(PieceMissing, match="runs/r/head"):
        run.events()
    with pytest.raises(PieceMissing, match="runs/r/head"):
        reopened(run)


def test_a_write_that_failed_may_have_arrived(run: Run) -> None:
    run.append("one")
    with disk_faults(DiskFault("fsync", 2, errno.EIO)), pytest.raises(StoreUnavailable):
        run.append("arrived")
    run.append("next")
    with disk_faults(DiskFault("fsync", 1, errno.EIO)), pytest.raises(StoreUnavailable):
        run.append("lost")
    run.append("last")
    assert [event.kind for event in reopened(run).events()] == ["one", "arrived", "next", "last"]


def test_another_took_the_number_of_a_failed_write(run: Run) -> None:
    with disk_faults(DiskFault("fsync", 1, errno.EIO)), pytest.raises(StoreUnavailable):
        run.append("lost")
    reopened(run).append("theirs")
    with pytest.raises(StoreConflict):
        run.append("mine")


def test_nothing_is_added_after_the_end(run: Run) -> None:
    run.end("done")
    for handle in (run, reopened(run)):
        for use in (
            lambda h=handle: h.append("late"),
            lambda h=handle: h.end("failed"),
            lambda h=handle: h.write_piece("late", b""),
            lambda h=handle: h.piece_writer("late"),
        ):
            with pytest.raises(StoreConflict, match="has ended"):
                use()
    with pytest.raises(WrongUsage):
        Run.create(run.store, new_manifest([], run_id="s")).append("end")


def test_killed_between_the_last_event_and_the_head(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)

    def end_and_die() -> None:
        run = Run.create(store, new_manifest([], run_id="r"))
        with disk_faults(DiskFault("replace", 1, error=None)):  # the head is the only replacement
            run.end("done")

    assert run_in_child(end_and_die) == -9
    assert Run.open(store, "r").summary().status == "done"


def test_a_log_stands_alone(tmp_path: Path) -> None:
    from headway.storage import this_process

    log = EventLog(open_store(str(tmp_path)), "somewhere")
    log.create("2026-01-01T00:00:00+00:00", this_process())
    assert log.append(Event(at="2026-01-01T00:00:01+00:00", kind="one")) == 1
    assert len(log.read()) == 1
