"""What is done for a run beside its queries: signs of life, what other processes ask for,
snapshots, and what is due when executors are taken away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headway.base.config import Settings
from headway.base.errors import HeadwayError, WrongUsage
from headway.session.requests import (
    BEAT_SECONDS,
    LOOK_SECONDS,
    Request,
    Routines,
    answer,
    serve,
    take_requests,
)
from headway.session.standings import stand_to_builtins
from headway.session.suspending import Suspension
from headway.storage import ProcessRecord, Run, is_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.session.keeping import Stand

_PREEMPTION_INTERVAL = 5.0
"""Between two attempts to keep what is done, when the first one failed."""

Holder = ProcessRecord | str | None
"""For whom a run is paused."""


class Attended(Protocol):
    """What can be asked of a run."""

    @property
    def paused(self) -> bool: ...
    @property
    def stopping(self) -> bool: ...
    @property
    def holders(self) -> tuple[Holder, ...]: ...
    def suspend(self, how: Suspension) -> Any: ...
    def snapshot(self) -> Any: ...
    def snapshot_if_due(self) -> None: ...
    def pause(self, holder: Holder) -> None: ...
    def go_on(self, holder: Holder) -> None: ...
    def released(self, holder: Holder) -> None: ...
    def preempted(self) -> None: ...
    def overtaken(self) -> None: ...
    def standings(self) -> Mapping[str, Stand]: ...


class Attendant:
    """From when it is started until it is closed, in threads of its own."""

    def __init__(self, attended: Attended, run: Run, spark: SparkSession, settings: Settings):
        self._attended = attended
        self._run = run
        self._spark = spark
        self._settings = settings.suspension
        self._routines = Routines()
        self._leaving: frozenset[str] = frozenset()
        """Executors that are being taken away, and whose loss was provided for."""
        self._not_before = 0.0

    def start(self) -> None:
        self._routines.every(BEAT_SECONDS, self._beat)
        self._routines.every(LOOK_SECONDS, lambda: take_requests(self._run, self._obey))
        self._routines.every(LOOK_SECONDS, self._look_after)
        if self._settings.snapshot_every is not None:
            self._routines.every(LOOK_SECONDS, self._attended.snapshot_if_due)

    def until_done(self, act: Callable[[], None]) -> None:
        """Has something done that may fail at first."""
        self._routines.until_done(LOOK_SECONDS, act)

    def close(self) -> None:
        self._routines.close()

    def _beat(self) -> None:
        """Unless another process has taken the run over: signs of life are that one's to give."""
        if self._run.overtaken():
            self.close()
            self._attended.overtaken()
        else:
            self._run.beat()

    def _obey(self, request: Request) -> None:
        """In a thread of its own: while one waits for pipelines, another may be in haste."""
        act = partial(serve, self._run, request.token, partial(self._do, request))
        threading.Thread(target=act, daemon=True, name=f"headway-{request.what}").start()

    def _do(self, request: Request) -> None:
        attended = self._attended
        try:
            if request.what == "suspend":
                attended.suspend(Suspension(request.wait, request.left(), request.cheaper))
            elif request.what == "pause":
                attended.pause(request.holder)
                answer(self._run, request, {"status": "paused"})
            elif request.what == "continue":
                (attended.go_on if request.holder is None else attended.released)(request.holder)
                answer(self._run, request, {"status": "paused" if attended.paused else "running"})
            elif request.what == "tell":
                stands = attended.standings().items()
                told = {name: stand_to_builtins(stand) for name, stand in stands}
                answer(self._run, request, {"queries": told})
        except WrongUsage:
            return  # it has ended meanwhile

    def _look_after(self) -> None:
        for holder in self._attended.holders:
            if isinstance(holder, ProcessRecord) and is_gone(holder):
                with suppress(HeadwayError):  # of a store that fails: with the next look
                    self._attended.released(holder)
        if self._settings.on_preemption == "suspend" and not self._attended.stopping:
            self._look_at_executors()

    def _look_at_executors(self) -> None:
        """When all of them are being taken away, the run is suspended. When the first ones are,
        what is done is kept while the others can still do that."""
        from headway.spark.executors import leaving_executors

        leaving, all_of_them = leaving_executors(self._spark)
        if leaving <= self._leaving or time.monotonic() < self._not_before:
            return
        self._not_before = time.monotonic() + _PREEMPTION_INTERVAL
        try:
            if all_of_them:
                self._attended.preempted()
            else:
                self._attended.snapshot()
        except WrongUsage:
            return  # it has ended meanwhile
        self._leaving |= leaving
