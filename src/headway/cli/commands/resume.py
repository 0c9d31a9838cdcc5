"""headway resume: go on with a run whose driver is gone."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headway.cli import options
from headway.cli.batch import follow_to_end, print_outcome
from headway.cli.output import print_json, stdout
from headway.cli.sessions import open_session
from headway.cli.stores import find_run

_FEWEST_FOR_BARS = 3


def resume(
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or `last`.")],
    tables: options.Tables = None,
    deadline: options.Deadline = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    master: options.Master = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Go on with a batch whose driver was killed.

    Queries that were done stay done, and shared results that were kept are used. Without a new
    deadline, what is left of the first one counts.
    """
    settings = options.settings_from(config, assignments, store=store, master=master)
    seconds = None if deadline is None else options.seconds_of(deadline, "--deadline")
    _, found = find_run(settings.store.url, run_id)
    began = time.monotonic()
    with open_session(settings, tables or (), quiet=quiet) as session:
        handle = session.resume(found, deadline=seconds)
        outcome = follow_to_end(session, handle, began, quiet=quiet, json=json)
        if json:
            print_json(outcome.to_builtins())
        else:
            print_outcome(outcome, stdout(), bars=len(outcome.queries) >= _FEWEST_FOR_BARS)
    raise typer.Exit(outcome.exit_code)
