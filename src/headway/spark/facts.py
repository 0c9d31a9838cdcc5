"""What Catalyst's JSON of a plan leaves out, fetched for all its expressions in one call.

A call over py4j costs a tenth of a millisecond, and a plan has hundreds of expressions. So a small
Java class walks the plan inside the JVM; Janino, which Spark uses for its own code, compiles it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pyspark import SparkContext

_FIELD, _RECORD, _LIST, _NODE, _OUTPUT = "\x01", "\x02", "\x03", "\x04", "\x05"


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one expression. None where the JVM did not say."""

    type: str | None
    nullable: bool | None
    mode: str | None
    precision_loss: str | None
    pretty_name: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Of one node of a plan. `expressions` are by field (`field`, or `field/0`), parents first."""

    schema: str
    """Of nodes that make columns; empty of those that pass them on."""
    outputs: tuple[str, ...]
    files: str
    """Of a table of files: which table of this JVM it is, and the state of its files."""
    expressions: dict[str, list[Facts]]


PlanFacts = list[NodeFacts]
"""By node, parents first."""

_compiled: dict[str, dict[str, Any]] = {}


def plan_facts(plan: Any) -> PlanFacts:
    """Of every node of a logical plan."""
    return _read(str(_call("of", plan)))


def table_states(plan: Any) -> str | None:
    """Which files the tables of a plan consist of; None where a table has no files."""
    found = _call("tables", plan)
    return None if found is None else str(found)


def settings_of(session: Any, keys: Iterable[str]) -> dict[str, str]:
    """A JVM session's values of these settings."""
    names = tuple(keys)
    values = str(_call("settings", session, ",".join(names))).split(_FIELD)
    return dict(zip(names, values, strict=True))


def _call(method: str, *arguments: Any) -> Any:
    context: Any = SparkContext._active_spark_context
    array = context._gateway.new_array(context._jvm.java.lang.Object, len(arguments))
    for position, argument in enumerate(arguments):
        array[position] = argument
    return _methods(context)[method].invoke(None, array)


def _methods(context: Any) -> dict[str, Any]:
    """Compiled once for each Spark context."""
    known = _compiled.get(context.applicationId)
    if known is None:
        source = files("headway.spark").joinpath("TreeFacts.java").read_text(encoding="utf-8")
        jvm = context._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(
            jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        )
        compiler.cook(source)
        made = compiler.getClassLoader().loadClass("headway.TreeFacts")
        known = {str(m.getName()): m for m in made.getMethods()}
        _compiled[context.applicationId] = known
    return known


def _read(text: str) -> PlanFacts:
    nodes = []
    for node in text.split(_NODE)[:-1]:
        first, *lists = node.split(_LIST)[:-1]
        schema, outputs, found = first.split(_FIELD)
        fields: dict[str, list[Facts]] = {}
        for field in lists:
            name, _, records = field.partition(_FIELD)
            fields[name] = [_fact(record) for record in records.split(_RECORD)[:-1]]
        attributes = tuple(outputs.split(_OUTPUT)) if outputs else ()
        nodes.append(NodeFacts(schema, attributes, found, fields))
    return nodes


def _fact(record: str) -> Facts:
    ddl, nullable, mode, loss, pretty = record.split(_FIELD)
    return Facts(
        ddl or None,
        nullable == "true" if nullable else None,
        mode or None,
        loss or None,
        pretty,
    )
