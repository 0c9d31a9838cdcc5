"""What a Spark task does to give its executor a worker: the executor's side of a round.

The task reports to the driver where it landed and is told what to do there: to start a worker
process, to clear an old one away, or nothing. Then it holds its slot until the driver ends the
round, so that the other tasks of the round land on other executors.
"""

from __future__ import annotations

import os
import secrets
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
from pyspark import TaskContext

from headway.base.errors import HeadwayError, InternalError
from headway.pipelined.wire import connect
from headway.spark.machines import (
    LEAST_MEMORY,
    Leftover,
    clear_away,
    free_memory,
    hosting_jvm,
    process_record,
)
from headway.storage.processes import ProcessRecord

READY = "ready"
"""The first line that a worker writes on its standard output, when it can be given work."""
ACCEPTED = b"accepted"
"""The driver's word that it has noted an outcome."""
SCRATCH_PREFIX = "headway-worker-"

_CONNECT_SECONDS = 10.0
_LEAVING_SECONDS = 0.5
_TAIL = 4_000
_NOT_INHERITED = ("PYTHON_WORKER_FACTORY_", "_PYSPARK_", "SPARK_AUTH_")
"""Secrets and channels between Spark's JVM and its own Python processes."""


class Landed(msgspec.Struct, frozen=True):
    """A task of the round, and where to look up the executor that it runs on."""

    token: str
    stage: int
    task: int


class Launch(msgspec.Struct, frozen=True):
    """A worker to start: `config` is its configuration but for what only the machine knows."""

    module: str
    config: dict[str, Any]
    memory: int
    memory_share: float
    """The most that it may take of what is free on its machine; 0 for no such limit."""
    seconds: float


class Order(msgspec.Struct, frozen=True):
    """What to do on an executor: first clear away, then launch."""

    clear: tuple[Leftover, ...] = ()
    launch: Launch | None = None


class Outcome(msgspec.Struct, frozen=True):
    """What became of an order; `problem` says why there is no worker."""

    process: ProcessRecord | None = None
    scratch: str = ""
    memory: int = 0
    problem: str | None = None


def take_part(host: str, port: int, token: str, _rows: Iterable[str]) -> Iterator[str]:
    """The task: serves one round of the driver at that address. Yields what went wrong, if the
    driver could not be told."""
    try:
        link = connect(host, port, timeout=_CONNECT_SECONDS)
    except HeadwayError as error:
        yield error.message
        return
    context = TaskContext.get()
    if context is None:
        raise InternalError("a worker is launched outside a Spark task")
    try:
        link.send(msgspec.json.encode(Landed(token, context.stageId(), context.taskAttemptId())))
        order = link.receive()
        if order is not None:
            outcome = carry_out(msgspec.json.decode(order, type=Order))
            link.send(msgspec.json.encode(outcome))
            if link.receive() == ACCEPTED:
                link.receive()  # returns when the driver ends the round
            elif outcome.process is not None:
                clear_away(Leftover(outcome.process, outcome.scratch), _LEAVING_SECONDS)
    finally:
        link.close()


def carry_out(order: Order) -> Outcome:
    for leftover in order.clear:
        clear_away(leftover, _LEAVING_SECONDS)
    if order.launch is None:
        return Outcome()
    try:
        return launch_worker(order.launch)
    except OSError as error:  # no such interpreter, no room for its folder
        return Outcome(problem=str(error))


def launch_worker(launch: Launch) -> Outcome:
    """Starts the process apart from Spark's own, and waits until it is ready or gives up.

    It lives on after the task, and ends by itself when the executor's JVM does.
    """
    jvm = hosting_jvm()
    memory = launch.memory
    if launch.memory_share:
        memory = min(memory, max(LEAST_MEMORY, int(free_memory() * launch.memory_share)))
    scratch = _local_folder() / f"{SCRATCH_PREFIX}{secrets.token_hex(8)}"
    config = {
        **launch.config,
        "memory": memory,
        "scratch": str(scratch),
        "watch": [] if jvm is None else [jvm],
    }
    # Without a name: what it holds is gone with the last process that has it open.
    with tempfile.TemporaryFile() as errors:
        process = _start(launch, errors)
        try:
            problem = _await_ready(process, msgspec.json.encode(config) + b"\n", launch.seconds)
        except BaseException:
            process.kill()
            raise
        if problem is not None:
            process.kill()
            process.wait()
            shutil.rmtree(scratch, ignore_errors=True)
            return Outcome(problem=f"{problem}{_tail(errors)}")
    # The Spark process that is its parent may serve for hours and must not keep a zombie.
    threading.Thread(target=process.wait, name="headway-reaper", daemon=True).start()
    return Outcome(process_record(process.pid), str(scratch), memory)


def _start(launch: Launch, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", launch.module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        cwd="/",
        env=_environment(int(launch.config["cores"])),
        # Out of reach of the signals that Spark sends to the group of its Python processes. Not a
        # session of its own: Linux gives every session as much of the processor as another one, and
        # the workers together would leave Spark's driver and executors little.
        process_group=0,
    )


def _environment(cores: int) -> dict[str, str]:
    """The task's own, so that the worker finds the modules that the task finds."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
    folders = [str(Path(entry).absolute()) for entry in sys.path if entry not in ("", ".")]
    return {**kept, "PYTHONPATH": os.pathsep.join(folders), "OMP_NUM_THREADS": str(cores)}


def _await_ready(process: subprocess.Popen[bytes], line: bytes, seconds: float) -> str | None:
    """None when the worker is ready, and else why it is not."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(line)
        process.stdin.close()
    except BrokenPipeError:
        return _ending(process)
    with process.stdout as said, selectors.DefaultSelector() as selector:
        selector.register(said, selectors.EVENT_READ)
        os.set_blocking(said.fileno(), False)
        deadline = time.monotonic() + seconds
        heard = b""
        while b"\n" not in heard:
            if not selector.select(max(0.0, deadline - time.monotonic())):
                return f"it was not ready within {seconds:g} s"
            part = said.read() or b""
            if not part:
                return _ending(process)
            heard += part
    first = heard.partition(b"\n")[0].decode(errors="replace").strip()
    return None if first.startswith(READY) else f"it said {first[:200]!r} instead of {READY!r}"


def _ending(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(_LEAVING_SECONDS)
    except subprocess.TimeoutExpired:
        return "it closed its output before it was ready"
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"


def _tail(errors: IO[bytes]) -> str:
    """The last of what it wrote on its standard error."""
    length = errors.seek(0, os.SEEK_END)
    errors.seek(max(0, length - _TAIL))
    text = errors.read().decode(errors="replace").strip()
    return f":\n{text}" if text else ""


def _local_folder() -> Path:
    """The folder on the executor's disks that Spark removes with the application (or with
    nothing, in local mode), and of several the one with most room."""
    named = os.environ.get("SPARK_LOCAL_DIRS", "")
    # Spark names the folders of its block manager, which lie in the one of the executor.
    folders = [Path(name).parent for name in named.split(",") if name]
    usable = [folder for folder in folders if os.access(folder, os.W_OK | os.X_OK)]
    return max(
        usable or [Path(tempfile.gettempdir())], key=lambda folder: shutil.disk_usage(folder).free
    )
