"""headway vacate: suspend all that runs on this machine."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

import typer
from rich.console import Console

from headway.base.errors import HeadwayError, WrongUsage
from headway.cli import options
from headway.cli.commands.suspend import print_suspended, suspend_run, suspension
from headway.cli.output import duration_text, plural, print_json, stdout
from headway.cli.steps import spinner
from headway.cli.stores import open_existing_store
from headway.cli.urgent import running_here
from headway.storage import ProcessRecord, Run, is_gone

_LOOK_SECONDS = 0.05
_PATIENCE = 30.0


def vacate(
    driver: Annotated[
        int | None,
        typer.Option(
            "--driver",
            metavar="PID",
            help="Only what this process drives.",
            show_default=False,
        ),
    ] = None,
    wait_pipeline: Annotated[
        bool,
        typer.Option(
            "--wait-pipeline/--now", help="Finish the pipelines that are running, or drop them."
        ),
    ] = False,
    within: options.Within = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Suspend every run that this machine drives, and say when the machine is free.

    All runs of the store whose drivers are processes of this machine are suspended at the same
    time. The machine is free when nothing of them is under way and their drivers have ended; a
    driver that does other things beside, such as a notebook, is named and left alone. Where a run
    could not be suspended it goes on, and the exit code is 1.
    """
    settings = options.settings_from(config, assignments, store=store)
    how = suspension(wait_pipeline, within)
    reached = open_existing_store(settings.store.url)
    runs = [] if reached is None else running_here(reached)
    runs = runs if driver is None else _driven_by(driver, runs)
    drivers = {run.run_id: run.driver() for run in runs}  # others may resume them elsewhere
    began = time.monotonic()

    def suspend(run: Run) -> dict[str, Any]:
        try:
            return suspend_run(run, how, quiet=True)
        except HeadwayError as error:
            status = run.summary().status
            return {"run": run.run_id, "status": status, "error": error.describe()}

    with (
        spinner(f"suspending {plural(len(runs), 'run')}", quiet=quiet),
        ThreadPoolExecutor(max(1, len(runs)), "headway-vacate") as pool,
    ):
        suspended = list(pool.map(suspend, runs))
        idle = time.monotonic() - began
        going_on = [run for run, each in zip(runs, suspended, strict=True) if "error" in each]
        there = _still_there({*drivers.values()} - {drivers[run.run_id] for run in going_on})
    told: dict[str, Any] = {
        "runs": suspended,
        "seconds_to_suspend": round(idle, 3),
        "seconds": round(time.monotonic() - began, 3),
        "drivers_left": there,
        "runs_left": [run.run_id for run in going_on],
    }
    if json:
        print_json(told)
    else:
        _print_vacated(told, stdout())
    raise typer.Exit(int(bool(going_on)))


def _driven_by(process: int, runs: list[Run]) -> list[Run]:
    found = [run for run in runs if run.driver().pid == process]
    if not found:
        others = ", ".join(sorted({str(run.driver().pid) for run in runs}))
        raise WrongUsage(
            f"process {process} drives no run of this store on this machine",
            hint=f"these do: {others}" if others else "no run is under way here",
        )
    return found


def _print_vacated(told: dict[str, Any], console: Console) -> None:
    for each in told["runs"]:
        if "error" in each:
            console.print(f"run {each['run']} is {each['status']}: {each['error']}", style="red")
        else:
            print_suspended(each, console)
    if not told["runs"]:
        console.print("nothing runs here: the machine is free")
    elif told["runs_left"]:
        left = ", ".join(told["runs_left"])
        console.print(f"the machine is not free, as this could not be suspended: {left}")
    elif told["drivers_left"]:
        processes = ", ".join(map(str, told["drivers_left"]))
        console.print(
            f"nothing is under way after {duration_text(told['seconds_to_suspend'])}; of the "
            f"drivers there are still: {processes}"
        )
    else:
        console.print(f"the machine is free after {duration_text(told['seconds'])}")


def _still_there(drivers: set[ProcessRecord]) -> list[int]:
    """Those that have not ended a while after their runs were suspended."""
    until = time.monotonic() + _PATIENCE
    while drivers and time.monotonic() < until:
        drivers = {driver for driver in drivers if not is_gone(driver)}
        time.sleep(_LOOK_SECONDS)
    return sorted(driver.pid for driver in drivers)
