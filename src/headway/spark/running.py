"""A query that Spark is running: its plan as it stands now, and the rows that are there already.

Nothing is prepared for this. Adaptive execution keeps the rows of every finished stage, as shuffle
files or in memory, and replaces what it stands for in the plan; `RunningPlan.java` reads both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from headway.base.errors import PlanNotImportable
from headway.plan.nodes import Node, QueryPlan, StateScan
from headway.plan.reuse import share_equal_subplans
from headway.spark.operators import FileSources, OperatorReader
from headway.spark.schemas import arrow_schema, has_arrow_form
from headway.spark.tree import Handle, Tree, running_tree
from headway.spark.tree_text import (
    origin_text,
    rows_in_file,
    rows_of,
    running_text,
    same_rows,
    stages_text,
)


@dataclass(frozen=True, slots=True)
class LiveState:
    """Rows that a finished part of the query put out. Rows and bytes are None where Spark did not
    count them. Where it has them as parts of groups, nobody knows how many groups these are, and
    their bytes are less than the ones told. `steps` are the seconds of the stages behind it, by
    their numbers, or None where Spark does not know them any more. `whole`: all rows of the plan
    that it stands for, where a broadcast table has only those that can be found in it. `waits`:
    reading it needs the result of a subquery, which may not be there yet. `places` tells where the
    columns of that plan are in the state."""

    number: int
    operator: str
    """The one of Spark's that it stands for."""
    rows: int | None
    bytes: int | None
    steps: Mapping[int, float] | None
    broadcast: bool
    whole: bool
    waits: bool
    places: tuple[int, ...]
    schema: str
    physical: Handle
    logical: Handle

    def is_same(self, other: LiveState) -> bool:
        """Whether both are the same rows, in the same columns."""
        return self.schema == other.schema and same_rows(self.physical, other.physical)


@dataclass(frozen=True, slots=True)
class Stages:
    """Those of Spark; `running` are the numbers of those that have tasks at work, `unfinished` of
    all that Spark has planned and that are not finished."""

    finished: int
    total: int
    running: frozenset[int]
    unfinished: frozenset[int]


@dataclass(frozen=True, slots=True)
class RunningPlan:
    """Stages are counted as Spark has them."""

    tree: Tree
    refused: str | None
    """Why nobody else can go on with it."""
    finished: int
    total: int
    states: dict[int, LiveState]


def running_plan(
    frame: DataFrame, without: Iterable[LiveState] = (), *, written: bool = False
) -> RunningPlan:
    """Of a frame that is being run, or was: as it stands now. States that it is to be `without` are
    passed over for the older ones that they were made from. Where the executors write the rows
    down, as its last step, the plan is that of what is `written`."""
    passed_over = [state.physical for state in without]
    found = running_text(frame._jdf.queryExecution(), passed_over)
    tree, refused = running_tree(found.text, found.nodes)
    if written and tree.name == "MapInArrow":
        tree = tree.children[0]
    stages = _stages(found.stages)
    states = [_state(*state) for state in found.states]
    return RunningPlan(
        tree,
        refused,
        stages.finished,
        stages.total,
        {state.number: state for state in states},
    )


def stages_of(frame: DataFrame) -> Stages:
    """Of a frame that is being run: far quicker than its plan."""
    return _stages(stages_text(frame._jdf.queryExecution()))


def _stages(text: str) -> Stages:
    begun, _, others = text.partition("|")
    finished, total, *running = map(int, begun.split())
    return Stages(
        finished, total, frozenset(running), frozenset([*running, *map(int, others.split())])
    )


def read_running(
    spark: SparkSession,
    running: RunningPlan,
    state_names: Mapping[int, str],
    names: Iterable[str],
    settings: dict[str, str],
    file_sources: FileSources | None = None,
) -> tuple[QueryPlan, dict[StateScan, LiveState]]:
    """The plan of what is left to do, and the states that it reads. They are named by their
    numbers. `file_sources` are the tables of earlier readings."""
    if running.refused is not None:
        raise PlanNotImportable(running.refused)
    states = {n: (state_names[n], state.schema) for n, state in running.states.items()}
    reader = OperatorReader(spark, settings, file_sources, states)
    try:
        root = reader.with_outputs(reader.read(running.tree), running.tree)
    except (Py4JJavaError, PySparkException) as error:
        raise PlanNotImportable(f"Spark could not tell its plan: {error}") from error
    if reader.frames:
        raise PlanNotImportable("it reads data of the session that made it, which no other has")
    plan = QueryPlan(share_equal_subplans(root), tuple(names), tuple(settings.items()))
    return plan, {scan: running.states[number] for number, scan in reader.states.items()}


def read_origin(
    spark: SparkSession,
    state: LiveState,
    settings: dict[str, str],
    file_sources: FileSources | None = None,
) -> Node | None:
    """What a state was made by; None where that cannot be told. Its columns are at the state's
    `places`."""
    try:
        tree, refused = running_tree(*origin_text(state.logical))
        if refused is not None or _is_cut(tree):
            return None
        reader = OperatorReader(spark, settings, file_sources)
        root = reader.with_outputs(reader.read(tree), tree)
        return None if reader.frames else share_equal_subplans(root)
    except Exception:  # noqa: BLE001 - whatever it trips over: nobody needs to know it
        return None


def _is_cut(tree: Tree, below: str = "") -> bool:
    """Whether rows are kept away for the sake of an operator that is not there: half of a limit, a
    limit on ranks. The reader passes over both."""
    if tree.name == "WindowGroupLimit" or (tree.name == "LocalLimit" and below != "GlobalLimit"):
        return True
    return any(_is_cut(child, tree.name) for child in tree.children)


def can_be_kept(state: LiveState) -> bool:
    """Whether all its types have a form in the store."""
    return has_arrow_form(StructType.fromJson(json.loads(state.schema)))


def rows_here(state: LiveState, scan: StateScan) -> tuple[pa.Table, StructType]:
    """The rows of a state, read by the driver, under the names that the plan has for its columns,
    as Spark would collect them; and their types. It takes no task to read them."""
    fields = StructType.fromJson(json.loads(state.schema)).fields
    pairs = zip(scan.column_names, fields, strict=True)
    schema = StructType([StructField(name, f.dataType, f.nullable) for name, f in pairs])
    as_kept = arrow_schema(schema.json())
    file = Path(rows_in_file(state.physical))
    try:
        data = file.read_bytes()
    finally:
        file.unlink()
    reader, tables = pa.BufferReader(data), []
    while reader.tell() < len(data):
        tables.append(pa.ipc.open_stream(reader).read_all())
    if not tables:
        return as_kept.empty_table(), schema
    return pa.concat_tables(tables).rename_columns(scan.column_names).cast(as_kept), schema


def state_frame(spark: SparkSession, state: LiveState, scan: StateScan) -> DataFrame:
    """The rows of a state, under the names that the plan has for its columns."""
    frame = DataFrame(rows_of(spark._jsparkSession, state.physical), spark)
    return frame.toDF(*scan.column_names)


def _state(text: str, physical: Handle, logical: Handle) -> LiveState:
    number, operator, *told, schema = str(text).split(" ", 9)
    rows, size, steps, broadcast, whole, waits, places = told
    return LiveState(
        int(number),
        operator,
        int(rows) if int(rows) >= 0 else None,
        int(size) if int(size) >= 0 else None,
        None if steps == "-1" else {s: ms / 1000.0 for s, ms in json.loads(steps)},
        broadcast == "true",
        whole == "true",
        waits == "true",
        tuple(json.loads(places)),
        schema,
        physical,
        logical,
    )
