"""headway data: tables of a benchmark, generated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from headway.cli import options
from headway.cli.output import bytes_text, count_text, print_json, stdout, table
from headway.cli.steps import steps_bar
from headway.workloads import WORKLOADS


def data(
    workload: Annotated[
        Literal["tpch", "tpcds"],
        typer.Argument(metavar="WORKLOAD", help="Which tables.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="A new or empty folder.", show_default=False)
    ],
    scale: Annotated[float, typer.Option(metavar="N", help="1 is about 1 GB of raw data.")] = 1.0,
    parts: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Files that a large table is split into.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Generate the tables of TPC-H or TPC-DS as Parquet.

    A folder that already holds them at this scale is left as it is.
    """
    with steps_bar(f"{workload} at scale {scale:g}", quiet=quiet) as tell:
        made = WORKLOADS[workload].generate(scale, out, parts=parts, progress=tell)
    if json:
        print_json(
            {
                "workload": made.workload,
                "scale": made.scale,
                "directory": str(made.directory),
                "reused": made.reused,
                "rows": made.rows,
                "bytes": made.bytes,
                "tables": {
                    each.name: {"rows": each.rows, "bytes": each.bytes, "files": len(each.files)}
                    for each in made.tables.values()
                },
            }
        )
        return
    shown = table("table", "rows", "files", "size", numbers=("rows", "files", "size"))
    for each in made.tables.values():
        shown.add_row(
            each.name, count_text(each.rows), str(len(each.files)), bytes_text(each.bytes)
        )
    stdout().print(shown)
    stdout().print(
        f"{'Already in' if made.reused else 'Written to'} {made.directory} "
        f"({bytes_text(made.bytes)})",
        soft_wrap=True,
    )
