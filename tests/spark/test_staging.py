"""Tables that come in through Spark: the rows that Spark reads, in pieces that stay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from headway.base.errors import NotSupported
from headway.pipelined.programs import TableInput
from headway.plan.graph import walk
from headway.plan.nodes import Scan
from headway.spark.catalyst import import_plan
from headway.spark.staging import needs_staging, stage_source, stage_tables
from headway.storage import Run, new_manifest, open_store

Frames = Callable[[SparkSession, Path], DataFrame]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(open_store(str(tmp_path / "store")), new_manifest([], (), {}))


def rows_of(run: Run, table: TableInput) -> list[tuple[Any, ...]]:
    """What the pieces hold, in their order."""
    rows: list[tuple[Any, ...]] = []
    for piece in table.pieces:
        read = pa.ipc.open_stream(run.read_piece(piece.name)).read_all()
        rows += zip(*(column.to_pylist() for column in read.columns), strict=True)
    return rows


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1000, 1, 4).selectExpr(
        "id", "id % 7 AS kind", "CAST(id AS DECIMAL(12,3)) / 8 AS price", "concat('n', id) AS name",
        "IF(id % 5 = 0, NULL, date_add(DATE '2024-01-01', CAST(id AS INT))) AS day",
    )  # fmt: skip


def from_csv(spark: SparkSession, folder: Path) -> DataFrame:
    numbers(spark).write.csv(str(folder / "csv"), header=True)
    return spark.read.csv(str(folder / "csv"), header=True, inferSchema=True)


def from_json(spark: SparkSession, folder: Path) -> DataFrame:
    numbers(spark).write.json(str(folder / "json"))
    return spark.read.json(str(folder / "json"))


def from_partitioned_parquet(spark: SparkSession, folder: Path) -> DataFrame:
    numbers(spark).write.partitionBy("kind").parquet(str(folder / "parquet"))
    return spark.read.parquet(str(folder / "parquet"))


def from_memory(spark: SparkSession, folder: Path) -> DataFrame:
    rows = [(number, number % 7, f"n{number}", None if number % 5 == 0 else 1.5 * number)
            for number in range(3000)]  # fmt: skip
    return spark.createDataFrame(rows, "id bigint, kind int, name string, price double")


def from_cache(spark: SparkSession, folder: Path) -> DataFrame:
    return numbers(spark).repartition(3, "kind").cache()


def from_jdbc(spark: SparkSession, folder: Path) -> DataFrame:
    jvm: Any = spark._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))
    options = {
        "url": "jdbc:derby:memory:headway;create=true",
        "driver": "org.apache.derby.jdbc.EmbeddedDriver",
        "dbtable": "numbers",
    }
    numbers(spark).drop("name").write.format("jdbc").options(**options).mode("overwrite").save()
    return spark.read.format("jdbc").options(**options).load()


NEEDED = ("id", "kind", "price")
SOURCES: list[Frames] = [
    from_csv, from_json, from_partitioned_parquet, from_memory, from_cache, from_jdbc,
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_a_staged_table_has_the_rows_that_spark_reads(
    spark: SparkSession, run: Run, tmp_path: Path, source: Frames
) -> None:
    frame = source(spark, tmp_path)
    query = frame.where("kind < 5").select(*NEEDED)
    imported = import_plan(query)
    ((scan, table),) = stage_tables(
        spark, imported.plan, run, "q", session_frames=imported.frames
    ).items()
    assert [name for _, name in table.columns] == list(scan.column_names)
    staged = [column.field for column in scan.columns if column.field.lower() in NEEDED]
    assert len(staged) == len(NEEDED)
    expected = frame.select(*staged).collect()
    assert Counter(rows_of(run, table)) == Counter(map(tuple, expected))
    assert rows_of(run, table) == rows_of(run, table)
    frame.unpersist()


def test_a_table_that_is_used_twice_is_staged_once(
    spark: SparkSession, run: Run, tmp_path: Path
) -> None:
    frame = from_csv(spark, tmp_path)
    other = frame.select("kind", "name").withColumnsRenamed({"kind": "k", "name": "n"})
    imported = import_plan(frame.select("id", "kind").join(other, frame.kind == other.k))
    scans = [node for node in walk(imported.plan.root) if isinstance(node, Scan)]
    staged = stage_tables(spark, imported.plan, run, "q", session_frames=imported.frames)
    assert len(scans) == 2 and staged.keys() == set(scans)
    first, second = (staged[scan] for scan in scans)
    assert first.pieces == second.pieces and first.columns != second.columns
    assert {piece.name for piece in first.pieces} == set(run.pieces("staged"))


def test_large_tables_come_in_several_pieces_in_order(spark: SparkSession, run: Run) -> None:
    frame = spark.range(0, 100_000, 1, 2).selectExpr("id", "repeat('x', 20) AS text")
    staged = stage_source(frame, run, "q", piece_bytes=256 << 10)
    assert len(staged.pieces) > 8 and staged.rows == 100_000
    assert all(piece.bytes <= 256 << 10 for piece in staged.pieces)
    read = [pa.ipc.open_stream(run.read_piece(piece.name)).read_all() for piece in staged.pieces]
    assert [table.num_rows for table in read] == [piece.rows for piece in staged.pieces]
    together = pa.concat_tables(read)
    assert together.column("id").to_pylist() == list(range(100_000))
    assert together.schema.names == staged.arrow_schema.names


def test_a_second_attempt_has_other_pieces(spark: SparkSession, run: Run) -> None:
    first, second = (stage_source(spark.range(10), run, "q") for _ in range(2))
    assert not {p.name for p in first.pieces} & {p.name for p in second.pieces}


def test_a_table_without_rows_has_no_pieces(spark: SparkSession, run: Run) -> None:
    staged = stage_source(spark.range(10).where("id < 0"), run, "q")
    assert (staged.pieces, staged.rows, staged.bytes) == ((), 0, 0)


def test_a_table_of_which_only_the_rows_count(
    spark: SparkSession, run: Run, tmp_path: Path
) -> None:
    imported = import_plan(from_memory(spark, tmp_path).selectExpr("count(*) AS n"))
    (table,) = stage_tables(spark, imported.plan, run, "q", session_frames=imported.frames).values()
    assert all(text.startswith("CAST(NULL") for text, _ in table.columns)
    assert rows_of(run, table) == [(True,)] * 3000


def test_what_is_plain_is_not_staged(spark: SparkSession, run: Run, tmp_path: Path) -> None:
    numbers(spark).write.parquet(str(tmp_path / "plain"))
    plain = spark.read.parquet(str(tmp_path / "plain")).join(spark.range(5), "id")
    imported = import_plan(plain)
    scans = [node for node in walk(imported.plan.root) if isinstance(node, Scan)]
    assert len(scans) == 2 and not any(needs_staging(scan.source) for scan in scans)
    assert stage_tables(spark, imported.plan, run, "q") == {}
    assert run.pieces() == []


def test_types_without_an_arrow_form_are_refused(spark: SparkSession, run: Run) -> None:
    frame = spark.range(3000).selectExpr("id", "make_interval(0, id) AS span").cache()
    imported = import_plan(frame.select("id", "span"))
    with pytest.raises(NotSupported, match="no Arrow form"):
        stage_tables(spark, imported.plan, run, "q", session_frames=imported.frames)
    frame.unpersist()
