"""Queries are suspended and resumed: how much is kept, what it costs, and when it beats a restart.

Every TPC-H and TPC-DS query is stopped on the spark engine, and every TPC-H query on the pipelined
one (`migrations.py`). Between the two workloads: what it costs that queries can be suspended, state
kept after every pipeline against once, machines that are vacated, and moves between processes
(`moves.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec

from headway.base.errors import HeadwayError, InternalError
from headway.bench.migrations import (
    LOOK_SECONDS,
    MeasuredQuery,
    Stopped,
    report_of,
    stop_everywhere,
)
from headway.bench.moves import Moves
from headway.bench.notes import Notes
from headway.bench.overhead import measure_idle_overhead
from headway.bench.peers import geometric_mean, middle
from headway.session.suspending import Suspension
from headway.storage import Run
from headway.workloads import WORKLOADS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.bench.benchmark import BenchmarkOptions
    from headway.session import Session

_ENGINES = {"tpch": ("spark", "pipelined"), "tpcds": ("spark",)}
"""By workload, those that its queries are stopped on."""
_VACATED = (1, 2, 4, 8)
_VACATED_TIMES = 3
_PATIENCE = 300.0


def measure_migrate(
    spark: SparkSession, options: BenchmarkOptions, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    import headway

    folders: dict[str, Path] = {}
    for name in ("tpch", "tpcds"):
        folders[name] = options.data / f"{name}-{options.scale:g}"
        WORKLOADS[name].generate(options.scale, folders[name])
    measured: dict[str, Any] = {
        "benchmark": "migrate",
        "scale": options.scale,
        "master": spark.sparkContext.master,
    }
    with TemporaryDirectory(
        prefix="headway-bench-", dir=options.data, ignore_cleanup_errors=True
    ) as scratch:
        common: dict[str, Any] = {"store_url": f"{scratch}/store", "statistics_observe": "false"}
        with (
            headway.session(spark, engine_name="spark", **common) as plain,
            headway.session(spark, engine_name="pipelined", **common) as pipelined,
        ):
            told = {"scale": options.scale, "master": measured["master"], "cores": os.cpu_count()}
            notes = Notes(options.data / "migrations.json", told, go_on=options.go_on)
            sessions = {"spark": plain, "pipelined": pipelined}
            bench = _Bench(sessions, folders, Path(scratch), progress, notes)
            bench.migrate("tpch")
            moves = Moves(folders, Path(scratch), progress)
            found: dict[str, Any] = {}
            copies = Path(scratch) / "copies"
            parts: dict[str, Callable[[], dict[str, Any]]] = {
                "idle overhead": lambda: measure_idle_overhead(
                    sessions, folders["tpch"], copies, options.repeat, progress
                ),
                "vacated machines": bench.vacate,
                "separation": bench.separation,
                "small to large": moves.small_to_large,
                "killed drivers": moves.killed_drivers,
                "killed drivers of longer queries": moves.killed_longer,
            }
            for part, measure in parts.items():
                found |= notes.once(part, measure)
            bench.migrate("tpcds")
            measured |= {**bench.report(), **found, **notes.sittings()}
        checked = ("moved_different", "killed_different", "killed_longer_different")
        different = [query for part in checked for query in measured.pop(part)]
        measured["rows_equal"] = measured["rows_equal"] and not different
        measured["different"] += different
    return measured


class _Bench:
    """`folders` are those of the workloads. What is found is noted after every query, for who looks
    at it before the end, or goes on with it."""

    def __init__(
        self,
        sessions: Mapping[str, Session],
        folders: Mapping[str, Path],
        scratch: Path,
        progress: Callable[[str, int, int], None],
        notes: Notes,
    ) -> None:
        self._sessions = sessions
        self._folders = folders
        self._scratch = scratch
        self._progress = progress
        self._notes = notes
        self._steps = 0
        self._stopped: list[Stopped] = []
        self._queries = [
            MeasuredQuery(workload, name, text)
            for workload in folders
            for name, text in WORKLOADS[workload].queries().items()
        ]

    def _tell(self, what: str) -> None:
        self._progress(what, self._steps, self._steps + 1)
        self._steps += 1

    def _of(self, workload: str) -> list[MeasuredQuery]:
        """Its queries, with its tables known by their names, once all of them have run: Spark gets
        faster with each of them."""
        self._sessions["spark"].tables(self._folders[workload])
        queries = [query for query in self._queries if query.workload == workload]
        for query in queries:
            for engine in _ENGINES[workload] if query.rows is None else ():
                self._tell(f"{workload} {query.name} on {engine}, for the first time")
                query.warm_up(self._sessions[engine])
        return queries

    def migrate(self, workload: str) -> None:
        """Every query of the workload that was not stopped before."""
        queries = [query for query in self._queries if query.workload == workload]
        asked = [(query, engine) for query in queries for engine in _ENGINES[workload]]
        for query, engine in asked:
            part = f"{workload} {query.name} on {engine}"
            known = self._notes.known(part)
            if known is None:
                self._of(workload)
                self._tell(part)
                query.measure_alone(self._sessions[engine])
                self._notes.note(part, stop_everywhere(self._sessions[engine], query))
            stopped = msgspec.convert(self._notes.known(part), Stopped)
            query.alone[engine] = stopped.alone
            query.pipelines[engine] = stopped.pipelines
            self._stopped.append(stopped)

    def report(self) -> dict[str, Any]:
        return report_of(self._stopped)

    def separation(self) -> dict[str, Any]:
        """Keeping the state after every pipeline, against once on demand, in the middle: the time
        of the whole query over that without any of it, the three in turn and each first once."""
        session = self._sessions["spark"]
        kinds = ("never", "once", "every")
        ratios: dict[str, list[float]] = {"once": [], "every": []}
        for query in self._of("tpch"):
            self._tell(f"{query.name}: state kept after every pipeline")
            seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
            for number in range(len(kinds)):
                for kind in (*kinds[number:], *kinds[:number]):
                    seconds[kind].append(self._with_snapshots(session, query, kind))
            for kind, found in ratios.items():
                found.append(min(seconds[kind]) / min(seconds["never"]))
        return {
            "separation_overhead": (geometric_mean(ratios["every"]) or 1.0) - 1.0,
            "on_demand_overhead": (geometric_mean(ratios["once"]) or 1.0) - 1.0,
        }

    def _with_snapshots(self, session: Session, query: MeasuredQuery, kind: str) -> float:
        """All are looked at as often, whether or not something is kept."""
        began = time.perf_counter()
        handle = session.run(session.sql(query.text, name=query.name))
        kept = 0
        half = query.alone["spark"] / 2
        while not handle.finished:
            done = handle.progress()[0].pipelines_done
            is_half = time.perf_counter() - began > half
            wanted = done > kept if kind == "every" else kind == "once" and not kept and is_half
            if wanted:
                with suppress(HeadwayError):  # the query may end meanwhile
                    handle.snapshot()
                kept = max(done, 1)
            time.sleep(LOOK_SECONDS)
        handle.wait()
        rows = handle.arrow()
        took = time.perf_counter() - began
        if not query.has(rows):
            raise InternalError(f"{query.name} has other rows with snapshots")
        return took

    def vacate(self) -> dict[str, Any]:
        """The longest queries, so many at the same time, are stopped once each has something to
        keep; how long that takes, and how many were still there. In two ways: at once, as `headway
        vacate` does it, and after the pipelines that are running, as in the paper."""
        session = self._sessions["spark"]
        longest = sorted(self._of("tpch"), key=lambda query: -query.alone["spark"])
        ways = {"now": Suspension(wait=False), "after_pipelines": Suspension(cheaper=False)}
        told: dict[str, Any] = {}
        for way, how in ways.items():
            found = {
                str(count): [
                    self._vacated(session, longest[:count], how) for _ in range(_VACATED_TIMES)
                ]
                for count in _VACATED
            }
            told[way] = {
                "seconds": {n: middle([each[0] for each in runs]) for n, runs in found.items()},
                "suspended": {
                    n: middle([float(each[1]) for each in runs]) for n, runs in found.items()
                },
            }
        most = str(_VACATED[-1])
        return {"vacate_seconds": told["now"]["seconds"][most], "vacate_by_queries": told}

    def _vacated(
        self, session: Session, queries: list[MeasuredQuery], how: Suspension
    ) -> tuple[float, int]:
        self._tell(f"vacating {len(queries)} queries")
        handles = [session.run(session.sql(query.text, name=query.name)) for query in queries]
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline and not all(
            handle.finished or handle.progress()[0].pipelines_done for handle in handles
        ):
            time.sleep(LOOK_SECONDS)
        began = time.perf_counter()
        session.vacate(how)
        took = time.perf_counter() - began
        stopped = 0
        for handle, query in zip(handles, queries, strict=True):
            if Run.open(session.store, handle.id).summary().status == "suspended":
                stopped += 1
                handle = session.resume(handle.id)
            handle.wait()
            if not query.has(handle.arrow()):
                raise InternalError(f"{query.name} has other rows after it was vacated")
        return took, stopped
