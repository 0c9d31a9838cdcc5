"""The settings: each is declared once, below, with its type, default and a line of documentation.

A later part adds a setting by a field in its area, or an area by a class and a field in `Settings`.
Everything else follows from there: the spellings, the checks, the error messages and
docs/configuration.md, which `make docs` rewrites.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, cast

from headway.base.errors import InvalidSetting
from headway.base.setting import Setting, computed_setting, setting
from headway.base.setting_kinds import (
    Choice,
    Duration,
    Interval,
    JavaMemory,
    Location,
    Number,
    Size,
    Text,
    WholeNumber,
    YesNo,
)
from headway.base.setting_sources import (
    from_command_line,
    from_environment,
    from_spark,
    from_toml,
    parse_assignments,
)

__all__ = [
    "SETTINGS",
    "Settings",
    "describe_settings_markdown",
    "load_settings",
    "parse_assignments",
]

MIB = 2**20


def user_data_folder(environ: Mapping[str, str]) -> str:
    """Where the XDG base directory specification wants a program to keep a user's data."""
    named = Path(environ.get("XDG_DATA_HOME", ""))
    if named.is_absolute():  # the specification tells to ignore a relative one
        return str(named / "headway")
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError:
        raise InvalidSetting(
            "store.url has no default here: this user has no home folder",
            hint="set HEADWAY_STORE_URL to the folder or address of the store",
        ) from None
    return str(home / ".local" / "share" / "headway")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The reliable store, which keeps runs and results."""

    url: str = computed_setting(
        Location(),
        user_data_folder,
        "`$XDG_DATA_HOME/headway`, or `~/.local/share/headway`",
        "Where the store is. The driver and every executor must reach it.",
    )


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What runs the queries."""

    name: str = setting(
        Choice(("auto", "spark", "pipelined")),
        "auto",
        "The engine; `auto` takes the pipelined one where it serves the query, else Spark's own.",
    )


@dataclass(frozen=True, slots=True)
class PipelinedSettings:
    """The pipelined engine: workers inside Spark's executors."""

    workers: int = setting(
        WholeNumber(0, 10_000),
        0,
        "Workers, one per executor; 0 for as many as there are executors.",
    )
    protection: str = setting(
        Choice(("backup", "spool", "none")),
        "backup",
        "What keeps exchanged rows from being lost: a copy with the worker that made it, one in "
        "the reliable store, or nothing.",
    )
    control_store: str = setting(
        Text(),
        "sqlite",
        "Where it is logged what each task read: `sqlite`, on the driver's disk; the address of a "
        "Redis, such as `redis://host:6379/0`; or `none`, with which a lost worker fails the "
        "query.",
    )
    task_size: int = setting(Size(), 128 * MIB, "A task reads about this much.")
    inputs_per_task: int = setting(
        WholeNumber(0, 1_000_000),
        0,
        "A task reads exactly so many of its inputs; 0 for as many as are there.",
    )
    blocking: bool = setting(YesNo(), False, "Run one stage at a time.")
    broadcast_limit: int = setting(
        Size(), 64 * MIB, "A build side that is larger is never copied to all channels."
    )
    memory: int = setting(
        Size(), 0, "What a worker may use; 0 for a share of its executor's or machine's memory."
    )
    lease: float = setting(
        Duration(minimum=0.5, maximum=3600.0),
        2.0,
        "A worker that says nothing for so long is taken for lost.",
    )


@dataclass(frozen=True, slots=True)
class ResultsSettings:
    """What becomes of the rows a query returns."""

    keep: bool = setting(YesNo(), True, "Keep each query's result in the run.")
    collect_limit: int = setting(
        Size(),
        64 * MIB,
        "A result estimated to be larger is written by the executors; a smaller one is collected "
        "by the driver.",
    )


@dataclass(frozen=True, slots=True)
class ProgressSettings:
    """How a run reports while it works."""

    interval: float = setting(
        Duration(minimum=0.01, maximum=3600.0),
        0.25,
        "Time between two looks at what Spark has done.",
    )


@dataclass(frozen=True, slots=True)
class RunSettings:
    """How a run goes about its queries."""

    parallel_queries: int = setting(
        WholeNumber(1, 64), 1, "Queries of one run that Spark works on at once."
    )


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Batches with a deadline."""

    checkpoint_share: float = setting(
        Number(0.0, 1.0),
        0.25,
        "Of the deadline, what may be spent on keeping results of shared work against failures.",
    )


@dataclass(frozen=True, slots=True)
class SuspensionSettings:
    """What is kept of queries that are stopped, or may be."""

    snapshot_every: float | Literal["auto"] | None = setting(
        Interval(minimum=0.5),
        None,
        "Keep what is done of running queries from time to time, for the case that the driver is "
        "lost: after so long, or `auto` for as often as it pays.",
    )
    on_preemption: str = setting(
        Choice(("stop", "suspend")),
        "stop",
        "What a run does on SIGTERM, or when Spark says that all its executors are being taken "
        "away.",
    )
    grace: float = setting(
        Duration(minimum=0.5, maximum=3600.0),
        20.0,
        "How long the machine stays after that.",
    )
    reuse: bool = setting(
        YesNo(),
        False,
        "Read what earlier runs have kept of the same work over the same data, and leave what this "
        "one keeps to later ones.",
    )


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark that the command line starts. A Spark session that you made is left as it is."""

    master: str = setting(Text(), "local[*]", "Spark's master.")
    driver_memory: str = setting(
        # Spark refuses to start with less than about 450 MiB.
        JavaMemory(minimum=512 * MIB),
        "4g",
        "The heap of the driver.",
    )


@dataclass(frozen=True, slots=True)
class StatisticsSettings:
    """What Headway learns about the data."""

    observe: bool = setting(
        YesNo(),
        True,
        "Record the row counts of finished queries and use them for later estimates.",
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, by area: `settings.store.url`. `Settings()` holds the defaults."""

    store: StoreSettings = field(default_factory=StoreSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    pipelined: PipelinedSettings = field(default_factory=PipelinedSettings)
    results: ResultsSettings = field(default_factory=ResultsSettings)
    progress: ProgressSettings = field(default_factory=ProgressSettings)
    run: RunSettings = field(default_factory=RunSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    suspension: SuspensionSettings = field(default_factory=SuspensionSettings)
    spark: SparkSettings = field(default_factory=SparkSettings)
    statistics: StatisticsSettings = field(default_factory=StatisticsSettings)
    origins: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for each in SETTINGS:
            each.read(self.text(each.name), self.origin(each.name))

    def origin(self, name: str) -> str:
        """Where the value of that setting came from, such as `environment HEADWAY_STORE_URL`."""
        return self.origins.get(_BY_NAME[name].name, "default")

    def text(self, name: str) -> str:
        """The value as a user would write it."""
        return _BY_NAME[name].kind.render(attrgetter(name)(self))


AREAS: Mapping[str, type] = {
    area.name: cast(type, area.default_factory)
    for area in fields(Settings)
    if area.name != "origins"
}
SETTINGS: tuple[Setting[Any], ...] = tuple(
    Setting(name=f"{area}.{declared.name}", **declared.metadata)
    for area, declarations in AREAS.items()
    for declared in fields(declarations)
)
_BY_NAME = {each.name: each for each in SETTINGS}


def load_settings(
    *,
    spark_conf: Mapping[str, str] = {},
    environ: Mapping[str, str] | None = None,
    toml_file: Path | None = None,
    command_line: Mapping[str, str] = {},
) -> Settings:
    """The settings from every source, each outweighing those before it.

    `environ` is the process's own unless given; `toml_file` is the file that --config names.
    """
    environ = os.environ if environ is None else environ
    sources = (
        from_spark(SETTINGS, spark_conf),
        from_environment(SETTINGS, environ),
        from_toml(SETTINGS, toml_file, environ),
        from_command_line(SETTINGS, command_line),
    )
    given = {each.setting.name: each for source in sources for each in source}
    values: dict[str, dict[str, Any]] = {area: {} for area in AREAS}
    for each in SETTINGS:
        found = given.get(each.name)
        values[each.area][each.key] = found.value if found else each.default(environ)
    areas = {area: AREAS[area](**values[area]) for area in AREAS}
    return Settings(**areas, origins={name: each.origin for name, each in given.items()})


_INTRODUCTION = """\
# Configuration

<!-- Written by `make docs` from src/headway/base/config.py. Change it there. -->

A setting can be given in four places. Each outweighs those above it:

1. Spark's configuration: `spark.headway.run.parallel_queries=2`
2. the environment: `HEADWAY_RUN_PARALLEL_QUERIES=2`
3. a TOML file with a table for each area: `headway.toml` in the current folder, or the file that \
`--config` or `HEADWAY_CONFIG` names
4. the command line: `--set run.parallel_queries=2`

```toml
[run]
parallel_queries = 2

[results]
collect_limit = "256MiB"
```

A name that is no setting is refused wherever it stands, so that a typing error does not pass \
unseen. An environment variable that is set to nothing counts as not set.

Sizes are whole numbers with a unit: `b`, `k`, `m`, `g`, `t`, also written `KiB` or `KB`, in \
either case; as in Spark, all of them are powers of 1024. Durations are numbers with a unit: \
`ms`, `s`, `m`, `h`, `d`.
"""


def describe_settings_markdown() -> str:
    """The text of docs/configuration.md."""
    sections = (_describe_area(area, declared.__doc__ or "") for area, declared in AREAS.items())
    return "\n".join((_INTRODUCTION, *sections))


def _describe_area(area: str, doc: str) -> str:
    rows = (
        f"| `{each.name}` | `{each.spark_name}` | `{each.variable}` "
        f"| {each.kind.accepts} | {each.default_text} | {each.doc} |\n"
        for each in SETTINGS
        if each.area == area
    )
    return (
        f"## {area}\n\n{doc}\n\n"
        "| in the TOML file, on the command line | in Spark | in the environment "
        "| accepts | default | what it does |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        f"{''.join(rows)}"
    )


if __name__ == "__main__":
    sys.stdout.write(describe_settings_markdown())
