"""headway run: queries through Spark, as one run."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.base.errors import HeadwayError, WrongUsage
from headway.cli import options
from headway.cli.batch import Outcome, print_interrupted, print_outcome, run_batch
from headway.cli.deadlines import batch_from
from headway.cli.interrupts import INTERRUPTED
from headway.cli.output import error_object, print_error, print_json, stdout
from headway.cli.rows import ResultFiles, kept_rows, prepare_folder, print_rows
from headway.cli.sessions import open_session
from headway.cli.statements import read_statements
from headway.cli.urgent import others_paused
from headway.storage import Run

if TYPE_CHECKING:
    from headway.session import Session

_FEWEST_FOR_BARS = 3
_ROWS_OF_ONE = 10


def run(
    files: options.Files = None,
    tables: options.Tables = None,
    texts: options.Texts = None,
    name: options.Name = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write each result as DIR/<query>.parquet.", show_default=False
        ),
    ] = None,
    show: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Rows of each result to show: 10 of a single query, none of several.",
            show_default=False,
        ),
    ] = None,
    deadline: options.Deadline = None,
    after_deadline: options.AfterDeadlineOption = "stop",
    deadlines_of: options.DeadlinesOf = None,
    priorities: options.Priorities = None,
    failures_per_hour: options.Failures = None,
    urgent: Annotated[
        bool,
        typer.Option(
            "--urgent", help="Pause the other runs of this machine until these queries are done."
        ),
    ] = False,
    snapshot_every: options.SnapshotEvery = None,
    on_preemption: options.OnPreemption = None,
    reuse: options.Reuse = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    master: options.Master = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Run SQL queries through Spark, as one run that is kept.

    A query that fails does not keep the others from running; the exit code is then 1. Ctrl-C stops
    the run and keeps what is done. With a deadline, the queries share their common work, and as
    many as possible are done in time; those that are not make the exit code 3.
    """
    settings = options.settings_from(
        config,
        assignments,
        store=store,
        master=master,
        snapshot_every=snapshot_every,
        on_preemption=on_preemption,
        reuse=reuse,
    )
    statements = read_statements(files or (), texts or (), name)
    if (out is not None or show) and not settings.results.keep:
        raise WrongUsage(
            "the rows are not kept, so they cannot be written or shown",
            hint="set results.keep=true, or leave out --out and --show",
        )
    asked = batch_from(
        [statement.name for statement in statements],
        deadline,
        after_deadline,
        deadlines_of,
        priorities,
        failures_per_hour,
    )
    folder = prepare_folder(out) if out is not None else None
    with ExitStack() as stack:
        if urgent:
            stack.enter_context(others_paused(settings.store.url, quiet=quiet))
        session = stack.enter_context(open_session(settings, tables or (), quiet=quiet))
        files_of = ResultFiles(session.store, folder)
        outcome = run_batch(
            session, statements, asked, quiet=quiet, json=json, tick=files_of.write_new
        )
        results = _Results(session, outcome, show)
        problems = files_of.write(outcome.run_id, outcome.queries)
        if json:
            if outcome.exit_code == INTERRUPTED:
                print_interrupted(outcome)
            print_json(results.to_builtins(problems))
        else:
            results.print(problems)
    raise typer.Exit(outcome.exit_code or int(bool(problems)))


class _Results:
    """The rows of the queries that are done."""

    def __init__(self, session: Session, outcome: Outcome, show: int | None) -> None:
        self._run = Run.open(session.store, outcome.run_id)
        self._outcome = outcome
        several = len(outcome.queries) > 1
        default = _ROWS_OF_ONE if session.settings.results.keep and not several else 0
        self._asked = show or 0
        self._limit = default if show is None else show
        self._with_rows = [
            q.name for q in outcome.queries if q.status == "done" and q.rows is not None
        ]

    def print(self, problems: dict[str, HeadwayError]) -> None:
        console = stdout()
        for name in self._with_rows if self._limit else ():
            if len(self._outcome.queries) > 1:
                console.print(f"\n{name}", style="bold")
            print_rows(kept_rows(self._run, name), self._limit, console)
        print_outcome(self._outcome, console, bars=len(self._outcome.queries) >= _FEWEST_FOR_BARS)
        for name, error in problems.items():
            print_error(error, of=name)

    def to_builtins(self, problems: dict[str, HeadwayError]) -> dict[str, Any]:
        told = self._outcome.to_builtins()
        for query in told["queries"]:
            name = query["query"]
            if name in problems:
                query["error"] = error_object(problems[name])
            if self._asked and name in self._with_rows:
                kept = kept_rows(self._run, name)
                query |= {"columns": kept.columns, "first_rows": kept.first(self._asked)}
        return told
