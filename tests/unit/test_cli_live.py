"""Following a run: cancelled by an interrupt, given up in the end, and told line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.base.errors import StoreConflict
from headway.cli import live
from headway.cli.batch import _end_unstoppable
from headway.cli.interrupts import interrupts
from headway.cli.output import stderr
from headway.session import QueryProgress, QueryStatus
from headway.storage import QueryRecord, Run, list_runs, new_manifest, open_store


class Handle:
    """A run that ends when it was cancelled often enough."""

    paused = False

    def __init__(self, cancels_needed: int) -> None:
        self.cancels = 0
        self.needed = cancels_needed

    def wait(self, timeout: float | None = None) -> bool:
        return self.cancels >= self.needed

    def cancel(self) -> None:
        self.cancels += 1

    def preempted(self) -> None:
        self.cancel()

    def progress(self) -> tuple[QueryProgress, ...]:
        return (QueryProgress("q1", "spark", QueryStatus.INTERRUPTED, seconds=2.0),)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "requested", True)


def follow(handle: Any, display: live.Display | None = None) -> None:
    live.follow(handle, display or live.Nothing(), 0.01, grace=0.0)


def test_an_interrupt_cancels_once(interrupted: None) -> None:
    handle = Handle(cancels_needed=1)
    follow(handle)
    assert handle.cancels == 1


def test_a_run_that_cannot_be_stopped_is_left(
    interrupted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "_PATIENCE", 0.05)
    follow(Handle(cancels_needed=10**9))


def test_a_run_left_so_says_that_it_was_interrupted(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    run = Run.create(store, new_manifest([QueryRecord("q1", "SELECT 1")]))
    run.append("query_started", "q1", engine="spark")
    _end_unstoppable(store, run.run_id, goes_on=False)
    assert [(each.status, each.resumable) for each in list_runs(store)] == [("interrupted", False)]
    with pytest.raises(StoreConflict):
        run.append("query_done", "q1", rows=1)
    _end_unstoppable(store, run.run_id, goes_on=False)
    assert [each.status for each in list_runs(store)] == ["interrupted"]


def test_a_batch_left_so_can_be_gone_on_with(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    run = Run.create(store, new_manifest([QueryRecord("q1", "SELECT 1")]))
    run.append("query_started", "q1", engine="spark")
    _end_unstoppable(store, run.run_id, goes_on=True)
    assert [(each.status, each.resumable) for each in list_runs(store)] == [("interrupted", True)]
    with pytest.raises(StoreConflict):
        run.append("query_done", "q1", rows=1)


def test_lines_tell_every_query_once(capsys: pytest.CaptureFixture[str]) -> None:
    display = live.Lines(stderr())
    display.update(Handle(0).progress())
    display.update(Handle(0).progress())
    assert capsys.readouterr().err == "[1/1] q1: interrupted after 2.00 s\n"
