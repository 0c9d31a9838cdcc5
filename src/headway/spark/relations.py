"""Catalyst's leaves: tables, ranges, constants, and whatever only this session can read."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame

from headway.base.errors import PlanNotImportable
from headway.plan.cardinalities import width_of
from headway.plan.expressions import Column
from headway.plan.nodes import Node, Scan, ScanColumn, Values
from headway.plan.sources import FileSource, RangeSource, SessionSource, Source
from headway.plan.statistics import TableStatistics
from headway.spark.tree import Handle, Tree, sequence
from headway.spark.tree_text import constant_rows
from headway.spark.types import constant_text, ddl_of, timestamp_text

if TYPE_CHECKING:
    from headway.spark.operators import OperatorReader

_DATASOURCES = "org.apache.spark.sql.execution.datasources."
# By the exact class: one that builds on Spark's own (Delta's does) reads its files otherwise.
_PORTABLE_FORMATS = {
    _DATASOURCES + "parquet.ParquetFileFormat": "parquet",
    _DATASOURCES + "orc.OrcFileFormat": "orc",
    _DATASOURCES + "csv.CSVFileFormat": "csv",
    _DATASOURCES + "json.JsonFileFormat": "json",
    _DATASOURCES + "text.TextFileFormat": "text",
}
# Reader options that say how to read, not where or with whose key.
_READING_OPTIONS = {
    name.lower()
    for name in (
        "sep", "delimiter", "header", "inferSchema", "quote", "escape", "comment", "nullValue",
        "emptyValue", "nanValue", "positiveInf", "negativeInf", "dateFormat", "timestampFormat",
        "timestampNTZFormat", "encoding", "charset", "mode", "multiLine", "lineSep", "locale",
        "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", "charToEscapeQuoteEscaping",
        "unescapedQuoteHandling", "columnNameOfCorruptRecord", "enforceSchema", "samplingRatio",
        "maxColumns", "maxCharsPerColumn", "preferDate", "primitivesAsString", "prefersDecimal",
        "allowComments", "allowSingleQuotes", "allowNumericLeadingZeros", "allowUnquotedFieldNames",
        "dropFieldIfAllNull", "wholetext", "mergeSchema", "datetimeRebaseMode", "int96RebaseMode",
        "recursiveFileLookup", "pathGlobFilter", "modifiedBefore", "modifiedAfter",
        "ignoreCorruptFiles", "ignoreMissingFiles", "compression",
    )
}  # fmt: skip
_NEVER_KEPT = {"path", "basepath", "serialization.format"}
_MOST_CONSTANTS = 2_000
_REFUSED_LEAVES = {
    "CTERelationRef": "it is a common table expression that Spark does not inline",
}


def read_relation(reader: OperatorReader, tree: Tree) -> Node:
    reason = _REFUSED_LEAVES.get(tree.name)
    if reason is None and tree.fields.get("isStreaming"):
        reason = "it is a stream"
    if reason is not None:
        raise PlanNotImportable(f"operator {tree.name}: {reason}")
    if tree.name == "OneRowRelation":
        return Values((), ((),))
    if tree.name == "Range":
        start, end, step = (int(tree.fields[name]) for name in ("start", "end", "step"))
        return _scan(reader, tree, RangeSource(start, end, step))
    if tree.name == "LocalRelation":
        return _constants(reader, tree)
    if tree.name == "LogicalRDD" and "state" in tree.fields:
        return reader.kept_state(tree)
    if tree.name == "LogicalRelation":
        source = _known_file_source(reader, tree)
        if source is not None:
            return _scan(reader, tree, source)
    return _scan(reader, tree, _session_source(reader, tree))


def _scan(reader: OperatorReader, tree: Tree, source: Source) -> Scan:
    if "output" not in tree.fields:
        raise PlanNotImportable(f"operator {tree.name}: its columns are out of reach")
    attributes = tree.expression_list("output")
    kept = [a for a in attributes if int(a.fields["exprId"]["id"]) in reader.used]
    if not isinstance(source, RangeSource) and getattr(source, "format", "") != "parquet":
        reader.statistics[source] = _spark_statistics(tree)
    return Scan(source, tuple(ScanColumn(a.fields["name"], reader.column_of(a)) for a in kept))


def _spark_statistics(tree: Tree) -> TableStatistics:
    """What Spark knows of a leaf: its size, and its rows where somebody counted them."""
    found = tree.handle.stats()
    size = int(str(found.sizeInBytes()))
    width = sum(width_of(ddl_of(field["type"])) for field in json.loads(tree.schema_json)["fields"])
    counted = found.rowCount()
    rows = int(str(counted.get())) if counted.isDefined() else round(size / max(width, 1.0))
    return TableStatistics(rows, size)


def _known_file_source(reader: OperatorReader, tree: Tree) -> FileSource | None:
    """A table that occurs again is the same object in the JVM: it is asked once for as long as its
    files are the same."""
    key = tree.plan_facts.files
    known = reader.file_sources.get(key)
    if known is None:
        relation = tree.handle.relation()
        known = (relation, _file_source(tree, relation))
        if key:
            reader.file_sources[key] = known  # with the object, so that no other takes its number
    source = known[1]
    if source is None or source.schema is None:
        return source
    known_names, outputs = _field_names(source.schema), tree.expression_list("output")
    about_files = [a for a in outputs if a.fields["name"] not in known_names]
    return None if about_files else source  # such as _metadata


@lru_cache(maxsize=1_024)
def _field_names(schema: str) -> frozenset[str]:
    return frozenset(field["name"] for field in json.loads(schema)["fields"])


def _file_source(tree: Tree, relation: Handle) -> FileSource | None:
    """The files behind a table, when any session that sees them can read them the same way."""
    if not relation.getClass().getName().endswith(".HadoopFsRelation"):
        return None
    kind = _PORTABLE_FORMATS.get(str(relation.fileFormat().getClass().getName()))
    location = relation.location()
    options = _options(relation)
    if kind is None or options is None:
        return None
    if not str(location.getClass().getName()).startswith(_DATASOURCES):
        return None
    schema = json.loads(relation.schema().json())
    files = tuple(sorted(unquote(str(name)) for name in location.inputFiles()))
    partitions = [field.name() for field in relation.partitionSchema().fields()]
    root = _partition_root(files, partitions) if partitions else None
    if partitions and root is None:
        return None
    name = _table_name(tree, [str(path.toString()) for path in sequence(location.rootPaths())])
    return FileSource(name, kind, files, root, options, json.dumps(schema))


def _partition_root(files: tuple[str, ...], columns: list[str]) -> str | None:
    """The folder below which every file lies in a `column=value` folder per partition column."""
    roots = set()
    for file in files:
        folders = file.split("/")[:-1]
        named = [folder.partition("=")[0] for folder in folders[-len(columns) :]]
        if [name.casefold() for name in named] != [column.casefold() for column in columns]:
            return None
        roots.add("/".join(folders[: -len(columns)]))
    return roots.pop() if len(roots) == 1 else None


def _options(relation: Handle) -> tuple[tuple[str, str], ...] | None:
    """How the files are read; None when it takes an option that does not belong in a plan."""
    options = relation.options()
    keys = [str(key) for key in sequence(options.keys().toSeq())]
    keys = sorted(key for key in keys if key.lower() not in _NEVER_KEPT)
    if any(key.lower() not in _READING_OPTIONS for key in keys):
        return None
    return tuple((key, str(options.apply(key))) for key in keys)


def _table_name(tree: Tree, roots: list[str]) -> str:
    table = tree.handle.catalogTable()
    if table.isDefined():
        return str(table.get().identifier().table())
    last = roots[0].rstrip("/").rsplit("/", 1)[-1] if roots else "table"
    return last.split(".", 1)[0] or "table"


def _session_source(reader: OperatorReader, tree: Tree) -> SessionSource:
    frame = _frame_of(reader, tree)
    if len({name.casefold() for name in frame.columns}) < len(frame.columns):
        raise PlanNotImportable(f"operator {tree.name}: two of its columns have one name")
    # Spark does not print data, such as that of a relation that it has filtered while it planned.
    text = f"{tree.class_name} {tree.handle.toString()} {tree.handle.hashCode()}"
    name = "session_" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    reader.frames[name] = frame
    return SessionSource(name, tree.name)


def _frame_of(reader: OperatorReader, tree: Tree) -> DataFrame:
    dataset = reader.jvm.org.apache.spark.sql.classic.Dataset.ofRows(
        reader.spark._jsparkSession, tree.handle
    )
    return DataFrame(dataset, reader.spark)


def _constants(reader: OperatorReader, tree: Tree) -> Node:
    """A local relation as constants; as session data when it is large or has nested types."""
    attributes = tree.expression_list("output")
    columns = tuple(reader.column_of(attribute) for attribute in attributes)
    count = int(tree.handle.data().length())
    if count * max(len(columns), 1) <= _MOST_CONSTANTS:
        if not columns or count == 0:
            return Values(columns, ((),) * count)
        rows = _constant_rows(pa.ipc.open_stream(constant_rows(tree.handle)).read_all(), columns)
        if rows is not None:
            return Values(columns, rows)
    return _scan(reader, tree, _session_source(reader, tree))


def _constant_rows(
    table: pa.Table, columns: tuple[Column, ...]
) -> tuple[tuple[str, ...], ...] | None:
    texts = []
    for array, column in zip(table.columns, columns, strict=True):
        found = _constant_column(array.combine_chunks(), column.type)
        if found is None:
            return None
        texts.append(found)
    return tuple(zip(*texts, strict=True))


def _constant_column(array: pa.Array, ddl: str) -> list[str] | None:
    if ddl in ("timestamp", "timestamp_ntz"):
        moments = array.cast(pa.int64()).to_pylist()
        zoned = ddl == "timestamp"
        made = [
            constant_text(None, ddl) if m is None else timestamp_text(m, zoned=zoned)
            for m in moments
        ]
    else:
        made = [constant_text(_catalyst_text(value, ddl), ddl) for value in array.to_pylist()]
    return None if any(text is None for text in made) else [text for text in made if text]


def _catalyst_text(value: Any, ddl: str) -> str | None:
    """A Python value as Catalyst would print it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        special = {float("inf"): "Infinity", float("-inf"): "-Infinity"}
        return "NaN" if value != value else special.get(value, repr(value))
    return format(value, "f") if ddl.startswith("decimal") else str(value)
