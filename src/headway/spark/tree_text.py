"""Questions to the JVM about plans, each answered in one call.

A call over py4j costs a tenth of a millisecond, and a plan has hundreds of expressions. So a small
Java class walks the plan inside the JVM; Janino, which Spark uses for its own code, compiles it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pyspark import SparkContext

_CLASS = "TreeText"
_FIELD = "\x01"
_objects: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Analysed:
    """What the JVM tells of a query that it has analysed."""

    is_command: bool
    """It has already run."""
    plan_hash: int
    """Equal for plans that differ in names alone."""
    is_momentary: bool
    """It asks for the time or the like, and means something else the next time."""
    files: str | None
    """Which files its tables consist of; None where a table has no files."""
    names: tuple[str, ...]
    session: str
    """Which one it is, and a hash of all its settings."""
    settings: dict[str, str]


def tree_text(tree: Any) -> bytes:
    """A plan or expression as JSON; `TreeText.java` tells its form."""
    return _unpacked(_object().of(tree))


def optimised(session: Any, analysed: Any) -> tuple[bytes, Callable[[], Any]]:
    """An analysed plan, optimised in that session, as JSON; and a way to get at its object."""
    found = _object().optimised(session, analysed)
    return _unpacked(found[0]), lambda: found[1]


def about(execution: Any, keys: Iterable[str]) -> Analysed:
    """`keys` are settings."""
    asked = tuple(keys)
    command, plan_hash, now, files, count, *rest = str(
        _object().about(execution, ",".join(asked))
    ).split(_FIELD)
    names, (session, *values) = rest[: int(count)], rest[int(count) :]
    return Analysed(
        command == "true",
        int(plan_hash),
        now == "true",
        None if files == "null" else files,
        tuple(names),
        session,
        dict(zip(asked, values, strict=True)),
    )


def settings_of(session: Any, keys: Iterable[str]) -> dict[str, str]:
    """A JVM session's values of these settings."""
    names = tuple(keys)
    values = str(_object().settings(session, ",".join(names))).split(_FIELD)
    return dict(zip(names, values, strict=True))


def _unpacked(text: Any) -> bytes:
    return zlib.decompress(base64.b64decode(str(text)))


def _object() -> Any:
    """Compiled once for each Spark context."""
    context: Any = SparkContext._active_spark_context
    known = _objects.get(context.applicationId)
    if known is None:
        source = files("headway.spark").joinpath(f"{_CLASS}.java").read_text(encoding="utf-8")
        jvm = context._jvm
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(
            jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        )
        compiler.cook(source)
        made = compiler.getClassLoader().loadClass(f"headway.{_CLASS}")
        known = made.getDeclaredConstructors()[0].newInstance(
            context._gateway.new_array(jvm.java.lang.Object, 0)
        )
        _objects[context.applicationId] = known
    return known
