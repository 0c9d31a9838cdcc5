"""Spark's own standalone master and workers, from the installed package, for tests."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_STARTED = re.compile(r"(spark://[\w.:-]+)")
_REGISTERED = re.compile(r"Successfully registered with master")
_PATIENCE = 60.0


@contextmanager
def standalone_cluster(folder: Path, *, workers: int = 1, cores: int = 1) -> Iterator[str]:
    """A master on the loopback with that many of Spark's workers; yields its address, and stops
    all of them at the end. Everything they write goes below `folder`."""
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "SPARK_CONF_DIR": str(folder),  # the machine's own settings stay out
        "SPARK_NO_DAEMONIZE": "1",
    }
    for name in ("work", "local"):
        (folder / name).mkdir(parents=True)
    ports = ["--host", "127.0.0.1", "--webui-port", "0"]
    with ExitStack() as running:
        log = folder / "master.log"
        running.enter_context(_running([_MASTER, *ports, "--port", "0"], log, environment))
        address = _await_line(log, _STARTED)
        for number in range(workers):
            log = folder / f"worker-{number}.log"
            size = ["--cores", str(cores), "--memory", f"{cores}g"]
            running.enter_context(_running([_WORKER, *ports, *size, address], log, environment))
        for number in range(workers):
            _await_line(folder / f"worker-{number}.log", _REGISTERED)
        yield address


@contextmanager
def _running(
    arguments: list[str], log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    package = find_spec("pyspark")
    assert package is not None and package.origin is not None
    script = Path(package.origin).parent / "bin" / "spark-class"  # becomes the JVM by exec
    with log.open("wb") as sink:
        process = subprocess.Popen(
            [str(script), *arguments], stdout=sink, stderr=sink, env=environment
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_line(log: Path, pattern: re.Pattern[str]) -> str:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found = pattern.search(log.read_text(encoding="utf-8", errors="replace"))
        if found is not None:
            return found[0]
        time.sleep(0.05)
    raise TimeoutError(f"Spark said nothing like {pattern.pattern} in {log}")
