"""headway demo: the main job on data made for the purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from headway.cli import options
from headway.cli.batch import print_interrupted, print_outcome, run_batch
from headway.cli.interrupts import INTERRUPTED
from headway.cli.output import bytes_text, duration_text, print_json, stdout
from headway.cli.sessions import open_session
from headway.cli.statements import Statement
from headway.cli.steps import steps_bar
from headway.workloads import TPCH


def demo(
    scale: Annotated[float, typer.Option(metavar="N", help="The scale of TPC-H.")] = 0.05,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where generated tables are kept; in the user's cache by default.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    master: options.Master = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Make TPC-H at a small scale and run its 22 queries as one batch."""
    settings = options.settings_from(config, assignments, store=store, master=master)
    folder = (data or options.cache_folder()).expanduser().absolute() / f"tpch-{scale:g}"
    with steps_bar(f"writing TPC-H at scale {scale:g}", quiet=quiet) as tell:
        made = TPCH.generate(scale, folder, progress=tell)
    if not json:
        stdout().print(
            f"TPC-H at scale {made.scale:g}: {made.rows:,} rows, {bytes_text(made.bytes)}, "
            f"in {made.directory}",
            soft_wrap=True,
        )
    with open_session(settings, [str(made.directory)], quiet=quiet) as session:
        statements = [Statement(name, sql) for name, sql in TPCH.queries().items()]
        outcome = run_batch(session, statements, quiet=quiet, json=json)
    if json:
        if outcome.exit_code == INTERRUPTED:
            print_interrupted(outcome)
        print_json({"scale": made.scale, "data": str(made.directory), **outcome.to_builtins()})
    else:
        console = stdout()
        print_outcome(outcome, console, bars=True)
        if outcome.status == "done":
            hint = Text(f"{duration_text(outcome.seconds)} in all. Look at it again with ", "dim")
            console.print(hint.append("headway show last"), soft_wrap=True)
    raise typer.Exit(outcome.exit_code)
