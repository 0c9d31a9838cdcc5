"""Progress of work that goes in steps: starting Spark, writing tables, planning, measuring."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headway.cli.output import stderr
from headway.workloads.workload import Progress as TellProgress


@contextmanager
def spinner(text: str, *, quiet: bool = False) -> Iterator[None]:
    """Something moves while a single step takes its time."""
    console = stderr()
    if quiet or not console.is_terminal:
        yield
        return
    with console.status(text, spinner="dots"):
        yield


@contextmanager
def steps_bar(what: str, *, quiet: bool = False) -> Iterator[TellProgress]:
    """A bar on the terminal that goes away when the work is done; gives what to tell it with."""
    console = stderr()
    if quiet or not console.is_terminal:
        yield _say_nothing
        return
    with Progress(
        TextColumn(what),
        BarColumn(32),
        MofNCompleteColumn(),
        TextColumn("{task.fields[step]}", style="dim"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    ) as bar:
        task = bar.add_task(what, total=None, step="")

        def tell(step: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, step=step)

        yield tell


def _say_nothing(step: str, steps_done: int, steps_in_all: int) -> None:
    return
