"""headway suspend: stop a run, and keep what is done of its queries."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import typer
from rich.console import Console
from rich.text import Text

from headway.cli import options
from headway.cli.output import bytes_text, duration_text, plural, print_json, stdout
from headway.cli.requests import UNDER_WAY, ask_until, check_status
from headway.cli.steps import spinner
from headway.cli.stores import find_run
from headway.session.requests import Request
from headway.session.resuming import IMAGE
from headway.session.suspending import Suspension
from headway.storage import Run

_PATIENCE = 30.0
"""For a driver that has let its time pass."""
_NO_IMAGE: Mapping[str, Any] = {"states": {}, "progress": {}, "not_kept": []}


def suspend(
    run_id: options.RunId,
    wait_pipeline: options.WaitPipeline = None,
    within: options.Within = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Stop a run and keep what is done of its queries, to go on with it elsewhere.

    `headway resume` goes on with the run, in any process that reaches the store. Where what is done
    cannot be kept, the run goes on. The exit code is 1 when the run failed or was lost meanwhile.
    """
    settings = options.settings_from(config, assignments, store=store)
    how = suspension(wait_pipeline, within)
    reached, found = find_run(settings.store.url, run_id)
    run = Run.open(reached, found)
    check_status(run, UNDER_WAY, "suspend")
    told = suspend_run(run, how, quiet=quiet)
    if json:
        print_json(told)
    else:
        print_suspended(told, stdout())
        if told["status"] == "suspended":
            stdout().print(Text("go on with it: ").append(f"headway resume {found}", "bold"))
    raise typer.Exit(int(told["status"] not in ("suspended", "done")))


def suspension(wait_pipeline: bool | None, within: str | None) -> Suspension:
    """What was asked for on the command line."""
    seconds = None if within is None else options.seconds_of(within, "--within")
    return Suspension(wait_pipeline is not False, seconds, cheaper=wait_pipeline is None)


def suspend_run(run: Run, how: Suspension, *, quiet: bool) -> dict[str, Any]:
    """Has the driver of a run suspend it; what has become of the run."""
    began = time.monotonic()
    request = Request("suspend", wait=how.wait, within=how.within, cheaper=how.cheaper)
    patience = None if how.within is None else how.within + _PATIENCE
    with spinner(f"suspending run {run.run_id}", quiet=quiet):
        status = ask_until(run, request, UNDER_WAY, patience)
    image = newest_image(run) if status == "suspended" else _NO_IMAGE
    sizes = {name: kept["bytes"] for name, kept in image["states"].items()}
    return {
        "run": run.run_id,
        "status": status,
        "seconds": round(time.monotonic() - began, 3),
        "states": sizes,
        "bytes": sum(sizes.values()),
        "progress": image["progress"],
        "not_kept": image["not_kept"],
    }


def newest_image(run: Run) -> Mapping[str, Any]:
    """What its driver said when it kept the states of the queries."""
    images = [event.data for event in run.events() if event.kind == IMAGE]
    return images[-1] if images else _NO_IMAGE


def print_not_kept(names: Collection[str], when: str, console: Console) -> None:
    if names:
        told = f"nothing could be kept of {', '.join(names)}: {when}, it begins anew"
        console.print(told, style="yellow")


def print_suspended(told: dict[str, Any], console: Console) -> None:
    spent = duration_text(told["seconds"])
    if told["status"] != "suspended":
        ended = f"run {told['run']} is {told['status']} after {spent}"
        lost = told["status"] == "lost"
        why = "its driver is gone" if lost else "there was nothing left to suspend"
        console.print(f"{ended}: {why}")
        return
    kept = f"{plural(len(told['states']), 'state')} of {bytes_text(told['bytes'])}"
    console.print(f"run {told['run']} is suspended after {spent}, with {kept}")
    print_not_kept(told["not_kept"], "resumed", console)
