"""headway bench: one promise, measured."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.base.errors import WrongUsage
from headway.cli import options
from headway.cli.output import print_json, stdout, table
from headway.cli.sessions import open_spark
from headway.cli.steps import steps_bar

if TYPE_CHECKING:
    from headway.bench import Benchmark


def bench(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Which one; without it they are listed."),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            metavar="N", help="The scale of the data; each has its own.", show_default=False
        ),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Measured passes; each has its own.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where generated tables are kept; in the user's cache by default.",
            show_default=False,
        ),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on", help="From what was found before it was interrupted (batch, migrate)."
        ),
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
    master: options.Master = None,
    config: options.Config = None,
    assignments: options.Assignments = None,
) -> None:
    """Run a benchmark and print what it measured."""
    from headway.bench import BENCHMARKS, BenchmarkOptions

    if name is None:
        _list(list(BENCHMARKS.values()), json=json)
        return
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        near = difflib.get_close_matches(name, BENCHMARKS, n=1)
        raise WrongUsage(
            f"there is no benchmark {name}",
            hint=f"did you mean {near[0]}?" if near else f"there are: {', '.join(BENCHMARKS)}",
        )
    if go_on and not benchmark.can_go_on:
        kept = ", ".join(each.name for each in BENCHMARKS.values() if each.can_go_on)
        raise WrongUsage(
            f"{name} keeps nothing to go on from",
            hint=f"run it from its beginning; those that go on: {kept}",
        )
    settings = options.settings_from(
        config, assignments, master=master, usual_master=benchmark.master
    )
    asked = BenchmarkOptions(
        scale=benchmark.scale if scale is None else scale,
        data=(data or options.cache_folder()).expanduser().absolute(),
        repeat=repeat or benchmark.repeat,
        go_on=go_on,
    )
    with open_spark(settings, quiet=quiet) as spark, steps_bar(name, quiet=quiet) as tell:
        measured = benchmark.run(spark, asked, tell)
    if json:
        print_json(measured)
    else:
        _print(measured)


def _list(benchmarks: list[Benchmark], *, json: bool) -> None:
    if json:
        told = [{"name": each.name, "doc": each.doc, "scale": each.scale} for each in benchmarks]
        print_json({"benchmarks": told})
        return
    shown = table("benchmark", "scale", "what it measures", numbers=("scale",))
    for each in benchmarks:
        shown.add_row(each.name, f"{each.scale:g}", each.doc)
    stdout().print(shown)


def _print(measured: dict[str, Any]) -> None:
    shown = table("measure", "value")
    for key, value in measured.items():
        if isinstance(value, dict):
            for inner, each in value.items():
                shown.add_row(f"{key}: {inner}", _value(each))
        else:
            shown.add_row(key, _value(value))
    stdout().print(shown)


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
