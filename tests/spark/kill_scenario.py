"""A driver that kills itself ahead of one change that it makes to the store.

Arguments: the number of the change, "suspend" or "resume", who writes states ("driver", "executors"
or the "workers" of the pipelined engine), the store, the folder of the tables.
"""

from __future__ import annotations

import os
import signal
import sys
from itertools import count

import headway
from headway.base.config import load_settings
from headway.session import spark_keeper
from headway.spark.start import running_spark
from headway.storage import list_runs
from headway.testing.suspensions import NOW, QUERY, await_sides, await_stages, watched


def main(step: int, what: str, by: str, store: str, tables: str) -> None:
    changes = count()

    def kill(path: str) -> None:
        if next(changes) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    settings = load_settings(environ=os.environ)
    given = {"store_url": store, "engine_name": "pipelined" if by == "workers" else "spark"}
    if by == "executors":
        spark_keeper._COLLECTED_BYTES = 0
    with running_spark(settings) as spark, headway.session(spark, **given) as session:
        session.tables(tables)
        known = watched(session)
        if what == "suspend":
            handle = session.run(QUERY)
            if not (await_sides if by == "workers" else await_stages)(handle, 2):
                raise AssertionError("the query was quicker")
            known.before = kill
            handle.suspend(NOW)
        else:
            (summary,) = list_runs(session.store)
            known.before = kill
            session.resume(summary.run_id).wait()


main(int(sys.argv[1]), *sys.argv[2:])
