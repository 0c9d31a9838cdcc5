"""A Headway session for a command: Spark started, the tables that the user names known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from headway.base.config import Settings
from headway.base.errors import WrongUsage
from headway.cli.interrupts import interrupts
from headway.cli.steps import spinner

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headway.session import Session

_CATALOG = re.compile(r"[\w-]+(\.[\w-]+)*")


@contextmanager
def open_spark(settings: Settings, *, quiet: bool = False) -> Iterator[SparkSession]:
    """Spark, stopped at the end when it was started here."""
    with ExitStack() as stack:
        with spinner("starting Spark", quiet=quiet):
            from headway.spark.start import running_spark

            spark = stack.enter_context(running_spark(settings, interrupts.held_back()))
        interrupts.install()
        yield spark


@contextmanager
def open_session(
    settings: Settings, tables: Iterable[str] = (), *, quiet: bool = False
) -> Iterator[Session]:
    """A session that knows the tables; what can be refused is refused before Spark starts."""
    sources = [_check_source(text) for text in tables]
    from headway.session import Session

    with open_spark(settings, quiet=quiet) as spark, Session(spark, settings) as session:
        with spinner("reading tables", quiet=quiet):
            for source in sources:
                if isinstance(source, Path):
                    session.tables(source)
                else:
                    _use_catalog(spark, source)
        yield session


def _check_source(text: str) -> Path | str:
    """A folder of tables, or what may be the name of a catalog."""
    from headway.workloads import find_tables

    folder = Path(text).expanduser()
    if not folder.is_dir() and _CATALOG.fullmatch(text):
        return text
    find_tables(folder)
    return folder


def _use_catalog(spark: SparkSession, name: str) -> None:
    from headway.spark.errors import named_error

    quoted = ".".join(f"`{part}`" for part in name.split("."))
    try:
        spark.sql(f"USE {quoted}")
    except Exception as error:
        known = [database.name for database in spark.catalog.listDatabases()]
        raise WrongUsage(
            f"{name} is neither a folder nor a catalog or database that Spark knows: "
            f"{named_error(error).message}",
            hint=f"a folder is written ./{name}; existing databases: {', '.join(known)}",
        ) from error
