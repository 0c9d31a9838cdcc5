"""A run as it goes: bars on a terminal, a line per finished query elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headway.base.errors import HeadwayError
from headway.cli.interrupts import interrupts
from headway.cli.output import duration_text, plural, status_mark, stderr

if TYPE_CHECKING:
    from headway.session import QueryProgress, RunHandle

_BAR_WIDTH = 32
_TICK = 0.1
_PATIENCE = 15.0
_UNDER_WAY = ("waiting", "running")


class Display(Protocol):
    def update(self, queries: tuple[QueryProgress, ...], clock: str = "") -> None: ...

    def console(self) -> Console | None:
        """For what is told while the run goes on; None where nothing is."""

    def close(self) -> None: ...


def make_display(*, quiet: bool, json: bool) -> Display:
    console = stderr()
    if quiet:
        return Nothing()
    if console.is_terminal:
        return Bars(console)
    return Nothing(console) if json else Lines(console)


def follow(
    handle: RunHandle,
    display: Display,
    interval: float,
    grace: float,
    tick: Callable[[], None] = lambda: None,
) -> None:
    """Show the run until it ends, or until an interrupt has not ended it in time. There is `grace`
    in addition when the machine is being taken away. `tick` is called all the while."""
    look_at = 0.0
    give_up_at: float | None = None
    try:
        while not handle.wait(min(interval, _TICK)):
            now = time.monotonic()
            if now >= look_at:
                display.update(handle.progress(), _clock(handle))
                tick()
                look_at = now + interval
            if interrupts.requested and give_up_at is None:
                give_up_at = now + _PATIENCE
                if interrupts.terminated:
                    threading.Thread(target=_preempted, args=(handle,), daemon=True).start()
                    give_up_at += grace
                else:
                    handle.cancel()
            if give_up_at is not None and now >= give_up_at:
                return  # a query that cannot be stopped must not hold the user
        display.update(handle.progress(), _clock(handle))
    finally:
        display.close()


def _preempted(handle: RunHandle) -> None:
    try:
        handle.preempted()
    except HeadwayError:
        handle.cancel()  # what is done cannot be kept, and there is no time left


def _clock(handle: RunHandle) -> str:
    """Of a batch: what is left of the deadline, and what is done at the moment."""
    from headway.session import BatchHandle

    if handle.paused:
        return "paused"
    if not isinstance(handle, BatchHandle):
        return ""
    batch = handle.batch()
    left = batch.remaining
    if left is None:
        return batch.doing
    what = f"{duration_text(left)} left" if left > 0 else f"{duration_text(-left)} late"
    return f"{what}  {batch.doing}"


class Nothing:
    def __init__(self, console: Console | None = None) -> None:
        self._console = console

    def update(self, queries: tuple[QueryProgress, ...], clock: str = "") -> None:
        return

    def console(self) -> Console | None:
        return self._console

    def close(self) -> None:
        return


class Lines:
    """For logs: a line for every query that ended."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told: set[str] = set()

    def update(self, queries: tuple[QueryProgress, ...], clock: str = "") -> None:
        for query in queries:
            if query.status not in _UNDER_WAY and query.name not in self._told:
                self._told.add(query.name)
                place = f"[{len(self._told)}/{len(queries)}]"
                self._console.print(Text(f"{place} {query.name}: {_outcome(query)}"))

    def console(self) -> Console | None:
        return self._console

    def close(self) -> None:
        return


class Bars:
    """For terminals: a bar per running query with its pipelines, one for the whole run, and above
    them the queries that ended last. All of it goes away for the table that follows."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def update(self, queries: tuple[QueryProgress, ...], clock: str = "") -> None:
        self._live.update(self._picture(queries, clock), refresh=True)

    def console(self) -> Console | None:
        return self._live.console

    def close(self) -> None:
        self._live.stop()

    def _picture(self, queries: tuple[QueryProgress, ...], clock: str) -> Group:
        ended = [query for query in queries if query.status not in _UNDER_WAY]
        running = [query for query in queries if query.status == "running"]
        width = max(len(query.name) for query in queries)
        shown = max(0, min(12, self._console.size.height - len(running) - 4))
        lines = [_ended_line(query, width) for query in ended[max(0, len(ended) - shown) :]]
        grid = Table.grid(padding=(0, 1))
        for query in running:
            grid.add_row("▸", Text(query.name), _bar(query), _pipelines(query))
        if len(queries) > 1:
            whole = ProgressBar(len(queries), len(ended), width=_BAR_WIDTH, complete_style="green")
            spent = duration_text(time.monotonic() - self._began)
            grid.add_row(
                "", Text("all", "bold"), whole, f"{len(ended)}/{len(queries)} queries  {spent}"
            )
        told = (Text(clock, "cyan"),) if clock else ()
        stopping = (Text("stopping ...", "yellow"),) if interrupts.requested else ()
        return Group(*lines, grid, *told, *stopping)


def _bar(query: QueryProgress) -> ProgressBar:
    total = query.pipelines_total
    return ProgressBar(
        total or None,
        query.pipelines_done,
        width=_BAR_WIDTH,
        pulse=not total,
        animation_time=time.monotonic(),
    )


def _pipelines(query: QueryProgress) -> str:
    counted = f"{query.pipelines_done}/{query.pipelines_total} pipelines  "
    return f"{counted if query.pipelines_total else ''}{duration_text(query.seconds)}"


def _ended_line(query: QueryProgress, width: int) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis").append_text(status_mark(query.status))
    return line.append(f" {query.name:{width}}  ").append(_outcome(query), style="dim")


def _outcome(query: QueryProgress) -> str:
    if query.status == "failed" and query.error is not None:
        return f"{query.error.name}: {query.error.message}"
    if query.status == "interrupted":
        return f"interrupted after {duration_text(query.seconds)}"
    if query.status == "suspended":
        return f"suspended after {duration_text(query.seconds)}"
    rows = "done" if query.rows is None else plural(query.rows, "row")
    return f"{rows} in {duration_text(query.seconds)}"
