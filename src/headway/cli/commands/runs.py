"""headway runs: the runs of a store."""

from __future__ import annotations

import msgspec
from rich.text import Text

from headway.cli import options
from headway.cli.output import (
    local_time,
    plural,
    print_json,
    seconds_text,
    status_text,
    stdout,
    table,
)
from headway.cli.stores import open_existing_store
from headway.storage import RunSummary, list_runs


def runs(
    json: options.Json = False,
    store: options.Store = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """List the runs that are kept, newest first."""
    settings = options.settings_from(config, assignments, store=store)
    opened = open_existing_store(settings.store.url)
    found = list_runs(opened) if opened is not None else []
    if json:
        url = opened.url if opened is not None else settings.store.url
        print_json({"store": url, "runs": [msgspec.to_builtins(each) for each in found]})
        return
    if not found:
        stdout().print(f"There are no runs in {settings.store.url}", soft_wrap=True)
        return
    print_runs(found)
    stdout().print(
        Text(f"{plural(len(found), 'run')} in {settings.store.url}", "dim"), soft_wrap=True
    )


def print_runs(found: list[RunSummary]) -> None:
    shown = table("run", "started", "status", "done", "failed", "queries", "seconds",
                  numbers=("done", "failed", "queries", "seconds"))  # fmt: skip
    for each in found:
        shown.add_row(
            each.run_id,
            local_time(each.started_at),
            status_text(each.status),
            *(("", "", "") if each.status == "damaged" else _counts(each)),
            seconds_text(each.seconds),
        )
    console = stdout()
    console.print(shown)
    for each in found:
        if each.reason is not None:
            reason = Text(f"{each.run_id} is damaged: {each.reason}", "red")
            console.print(reason, soft_wrap=True)


def _counts(run: RunSummary) -> tuple[str, str, str]:
    return str(run.queries_done), str(run.queries_failed or ""), str(run.queries_total)
