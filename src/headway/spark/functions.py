"""The SQL names of Spark's built-in functions, by the class that implements each."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headway.spark.tree import Tree, sequence

_by_class: dict[str, str] = {}
_all_names: set[str] = set()


def function_name(spark: SparkSession, tree: Tree) -> str | None:
    """The name of the function that an expression is a call of; None when it is none.

    Most classes stand in the registry themselves. Some are made by a builder that stands there in
    their place; those know their own name.
    """
    _read_registries(spark)
    if tree.class_name in _by_class:
        return _by_class[tree.class_name]
    own = str(tree.handle.prettyName()).lower()
    return own if own in _all_names else None


def _read_registries(spark: SparkSession) -> None:
    """Once per process: the built-in functions never change."""
    if _all_names:
        return
    jvm: Any = spark._jvm
    analysis = jvm.org.apache.spark.sql.catalyst.analysis
    for registry in (analysis.FunctionRegistry.builtin(), analysis.TableFunctionRegistry.builtin()):
        for identifier in sequence(registry.listFunction()):
            info = registry.lookupFunction(identifier)
            name = str(identifier.funcName())
            if info.isDefined() and name.isidentifier():
                _by_class.setdefault(str(info.get().getClassName()), name)
                _all_names.add(name)
