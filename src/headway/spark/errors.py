"""What Spark raises, as errors with a name and a hint."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors import (
    AnalysisException,
    ParseException,
    PySparkException,
    PythonException,
)

from headway.base import errors
from headway.base.errors import HeadwayError, QueryFailed, TableNotFound, WrongSql

_CONDITION = re.compile(r"^\s*\[([A-Z0-9_.]+)\]\s*")
_OURS = re.compile(r"^headway\.base\.errors\.(\w+): (.*)$")
"""How a Python process of an executor tells one of our own errors."""
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_HINTS = {
    "DIVIDE_BY_ZERO": "guard the divisor with nullif(divisor, 0), or use try_divide",
    "CAST_INVALID_INPUT": "use try_cast to get NULL for what cannot be cast",
    "ARITHMETIC_OVERFLOW": "cast to a wider type first",
    "NUMERIC_VALUE_OUT_OF_RANGE": "cast to a wider type first",
}


def named_error(error: Exception) -> HeadwayError:
    """`error` as one of ours; one that already is stays as it is."""
    if isinstance(error, HeadwayError):
        return error
    condition, message = _parts(error)
    own = _OURS.match(message)
    kind = getattr(errors, own.group(1), None) if own else None
    if own and isinstance(kind, type) and issubclass(kind, HeadwayError):
        return kind(own.group(2))
    if condition.startswith("TABLE_OR_VIEW_NOT_FOUND"):
        return TableNotFound(
            message, hint="give the folder that holds the table with --tables, or register it"
        )
    if isinstance(error, ParseException):
        return WrongSql(message, hint="the text is read as Spark SQL")
    if isinstance(error, AnalysisException):
        return WrongSql(message)
    if isinstance(error, Py4JNetworkError):
        return QueryFailed(
            "the connection to Spark's driver is lost", hint="is the JVM still alive?"
        )
    hint = next((hint for name, hint in _HINTS.items() if condition.startswith(name)), None)
    return QueryFailed(message, hint=hint)


def _parts(error: Exception) -> tuple[str, str]:
    """Spark's error condition and the first line of its message, without the machine's noise."""
    text = _text_of(error)
    match = _CONDITION.match(text)
    condition = match.group(1) if match else ""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if isinstance(error, PythonException):  # the last line of the worker's own traceback
        first = [line.strip() for line in text.split("\n\n")[0].splitlines() if line.strip()][-1]
    message = _STATE.sub("", _CONDITION.sub("", first)).strip(" ;")
    position = re.search(r"(line \d+,? pos \d+)", text)
    if position and position.group(1) not in message:
        message = f"{message} ({position.group(1)})"
    return condition, message or type(error).__name__


def _text_of(error: Exception) -> str:
    if isinstance(error, PySparkException):
        return str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.getMessage() or cause.toString())
    if isinstance(error, Py4JError):
        return str(error).splitlines()[0]
    return f"{type(error).__name__}: {error}"
