"""Row counts that Spark measured while it ran a query, filed under the plan's row keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import DataFrame

from headway.base.errors import InvalidPlan, PlanNotImportable
from headway.plan.canonical import row_keys
from headway.plan.graph import walk
from headway.plan.nodes import (
    Aggregate,
    Filter,
    Limit,
    Node,
    Project,
    QueryPlan,
    Scan,
    Sort,
    Window,
)
from headway.plan.sources import SessionSource
from headway.spark.catalyst import session_settings
from headway.spark.operators import OperatorReader
from headway.spark.tree import Handle, sequence, tree_of

_COUNTED = ("FilterExec", "JoinExec", "HashAggregateExec")
_MOST_NODES = 24


def observed_rows(frame: DataFrame | None, plan: QueryPlan, result_rows: int) -> dict[str, float]:
    """Counts for the nodes of `plan`: of its result, and of the filters, joins and aggregates that
    Spark ran to their end in `frame`."""
    if any(isinstance(n, Scan) and isinstance(n.source, SessionSource) for n in walk(plan.root)):
        return {}  # what a session holds under a name is other data in the next
    keys = row_keys(plan.root)
    found = {keys[plan.root]: float(result_rows)}
    if frame is None:
        return found
    if any(isinstance(node, Limit) and not _after_collecting(node) for node in walk(plan.root)):
        return found  # a limit that stops its input early makes every count below it partial
    wanted = set(keys.values())
    try:
        for key, rows in _measured(frame):
            if key in wanted:
                found.setdefault(key, rows)
    except Py4JError:
        return found  # the session has gone; what it would have told is only an estimate
    return found


def _after_collecting(limit: Limit) -> bool:
    node: Node = limit.input
    while isinstance(node, Project | Filter):
        node = node.input
    return isinstance(node, Sort | Aggregate | Window)


def _measured(frame: DataFrame) -> Iterator[tuple[str, float]]:
    spark = frame.sparkSession
    settings = session_settings(spark)
    seen = 0
    for node in _physical_nodes(frame._jdf.queryExecution().executedPlan()):
        link = node.logicalLink()
        metric = node.metrics().get("numOutputRows")
        if link.isEmpty() or metric.isEmpty():
            continue
        seen += 1
        if seen > _MOST_NODES:
            return
        try:
            logical = OperatorReader(spark, settings).read(tree_of(link.get()))
        except (PlanNotImportable, InvalidPlan, KeyError):
            continue  # what Spark's own rules wrote there has no place in a plan
        yield row_keys(logical)[logical], float(metric.get().value())


def _physical_nodes(root: Handle) -> Iterator[Any]:
    """The operators that count rows, from the root down, through stages and wrappers."""
    stack = [root]
    while stack:
        node = stack.pop()
        name = str(node.getClass().getSimpleName())
        if name == "AdaptiveSparkPlanExec":
            stack.append(node.executedPlan())
        elif name.endswith("QueryStageExec"):
            stack.append(node.plan())
        else:
            if name.endswith(_COUNTED):
                yield node
            stack.extend(reversed(sequence(node.children())))
