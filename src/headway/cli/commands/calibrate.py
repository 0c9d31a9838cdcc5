"""headway calibrate: how long shared work takes here."""

from __future__ import annotations

from headway.cli import options
from headway.cli.output import print_json, stdout, table
from headway.cli.sessions import open_session
from headway.cli.steps import steps_bar

_UNITS = {
    "steps": "a shared plan, whatever is in it",
    "values_read": "a million values read",
    "conditions": "a million levels of search trees",
    "rows_built": "a million rows of a joined table",
    "rows_probed": "a million rows looked up",
    "rows_passed": "a million rows looked up where some queries pass",
    "rows_routed": "a million rows led to their queries",
    "rows_grouped": "a million rows grouped",
    "rows_kept": "a million rows kept for later",
    "queries": "a query finished from shared work",
}


def calibrate(
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    master: options.Master = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Learn how long the kinds of shared work take on this cluster.

    Batches with a deadline are planned by it. Every batch refines what is known, so this is worth
    its half minute before the first one that matters, and when the cluster has changed.
    """
    settings = options.settings_from(config, assignments, store=store, master=master)
    with (
        open_session(settings, quiet=quiet) as session,
        steps_bar("calibrating", quiet=quiet) as tell,
    ):
        found = session.calibrate(tell)
    if json:
        print_json(found.to_builtins())
        return
    shown = table("work", "seconds", numbers=("seconds",))
    for name, told in _UNITS.items():
        million = 1e6 if told.startswith("a million") else 1.0
        shown.add_row(told, f"{found.rates[name] * million:.3f}")
    console = stdout()
    console.print(shown)
    console.print(
        f"Predictions of these {found.batches} batches were off by {found.error_before:.0%}, "
        f"and would now be by {found.error_after:.0%}."
    )
