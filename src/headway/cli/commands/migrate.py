"""headway migrate: a running run goes on elsewhere."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headway.cli import options
from headway.cli.batch import follow_to_end, print_outcome
from headway.cli.commands.suspend import print_suspended, suspend_run, suspension
from headway.cli.output import print_json, stderr, stdout
from headway.cli.requests import UNDER_WAY, check_status
from headway.cli.sessions import open_session
from headway.cli.stores import find_run
from headway.storage import Run

_FEWEST_FOR_BARS = 3


def migrate(
    run_id: options.RunId,
    to: Annotated[
        str, typer.Option("--to", metavar="MASTER", help="The Spark master to go on with.")
    ],
    tables: options.Tables = None,
    wait_pipeline: options.WaitPipeline = None,
    within: options.Within = None,
    unchecked: options.Unchecked = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Stop a run where it is, and go on with it here, on another Spark master.

    Spark is started on the new master while the run still goes on; then the run is suspended, and
    resumed from what is done of it. It may as well be suspended already.
    """
    settings = options.settings_from(config, assignments, store=store, master=to)
    how = suspension(wait_pipeline, within)
    reached, found = find_run(settings.store.url, run_id)
    run = Run.open(reached, found)
    if not run.summary().resumable:
        check_status(run, UNDER_WAY, "migrate")
    with open_session(settings, tables or (), quiet=quiet) as session:
        began = time.monotonic()
        moved = None
        if not run.summary().resumable:
            session.check_tables(found, unchecked=unchecked)  # before anything is stopped
            began = time.monotonic()
            moved = suspend_run(run, how, quiet=quiet)
            if not run.summary().resumable:  # a driver that was killed meanwhile leaves it so too
                if json:
                    print_json({"suspended": moved})
                else:
                    print_suspended(moved, stdout())
                raise typer.Exit(int(moved["status"] != "done"))
            if not json and not quiet:
                print_suspended(moved, stderr())
        handle = session.resume(found, unchecked=unchecked)
        outcome = follow_to_end(session, handle, began, quiet=quiet, json=json)
        if json:
            print_json({**outcome.to_builtins(), "suspended": moved})
        else:
            print_outcome(outcome, stdout(), bars=len(outcome.queries) >= _FEWEST_FOR_BARS)
    raise typer.Exit(outcome.exit_code)
