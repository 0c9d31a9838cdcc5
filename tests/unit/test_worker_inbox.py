"""Slices that wait: in memory up to the limit, in the scratch folder beyond it."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

from headway.base.errors import InternalError
from headway.lineage.names import ChannelId, TaskId
from headway.pipelined.worker import inbox as inbox_module
from headway.pipelined.worker.inbox import Inbox

READER = ChannelId(1, 0)


def outputs(count: int) -> list[TaskId]:
    return [TaskId(0, 0, number) for number in range(count)]


def rows(number: int, count: int = 1_000) -> pa.Table:
    return pa.table({"n": pa.array([number] * count, pa.int64())})  # 8,000 bytes


def no_failure(reason: str) -> None:
    raise AssertionError(reason)


def settled(inbox: Inbox, bytes_in_memory: int) -> bool:
    deadline = time.monotonic() + 5.0
    while inbox.bytes_in_memory != bytes_in_memory and time.monotonic() < deadline:
        time.sleep(0.01)
    return inbox.bytes_in_memory == bytes_in_memory


def test_within_the_limit_nothing_is_copied(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 1 << 20, no_failure)
    table = rows(1)
    inbox.put(READER, 0, outputs(1)[0], table)
    assert inbox.get(READER, 0, outputs(1)[0]) is table
    assert inbox.bytes_in_memory == 8_000
    inbox.discard(READER, 0, outputs(1))
    assert inbox.bytes_in_memory == 0
    assert not (tmp_path / "inbox").exists()
    inbox.close()


def test_beyond_the_limit_slices_go_to_disk_and_come_back(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 20_000, no_failure)
    for output in outputs(10):
        inbox.put(READER, 0, output, rows(output.sequence))
    assert settled(inbox, 16_000)
    assert inbox.spilled_bytes == 64_000
    for output in outputs(10):
        assert inbox.get(READER, 0, output).equals(rows(output.sequence))
    inbox.discard(READER, 0, outputs(9))
    assert len(list((tmp_path / "inbox").iterdir())) == 1
    inbox.discard(READER, 0, outputs(10))
    assert inbox.bytes_in_memory == 0
    assert not list((tmp_path / "inbox").iterdir())
    inbox.close()
    assert not (tmp_path / "inbox").exists()


def test_a_later_version_replaces_an_earlier_one(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 0, no_failure)
    (output,) = outputs(1)
    inbox.put(READER, 0, output, rows(1))
    assert settled(inbox, 0)
    inbox.put(READER, 0, output, rows(2))
    assert settled(inbox, 0)
    assert inbox.get(READER, 0, output).equals(rows(2))
    assert len(list((tmp_path / "inbox").iterdir())) == 1
    inbox.close()


def test_slices_of_other_readers_and_sides_stay(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", 1 << 20, no_failure)
    other = ChannelId(1, 1)
    (output,) = outputs(1)
    inbox.put(READER, 0, output, rows(1))
    inbox.put(other, 0, output, rows(2))
    inbox.put(READER, 1, output, rows(3))
    inbox.discard(READER, 0, outputs(10))
    assert inbox.get(other, 0, output).equals(rows(2))
    assert inbox.get(READER, 1, output).equals(rows(3))
    with pytest.raises(InternalError, match=r"side 0 of channel 1\.0 has no slice of 0\.0\.0"):
        inbox.get(READER, 0, output)
    inbox.close()


def test_senders_wait_while_the_disk_is_behind(tmp_path: Path) -> None:
    slow = threading.Event()
    real = inbox_module.write_file

    def write(path: Path, data: object) -> None:
        slow.wait(10.0)
        real(path, data)

    inbox = Inbox(tmp_path / "inbox", 20_000, no_failure)
    signs: list[None] = []
    with patch.object(inbox_module, "write_file", write):
        for output in outputs(3):  # two in memory, one on its way to the disk
            with inbox.room(8_000, no_sign):
                inbox.put(READER, 0, output, rows(1))
        assert not inbox.has_room()

        def send() -> None:
            with inbox.room(8_000, lambda: signs.append(None)):
                inbox.put(READER, 0, outputs(5)[4], rows(4))

        sender = threading.Thread(target=send)
        with patch.object(inbox_module, "_LOOK_SECONDS", 0.05):
            sender.start()
            time.sleep(0.3)
        assert sender.is_alive() and signs
        slow.set()
        sender.join(5.0)
    assert not sender.is_alive()
    assert inbox.get(READER, 0, outputs(5)[4]).equals(rows(4))
    inbox.close()


def no_sign() -> None:
    raise AssertionError("there was room")


def test_consumption_makes_room(tmp_path: Path) -> None:
    stuck = threading.Event()
    inbox = Inbox(tmp_path / "inbox", 20_000, no_failure)
    with patch.object(inbox_module, "write_file", lambda *_: stuck.wait(10.0)):
        for output in outputs(6):
            inbox.put(READER, 0, output, rows(1))
        assert not inbox.has_room()
        inbox.discard(READER, 0, outputs(6))
        assert inbox.has_room()
        stuck.set()
        inbox.close()


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    (tmp_path / "inbox").write_text("not a folder")
    told: list[str] = []
    inbox = Inbox(tmp_path / "inbox", 0, told.append)
    inbox.put(READER, 0, outputs(1)[0], rows(1))
    deadline = time.monotonic() + 5.0
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    assert told and "cannot be spilled" in told[0]
    assert inbox.get(READER, 0, outputs(1)[0]).equals(rows(1))
    inbox.close()
