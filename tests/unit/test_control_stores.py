"""Control stores: what was acknowledged is there, whatever was killed meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headway.base.errors import (
    ControlStoreNotDurable,
    ControlStoreUnavailable,
    FormatNotReadable,
    InvalidIdentifier,
    StoreCorrupt,
    WrongUsage,
)
from headway.lineage.names import ChannelId
from headway.lineage.records import (
    Change,
    ChannelRow,
    Lineage,
    LineageRow,
    Tables,
    TaskRow,
    WorkerRow,
)
from headway.pipelined.control.redis import RedisStore
from headway.pipelined.control.rows import empty_tables
from headway.pipelined.control.sqlite import SqliteStore
from headway.pipelined.control.store import ControlStore, ForgetfulStore, open_control_store
from headway.testing.faults import start_child
from headway.testing.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
CHANNEL = ChannelId(1, 3)


@pytest.fixture
def redis_server(redis_program: str, tmp_path: Path) -> Iterator[RedisServer]:
    folder = tmp_path / "redis"
    folder.mkdir()
    server = RedisServer(redis_program, folder)
    server.start()
    yield server
    server.kill()


Open = Callable[..., ControlStore]


@pytest.fixture(params=["sqlite", "redis"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "sqlite":
        url = f"sqlite:{tmp_path / 'control'}"
    else:
        url = request.getfixturevalue("redis_server").url
    return lambda query="q1": open_control_store(url, "r1", query)


def commit(sequence: int) -> list[Change]:
    """What a coordinator writes when a task is done."""
    task = CHANNEL.task(sequence)
    row = LineageRow(Lineage(0, 2, sequence, 1), 1, ((10, 0),), 7, False, None, "w1")
    return [
        Change("lineage", task, row),
        Change("tasks", task, None),
        Change("tasks", CHANNEL.task(sequence + 1), TaskRow(Lineage(0, 2, sequence + 1, 1), 1)),
    ]


def after(commits: int) -> Tables:
    tables = empty_tables()
    for sequence in range(commits):
        tables.apply(commit(sequence))
    return tables


def test_what_is_written_is_loaded(open_store: Open) -> None:
    store = open_store()
    assert store.load() == empty_tables()
    changes = [
        Change("workers", "w1", WorkerRow("grpc://127.0.0.1:5000")),
        Change("workers", "w2", WorkerRow("grpc://127.0.0.1:5001", alive=False)),
        Change("channels", CHANNEL, ChannelRow("w1", 2)),
        Change("channels", ChannelId(0, 0), ChannelRow("w1", 0, ended=12)),
    ]
    store.write(changes)
    store.write(commit(0))
    store.write([Change("workers", "w2", None), Change("workers", "unknown", None)])
    expected = empty_tables()
    for each in (changes, commit(0), [Change("workers", "w2", None)]):
        expected.apply(each)
    assert store.load() == expected
    store.close()
    again = open_store()
    assert again.load() == expected
    again.write(commit(1))
    assert len(again.load().lineage) == 2
    again.close()


def test_a_transaction_written_twice_counts_once(open_store: Open) -> None:
    store = open_store()
    store.write(commit(0))
    store.write(commit(0))
    assert store.load() == after(1)
    store.close()


def test_queries_do_not_see_each_other(open_store: Open) -> None:
    store = open_store()
    store.write(commit(0))
    other = open_store("q2")
    assert other.load() == empty_tables()
    other.write(commit(5))
    other.delete()
    assert store.load() == after(1)
    store.close()


def test_nothing_of_a_deleted_query_stays(open_store: Open) -> None:
    store = open_store()
    store.write(commit(0))
    store.delete()
    again = open_store()
    assert again.load() == empty_tables()
    again.close()


def test_the_forgetful_store_keeps_nothing() -> None:
    store = open_control_store("none", "r1", "q1")
    assert isinstance(store, ForgetfulStore)
    store.write(commit(0))
    assert store.load() == empty_tables()
    store.delete()
    store.close()


@pytest.mark.parametrize("url", ["", "sqlite:", "postgres://x", "redis://host:port"])
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(WrongUsage):
        open_control_store(url, "r1", "q1")


def test_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidIdentifier):
        open_control_store(f"sqlite:{tmp_path}", "../r1", "q1")


# SQLite.


def test_sqlite_keeps_what_it_acknowledged_when_its_process_is_killed(tmp_path: Path) -> None:
    for attempt in range(5):
        run = f"r{attempt}"
        acknowledged = _write_until_killed(tmp_path, run, seconds=0.1 + 0.05 * attempt)
        assert acknowledged > 0
        store = SqliteStore(str(tmp_path), run, "q")
        tables = store.load()
        # The last one may be durable without its acknowledgement having been read.
        assert tables in (after(acknowledged), after(acknowledged + 1))
        store.close()


def _write_until_killed(folder: Path, run: str, seconds: float) -> int:
    """How many transactions were acknowledged."""
    read, tell = os.pipe()

    def child() -> None:
        store = SqliteStore(str(folder), run, "q")
        sequence = 0
        while True:
            store.write(commit(sequence))
            os.write(tell, b".")
            sequence += 1

    pid = start_child(child)
    os.close(tell)
    heard = len(os.read(read, 1))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while part := os.read(read, 1 << 16):
        heard += len(part)
    os.close(read)
    return heard


def test_sqlite_is_used_by_one_driver_at_a_time(tmp_path: Path) -> None:
    first = SqliteStore(str(tmp_path), "r", "q")
    first.write(commit(0))
    with pytest.raises(ControlStoreUnavailable, match="locked"):
        SqliteStore(str(tmp_path), "r", "q")
    first.close()


def test_sqlite_says_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "r.q.sqlite"
    file.write_bytes(b"not a database" * 1000)
    with pytest.raises(ControlStoreUnavailable, match="not a database"):
        SqliteStore(str(tmp_path), "r", "q")
    file.unlink()
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(FormatNotReadable, match="version 99"):
        SqliteStore(str(tmp_path), "r", "q")
    with pytest.raises(ControlStoreUnavailable):
        SqliteStore(str(file), "r", "q")  # its folder is a file


def test_a_damaged_row_is_found(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path), "r", "q")
    store.write(commit(0))
    store._connection.execute("UPDATE lineage SET row = x'c1'")
    with pytest.raises(StoreCorrupt, match="lineage"):
        store.load()
    store.close()


# Redis.


def test_redis_keeps_what_it_acknowledged_when_it_is_killed(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url, "r", "q", patience=20.0)
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            store.write(commit(written))
            written += 1

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(4):
        time.sleep(0.3)
        redis_server.kill()
        acknowledged = written
        time.sleep(0.1)
        redis_server.start()
        assert _lineage_rows(redis_server.url) >= acknowledged
    stop.set()
    writer.join(20.0)
    assert written > 20
    assert store.load() == after(written)
    store.close()


def _lineage_rows(url: str) -> int:
    """Read by somebody else, whom a transaction of the writer may come in between."""
    while True:
        with suppress(ControlStoreNotDurable):
            return len(RedisStore(url, "r", "q").load().lineage)


def test_redis_that_is_not_durable_is_refused(redis_program: str, tmp_path: Path) -> None:
    server = RedisServer(redis_program, tmp_path)
    for settings in ({"appendfsync": "everysec"}, {"appendonly": "no"}):
        server.start(**settings)
        with pytest.raises(ControlStoreNotDurable, match=r"has append(fsync|only) .") as caught:
            RedisStore(server.url, "r", "q")
        assert caught.value.hint is not None and "--appendfsync always" in caught.value.hint
        server.kill()


def test_redis_that_comes_back_without_its_rows_is_found_out(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    store = RedisStore(redis_server.url, "r", "q", patience=10.0)
    for sequence in range(3):
        store.write(commit(sequence))
    redis_server.kill()
    for file in sorted((tmp_path / "redis").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    redis_server.start()
    with pytest.raises(ControlStoreNotDurable, match="0 transactions where it had acknowledged 3"):
        store.write(commit(3))
    store.close()


def test_redis_that_stays_away_is_given_up(redis_server: RedisServer) -> None:
    store = RedisStore(redis_server.url, "r", "q", patience=0.5)
    redis_server.kill()
    begun = time.monotonic()
    with pytest.raises(ControlStoreUnavailable):
        store.write(commit(0))
    assert time.monotonic() - begun > 0.4
    with pytest.raises(ControlStoreUnavailable, match=r"127\.0\.0\.1"):
        RedisStore(f"redis://:secret@127.0.0.1:{redis_server.port}/0", "r", "q", patience=0.1)


def test_where_redis_cannot_be_installed_that_is_said(tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "env"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    found = subprocess.run(
        [ROOT / "scripts" / "ensure-redis.sh"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert found.returncode == 1
    assert found.stdout == ""
    assert "redis-server is missing" in found.stderr and "apt-get install" in found.stderr
    (tmp_path / "redis-server").symlink_to(str(shutil.which("bash")))
    found = subprocess.run(
        [ROOT / "scripts" / "ensure-redis.sh"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert found.stdout.strip() == str(tmp_path / "redis-server")
