"""On Spark for real: the JVM of an executor is killed, and its worker goes with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import headway
from headway.testing.dataflows import rows_of

SCENARIO = Path(__file__).with_name("executor_scenario.py")
BATCHES = Path(__file__).with_name("batch_scenario.py")
LEAVING = Path(__file__).with_name("leaving_scenario.py")


@pytest.mark.spark
@pytest.mark.nightly
def test_executors_are_killed_in_the_middle(many_groups: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "TMPDIR": str(tmp_path / "temporary"),
    }
    for name in ("local", "temporary"):
        (tmp_path / name).mkdir()
    with (tmp_path / "scenario.log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, str(SCENARIO), str(many_groups), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            timeout=400,
        )
    assert done.returncode == 0, (tmp_path / "scenario.log").read_text(errors="replace")[-4000:]
    told = json.loads(done.stdout.decode().splitlines()[-1])
    print(json.dumps(told))
    for query in told:
        assert query["killed_in_the_middle"] and query["workers_lost"] == 1 and query["redone"]
        assert query["rows"] > 0 and query["rows_equal"]
        assert query["rows_equal_with_the_replacement"] and query["executor_is_new"] == 1
        assert query["left_processes"] == []
    left = [*tmp_path.rglob("headway-worker-*"), *tmp_path.rglob("headway-control-*")]
    left += tmp_path.glob("store/**/spool/**/*")
    assert left == []


@pytest.mark.spark
@pytest.mark.nightly
def test_executors_are_killed_in_the_middle_of_batches(
    workload_data: Callable[[str], Path], tmp_path: Path
) -> None:
    seed = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))
    print(f"HEADWAY_TEST_SEED={seed}")
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(tmp_path / "temporary")}
    tables = [str(workload_data(name)) for name in ("tpcds", "tpch")]
    command = [sys.executable, str(BATCHES), *tables, str(tmp_path / "store")]
    with (tmp_path / "scenario.log").open("wb") as log:
        done = subprocess.run(
            [*command, str(seed)],
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            timeout=3600,
        )
    assert done.returncode == 0, (tmp_path / "scenario.log").read_text(errors="replace")[-4000:]
    told = json.loads(done.stdout.decode().splitlines()[-1])
    print("\n".join(map(json.dumps, told)))
    for batch in told:
        assert batch["killed_in_the_middle"] and batch["executor_is_gone"] and batch["shared"]
        assert batch["executors_lost"] == 1  # the batch itself has noticed it
        assert batch["different"] == []
    # Where others still needed what the lost worker had done, it was done again.
    assert any(batch["tasks_done_again"] > 0 for batch in told)
    assert sum(batch["struck"] for batch in told) >= len(told) / 2


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["broadcast", "shuffled"])
def test_executors_that_are_taken_away_suspend_a_run(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Another application goes on with it."""
    store = str(tmp_path / "store")
    command = [sys.executable, str(LEAVING), store, kind]
    with (tmp_path / "scenario.log").open("wb") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, timeout=300)
    assert done.returncode == 0, (tmp_path / "scenario.log").read_text(errors="replace")[-4000:]
    told = json.loads(done.stdout.decode().splitlines()[-1])
    assert told["running"] and told["status"] == "suspended", told
    assert told["states"], "it is kept, though no executor begins a task"
    assert told["seconds"] < 15, "and nobody waits for those that will not"
    with headway.session(spark.newSession(), store_url=store, engine_name="spark") as session:
        handle = session.resume(told["run"])
        handle.wait()
        assert len(rows_of(handle.arrow())) == 10
