"""headway demo: the main job on data made for the purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from headway.cli import options
from headway.cli.batch import print_interrupted, print_outcome, run_batch
from headway.cli.interrupts import INTERRUPTED
from headway.cli.losing import Loss, lose_a_worker
from headway.cli.output import bytes_text, duration_text, print_json, stdout
from headway.cli.sessions import open_session
from headway.cli.statements import Statement
from headway.cli.steps import steps_bar
from headway.workloads import TPCH

_THREE_WORKERS = "local-cluster[3,1,1024]"
_KILLED_QUERY = "q09"


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
    """Make TPC-H at a small scale, run its 22 queries as one batch, then kill a worker in the
    middle of a query and show what had to be done again."""
    settings = options.settings_from(
        config, assignments, store=store, master=master, usual_master=_THREE_WORKERS
    )
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
        if not json:
            print_outcome(outcome, stdout(), bars=True)
        loss = None
        if outcome.status == "done":
            killed = Statement(_KILLED_QUERY, TPCH.queries()[_KILLED_QUERY])
            loss = lose_a_worker(session, killed, quiet=quiet)
    if json:
        if outcome.exit_code == INTERRUPTED:
            print_interrupted(outcome)
        told = {"scale": made.scale, "data": str(made.directory), **outcome.to_builtins()}
        print_json({**told, "loss": None if loss is None else loss.to_builtins()})
    else:
        console = stdout()
        if loss is not None:
            console.print(_loss_text(loss), soft_wrap=True)
        if outcome.status == "done":
            hint = Text(f"{duration_text(outcome.seconds)} in all. Look at it again with ", "dim")
            console.print(hint.append("headway show last"), soft_wrap=True)
    raise typer.Exit(outcome.exit_code or int(loss is not None and not loss.rows_equal))


def _loss_text(loss: Loss) -> Text:
    report = loss.report
    text = Text("\nA worker is lost. ", "bold")
    text.append(
        f"{loss.query} on {loss.workers} workers took {duration_text(loss.seconds)}. Run again, "
        f"with worker {loss.worker} killed (SIGKILL) when half of the tasks were done, it took "
        f"{duration_text(loss.seconds_with_loss)}: "
        f"of {report.tasks} tasks {report.repeated} were done again and {report.replayed} outputs "
        "sent once more from the disks of the others. ",
        "not bold",
    )
    right = ("The rows are the same.", "green"), ("The rows DIFFER.", "bold red")
    return text.append(*right[not loss.rows_equal])
