"""The query texts that DuckDB's benchmark extensions carry, in Spark's dialect."""

from __future__ import annotations

import re

from headway.workloads.extension import connect_with

# A string is matched so that it is passed over; what is left in double quotes is a name.
_STRING_OR_NAME = re.compile(r"""('(?:[^']|'')*')|"([^"]*)\"""")


def benchmark_queries(extension: str) -> dict[str, str]:
    """The queries of `extension` ("tpch" or "tpcds") by name: q01, q02 and so on, in order."""
    with connect_with(extension) as connection:
        rows = connection.execute(
            f"SELECT query_nr, query FROM {extension}_queries() ORDER BY query_nr"
        ).fetchall()
    return {f"q{number:02d}": for_spark(text) for number, text in rows}


def for_spark(text: str) -> str:
    """One query with names in back-ticks, where Spark would read a string in double quotes."""
    return _STRING_OR_NAME.sub(_quote_for_spark, text).strip().rstrip(";").rstrip()


def _quote_for_spark(match: re.Match[str]) -> str:
    string, name = match.groups()
    return string if string is not None else f"`{name}`"
