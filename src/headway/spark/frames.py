"""Plan out: a QueryPlan becomes a DataFrame, on the session that made it or on another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from headway.base.errors import InternalError, PlanNotRunnable
from headway.plan.meaning import SELDOM_CHANGED
from headway.plan.nodes import QueryPlan, Scan, StateScan
from headway.plan.sources import FileSource, RangeSource
from headway.plan.spark_sql import to_spark_sql
from headway.spark.types import ddl_of

# How our own texts are to be read, whatever the session is used to.
_READING = {
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.groupByOrdinal": "false",
    "spark.sql.orderByOrdinal": "false",
}

StateFrames = Callable[[StateScan], DataFrame]


def frame_of(
    spark: SparkSession,
    plan: QueryPlan,
    *,
    session_frames: Mapping[str, DataFrame] | None = None,
    state_frames: StateFrames | None = None,
) -> DataFrame:
    """The plan as a DataFrame that runs under the settings the plan was made with.

    `session_frames` holds the data that only its own session can reach, by the source's id, and
    `state_frames` opens a saved state.
    """
    session = _session_for(spark, plan)
    views: dict[Any, str] = {}

    def relation(node: Scan | StateScan) -> str:
        key = node.source if isinstance(node, Scan) else node
        if key not in views:
            frame = _open(session, node, session_frames or {}, state_frames)
            views[key] = f"headway_table_{len(views) + 1}"
            frame.createOrReplaceTempView(views[key])
        return views[key]

    try:
        frame = session.sql(to_spark_sql(plan, relation))
    except AnalysisException as error:
        raise InternalError(f"Spark does not take the plan back: {error}") from error
    _check_schema(plan, frame)
    return frame


def frame_of_text(spark: SparkSession, text: str, settings: Mapping[str, str]) -> DataFrame:
    """What the text means in a session whose plans carry these settings."""
    return _session_with(spark, {**SELDOM_CHANGED, **settings}).sql(text)


def _session_for(spark: SparkSession, plan: QueryPlan) -> SparkSession:
    return _session_with(spark, {**dict(plan.settings), **_READING})


def _session_with(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session beside `spark` with all of its settings, and these.

    Its views go with it, and nobody else sees them.
    """
    session = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    for key, value in settings.items():
        session.conf.set(key, value)
    return session


def _open(
    spark: SparkSession,
    node: Scan | StateScan,
    session_frames: Mapping[str, DataFrame],
    state_frames: StateFrames | None,
) -> DataFrame:
    if isinstance(node, StateScan):
        if state_frames is None:
            raise PlanNotRunnable(
                f"the plan reads the saved state {node.state} of run {node.run}",
                hint="resume the run instead of running its plan by itself",
            )
        return in_session(spark, state_frames(node))
    source = node.source
    if isinstance(source, FileSource):
        return _open_files(spark, source)
    if isinstance(source, RangeSource):
        return spark.range(source.start, source.end, source.step)
    frame = session_frames.get(source.id)
    if frame is None:
        raise PlanNotRunnable(
            f"the plan reads data of the session that made it ({source.table})",
            hint="save that data as Parquet files and query those",
        )
    return in_session(spark, frame)


def in_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """A frame of a session beside this one, as a frame of this one."""
    if frame.sparkSession is spark:
        return frame
    jvm: Any = spark._jvm
    analysed = frame._jdf.queryExecution().analyzed()
    dataset = jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, analysed)
    return DataFrame(dataset, spark)


def _open_files(spark: SparkSession, source: FileSource) -> DataFrame:
    reader = spark.read.format(source.format).options(**dict(source.options))
    if source.schema is not None:
        reader = reader.schema(StructType.fromJson(json.loads(source.schema)))
    if source.root is not None:
        reader = reader.option("basePath", source.root)
    if not source.files:
        return spark.createDataFrame([], StructType.fromJson(json.loads(source.schema or "{}")))
    try:
        return reader.load([escape_glob(name) for name in source.files])
    except PySparkException as error:
        raise PlanNotRunnable(
            f"table {source.table} cannot be opened: {str(error).splitlines()[0]}",
            hint="are the files still where they were when the plan was made?",
        ) from error


def escape_glob(path: str) -> str:
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def _check_schema(plan: QueryPlan, frame: DataFrame) -> None:
    """The types are the plan's own: a text that Spark reads differently stops here."""
    found = [ddl_of(json.loads(field.dataType.json())) for field in frame.schema.fields]
    expected = [column.type for column in plan.root.schema]
    if found != expected:
        raise InternalError(
            "the plan came back from Spark with other types",
            story=tuple(f"{e} became {f}" for e, f in zip(expected, found, strict=False) if e != f),
        )
