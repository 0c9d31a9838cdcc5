"""headway explain: what would run where, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headway.cli import options
from headway.cli.output import print_error, print_json, stdout
from headway.cli.sessions import open_session
from headway.cli.statements import read_statements
from headway.cli.steps import steps_bar

if TYPE_CHECKING:
    from headway.session import PlannedQuery


def explain(
    files: options.Files = None,
    tables: options.Tables = None,
    texts: options.Texts = None,
    name: options.Name = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = None,
    master: options.Master = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Show how queries would run: plan, row estimates, pipelines, engine. Nothing is run.

    Temporary views and settings of a file are made, for the statements after them. Other commands,
    such as INSERT, are refused: Spark would run them as soon as it sees them.
    """
    settings = options.settings_from(config, assignments, store=store, master=master)
    statements = read_statements(files or (), texts or (), name)
    with open_session(settings, tables or (), quiet=quiet) as session:
        queries = [session.sql(statement.sql, name=statement.name) for statement in statements]
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
