"""A worker process: its configuration is one line of JSON on standard input."""

from __future__ import annotations

from headway.pipelined.worker.duckdb_kernels import start_kernels
from headway.pipelined.worker.run import run_worker

if __name__ == "__main__":
    run_worker(start_kernels)
