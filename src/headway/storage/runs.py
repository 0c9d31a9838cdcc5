"""A run: a folder in the reliable store with a manifest, a log of events, and pieces.

runs/<run id>/head        written first, replaced when the run ends
runs/<run id>/manifest    written second: without it there is no run
runs/<run id>/events/     the log
runs/<run id>/pieces/     whatever the engines add
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from headway.base.clock import Clock, SystemClock
from headway.base.errors import (
    FormatNotReadable,
    HeadwayError,
    InvalidIdentifier,
    PieceMissing,
    RunNotFound,
    StoreConflict,
    StoreCorrupt,
    WrongUsage,
)
from headway.base.ids import check_id
from headway.storage.blocks import Data, SealWriter, corrupt
from headway.storage.events import END, Event, EventLog, LogHead
from headway.storage.failures import missing
from headway.storage.manifest import Manifest, decode_manifest, encode_manifest
from headway.storage.paths import check_path, join
from headway.storage.processes import ProcessRecord, is_gone, is_visible, this_process
from headway.storage.store import ReliableStore

RUNS_FOLDER = "runs"
LAST = "last"
QUERY_DONE = "query_done"
QUERY_FAILED = "query_failed"
TAKEN_OVER = "taken_over"
SUSPENDED = "suspended"
STOPPED = "stopped"
RESULTS = "results"
"""The folder of pieces with the rows of queries."""
PAUSED, CONTINUED = "paused", "continued"
REQUESTS, ANSWERS = "requests", "answers"
ALIVE = "alive"
_PASSING = (f"{REQUESTS}/", f"{ANSWERS}/", ALIVE)
"""Pieces that come and go: no run is less without them."""
LOST_SECONDS = 60.0
"""A driver on another machine that has given no sign of life for so long is taken for lost. Should
it live all the same, the log refuses what it says from then on."""

EndStatus = Literal["done", "failed", "interrupted"]
RunStatus = Literal[
    "running", "paused", "done", "failed", "interrupted", "suspended", "lost", "damaged"
]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of runs shows. `reason` says why a run is damaged; one that is `resumable` has no
    driver, and something is left to do."""

    run_id: str
    status: RunStatus
    started_at: str | None
    seconds: float | None
    queries_done: int = 0
    queries_failed: int = 0
    queries_total: int = 0
    reason: str | None = None
    resumable: bool = False


class _Alive(msgspec.Struct, frozen=True):
    driver: ProcessRecord
    at: str


class Run:
    """A handle on one run; made by `create` or `open`. Safe from several threads."""

    def __init__(self, store: ReliableStore, manifest: Manifest, clock: Clock | None) -> None:
        self.store = store
        self.manifest = manifest
        self._clock = clock or SystemClock()
        self._folder = run_folder(manifest.run_id)
        self._log = EventLog(store, self._folder)
        self._ended = False
        self._beating = threading.Lock()

    @classmethod
    def create(cls, store: ReliableStore, manifest: Manifest, *, clock: Clock | None = None) -> Run:
        """Begins the run; StoreConflict when its id is taken."""
        if manifest.run_id == LAST:
            raise InvalidIdentifier(f"a run cannot be called {LAST!r}: that names the newest one")
        run = cls(store, manifest, clock)
        run._log.create(manifest.created_at, manifest.driver)
        path = join(run._folder, "manifest")
        store.write(path, encode_manifest(manifest), if_absent=True)
        return run

    @classmethod
    def open(cls, store: ReliableStore, run_id: str, *, clock: Clock | None = None) -> Run:
        """The run with exactly this id; RunNotFound when there is none, StoreCorrupt when its
        manifest or head is damaged."""
        path = join(run_folder(run_id), "manifest")
        try:
            data = store.read(path)
        except PieceMissing as error:
            if not is_remains(store, run_id):
                raise
            raise RunNotFound(
                f"there is no run {run_id} in {store.url}",
                hint="`headway runs` lists the runs of a store",
            ) from error
        manifest = decode_manifest(data, name=path)
        if manifest.run_id != run_id:
            raise corrupt(path, f"belongs to run {manifest.run_id}")
        run = cls(store, manifest, clock)
        head = run._log.head()
        if head.state == "removed":
            raise RunNotFound(f"run {run_id} is being removed from {store.url}")
        run._ended = head.state == "ended"
        return run

    @property
    def run_id(self) -> str:
        return self.manifest.run_id

    @property
    def url(self) -> str:
        return f"{self.store.url}/{self._folder}"

    def append(self, kind: str, query: str | None = None, **data: Any) -> Event:
        """Adds an event to the log; durable when this returns. `data` holds JSON values."""
        self._refuse_ended()
        if kind == END:
            raise WrongUsage("the last event of a run is written by end()")
        event = self._event(kind, query, data)
        self._log.append(event)
        return event

    def events(self) -> tuple[Event, ...]:
        """All events so far, verified; another process may be appending."""
        return self._log.read()

    def end(self, status: EndStatus, **data: Any) -> None:
        """Closes the run over its events and pieces: the loss of any one of them is noticed."""
        self._refuse_ended()
        if status not in get_args(EndStatus):
            raise WrongUsage(f"a run cannot end as {status!r}")
        event = self._event(END, None, {"status": status, **data})
        stored = self._stored_pieces().items()
        with self._beating:
            self._log.end(event, {n: size for n, size in stored if not n.startswith(_PASSING)})
            self._ended = True
            with suppress(HeadwayError):  # nothing is wrong with a run that has it
                self.store.delete_tree(self._piece(ALIVE))

    def stop(self, status: EndStatus) -> None:
        """Says that its driver has given the run up, in which something is kept to go on with: it
        can be taken over."""
        self.append(STOPPED, None, status=status)

    def suspend(self) -> None:
        """Says that nobody drives the run from now on, and that it can be taken over."""
        self.append(SUSPENDED)

    def pause(self) -> None:
        """Says that nothing of the run is under way, until its driver goes on."""
        self.append(PAUSED)

    def go_on(self) -> None:
        self.append(CONTINUED)

    def take_over(self, seen: int) -> None:
        """Says that this process drives the run from now on; StoreConflict when another one does,
        since the number of events that was `seen`."""
        self._refuse_ended()
        data = {"driver": msgspec.to_builtins(this_process())}
        try:
            self._log.append(self._event(TAKEN_OVER, None, data), after=seen)
        except StoreConflict as error:
            raise StoreConflict(
                f"another process has taken over run {self.run_id}",
                hint="`headway runs` shows how it goes on there",
            ) from error

    def beat(self) -> None:
        """A sign of life, for those who cannot see the driver's machine."""
        with self._beating:
            at = self._clock.now().isoformat()
            self.write_piece(ALIVE, msgspec.json.encode(_Alive(this_process(), at)))

    def overtaken(self) -> bool:
        """Whether another process has taken the run over since this one wrote its last event."""
        return self._log.overtaken()

    def driver(self) -> ProcessRecord:
        """The process that drives the run, or did so last."""
        return _driver(self.manifest, self.events())

    def age(self) -> float:
        """Seconds since the run began."""
        return _seconds(self.manifest.created_at, self._clock.now().isoformat())

    def seconds_until(self, event: Event) -> float:
        """From the start of the run."""
        return _seconds(self.manifest.created_at, event.at)

    def write_piece(self, name: str, data: Data, *, if_absent: bool = False) -> None:
        self._refuse_ended()
        self.store.write(self._piece(name), data, if_absent=if_absent)

    def piece_writer(
        self, name: str, *, if_absent: bool = False
    ) -> AbstractContextManager[SealWriter]:
        self._refuse_ended()
        return self.store.writer(self._piece(name), if_absent=if_absent)

    def read_piece(self, name: str) -> bytes:
        return self.store.read(self._piece(name))

    def piece_reader(self, name: str) -> Iterator[bytes]:
        return self.store.reader(self._piece(name))

    def pieces(self, prefix: str = "") -> list[str]:
        """Names of the pieces below a folder. Of an ended run: those it ended with, all there."""
        if prefix:
            check_path(prefix)
        head = self._log.head()
        stored = self._stored_pieces()
        if head.state == "ended":
            self._check_pieces(head, stored)
            stored = head.pieces
        return sorted(name for name in stored if not prefix or name.startswith(prefix + "/"))

    def piece_sizes(self, prefix: str) -> dict[str, int]:
        """The bytes of every piece under a folder of names."""
        folder = self._piece(prefix)
        start = len(join(self._folder, "pieces")) + 1
        return {path[start:]: size for path, size in self.store.sizes(folder).items()}

    def remove_pieces(self, names: Iterable[str]) -> None:
        """Pieces that nothing refers to."""
        self._refuse_ended()
        for name in names:
            self.store.delete_tree(self._piece(name))

    def verify(self) -> None:
        """Reads everything; StoreCorrupt names the first piece that is damaged or missing."""
        self.events()
        for name in self.pieces():
            for _ in self.piece_reader(name):
                pass

    def summary(self, events: tuple[Event, ...] | None = None) -> RunSummary:
        """Where the run stands, from its verified log, or those of its events that are given, and
        the sizes of its pieces."""
        head = self._log.head()
        events = self._log.read(head) if events is None else events
        if head.state == "ended":
            self._check_pieces(head, self._stored_pieces())
        end = next((event for event in reversed(events) if event.kind == END), None)
        status, resumable = self._status(events, end)
        now = self._clock.now().isoformat()
        last = end.at if end else (events[-1].at if events else self.manifest.created_at)
        outcomes = {e.query: e.kind for e in events if e.kind in (QUERY_DONE, QUERY_FAILED)}
        return RunSummary(
            run_id=self.run_id,
            status=status,
            started_at=self.manifest.created_at,
            seconds=_seconds(
                self.manifest.created_at, now if status in ("running", "paused") else last
            ),
            queries_done=sum(kind == QUERY_DONE for kind in outcomes.values()),
            queries_failed=sum(kind == QUERY_FAILED for kind in outcomes.values()),
            queries_total=len(self.manifest.queries),
            resumable=resumable,
        )

    def _status(self, events: tuple[Event, ...], end: Event | None) -> tuple[RunStatus, bool]:
        """And whether it can be resumed."""
        if end is not None:
            return end.data["status"], False
        said = _said_last(events)
        if said is not None and said.kind == SUSPENDED:
            return "suspended", True
        if said is not None and said.kind == STOPPED:
            return said.data["status"], True
        if self._is_lost(events):
            return "lost", True
        return "paused" if said is not None and said.kind == PAUSED else "running", False

    def _is_lost(self, events: tuple[Event, ...]) -> bool:
        driver = _driver(self.manifest, events)
        if is_gone(driver) or is_visible(driver):
            return is_gone(driver)
        seen = events[-1].at if events else self.manifest.created_at
        try:
            alive = msgspec.json.decode(self.read_piece(ALIVE), type=_Alive)
            seen = max(seen, alive.at) if alive.driver == driver else seen
        except (PieceMissing, StoreCorrupt, msgspec.MsgspecError):
            pass  # it has not come to that yet, or is just writing it
        return _seconds(seen, self._clock.now().isoformat()) > LOST_SECONDS

    def _event(self, kind: str, query: str | None, data: dict[str, Any]) -> Event:
        at = self._clock.now().isoformat(timespec="microseconds")
        return Event(at=at, kind=check_id(kind, "kind of event"), query=query, data=data)

    def _piece(self, name: str) -> str:
        return join(self._folder, "pieces", *check_path(name))

    def _stored_pieces(self) -> dict[str, int]:
        folder = join(self._folder, "pieces")
        sizes = self.store.sizes(folder)
        return {path[len(folder) + 1 :]: size for path, size in sizes.items()}

    def _check_pieces(self, head: LogHead, stored: dict[str, int]) -> None:
        for name, size in head.pieces.items():
            if name not in stored:
                raise missing(self._piece(name))
            if stored[name] != size:
                raise corrupt(
                    self._piece(name),
                    f"has {stored[name]} bytes where the run ended with {size}",
                )

    def _refuse_ended(self) -> None:
        if self._ended:
            raise StoreConflict(
                f"run {self.run_id} has ended", hint="nothing is added to a run after its end"
            )


def _driver(manifest: Manifest, events: Iterable[Event]) -> ProcessRecord:
    """The process that drives the run, or did so last."""
    driver = manifest.driver
    for event in events:
        if event.kind == TAKEN_OVER:
            driver = msgspec.convert(event.data["driver"], ProcessRecord)
    return driver


def _said_last(events: Iterable[Event]) -> Event | None:
    """How a run that has not ended stands, as its drivers say."""
    kinds = (SUSPENDED, STOPPED, TAKEN_OVER, PAUSED, CONTINUED)
    told = [event for event in events if event.kind in kinds]
    return told[-1] if told else None


def run_folder(run_id: str) -> str:
    return join(RUNS_FOLDER, check_id(run_id, "run id"))


def remains(store: ReliableStore, run_id: str) -> LogHead | None:
    """The head of a run that never came to be or is being removed; None for any other run."""
    folder = run_folder(run_id)
    try:
        head = EventLog(store, folder).head()
    except (StoreCorrupt, FormatNotReadable):
        return None
    if head.state == "removed":
        return head
    never_began = head.state == "open" and store.list(folder) == [join(folder, "head")]
    return head if never_began else None


def is_remains(store: ReliableStore, run_id: str) -> bool:
    """Also true without any piece: killed before the first write, deleted, or never there."""
    return remains(store, run_id) is not None or not store.list(run_folder(run_id))


def _seconds(start: str, end: str) -> float:
    passed = datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return max(0.0, passed.total_seconds())
