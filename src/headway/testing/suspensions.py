"""Runs that are stopped at a point, for the tests of suspension."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headway.base.errors import WrongUsage
from headway.session import Query, RunHandle, Session
from headway.session.executing import QUERY_STARTED
from headway.session.keeping import Running
from headway.session.pipelined import ExecutionWatch
from headway.session.resuming import IMAGE
from headway.session.suspending import Suspension
from headway.spark.adaptive import QueryWatch
from headway.spark.running import running_plan
from headway.storage import ReliableStore, Run
from headway.storage.runs import ALIVE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = Suspension(wait=False)
ATTEMPTS = 30
"""To stop a query in time: some take only a moment after the stage that is waited for."""
QUERY = """
select n_name, o_orderpriority, sum(l_extendedprice * (1 - l_discount)) as revenue,
       avg(l_quantity) as quantity, count(*) as n
from customer, orders, lineitem, nation
where c_custkey = o_custkey and l_orderkey = o_orderkey and c_nationkey = n_nationkey
group by n_name, o_orderpriority order by revenue desc, n_name, o_orderpriority
"""
_SLOW_ROWS = 30_000_000
_SLOW_SECONDS = 3.0


def slow_query(spark: SparkSession) -> str:
    """Its last pipeline takes seconds on this machine, so that there is time to do something about
    it."""
    spark.sql(_slow(_SLOW_ROWS // 10)).collect()  # it is compiled
    began = time.monotonic()
    spark.sql(_slow(_SLOW_ROWS)).collect()
    return _slow(int(_SLOW_ROWS * max(1.0, _SLOW_SECONDS / (time.monotonic() - began))))


def _slow(rows: int) -> str:
    return f"""
with few as (select id % 100 as k, count(*) as c from range(0, 1000000, 1, 2) group by 1)
select /*+ broadcast(few) */ k % 10 as d, sum(c) as c, sum(crc32(cast(id as string))) as s
from few join range(0, {rows}, 1, 8) on k = id % 100 group by 1 order by 1
"""


def running_of(handle: RunHandle) -> list[Running]:
    with handle._lock:
        return list(handle._running.values())


def has_stages(handle: RunHandle, stages: int) -> bool:
    """Whether so many stages of its query on Spark are finished."""
    for running in running_of(handle):
        assert isinstance(running.watch, QueryWatch)
        if running_plan(running.watch.frame).finished >= stages:
            return True
    return False


def await_stages(handle: RunHandle, stages: int) -> bool:
    """False when the query was quicker."""
    until = time.monotonic() + 60
    while time.monotonic() < until and not handle.finished:
        if has_stages(handle, stages):
            return True
        time.sleep(0.005)
    return False


def await_sides(handle: RunHandle, sides: int) -> bool:
    """As `await_stages`, on the workers: so many inputs of channels are ended, or are being so."""
    until = time.monotonic() + 60
    while time.monotonic() < until and not handle.finished:
        for running in running_of(handle):
            assert isinstance(running.watch, ExecutionWatch)
            if running.watch.report.sides_done >= sides:
                return True
        time.sleep(0.001)
    return False


def suspend_after(handle: RunHandle, stages: int, how: Suspension = NOW) -> bool:
    """Once so many stages are finished; False when the query was quicker."""
    if not await_stages(handle, stages):
        return False
    try:
        handle.suspend(how)
    except WrongUsage:
        return False
    return Run.open(handle._run.store, handle.id).summary().status == "suspended"


def suspended(session: Session, text: str | Query, stages: int, how: Suspension = NOW) -> RunHandle:
    """A run of the query that was stopped after so many stages."""
    for _ in range(ATTEMPTS):
        handle = session.run(text)
        if suspend_after(handle, stages, how):
            return handle
    raise AssertionError("the query was always quicker")


def images_of(session: Session, run_id: str) -> list[dict[str, Any]]:
    events = Run.open(session.store, run_id).events()
    return [event.data for event in events if event.kind == IMAGE]


def resumed_with(store: ReliableStore, run_id: str, query: str = "query") -> list[str]:
    """The states that the last driver of a query began with."""
    events = Run.open(store, run_id).events()
    begun = [e.data["states"] for e in events if e.kind == QUERY_STARTED and e.query == query]
    found: list[str] = begun[-1]
    return found


def goes_on(session: Session, run_id: str) -> pa.Table:
    handle = session.resume(run_id)
    handle.wait()
    return handle.arrow()


class WatchedStore:
    """A store that calls `before` ahead of every change, once that is set; but for signs of life,
    which come when they come."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.before: Callable[[str], None] = lambda path: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, path: str, *arguments: Any, **named: Any) -> None:
        if not path.endswith(f"/{ALIVE}"):
            self.before(path)
        self._store.write(path, *arguments, **named)

    def writer(self, path: str, *arguments: Any, **named: Any) -> Any:
        self.before(path)
        return self._store.writer(path, *arguments, **named)

    def delete_tree(self, path: str) -> None:
        self.before(path)
        self._store.delete_tree(path)


def watched(session: Session) -> WatchedStore:
    session.store = store = WatchedStore(session.store)
    return store
