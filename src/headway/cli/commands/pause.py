"""headway pause and continue: a run makes room for others, in the process that drives it."""

from __future__ import annotations

import time

from headway.cli import options
from headway.cli.commands.suspend import newest_image, print_not_kept
from headway.cli.output import duration_text, print_json, stdout
from headway.cli.requests import ask_until, check_status
from headway.cli.steps import spinner
from headway.cli.stores import find_run
from headway.session.requests import Request
from headway.storage import Run


def pause(
    run_id: options.RunId,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Stop a run for a while: what is done of its queries is kept, and nothing of it is under way.

    The process that drives the run stays, and goes on after `headway continue`.
    """
    settings = options.settings_from(config, assignments, store=store)
    reached, found = find_run(settings.store.url, run_id)
    run = Run.open(reached, found)
    check_status(run, ("running",), "pause")
    began = time.monotonic()
    with spinner(f"pausing run {found}", quiet=quiet):
        status = ask_until(run, Request("pause"), ("running",))
    not_kept = newest_image(run)["not_kept"] if status == "paused" else []
    _tell(found, status, time.monotonic() - began, not_kept, json=json)


def continue_run(
    run_id: options.RunId,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Let a run go on that was paused."""
    settings = options.settings_from(config, assignments, store=store)
    reached, found = find_run(settings.store.url, run_id)
    run = Run.open(reached, found)
    check_status(run, ("paused",), "continue")
    began = time.monotonic()
    with spinner(f"letting run {found} go on", quiet=quiet):
        status = ask_until(run, Request("continue"), ("paused",))
    _tell(found, status, time.monotonic() - began, [], json=json)


def _tell(run_id: str, status: str, seconds: float, not_kept: list[str], *, json: bool) -> None:
    if json:
        told = {"run": run_id, "status": status, "seconds": round(seconds, 3)}
        print_json({**told, "not_kept": not_kept})
    else:
        stdout().print(f"run {run_id} is {status} after {duration_text(seconds)}")
        print_not_kept(not_kept, "continued", stdout())
