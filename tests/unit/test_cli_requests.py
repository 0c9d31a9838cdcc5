"""Commands that ask the drivers of runs, without a Spark: what drivers do is told here."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from headway.base.errors import StoreConflict, StoreFull
from headway.cli import main as cli
from headway.cli import requests
from headway.cli.requests import UNDER_WAY, RequestFailed, ask_until
from headway.cli.urgent import others_paused
from headway.session.requests import Request, Routines, answer, open_requests, take_requests
from headway.session.taking_up import taken_from_driver
from headway.storage import QueryRecord, Run, new_manifest, open_store, this_process
from headway.storage.processes import _started

Drive = Callable[[Callable[[Run, Request], None]], Run]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "store")


@pytest.fixture
def drive(store: str) -> Iterator[Drive]:
    """Runs of another process of this machine, which does as it is told to with requests."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    driver = msgspec.structs.replace(this_process(), pid=process.pid, started=_started(process.pid))
    beside = Routines()

    def start(obey: Callable[[Run, Request], None]) -> Run:
        manifest = new_manifest([QueryRecord("q", "SELECT 1")])
        run = Run.create(open_store(store), msgspec.structs.replace(manifest, driver=driver))
        beside.every(0.02, lambda: take_requests(run, lambda request: obey(run, request)))
        return run

    yield start
    beside.close()
    process.communicate(b"\n", timeout=30)


def fails(run: Run, request: Request) -> None:
    raise StoreFull("no room for its states")


def suspends(run: Run, request: Request) -> None:
    run.suspend()


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_machine_is_not_free_while_a_run_goes_on(
    store: str, drive: Drive, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """And nobody waits for its driver."""
    drive(suspends)
    going_on = drive(fails)
    assert cli.main(["vacate", "--store", store, *options]) == 1
    told = capsys.readouterr().out
    assert "no room for its states" in told
    if options:
        found = json.loads(told.splitlines()[-1])
        assert found["runs_left"] == [going_on.run_id]
        assert sorted(each["status"] for each in found["runs"]) == ["running", "suspended"]
    else:
        assert f"not free, as this could not be suspended: {going_on.run_id}" in told


def test_a_process_that_drives_nothing_is_no_free_machine(
    store: str, drive: Drive, capsys: pytest.CaptureFixture[str]
) -> None:
    run = drive(suspends)
    assert cli.main(["vacate", "--store", store, "--driver", "1"]) == 2
    told = capsys.readouterr()
    assert "process 1 drives no run" in told.err and str(run.driver().pid) in told.err
    assert run.summary().status == "running"


def test_whoever_stops_waiting_has_asked_for_nothing(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create(open_store(store), new_manifest([QueryRecord("q", "SELECT 1")]))

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask_until(run, Request("pause"), UNDER_WAY)
    assert not open_requests(run)


@pytest.mark.parametrize("patience", [0.0, None])
def test_nobody_waits_for_a_driver_that_does_not_answer(
    store: str, monkeypatch: pytest.MonkeyPatch, patience: float | None
) -> None:
    """Should it wake up later, it finds no request that has been given up."""
    monkeypatch.setattr(requests, "_TAKEN_SECONDS", 0.2)
    run = Run.create(open_store(store), new_manifest([QueryRecord("q", "SELECT 1")]))
    with pytest.raises(RequestFailed, match="does not answer"):
        ask_until(run, Request("pause"), UNDER_WAY, patience)
    assert not open_requests(run)


def test_a_driver_is_waited_for_that_has_come_to_it(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as to pipelines that take their time."""
    monkeypatch.setattr(requests, "_TAKEN_SECONDS", 0.2)

    def pauses(run: Run, request: Request) -> None:
        time.sleep(0.6)
        answer(run, request, {"status": "paused"})

    assert ask_until(drive(pauses), Request("pause"), UNDER_WAY) == "paused"


def test_a_run_is_taken_from_a_driver_that_goes_on(store: str) -> None:
    """What it has done meanwhile is seen; another one who takes the run over keeps it."""
    made = Run.create(open_store(store), new_manifest([QueryRecord("q", "SELECT 1")]))
    run = Run.open(made.store, made.run_id)
    trials: list[int] = []

    def taken() -> int:
        seen = len(run.events())
        trials.append(seen)
        if len(trials) < 3:
            Run.open(run.store, run.run_id).append("query_started", "q")
        run.take_over(seen)
        return seen

    assert taken_from_driver(run, taken) == 2 and trials == [0, 1, 2]

    def too_late() -> None:
        seen = len(run.events())
        Run.open(run.store, run.run_id).take_over(seen)
        Run.open(run.store, run.run_id).take_over(seen)

    with pytest.raises(StoreConflict, match="another process has taken over"):
        taken_from_driver(run, too_late)

    def too_slow() -> None:
        seen = len(run.events())
        Run.open(run.store, run.run_id).append("query_started", "q")
        run.take_over(seen)

    with pytest.raises(StoreConflict, match="always does more"):
        taken_from_driver(run, too_slow)


def test_urgent_queries_hold_what_others_have_paused(store: str, drive: Drive) -> None:
    asked: list[Request] = []

    def pauses(run: Run, request: Request) -> None:
        asked.append(request)
        answer(run, request, {"status": "paused"})

    run = drive(pauses)
    run.pause()
    with others_paused(store, quiet=True) as paused:
        assert paused == (run.run_id,)
        assert [(each.what, each.holder) for each in asked] == [("pause", this_process())]
