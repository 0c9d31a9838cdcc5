"""The SQL names of Spark's built-in functions, by the class that implements each."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_names: dict[str, str] = {}


def function_names(spark: SparkSession) -> dict[str, str]:
    """Class name to function name. Read from the JVM once per process: it never changes."""
    if not _names:
        jvm: Any = spark._jvm
        registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
        listed = registry.listFunction()
        for index in range(listed.length()):
            identifier = listed.apply(index)
            info = registry.lookupFunction(identifier)
            name = str(identifier.funcName())
            if info.isDefined() and name.isidentifier():
                _names.setdefault(str(info.get().getClassName()), name)
    return _names
