"""headway remove: runs that nobody needs any more."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headway.base.errors import WrongUsage
from headway.cli import options
from headway.cli.output import plural, print_json, stdout
from headway.cli.stores import find_run
from headway.storage import remove_run


def remove(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Ids, their beginnings, or `last`.")
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also one that still runs.")] = False,
    json: options.Json = False,
    store: options.Store = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Delete runs for good, with the rows that they keep."""
    settings = options.settings_from(config, assignments, store=store)
    found = [find_run(settings.store.url, text) for text in runs]
    ids = list(dict.fromkeys(run_id for _, run_id in found))
    if not yes:
        _ask(ids)
    for run_id in ids:
        remove_run(found[0][0], run_id, force=force)
    if json:
        print_json({"removed": ids})
    else:
        stdout().print(f"Removed {plural(len(ids), 'run')}")


def _ask(ids: list[str]) -> None:
    if not sys.stdin.isatty():
        raise WrongUsage("there is nobody to ask whether to delete", hint="give --yes")
    typer.confirm(f"Delete {', '.join(ids)} for good?", abort=True, err=True)
