"""The options that commands share, and the settings that come of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headway.base.config import Settings, load_settings, parse_assignments
from headway.base.errors import WrongUsage
from headway.base.setting_kinds import Duration

_PANEL = "Settings"
_BATCH_PANEL = "Batches with a deadline"
_KEEPING_PANEL = "Keeping progress"

RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or `last`.")
]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Even from a driver that may still be there, such as on a machine that cannot be "
        "reached: it cannot go on then.",
    ),
]
Unchecked = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        help="Believe that tables whose files only Spark can read are the same as before.",
    ),
]
WaitPipeline = Annotated[
    bool | None,
    typer.Option(
        "--wait-pipeline/--now",
        help="Finish the pipelines that are running first, so that no work is lost, and no others; "
        "or drop them. Without either, they are finished, and the next ones where that is cheaper "
        "than moving.",
        show_default=False,
    ),
]
Within = Annotated[
    str | None,
    typer.Option(
        "--within",
        metavar="TIME",
        help="The time until the machine is gone, such as 20s: keep what fits.",
        show_default=False,
    ),
]
SnapshotEvery = Annotated[
    str | None,
    typer.Option(
        "--snapshot-every",
        metavar="TIME|auto",
        help="Keep what is done while the queries run, so that a lost driver costs little: after "
        "so long, or as often as it pays.",
        rich_help_panel=_KEEPING_PANEL,
        show_default=False,
    ),
]
OnPreemption = Annotated[
    str | None,
    typer.Option(
        "--on-preemption",
        metavar="stop|suspend",
        help="On SIGTERM, or when Spark is told that its machines are taken away: stop, which is "
        "the default, or suspend.",
        rich_help_panel=_KEEPING_PANEL,
        show_default=False,
    ),
]
Reuse = Annotated[
    bool,
    typer.Option(
        "--reuse",
        help="Read what earlier runs have kept of the same work over the same data, and leave what "
        "this one keeps to later ones.",
        rich_help_panel=_KEEPING_PANEL,
    ),
]

Store = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="Where runs are kept: a folder or an address such as s3://bucket/folder.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Spark's master, such as local[4].",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A TOML file with settings, instead of headway.toml.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="AREA.NAME=VALUE",
        help="One setting; may be repeated. `headway config` lists them.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, on the last line of stdout.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE.sql",
        help="Files with Spark SQL, statements separated by `;`. A `-` reads standard input.",
        show_default=False,
    ),
]
Texts = Annotated[
    list[str] | None,
    typer.Option(
        "--sql",
        metavar="TEXT",
        help="A query given on the command line; may be repeated.",
        show_default=False,
    ),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--tables",
        metavar="DIR|CATALOG",
        help="A folder with a sub-folder or a file per table, or the name of a catalog or database "
        "that Spark knows; may be repeated.",
        show_default=False,
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="The name of the query, instead of its file's; further ones get _2, _3.",
        show_default=False,
    ),
]

Deadline = Annotated[
    str | None,
    typer.Option(
        "--deadline",
        metavar="TIME",
        help="Run the queries as a batch that shares work, as many as possible done within this "
        "time: 90s, 5m, 2h.",
        rich_help_panel=_BATCH_PANEL,
        show_default=False,
    ),
]
AfterDeadlineOption = Annotated[
    str,
    typer.Option(
        "--after-deadline",
        metavar="stop|continue",
        help="What becomes of queries that are not done by the deadline.",
        rich_help_panel=_BATCH_PANEL,
    ),
]
DeadlinesOf = Annotated[
    list[str] | None,
    typer.Option(
        "--deadline-of",
        metavar="QUERY=TIME",
        help="A deadline for one query, before that of all; may be repeated.",
        rich_help_panel=_BATCH_PANEL,
        show_default=False,
    ),
]
Priorities = Annotated[
    list[str] | None,
    typer.Option(
        "--priority",
        metavar="QUERY=NUMBER",
        help="Queries with a higher number come first; may be repeated.",
        rich_help_panel=_BATCH_PANEL,
        show_default=False,
    ),
]
Failures = Annotated[
    float | None,
    typer.Option(
        "--failures-per-hour",
        min=0.0,
        metavar="N",
        help="Executors that are expected to be lost; otherwise as in earlier batches.",
        rich_help_panel=_BATCH_PANEL,
        show_default=False,
    ),
]


def seconds_of(text: str, option: str) -> float:
    """A length of time, as the option was given it."""
    try:
        return Duration(minimum=0.001).parse(text)
    except ValueError:
        raise WrongUsage(
            f"{option} {text} is no length of time", hint="write it as 90s, 5m or 2h"
        ) from None


def by_query(items: list[str] | None, option: str) -> dict[str, str]:
    """What follows the query's name in `QUERY=VALUE`."""
    found = {}
    for item in items or ():
        name, sign, value = item.partition("=")
        if not (name and sign and value):
            raise WrongUsage(f"{option} {item} does not name a query", hint=f"{option} QUERY=VALUE")
        found[name] = value
    return found


def settings_from(
    config: Path | None = None,
    assignments: list[str] | None = None,
    *,
    store: str | None = None,
    master: str | None = None,
    usual_master: str | None = None,
    snapshot_every: str | None = None,
    on_preemption: str | None = None,
    reuse: bool = False,
) -> Settings:
    """Spark's defaults, the environment, the TOML file and the command line, merged.

    `usual_master` is the command's own default.
    """
    from headway.spark.defaults import spark_defaults

    given = parse_assignments(assignments or ())
    if store is not None:
        given["store.url"] = store
    if master is not None:
        given["spark.master"] = master
    if snapshot_every is not None:
        given["suspension.snapshot_every"] = snapshot_every
    if on_preemption is not None:
        given["suspension.on_preemption"] = on_preemption
    if reuse:
        given["suspension.reuse"] = "true"
    conf = spark_defaults(os.environ)
    settings = load_settings(spark_conf=conf, toml_file=config, command_line=given)
    if usual_master is not None and settings.origin("spark.master") == "default":
        given["spark.master"] = usual_master
        return load_settings(spark_conf=conf, toml_file=config, command_line=given)
    return settings


def cache_folder() -> Path:
    """Where generated tables are kept from one time to the next, as XDG wants it."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    root = named if named.is_absolute() else Path("~/.cache").expanduser()
    return root / "headway" / "data"
