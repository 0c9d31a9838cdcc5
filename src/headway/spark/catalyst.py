"""Plan in: Spark's optimised plan becomes a QueryPlan.

Spark parses, analyses and optimises. A few rules are left out for the import, because they write
what only Spark's own operators understand, or choose what is an engine's to choose; Spark applies
them again when it runs the plan.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headway.base.errors import PlanNotImportable
from headway.plan.meaning import MEANING, SELDOM_CHANGED, carried
from headway.plan.nodes import QueryPlan
from headway.plan.reuse import share_equal_subplans
from headway.plan.sources import Source
from headway.plan.statistics import TableStatistics
from headway.spark.operators import FileSources, OperatorReader
from headway.spark.tree import Handle, Tree, optimised_tree, sequence
from headway.spark.tree_text import Analysed, about, acts_at_once, settings_of

IMPORTED_SETTINGS = (*MEANING, *SELDOM_CHANGED)
_EXCLUDED_RULES = (
    "org.apache.spark.sql.catalyst.optimizer.DecimalAggregates",  # unscaled, without SQL form
    "org.apache.spark.sql.execution.planmerging.MergeSubplans",  # subqueries as one struct
    # Which parts of nested columns are read is an engine's to choose, and takes long to find.
    "org.apache.spark.sql.execution.datasources.SchemaPruning",
    "org.apache.spark.sql.execution.datasources.PushVariantIntoScan",
)
_IMPORT_SETTINGS = {
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
    "spark.sql.optimizer.inSetConversionThreshold": str(2**31 - 1),
}
_SESSION_COMMANDS = (
    "CreateViewCommand",  # of a temporary view; a view of the catalog is a CreateView
    "CreateTempViewUsing",
    "SetCommand",
    "SetCatalogAndNamespace",
)
_AROUND_STATEMENTS = ("UnresolvedWith", "Union")
"""What the parser puts around what is to be done: common tables, several inserts."""
_EXCLUDED_KEY = "spark.sql.optimizer.excludedRules"
_MOST_COPIES = 8
_copies: OrderedDict[str, Handle] = OrderedDict()


@dataclass(frozen=True, slots=True, eq=False)
class ImportedPlan:
    """The plan, the frames behind its session sources by their ids, and what Spark knows of the
    sources that do not tell their size themselves. A query that comes again has the same one."""

    plan: QueryPlan
    frames: dict[str, DataFrame]
    statistics: dict[Source, TableStatistics]
    schema: str
    """That of its rows as Spark's analyser has it, as JSON; empty where that is long."""


def analyse(frame: DataFrame) -> tuple[Handle, Analysed]:
    """The analysed plan of any DataFrame of a classic session, and what is known of it."""
    if not hasattr(frame, "_jdf"):
        raise PlanNotImportable(
            "the DataFrame belongs to a Spark Connect session, whose plans are out of reach",
            hint="use a classic session: SparkSession.builder without .remote()",
        )
    execution = frame._jdf.queryExecution()
    return execution.analyzed(), with_carried(about(execution, IMPORTED_SETTINGS))


def with_carried(found: Analysed) -> Analysed:
    """With those settings alone that a plan carries."""
    return replace(found, settings=carried(found.settings))


def import_plan(frame: DataFrame, file_sources: FileSources | None = None) -> ImportedPlan:
    """The plan of a DataFrame; PlanNotImportable says what has no place.

    `file_sources` holds the tables of earlier imports, and gets those of this one.
    """
    return import_analysed(frame.sparkSession, *analyse(frame), file_sources)


def import_analysed(
    spark: SparkSession, plan: Handle, known: Analysed, file_sources: FileSources | None
) -> ImportedPlan:
    """As `import_plan`."""
    if known.is_command:
        raise PlanNotImportable("operator CommandResult: it is a command that has already run")
    with import_errors():
        tree, deterministic = optimised_tree(import_session(spark, known.session), plan)
        return read_plan(spark, tree, deterministic, known, file_sources)


@contextmanager
def import_errors() -> Iterator[None]:
    """Whatever the import trips over, Spark still runs the query: it is never the user's loss."""
    try:
        yield
    except PlanNotImportable:
        raise
    except (Py4JJavaError, PySparkException) as error:
        raise PlanNotImportable(f"Spark could not plan it: {_first_line(error)}") from error
    except Exception as error:
        raise PlanNotImportable(
            f"the import failed: {type(error).__name__} {_first_line(error)}"
        ) from error


def session_settings(spark: SparkSession) -> dict[str, str]:
    """The session's values of the settings that a plan carries."""
    return carried(settings_of(spark._jsparkSession, IMPORTED_SETTINGS))


def is_action(spark: SparkSession, text: str) -> bool:
    """Whether Spark would do something as soon as it sees the text, such as INSERT or CREATE TABLE.

    What only changes the session, such as a temporary view, does not count.
    """
    jvm: Any = spark._jvm
    kinds = ("Command", "ParsedStatement")
    names = (f"org.apache.spark.sql.catalyst.plans.logical.{kind}" for kind in kinds)
    acting = [jvm.java.lang.Class.forName(name) for name in names]

    def acts(parsed: Handle) -> bool:
        name = str(parsed.getClass().getSimpleName())
        if name in _AROUND_STATEMENTS:
            return any(map(acts, sequence(parsed.children())))
        if acts_at_once(parsed):
            return True
        return name not in _SESSION_COMMANDS and any(kind.isInstance(parsed) for kind in acting)

    return acts(spark._jsparkSession.sessionState().sqlParser().parsePlan(text))


def is_command(frame: DataFrame) -> bool:
    """Whether Spark has done what it says when it was made."""
    return analyse(frame)[1].is_command


def read_plan(
    spark: SparkSession,
    tree: Tree,
    deterministic: bool,
    known: Analysed,
    file_sources: FileSources | None,
) -> ImportedPlan:
    """From the text of the optimised plan of a query of which that much is known."""
    if not deterministic:
        raise PlanNotImportable(
            "the query is not deterministic (a random or positional function): "
            "its rows would differ each time a part of it is run again",
            hint="Spark runs the query unchanged",
        )
    reader = OperatorReader(spark, known.settings, file_sources)
    root = reader.with_outputs(reader.read(tree), tree)
    plan = QueryPlan(share_equal_subplans(root), known.names, tuple(known.settings.items()))
    return ImportedPlan(plan, reader.frames, reader.statistics, known.schema)


def import_session(spark: SparkSession, session: str) -> Handle:
    """A copy of the session made for imports: the one that was made before, as long as the
    session's settings are the same."""
    known = _copies.get(session)
    if known is not None:
        return known
    copy = spark._jsparkSession.cloneSession()
    conf = copy.conf()
    for name, value in _IMPORT_SETTINGS.items():
        conf.set(name, value)
    excluded = [rule for rule in (conf.get(_EXCLUDED_KEY, ""), *_EXCLUDED_RULES) if rule]
    conf.set(_EXCLUDED_KEY, ",".join(excluded))
    _copies[session] = copy
    while len(_copies) > _MOST_COPIES:
        _copies.popitem(last=False)
    return copy


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
