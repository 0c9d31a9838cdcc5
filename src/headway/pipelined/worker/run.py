"""The life of a worker process, from its configuration to its end."""

from __future__ import annotations

import os
import signal
import sys
from queue import SimpleQueue

import pyarrow as pa

from headway.base.errors import HeadwayError
from headway.pipelined.worker.config import WorkerConfig, read_config
from headway.pipelined.worker.interfaces import StartKernels
from headway.pipelined.worker.process import Worker
from headway.pipelined.worker.watch import watch_processes

READY = "ready\n"
_SWITCH_SECONDS = 0.001


def run_worker(
    start_kernels: StartKernels,
    worker_class: type[Worker] = Worker,
    config_class: type[WorkerConfig] = WorkerConfig,
) -> None:
    """Does not return: the process ends when the driver, or a process that it serves, is gone."""
    # A thread that answers the driver must not wait long for one that computes in Python.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # Rows come over the network and lie where they were received: nothing to warn of each time.
    os.environ.setdefault("ACERO_ALIGNMENT_HANDLING", "ignore")
    reasons: SimpleQueue[str] = SimpleQueue()
    try:
        config = read_config(sys.stdin.readline(), config_class)
        pa.set_cpu_count(config.cores)
        pa.array([0])  # the first of all arrays takes as long as the import of pandas
        worker = worker_class(config, start_kernels, reasons.put)
    except (HeadwayError, OSError) as error:
        text = error.describe() if isinstance(error, HeadwayError) else str(error)
        sys.stderr.write(f"{text}\n")
        sys.exit(1)
    signal.signal(signal.SIGTERM, lambda *_: worker.leave("it was asked to end"))
    watch_processes(config.watch, lambda pid: worker.leave(f"process {pid} ended"))
    sys.stdout.write(READY)
    sys.stdout.flush()
    reason = reasons.get()
    # The driver knows already. Threads that still compute or wait are not worth an orderly end.
    worker.remove_scratch()
    sys.stderr.write(f"worker {config.worker} left: {reason}\n")
    sys.stderr.flush()
    os._exit(0)
