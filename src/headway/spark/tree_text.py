"""Questions to the JVM about plans, each answered in one call.

A call over py4j costs a tenth of a millisecond, and a plan has hundreds of expressions. So a small
Java class walks the plan inside the JVM; Janino, which Spark uses for its own code, compiles it.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from pyspark import SparkContext

_TREES, _RUNNING, _MANY, _LETTING_GO = "TreeText", "RunningPlan", "ManyPlans", "LettingGo"
_USES = {_RUNNING: _TREES, _MANY: _TREES}
"""The class that another one needs."""
_FIELD = "\x01"
_objects: dict[tuple[str, str], Any] = {}
_compiling = threading.RLock()


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
    schema: str
    """As JSON; empty where that is long."""
    session: str
    """Which one it is, and a hash of all its settings."""
    settings: dict[str, str]


def tree_text(tree: Any) -> bytes:
    """A plan or expression as JSON; `TreeText.java` tells its form."""
    return _unpacked(_object(_TREES).of(tree))


def optimised(session: Any, analysed: Any) -> tuple[bytes, Callable[[], Any]]:
    """An analysed plan, optimised in that session, as JSON; and a way to get at its object."""
    found = _object(_TREES).optimised(session, analysed)
    return _unpacked(found[0]), lambda: found[1]


def constant_sql(literal: Any) -> str:
    """The text of a nested constant."""
    return str(_object(_TREES).constant(literal))


def constant_rows(relation: Any) -> bytes:
    """Of a relation of constants: an Arrow stream, or nothing where there are no rows. It takes no
    task to read them."""
    return bytes(_object(_TREES).rows(relation))


def acts_at_once(parsed: Any) -> bool:
    """Whether Spark acts as soon as it sees a parsed plan that is no command by its class."""
    return bool(_object(_TREES).actsAtOnce(parsed))


def about(execution: Any, keys: Iterable[str]) -> Analysed:
    """`keys` are settings."""
    asked = tuple(keys)
    return _analysed(str(_object(_TREES).about(execution, ",".join(asked))), asked)


def alike(one: Any, other: Any) -> bool:
    """Whether two analysed plans give the same rows."""
    return bool(_object(_TREES).alike(one, other))


def _analysed(text: str, asked: tuple[str, ...]) -> Analysed:
    command, plan_hash, now, files, count, *rest = text.split(_FIELD)
    names, (schema, session, *values) = rest[: int(count)], rest[int(count) :]
    return Analysed(
        command == "true",
        int(plan_hash),
        now == "true",
        None if files == "null" else files,
        tuple(names),
        schema,
        session,
        dict(zip(asked, values, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class AnalysedForm:
    """A query, or what it has in common with others; `ManyPlans.java` tells what that is."""

    number: int
    """Of the form."""
    constants: bytes
    """Those of the query that was asked for, as JSON; empty where it is planned by itself."""
    analysed: Analysed


class PlannedTogether:
    """Texts whose plans are made by threads of the JVM. They, and their forms, are known by their
    numbers."""

    def __init__(
        self, session: Any, texts: Iterable[str], keys: Iterable[str], *, forms: bool
    ) -> None:
        """`keys` are settings. With `forms`, each form is planned once."""
        self._keys = tuple(keys)
        told = (_FIELD.join(texts), ",".join(self._keys))
        self._work = _object(_MANY).begin(session, *told, forms)

    @staticmethod
    def takes(text: str) -> bool:
        """Whether a text can be told from the next one."""
        return _FIELD not in text

    def about(self, number: int) -> AnalysedForm | None:
        """None where Spark acts as soon as it sees the text: that, and all texts after it, are left
        to the caller. What Spark says of a text that is wrong is raised."""
        found = self._work.about(number)
        if found is None:
            return None
        form, constants, text = str(found).split(_FIELD, 2)
        return AnalysedForm(int(form), constants.encode(), _analysed(text, self._keys))

    def frame(self, number: int) -> Any:
        """The JVM's Dataset of a query."""
        return self._work.frame(number)

    def analysed(self, form: int) -> Any:
        """The JVM's analysed plan of a form."""
        return self._work.analysed(form)

    def optimise(self, session: Any, form: int) -> None:
        """Begin to do so, in that session."""
        self._work.optimise(session, form)

    def optimised(self, form: int) -> tuple[bytes, Callable[[], Any]]:
        """As `optimised`, of a form that it has begun with."""
        return _unpacked(self._work.text(form)), lambda: self._work.plan(form)


def settings_of(session: Any, keys: Iterable[str]) -> dict[str, str]:
    """A JVM session's values of these settings."""
    names = tuple(keys)
    values = str(_object(_TREES).settings(session, ",".join(names))).split(_FIELD)
    return dict(zip(names, values, strict=True))


@dataclass(frozen=True, slots=True)
class RunningText:
    """What the JVM tells of a query that is running; `RunningPlan.java` tells the forms."""

    text: bytes
    nodes: Any
    stages: str
    states: tuple[tuple[str, Any, Any], ...]


def running_text(execution: Any, passed_over: list[Any]) -> RunningText:
    text, nodes, stages, *states = _object(_RUNNING).of(execution, passed_over)
    return RunningText(
        _unpacked(text),
        nodes,
        str(stages),
        tuple(zip(states[::3], states[1::3], states[2::3], strict=True)),
    )


def stages_text(execution: Any) -> str:
    """Of a query that is running: how many stages are finished, how many there are, the numbers of
    those that have tasks at work, and behind a bar those of the others that are not finished."""
    return str(_object(_RUNNING).stages(execution))


def origin_text(logical: Any) -> tuple[bytes, Any]:
    """The logical plan that a state stands for, as JSON, and its nodes."""
    text, nodes = _object(_RUNNING).origin(logical)
    return _unpacked(text), nodes


def same_rows(first: Any, second: Any) -> bool:
    """Whether two finished parts of running queries put out the same."""
    return bool(_object(_RUNNING).same(first, second))


def rows_of(session: Any, physical: Any) -> Any:
    """What a finished part of a running query put out, as the JVM's Dataset."""
    return _object(_RUNNING).frame(session, physical)


def rows_in_file(physical: Any) -> str:
    """The rows of a finished part, read and written by the driver's JVM: the path of that file."""
    return str(_object(_RUNNING).file(physical))


def counted(dataset: Any) -> int:
    """How many rows the JVM's Dataset has: its own plan is run, with nothing added to it."""
    return int(_object(_RUNNING).count(dataset))


def let_go(execution: Any) -> None:
    """Of a query that is over: the JVM keeps nothing large that it made for it."""
    _object(_LETTING_GO).broadcastTables(execution)


def make_ready_to_plan() -> None:
    """Compiles what reads plans, and lets go of them, which takes a moment the first time."""
    _object(_MANY)
    _object(_LETTING_GO)


def make_ready_to_resume() -> None:
    """The same of what reads running queries, and opens states."""
    _object(_RUNNING)


def sized(dataset: Any, name: str, size: int, rows: int, *, in_one_task: bool) -> Any:
    """The JVM's Dataset of a kept state, as one that Spark knows the size of. With `in_one_task`,
    it does not shuffle rows of a single partition."""
    return _object(_RUNNING).sized(dataset, name, size, rows, in_one_task)


def _unpacked(text: Any) -> bytes:
    return zlib.decompress(base64.b64decode(str(text)))


def _object(name: str) -> Any:
    """An object of one of our classes, compiled once for each Spark context."""
    context: Any = SparkContext._active_spark_context
    application = context.applicationId
    known = _objects.get((application, name))
    if known is not None:
        return known
    with _compiling:
        if (application, name) not in _objects:
            _objects[application, name] = _compiled(context, name)
        return _objects[application, name]


def _compiled(context: Any, name: str) -> Any:
    source = files("headway.spark").joinpath(f"{name}.java").read_text(encoding="utf-8")
    jvm = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(
        _object(_USES[name]).getClass().getClassLoader()
        if name in _USES
        else jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    )
    compiler.cook(source)
    made = compiler.getClassLoader().loadClass(f"headway.{name}")
    return made.getDeclaredConstructors()[0].newInstance(
        context._gateway.new_array(jvm.java.lang.Object, 0)
    )
