"""TPC-H: eight tables by tpchgen-cli, 22 queries."""

from __future__ import annotations

import ctypes
import errno
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from headway.base.errors import FileNotReadable, QueryFailed
from headway.workloads.data import Staging
from headway.workloads.workload import Progress, Workload, file_count, part_name

_ROWS_AT_SCALE_1 = {
    "region": 0,  # region and nation do not grow: always one file
    "nation": 0,
    "supplier": 10_000,
    "customer": 150_000,
    "part": 200_000,
    "partsupp": 800_000,
    "orders": 1_500_000,
    "lineitem": 6_000_000,
}
_ROW_GROUP = "8MiB"  # about 128k rows of lineitem
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None  # looked up before the fork


def write_tables(staging: Staging, scale: float, parts: int | None, progress: Progress) -> None:
    files = {
        table: file_count(round(rows * scale), parts) for table, rows in _ROWS_AT_SCALE_1.items()
    }
    steps = sum(files.values())
    # Every start of tpchgen-cli costs a second, so tables of as many files share one.
    for count in sorted(set(files.values())):
        tables = [table for table, own in files.items() if own == count]
        command = [_tpchgen(), "parquet", "--quiet", f"--scale-factor={scale!r}"]
        command += [f"--tables={','.join(tables)}", f"--parts={count}"]
        command += [f"--row-group-bytes={_ROW_GROUP}", f"--output-dir={staging.data}"]
        for step in _run(command, staging.data):
            progress(step, _finished_files(staging.data), steps)
    for file in staging.data.glob("*/*.parquet"):  # lineitem/lineitem.1.parquet
        number = int(file.name.split(".")[1])
        file.rename(file.with_name(part_name(number - 1)))
    progress("done", steps, steps)


def _run(command: list[str], folder: Path) -> Iterator[str]:
    """Run tpchgen-cli to its end, giving the table it is at from time to time."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=_die_with_parent
    ) as process:
        try:
            yield "tpchgen-cli"
            while True:
                try:
                    _, complaint = process.communicate(timeout=0.2)
                    break
                except subprocess.TimeoutExpired:
                    writing = next(folder.glob("*/*.inprogress"), None)
                    if writing is not None:
                        yield writing.parent.name
        finally:
            process.kill()
    if process.returncode != 0:
        message = complaint.decode(errors="replace").strip() or "no message"
        if "no space left" in message.lower():
            raise OSError(errno.ENOSPC, message)
        raise QueryFailed(
            f"tpchgen-cli ended with {process.returncode}: {message}",
            hint=f"run it by hand: {shlex.join(command)}",
        )


def _finished_files(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*/*.parquet"))


def _die_with_parent() -> None:
    """In the child: when we are killed, it must not go on writing into a folder nobody owns."""
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _tpchgen() -> str:
    beside = Path(sys.executable).parent / "tpchgen-cli"
    program = str(beside) if beside.is_file() else shutil.which("tpchgen-cli")
    if program is None:
        raise FileNotReadable("tpchgen-cli is not installed", hint="pip install tpchgen-cli")
    return program


TPCH = Workload(
    name="tpch",
    tables=tuple(_ROWS_AT_SCALE_1),
    write_tables=write_tables,
    smallest=0.001,
    largest=1000,
    bytes_per_scale=400_000_000,
)
