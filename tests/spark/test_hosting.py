"""Workers in executors: one on each, gone with it, replaced, and nothing left behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headway.base.errors import WorkerNotStarted, WrongUsage
from headway.spark.executors import driver_address, list_executors
from headway.spark.hosting import WorkerHost, WorkerPlan
from headway.spark.launching import Order
from headway.spark.rounds import Round
from headway.storage.processes import is_gone
from headway.testing.clusters import standalone_cluster
from headway.testing.idle_worker import IdleDriver

IDLE = "headway.testing.idle_worker"
SCENARIO = Path(__file__).with_name("hosting_scenario.py")


@pytest.fixture
def driver() -> Iterator[IdleDriver]:
    with closing(IdleDriver()) as made:
        yield made


@pytest.fixture
def make_host(spark: SparkSession, driver: IdleDriver) -> Iterator[Callable[..., WorkerHost]]:
    made: list[WorkerHost] = []

    def make(module: str = IDLE, **plan: Any) -> WorkerHost:
        made.append(WorkerHost(spark, WorkerPlan(driver.address, "secret", module, **plan)))
        return made[-1]

    yield make
    for host in made:
        host.stop(patience=0.0)


def all_slots(spark: SparkSession) -> list[int]:
    """A barrier stage begins only when every one of its tasks has a slot."""
    rows = spark.sparkContext.parallelize(range(2), 2).barrier()
    return rows.mapPartitions(lambda part: [sum(1 for _ in part)]).collect()


def wait_until(condition: Callable[[], bool], patience: float = 30.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_local_mode_has_one_worker_with_all_cores(
    spark: SparkSession, driver: IdleDriver, make_host: Callable[..., WorkerHost]
) -> None:
    host = make_host(options={"heartbeat_seconds": 0.5})
    (worker,) = host.start()
    report = driver.reports[worker.id]
    assert (worker.executor.id, worker.cores, worker.process.pid) == ("driver", 2, report["pid"])
    assert (report["cores"], report["token"], report["heartbeat_seconds"]) == (2, "secret", 0.5)
    assert report["memory"] == worker.memory and 256 << 20 <= worker.memory < 1 << 40
    assert report["group"] == report["pid"]  # apart from Spark's Python processes
    assert report["watch"] == [spark.sparkContext._gateway.proc.pid]
    assert not [name for name in report["environment"] if "SECRET" in name]
    assert all_slots(spark) == [1, 1]
    assert host.start() == (worker,)  # there it is already

    driver.close()
    host.stop()
    assert is_gone(worker.process) and not Path(worker.scratch).exists()


def test_a_worker_that_does_not_leave_is_ended(make_host: Callable[..., WorkerHost]) -> None:
    host = make_host(cores=1, memory=300 << 20)
    (worker,) = host.start()
    assert (worker.cores, worker.memory) == (1, 300 << 20)
    assert Path(worker.scratch).stat().st_mode & 0o777 == 0o700
    host.stop(patience=0.1)
    assert is_gone(worker.process) and not Path(worker.scratch).exists()
    assert host.workers == ()


def test_a_worker_that_fails_says_why(
    make_host: Callable[..., WorkerHost], spark: SparkSession
) -> None:
    host = make_host("headway.no_such_worker")
    with pytest.raises(WorkerNotStarted, match="No module named headway") as raised:
        host.start()
    assert raised.value.name == "WORKER_NOT_STARTED" and "exit code 1" in raised.value.message
    assert "exit code 1" in host.problems["driver"]
    assert all_slots(spark) == [1, 1]


def test_a_worker_that_is_never_ready_is_given_up(make_host: Callable[..., WorkerHost]) -> None:
    began = time.monotonic()
    with pytest.raises(WorkerNotStarted, match="not ready within 1 s"):
        make_host(
            "headway.testing.idle_worker", start_seconds=1.0, options={"silent": True}
        ).start()
    assert time.monotonic() - began < 30


def test_an_interpreter_without_headway_is_named(
    spark: SparkSession,
    make_host: Callable[..., WorkerHost],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    bare = tmp_path / "bare-python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # none of our packages
    bare.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(bare))
    with pytest.raises(WorkerNotStarted, match="No module named 'headway'") as raised:
        make_host().start()
    assert "PYSPARK_PYTHON" in (raised.value.hint or "")


def test_busy_executors_are_not_waited_for_without_end(spark: SparkSession, tmp_path: Path) -> None:
    """A round that finds no slot in time takes its job back."""
    began_in = str(tmp_path)

    def hold_a_slot(number: int) -> None:
        Path(began_in, str(number)).touch()  # Spark's own count of running tasks comes late
        time.sleep(5)

    busy = threading.Thread(
        target=lambda: spark.sparkContext.parallelize(range(2), 2).foreach(hold_a_slot)
    )
    busy.start()
    wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
    began = time.monotonic()
    outcomes = Round(spark, {list_executors(spark)[0]: Order()}).run(0.5)
    assert outcomes["driver"].problem == "no task reached it in time"
    assert time.monotonic() - began < 4
    busy.join()
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())
    assert all_slots(spark) == [1, 1]


def test_no_number_of_workers(make_host: Callable[..., WorkerHost]) -> None:
    with pytest.raises(WrongUsage):
        make_host().start(0)


def test_a_stranger_learns_nothing_from_a_round(spark: SparkSession) -> None:
    """Whoever finds the port without the token is sent away."""
    round = Round(spark, {list_executors(spark)[0]: Order()})
    answers: list[bytes] = []

    def intrude(address: tuple[str, int]) -> None:
        with socket.create_connection(address) as connection:
            text = json.dumps({"token": "guess:x", "stage": 0, "task": 0}).encode()
            connection.sendall(len(text).to_bytes(4, "big") + text)
            answers.append(connection.recv(100))

    send_jobs = round._send_jobs

    def first_a_stranger(address: tuple[str, int]) -> None:
        if not answers:
            intrude(address)
        send_jobs(address)

    round._send_jobs = first_a_stranger  # type: ignore[method-assign]
    outcomes = round.run(30.0)
    assert answers == [b""] and outcomes["driver"].problem is None


def test_the_driver_is_on_the_loopback_in_local_mode(spark: SparkSession) -> None:
    assert driver_address(spark).bind == driver_address(spark).host == "127.0.0.1"


def run_scenario(master: str, folder: Path) -> dict[str, Any]:
    environment = {
        **os.environ,
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_WORKER_DIR": str(folder / "work"),
    }
    with (folder / "scenario.log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, str(SCENARIO), master],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            timeout=300,
        )
    assert done.returncode == 0, (folder / "scenario.log").read_text(errors="replace")[-4000:]
    told: dict[str, Any] = json.loads(done.stdout.decode().splitlines()[-1])
    print(json.dumps(told))
    return told


def check_scenario(told: dict[str, Any]) -> None:
    assert told["executors"] == ["0", "1"] and told["workers"] == ["w1", "w2"]
    assert told["jvms"] == 2 and told["bind_hosts"] == ["127.0.0.1"]
    assert told["slots_free"] and told["slots_free_again"]
    assert told["replacement_executor_is_new"] and told["same_executor"]
    assert told["paused_is_ended"]
    assert told["misplaced"] == [2, None] and told["left_after_spark"] == []
    assert told["left_processes"] == [] and told["left_by_living_executors"] == []


def left_folders(folder: Path) -> list[Path]:
    return list(folder.rglob("headway-worker-*"))


@pytest.mark.nightly
def test_local_cluster(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    check_scenario(run_scenario("local-cluster[2,1,1024]", tmp_path))
    assert left_folders(tmp_path) == []


@pytest.mark.nightly
def test_standalone_master(tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster", workers=2, cores=1) as address:
        check_scenario(run_scenario(address, tmp_path))
        # Spark's workers remove the application's folders in their own time.
        wait_until(lambda: left_folders(tmp_path) == [])
