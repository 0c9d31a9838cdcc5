"""A driver that is a process of its own, with a Spark of its own, for benchmarks that move queries
from one to another or kill one.

It reads lines of JSON, `["run", NAME, SQL]` or `["resume", RUN]`, and answers each, once the run is
over here, with a line: the seconds it took and how it ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from headway.base.errors import InternalError


class Ended(msgspec.Struct, frozen=True):
    """What became of a run, as far as its driver had to do with it."""

    run: str
    status: str
    seconds: float
    rows: str
    """A digest of those of its query, if it is done."""


class Driver:
    """With a master, the folder of its tables, its store, and further settings as on the command
    line."""

    def __init__(self, master: str, tables: Path, store: Path, **settings: str) -> None:
        given = {"spark.master": master, "store.url": str(store), "engine.name": "spark"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headway.bench.drivers", str(tables)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._send({**given, **{name.replace("_", ".", 1): v for name, v in settings.items()}})

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill() if kind is not None else self.close()

    def run(self, name: str, text: str) -> Ended:
        self.start(name, text)
        return self.ended()

    def usual(self, name: str, text: str, times: int = 3) -> Ended:
        """The run in the middle of so many, by their seconds, after one that warms up."""
        self.run(name, text)
        ended = sorted((self.run(name, text) for _ in range(times)), key=lambda each: each.seconds)
        return ended[times // 2]

    def start(self, name: str, text: str) -> None:
        self._send(["run", name, text])

    def resume(self, run_id: str) -> Ended:
        self._send(["resume", run_id])
        return self.ended()

    def ended(self) -> Ended:
        """Waits for what was asked for."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise InternalError("a driver of the benchmark has ended")
        return msgspec.json.decode(line, type=Ended)

    def kill(self) -> None:
        """SIGKILL, to its JVM as well: none of it is left at work, as on a machine that is lost."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _send(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(msgspec.json.encode(what) + b"\n")
        self._process.stdin.flush()


def main(tables: Path) -> None:
    from headway.base.config import load_settings
    from headway.bench.migrations import forget_code
    from headway.bench.peers import digest_of
    from headway.session import Session
    from headway.spark.start import running_spark

    settings = load_settings(command_line=msgspec.json.decode(sys.stdin.readline()))
    with running_spark(settings) as spark, Session(spark, settings) as session:
        session.tables(tables)
        for line in sys.stdin:
            what, *given = msgspec.json.decode(line)
            forget_code(spark)
            began = time.perf_counter()
            if what == "run":
                name, text = given
                handle = session.run(session.sql(text, name=name))
            else:
                handle = session.resume(*given)
            handle.join()
            seconds = time.perf_counter() - began
            status = handle.progress()[0].status.value
            rows = digest_of(handle.arrow()) if status == "done" else ""
            ended = Ended(handle.id, status, seconds, rows)
            sys.stdout.buffer.write(msgspec.json.encode(ended) + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
