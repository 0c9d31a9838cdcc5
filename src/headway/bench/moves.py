"""Queries that move from one process to another, on a machine with more cores; and drivers that are
killed. All processes have run the query before, so that none is slower for being new, and compile
its code again (`migrations.py` tells why)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.base.errors import InternalError
from headway.bench.copies import linked_tables
from headway.bench.drivers import Driver, Ended
from headway.bench.peers import middle
from headway.storage import Run, list_runs, open_store
from headway.workloads import WORKLOADS

_MOVED = ("q04", "q14", "q23")
_MOVED_AT = 0.5
_KILLED = ("q14", "q23")
_LONGER_KILLED = ("q17", "q21")
_COPIES = 4
"""Of the rows of the largest table, for those."""
_KILLED_AT = (0.25, 0.5, 0.75)
_KILLED_TIMES = 3
_ALONE_TIMES = 5
_SMALL, _LARGE = "local[1]", "local[2]"
_SNAPSHOT_EVERY = "500ms"
_PATIENCE = 300.0
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class _Killed:
    """A query whose driver is killed."""

    name: str
    text: str
    tables: Path
    store: Path


class Moves:
    """Over the tables of the workloads, which are in these folders."""

    def __init__(
        self,
        folders: Mapping[str, Path],
        scratch: Path,
        progress: Callable[[str, int, int], None],
    ) -> None:
        self._folders = folders
        self._tables = folders["tpcds"]
        self._scratch = scratch
        self._progress = progress
        self._texts = WORKLOADS["tpcds"].queries()
        self.different: list[str] = []
        """Queries that had other rows after they were moved."""

    def small_to_large(self) -> dict[str, Any]:
        """Queries that begin on one core and are asked to go on with two, once half of their time
        has passed: the seconds from the request on, against those that were left on one core, and
        against beginning anew on two. One that is quicker to finish than to move ends where it
        is."""
        self.different = []
        found: dict[str, Any] = {}
        store = self._scratch / "moved"
        with (
            Driver(_SMALL, self._tables, store) as small,
            Driver(_LARGE, self._tables, store) as large,
        ):
            for number, name in enumerate(_MOVED):
                self._progress(f"{name} from {_SMALL} to {_LARGE}", number, len(_MOVED))
                stays = small.usual(name, self._texts[name])
                anew = large.usual(name, self._texts[name])
                told, moved = self._moved(small, large, name, _MOVED_AT * stays.seconds, anew.rows)
                found[name] = {
                    "stays": round((1.0 - _MOVED_AT) * stays.seconds, 3),
                    "anew": round(anew.seconds, 3),
                    "asked": round(told, 3),
                    "moved": moved,
                }
        return {"small_to_large": found, "moved_different": self.different}

    def _moved(
        self, small: Driver, large: Driver, name: str, seconds: float, rows: str
    ) -> tuple[float, bool]:
        """What a query takes that is asked to move after so many seconds, from then on, and whether
        it moved."""
        from headway.session.requests import Request, ask

        small.start(name, self._texts[name])
        run = self._begun(self._scratch / "moved")
        time.sleep(seconds)
        began = time.perf_counter()
        ask(run, Request("suspend"))
        ended = small.ended()
        moved = ended.status == "suspended"
        self._check(large.resume(run.run_id) if moved else ended, f"tpcds {name}", rows)
        return time.perf_counter() - began, moved

    def killed_drivers(self) -> dict[str, Any]:
        """By when the driver is killed: the share of what was done that is done again, with
        snapshots, each the median of some kills. Without snapshots, it is all of it."""
        found = self._redone("tpcds", self._tables, _KILLED)
        return {"redone_after_kill": found, "killed_different": self.different}

    def killed_longer(self) -> dict[str, Any]:
        """The same of queries that read more rows."""
        tables = linked_tables(self._folders["tpch"], self._scratch / "copies", _COPIES)
        found = self._redone("tpch", tables, _LONGER_KILLED)
        return {"redone_after_kill_longer": found, "killed_longer_different": self.different}

    def _redone(self, workload: str, tables: Path, names: Iterable[str]) -> dict[str, Any]:
        self.different = []
        found: dict[str, dict[str, float]] = {}
        store = self._scratch / "killed"
        texts = WORKLOADS[workload].queries()
        with Driver(_LARGE, tables, store) as other:
            for name in names:
                query, label = _Killed(name, texts[name], tables, store), f"{workload} {name}"
                usual = other.usual(query.name, query.text, _ALONE_TIMES)
                found[name] = {"seconds": round(usual.seconds, 3)}
                for number, point in enumerate(_KILLED_AT):
                    what = f"{label}, driver killed at {point:.0%}"
                    self._progress(what, number, len(_KILLED_AT))
                    rests = [
                        self._check(self._rest_of(query, other, point), label, usual.rows)
                        for _ in range(_KILLED_TIMES)
                    ]
                    rest = middle([each.seconds for each in rests])
                    again = rest - (1.0 - point) * usual.seconds
                    done = point * usual.seconds
                    found[name][f"{point:.0%}"] = round(max(0.0, again) / done, 3)
        return found

    def _rest_of(self, query: _Killed, other: Driver, point: float) -> Ended:
        """What is left to do of the query when its driver is killed after that part of the time
        that it takes there."""
        for _ in range(_ATTEMPTS):
            with Driver(
                _LARGE, query.tables, query.store, suspension_snapshot_every=_SNAPSHOT_EVERY
            ) as killed:
                seconds = point * killed.usual(query.name, query.text, 1).seconds
                killed.start(query.name, query.text)
                run = self._begun(query.store)
                time.sleep(seconds)
                killed.kill()
            if run.summary().status == "lost":
                return other.resume(run.run_id)
        raise InternalError(f"{query.name} always ended before its driver was killed")

    def _check(self, ended: Ended, name: str, rows: str) -> Ended:
        if ended.status != "done":
            raise InternalError(f"run {ended.run} has {ended.status} after it was moved")
        if ended.rows != rows:
            self.different.append(name)
        return ended

    def _begun(self, store: Path) -> Run:
        """The newest run, once it is working on its query."""
        from headway.session.executing import QUERY_STARTED

        opened = open_store(str(store))
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            newest = next(iter(list_runs(opened)), None)
            if newest is not None and newest.status == "running":
                run = Run.open(opened, newest.run_id)
                if any(event.kind == QUERY_STARTED for event in run.events()):
                    return run
            time.sleep(0.01)
        raise InternalError("the query has not begun")
