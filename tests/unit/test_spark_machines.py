"""Processes as the host of workers names and ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from headway.spark.machines import (
    Leftover,
    clear_away,
    free_memory,
    hosting_jvm,
    process_record,
    runs_here,
)
from headway.storage.processes import is_gone, this_process


@dataclass(frozen=True)
class Sleeper:
    process: subprocess.Popen[bytes]
    leftover: Leftover


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Sleeper]:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "file").write_text("something")
    with subprocess.Popen(["sleep", "60"]) as process:
        yield Sleeper(process, Leftover(process_record(process.pid), str(folder)))
        process.kill()


def test_a_process_that_stays_is_ended_and_its_folder_removed(sleeper: Sleeper) -> None:
    assert runs_here(sleeper.leftover.process) and not is_gone(sleeper.leftover.process)
    clear_away(sleeper.leftover, patience=0.1)
    assert sleeper.process.wait() == -signal.SIGKILL
    assert not Path(sleeper.leftover.folder).exists()


def test_a_paused_process_is_ended(sleeper: Sleeper) -> None:
    os.kill(sleeper.process.pid, signal.SIGSTOP)
    clear_away(sleeper.leftover, patience=0.0)
    assert sleeper.process.wait() == -signal.SIGKILL


def test_one_that_has_ended_is_not_waited_for(sleeper: Sleeper) -> None:
    sleeper.process.kill()
    began = time.monotonic()
    clear_away(sleeper.leftover, patience=30.0)
    assert time.monotonic() - began < 5 and not Path(sleeper.leftover.folder).exists()


def test_a_later_process_with_the_same_number_is_left_alone(sleeper: Sleeper) -> None:
    record = sleeper.leftover.process
    place = (record.started or "").rpartition(":")[0]
    earlier = msgspec.structs.replace(record, started=f"{place}:1")
    clear_away(Leftover(earlier, sleeper.leftover.folder), patience=0.0)
    assert sleeper.process.poll() is None


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"started": "boot:1:2"}])
def test_another_machine_is_not_ours_to_clear(sleeper: Sleeper, change: dict[str, str]) -> None:
    record = msgspec.structs.replace(sleeper.leftover.process, **change)
    assert not runs_here(record)
    clear_away(Leftover(record, sleeper.leftover.folder), patience=0.0)
    assert sleeper.process.poll() is None and Path(sleeper.leftover.folder).exists()


def test_a_process_names_itself_as_others_do() -> None:
    assert process_record(os.getpid()) == this_process()
    assert process_record(2**22 + 1).started is None


def test_this_machine_has_memory_and_no_jvm_above_a_test() -> None:
    assert 0 < free_memory() < 1 << 50
    assert hosting_jvm() is None
