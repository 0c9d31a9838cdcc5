"""Queries run as one, followed to the end, and told about: what `run` and `demo` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from headway.base.errors import StoreConflict
from headway.cli.deadlines import (
    LATE,
    AskedBatch,
    batch_to_builtins,
    late_queries,
    print_batch,
)
from headway.cli.interrupts import INTERRUPTED, interrupts
from headway.cli.live import follow, make_display
from headway.cli.output import (
    bar_text,
    count_text,
    error_object,
    plural,
    print_error,
    seconds_text,
    status_text,
    stderr,
    table,
)
from headway.cli.statements import Statement
from headway.cli.steps import spinner
from headway.storage import ReliableStore, Run

if TYPE_CHECKING:
    from headway.session import BatchProgress, QueryProgress, RunHandle, Session


Tick = Callable[["RunHandle"], None]
SUSPENDED = 4
"""The exit code of a run that was suspended."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went. A query that could not be stopped in time is still `running`."""

    run_id: str
    url: str
    queries: tuple[QueryProgress, ...]
    seconds: float
    batch: BatchProgress | None = None
    """With a deadline: the clock, and the mini-batches."""

    @property
    def late(self) -> tuple[str, ...]:
        """The queries that were not done by the deadline."""
        return () if self.batch is None else late_queries(self.queries, self.batch)

    @property
    def status(self) -> str:
        found = {str(query.status) for query in self.queries if query.name not in self.late}
        if "suspended" in found:
            return "suspended"
        if self.late and not found & {"running", "waiting", "interrupted", "failed"}:
            return "late"
        if found & {"running", "waiting", "interrupted"}:
            return "interrupted"
        return "failed" if "failed" in found else "done"

    @property
    def is_to_be_gone_on_with(self) -> bool:
        """Whether something that is late is not even done."""
        late = (query for query in self.queries if query.name in self.late)
        return self.status == "late" and any(query.status != "done" for query in late)

    @property
    def exit_code(self) -> int:
        if self.status == "interrupted":
            return INTERRUPTED
        return {"failed": 1, "late": LATE, "suspended": SUSPENDED}.get(self.status, 0)

    def to_builtins(self) -> dict[str, Any]:
        from headway.session.progress import summary_rows

        rows = zip(summary_rows(self.queries), self.queries, strict=True)
        return {
            "run": self.run_id,
            "url": self.url,
            "status": self.status,
            "seconds": round(self.seconds, 3),
            **({} if self.batch is None else {"batch": batch_to_builtins(self)}),
            "queries": [{**row, "error": error_object(query.error)} for row, query in rows],
        }


def run_batch(
    session: Session,
    statements: Iterable[Statement],
    asked: AskedBatch | None = None,
    *,
    quiet: bool,
    json: bool,
    tick: Tick = lambda handle: None,
) -> Outcome:
    """Run the statements with progress on the terminal. An interrupt ends the run, not us. `tick`
    is called while they run."""
    began = time.monotonic()
    asked = asked or AskedBatch()
    queries = [asked.query(session, each.name, each.sql) for each in statements]
    with interrupts.deferred():
        with spinner(f"planning {plural(len(queries), 'query', 'queries')}", quiet=quiet):
            handle = asked.start(session, queries)
        return follow_to_end(session, handle, began, quiet=quiet, json=json, tick=tick)


def follow_to_end(
    session: Session,
    handle: RunHandle,
    began: float,
    *,
    quiet: bool,
    json: bool,
    tick: Tick = lambda handle: None,
) -> Outcome:
    """Show a run that was started until it ends. A batch that goes on after its deadline is
    reported on at that time as well."""
    from headway.session import BatchHandle

    told = False
    display = make_display(quiet=quiet, json=json)

    def look() -> None:
        nonlocal told
        tick(handle)
        console = display.console()
        if isinstance(handle, BatchHandle) and not told and console is not None:
            batch = handle.batch()
            goes_on = handle.goes_on_after_deadline
            if goes_on and batch.remaining is not None and batch.remaining <= 0:
                told = True
                seconds = time.monotonic() - began
                print_batch(
                    Outcome(handle.id, handle.url, handle.progress(), seconds, batch), console
                )

    with interrupts.deferred():
        settings = handle.settings
        follow(handle, display, settings.progress.interval, settings.suspension.grace, look)
        taken_away = interrupts.terminated and settings.suspension.on_preemption == "suspend"
        if not handle.finished and not taken_away:  # or it is resumed from its last image
            _end_unstoppable(session.store, handle.id, goes_on=isinstance(handle, BatchHandle))
        batch = handle.batch() if isinstance(handle, BatchHandle) else None
        seconds = time.monotonic() - began
        return Outcome(handle.id, handle.url, handle.progress(), seconds, batch)


def _end_unstoppable(store: ReliableStore, run_id: str, *, goes_on: bool) -> None:
    """Say in the run that it was interrupted, for a query that does not let go. What that query
    would still write is refused; where it was quicker than us, its own word stands. A batch
    `goes_on` when it is resumed, and so does a run of which something is kept."""
    from headway.session.resuming import has_images

    with suppress(StoreConflict):
        run = Run.open(store, run_id)
        run.stop("interrupted") if goes_on or has_images(run) else run.end("interrupted")


def print_outcome(outcome: Outcome, console: Console, *, bars: bool) -> None:
    """The table of the queries; what went wrong with them on stderr; where the run is kept."""
    columns = ["query", "rows", "seconds", *([""] if bars else []), "engine", "status"]
    shown = table(*columns, numbers=("rows", "seconds"))
    longest = max(query.seconds for query in outcome.queries)
    for query in outcome.queries:
        cells: list[Text | str] = [query.name, count_text(query.rows), seconds_text(query.seconds)]
        cells += [bar_text(query.seconds, longest)] if bars else []
        late = query.name in outcome.late and query.status != "failed"
        shown.add_row(*cells, query.engine, status_text("late" if late else query.status))
    if len(outcome.queries) > 1:
        shown.add_section()
        shown.add_row(*_totals(outcome, bars=bars), style="bold")
    console.print("", shown, "")
    for query in outcome.queries:
        if query.error is not None and query.status == "failed":
            print_error(query.error, of=query.name)
    if outcome.batch is not None:
        print_batch(outcome, console)
    if outcome.exit_code == INTERRUPTED:
        print_interrupted(outcome)
        return
    told = f" is kept in {outcome.url}"
    if outcome.status == "suspended":
        told = f" is suspended; go on with it: headway resume {outcome.run_id}"
    elif outcome.is_to_be_gone_on_with:
        told += f"; go on with what is late: headway resume {outcome.run_id} --deadline 5m"
    console.print(Text("Run ").append(outcome.run_id, "bold").append(told))


def print_interrupted(outcome: Outcome) -> None:
    told = f"interrupted; run {outcome.run_id} is kept"
    if outcome.batch is not None:
        told += f"; go on with it: headway resume {outcome.run_id} --deadline 5m"
    stderr().print(Text(told, "yellow"))


def _totals(outcome: Outcome, *, bars: bool) -> list[str]:
    rows = sum(query.rows or 0 for query in outcome.queries)
    done = sum(query.status == "done" for query in outcome.queries)
    return [
        f"{len(outcome.queries)} queries",
        count_text(rows),
        seconds_text(sum(query.seconds for query in outcome.queries)),
        *([""] if bars else []),
        "",
        f"{done} done",
    ]
