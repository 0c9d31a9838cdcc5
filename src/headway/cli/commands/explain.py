"""headway explain: what would run where, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.base.errors import WrongUsage
from headway.cli import options
from headway.cli.deadlines import batch_from
from headway.cli.output import plural, print_error, print_json, stdout
from headway.cli.sessions import open_session
from headway.cli.statements import read_statements
from headway.cli.steps import spinner, steps_bar

if TYPE_CHECKING:
    from headway.session import PlannedQuery
    from headway.session.batch_plans import BatchPlan


def explain(
    files: options.Files = None,
    tables: options.Tables = None,
    texts: options.Texts = None,
    name: options.Name = None,
    deadline: options.Deadline = None,
    after_deadline: options.AfterDeadlineOption = "stop",
    deadlines_of: options.DeadlinesOf = None,
    priorities: options.Priorities = None,
    failures_per_hour: options.Failures = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.svg",
            help="With --deadline: draw the batch into this file.",
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
    """Show how queries would run: plan, row estimates, pipelines, engine. Nothing is run.

    With a deadline: how much they overlap, their order, the mini-batches, and what each shares.

    Temporary views and settings of a file are made, for the statements after them. Other commands,
    such as INSERT, are refused: Spark would run them as soon as it sees them.
    """
    settings = options.settings_from(config, assignments, store=store, master=master)
    statements = read_statements(files or (), texts or (), name)
    asked = batch_from(
        [statement.name for statement in statements],
        deadline,
        after_deadline,
        deadlines_of,
        priorities,
        failures_per_hour,
    )
    if picture is not None and not asked.is_batch:
        raise WrongUsage("--picture draws a batch", hint="give the batch a --deadline")
    with open_session(settings, tables or (), quiet=quiet) as session:
        queries = [asked.query(session, each.name, each.sql) for each in statements]
        if asked.is_batch:
            with spinner(f"planning {plural(len(queries), 'query', 'queries')}", quiet=quiet):
                batch = asked.explain(session, queries)
            _tell_batch(batch, picture, json=json)
            raise typer.Exit(int(bool(batch.errors)))
        planned: list[PlannedQuery] = []
        with steps_bar("planning", quiet=quiet) as tell:
            for number, query in enumerate(queries):
                tell(query.name, number, len(queries))
                planned += session.plan(query, act=False)
        if json:
            print_json({"queries": [query.to_builtins() for query in planned]})
        else:
            console = stdout()
            for number, each in enumerate(e for e in planned if e.error is None):
                console.print(("\n" if number else "") + each.explain(), soft_wrap=True)
            for each in planned:
                if each.error is not None:
                    print_error(each.error, of=each.name)
    raise typer.Exit(int(any(each.error is not None for each in planned)))


def _tell_batch(batch: BatchPlan, picture: Path | None, *, json: bool) -> None:
    if picture is not None:
        try:
            picture.expanduser().write_text(batch.picture(), encoding="utf-8")
        except OSError as error:
            raise WrongUsage(f"{picture} cannot be written: {error.strerror}") from error
    if json:
        print_json(batch.to_builtins())
    else:
        stdout().print(batch.explain(), soft_wrap=True, markup=False, highlight=False)
    for name, problem in batch.errors.items():
        print_error(problem, of=name)
