"""The SQL names of Spark's built-in functions, by the class that implements each."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headway.spark.tree import Tree, sequence

_registered: tuple[dict[str, str], set[str]] | None = None


def function_name(spark: SparkSession, tree: Tree) -> str | None:
    """The name of the function that an expression is a call of; None when it is none.

    Most classes stand in the registry themselves. Some are made by a builder that stands there in
    their place; those know their own name.
    """
    by_class, names = _read_registries(spark)
    if tree.class_name in by_class:
        return by_class[tree.class_name]
    known = tree.facts.pretty_name
    own = known.lower()
    return own if own in names else None


def _read_registries(spark: SparkSession) -> tuple[dict[str, str], set[str]]:
    """Names by class, and all names. Once per process: the built-in functions never change."""
    global _registered
    if _registered is None:
        jvm: Any = spark._jvm
        analysis = jvm.org.apache.spark.sql.catalyst.analysis
        found: dict[str, str] = {}
        for registry in (analysis.FunctionRegistry, analysis.TableFunctionRegistry):
            functions = registry.builtin()
            for identifier in sequence(functions.listFunction()):
                info = functions.lookupFunction(identifier)
                name = str(identifier.funcName())
                if info.isDefined() and name.isidentifier():
                    found[name] = str(info.get().getClassName())
        # Sorted, so that of several names of one class it is always the same that is used.
        by_class = {class_name: name for name, class_name in sorted(found.items(), reverse=True)}
        _registered = (by_class, set(found))
    return _registered
