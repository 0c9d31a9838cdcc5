"""All executors of a local cluster are told that their machines are being taken away.

Run as a process of its own: `leaving_scenario.py <store> <kind>`, where the kind is that of the
state which the query has by then. Prints what happened as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from executor_scenario import EXECUTORS, remove_work_folder, start_cluster, wait_until

import headway
from headway.session import RunHandle
from headway.session.resuming import IMAGE
from headway.spark.executors import list_executors
from headway.storage import Run

QUERY = """
with few as (select id % 100 as k, count(*) as c from range(0, 1000000, 1, 2) group by 1)
select /*+ {hint}(few) */ k % 10 as d, sum(c) as c, sum(crc32(cast(id as string))) as s
from few join range(0, {rows}, 1, 8) on k = id % 100 group by 1 order by 1
"""
KINDS = {"broadcast": ("broadcast", 60_000_000), "shuffled": ("merge", 30_000_000)}
"""How the small table is joined, and the rows of the large one."""


def main(store: str, kind: str) -> dict[str, Any]:
    hint, rows = KINDS[kind]
    spark = start_cluster()
    application = spark.sparkContext.applicationId
    try:
        settings = {"engine_name": "spark", "suspension_on_preemption": "suspend"}
        with headway.session(spark, store_url=store, **settings) as session:
            wait_until(lambda: len(list_executors(spark)) == EXECUTORS)
            handle = session.run(QUERY.format(hint=hint, rows=rows))
            wait_until(lambda: handle.finished or has_states(handle))
            running = not handle.finished
            context, jvm = spark.sparkContext._jsc.sc(), spark._jvm
            notice = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
                "taken away", jvm.scala.Option.empty()
            )
            for executor in list_executors(spark):
                context.schedulerBackend().decommissionExecutor(executor.id, notice, False, False)
            began = time.monotonic()
            handle.join(60.0)
            seconds = time.monotonic() - began
            run = Run.open(session.store, handle.id)
            states = [e.data["states"] for e in run.events() if e.kind == IMAGE]
        return {
            "run": handle.id,
            "running": running,
            "status": run.summary().status,
            "seconds": seconds,
            "states": len(states[-1]) if states else 0,
        }
    finally:
        spark.stop()
        remove_work_folder(application)


def has_states(handle: RunHandle) -> bool:
    """That of the small table: the large one is not worth to be kept."""
    states = (s for stand in handle.standings().values() for s in stand.standing.states.values())
    return any((state.bytes or 0) < 1_000_000 for state in states)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
