"""headway resume: go on with a run that was suspended, or whose driver is gone."""

from __future__ import annotations

import time

import typer

from headway.cli import options
from headway.cli.batch import follow_to_end, print_outcome
from headway.cli.output import print_json, stdout
from headway.cli.sessions import open_session
from headway.cli.stores import find_run

_FEWEST_FOR_BARS = 3


def resume(
    run_id: options.RunId,
    tables: options.Tables = None,
    deadline: options.Deadline = None,
    take_over: options.TakeOver = False,
    unchecked: options.Unchecked = False,
    snapshot_every: options.SnapshotEvery = None,
    on_preemption: options.OnPreemption = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    master: options.Master = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Go on with a run that was suspended, or whose driver was killed or has failed.

    Queries that were done stay done, and what was kept of the others is used, on whichever master
    and engine. For a batch without a new deadline, what is left of the first one counts.
    """
    settings = options.settings_from(
        config,
        assignments,
        store=store,
        master=master,
        snapshot_every=snapshot_every,
        on_preemption=on_preemption,
    )
    seconds = None if deadline is None else options.seconds_of(deadline, "--deadline")
    _, found = find_run(settings.store.url, run_id)
    began = time.monotonic()
    with open_session(settings, tables or (), quiet=quiet) as session:
        handle = session.resume(found, deadline=seconds, take_over=take_over, unchecked=unchecked)
        outcome = follow_to_end(session, handle, began, quiet=quiet, json=json)
        if json:
            print_json(outcome.to_builtins())
        else:
            print_outcome(outcome, stdout(), bars=len(outcome.queries) >= _FEWEST_FOR_BARS)
    raise typer.Exit(outcome.exit_code)
