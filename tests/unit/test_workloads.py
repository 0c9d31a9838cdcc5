"""Generated data is whole or absent, queries fit Spark, directories of tables are understood."""

from __future__ import annotations

import errno
import json
import math
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
import sqlglot

from headway.base.errors import (
    FileNotReadable,
    HeadwayError,
    InvalidIdentifier,
    InvalidPath,
    QueryFailed,
    StoreConflict,
    StoreCorrupt,
    StoreFull,
    StoreUnavailable,
    TableNotFound,
    WrongUsage,
)
from headway.workloads import MARKER, TPCDS, TPCH, WORKLOADS, GeneratedData, Workload, find_tables
from headway.workloads.data import Staging, staged_beside, storage_errors
from headway.workloads.queries import for_spark
from headway.workloads.workload import Progress

SCALE = 0.01


@pytest.fixture(scope="module", params=sorted(WORKLOADS))
def generated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> GeneratedData:
    folder = tmp_path_factory.mktemp("workloads") / request.param
    return WORKLOADS[request.param].generate(SCALE, folder, parts=2)


def write_nothing(staging: Staging, scale: float, parts: int | None, progress: Progress) -> None:
    """A stand-in for the generators where only what surrounds them is tested."""


def toy(write_tables=write_nothing) -> Workload:
    return replace(TPCH, tables=(), write_tables=write_tables)


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


class TestQueries:
    @pytest.mark.parametrize(("name", "count"), [("tpch", 22), ("tpcds", 99)])
    def test_all_are_there_in_order_and_parse_as_spark_sql(self, name: str, count: int) -> None:
        queries = WORKLOADS[name].queries()
        assert list(queries) == [f"q{number:02d}" for number in range(1, count + 1)]
        for text in queries.values():
            sqlglot.parse_one(text, dialect="spark")
            assert '"' not in text
            assert not text.endswith(";")

    def test_names_get_back_ticks_and_strings_stay(self) -> None:
        text = """SELECT 'say "hi"', 'it''s "so"' AS "30 days" FROM t;\n"""
        assert for_spark(text) == """SELECT 'say "hi"', 'it''s "so"' AS `30 days` FROM t"""

    def test_queries_name_only_the_workloads_tables(self) -> None:
        for workload in WORKLOADS.values():
            used = set()
            for text in workload.queries().values():
                tree = sqlglot.parse_one(text, dialect="spark")
                names = {table.name for table in tree.find_all(sqlglot.exp.Table)}
                used |= names - {cte.alias for cte in tree.find_all(sqlglot.exp.CTE)}
            assert used == set(workload.tables)


@pytest.mark.slow
class TestGeneratedData:
    def test_one_folder_per_table_with_its_files(self, generated: GeneratedData) -> None:
        tables = WORKLOADS[generated.workload].tables
        assert not generated.reused
        assert names_in(generated.directory) == sorted((*tables, MARKER))
        for table in generated.tables.values():
            names = [file.relative_to(generated.directory).as_posix() for file in table.files]
            assert names == [f"{table.name}/part-{i:05d}.parquet" for i in range(len(names))]
            assert names_in(generated.directory / table.name) == [file.name for file in table.files]
            assert table.bytes == sum(file.stat().st_size for file in table.files)
        assert {len(table.files) for table in generated.tables.values()} == {1, 2}

    def test_rows_are_counted(self, generated: GeneratedData) -> None:
        known = {"tpch": ("lineitem", 60_175), "tpcds": ("store_sales", 28_810)}
        table, rows = known[generated.workload]
        assert generated.tables[table].rows == rows
        assert generated.rows == sum(each.rows for each in generated.tables.values())
        for each in generated.tables.values():
            files = [str(file) for file in each.files]
            counted = duckdb.execute("SELECT count(*) FROM read_parquet(?)", [files]).fetchone()
            assert counted == (each.rows,)

    def test_every_column_has_a_type_spark_reads(self, generated: GeneratedData) -> None:
        kinds = {"int32", "int64", "date32[day]", "string", "string_view"}
        for table in generated.tables.values():
            for field in pyarrow.parquet.read_schema(table.files[0]):
                assert str(field.type) in kinds or str(field.type).startswith("decimal128(")

    def test_the_marker_says_what_it_is(self, generated: GeneratedData) -> None:
        marker = json.loads((generated.directory / MARKER).read_text())
        assert marker["version"] == 1
        assert (marker["workload"], marker["scale"]) == (generated.workload, SCALE)
        assert {
            name: (table["rows"], table["bytes"]) for name, table in marker["tables"].items()
        } == {name: (table.rows, table.bytes) for name, table in generated.tables.items()}

    def test_parts_split_the_same_rows(self, generated: GeneratedData, tmp_path: Path) -> None:
        whole = WORKLOADS[generated.workload].generate(SCALE, tmp_path / "whole")
        for name, table in whole.tables.items():
            assert len(table.files) == 1
            split = map(pyarrow.parquet.read_table, generated.tables[name].files)
            assert pyarrow.concat_tables(split).equals(pyarrow.parquet.read_table(table.files[0]))

    def test_a_second_call_reuses(self, generated: GeneratedData) -> None:
        before = {path: path.stat().st_mtime_ns for path in generated.directory.rglob("*")}
        again = WORKLOADS[generated.workload].generate(SCALE, generated.directory)
        assert again == replace(generated, reused=True)
        assert before == {path: path.stat().st_mtime_ns for path in generated.directory.rglob("*")}

    def test_find_tables_finds_them(self, generated: GeneratedData) -> None:
        found = find_tables(generated.directory)
        assert {name: table.files for name, table in found.items()} == {
            name: table.files for name, table in generated.tables.items()
        }
        assert {table.format for table in found.values()} == {"parquet"}

    def test_another_scale_workload_or_split_is_refused(self, generated: GeneratedData) -> None:
        own = WORKLOADS[generated.workload]
        other = TPCH if own is TPCDS else TPCDS
        for workload, scale, parts in ((own, 0.02, None), (other, SCALE, None), (own, SCALE, 7)):
            with pytest.raises(WrongUsage, match="already holds") as caught:
                workload.generate(scale, generated.directory, parts=parts)
            assert caught.value.hint is not None and "another folder" in caught.value.hint


@pytest.mark.slow
class TestProgress:
    @pytest.mark.parametrize("name", sorted(WORKLOADS))
    def test_it_counts_up_to_the_end(self, name: str, tmp_path: Path) -> None:
        calls: list[tuple[str, int, int]] = []
        WORKLOADS[name].generate(SCALE, tmp_path / "out", progress=lambda *call: calls.append(call))
        steps = [done for _, done, _ in calls]
        assert steps == sorted(steps) and steps[0] == 0
        ((total),) = {total for _, _, total in calls}
        assert calls[-1] == ("done", total, total)


class TestRefusals:
    @pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, 1e9, 1e-9])
    @pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)
    def test_a_senseless_scale(self, workload: Workload, scale: float, tmp_path: Path) -> None:
        with pytest.raises(WrongUsage, match="scale") as caught:
            workload.generate(scale, tmp_path / "out")
        assert f"to {workload.largest:g}" in (caught.value.hint or "")
        assert names_in(tmp_path) == []

    @pytest.mark.parametrize("parts", [0, -3, 1_000_000])
    def test_a_senseless_number_of_parts(self, parts: int, tmp_path: Path) -> None:
        with pytest.raises(WrongUsage, match="parts"):
            TPCH.generate(SCALE, tmp_path / "out", parts=parts)

    def test_foreign_files_are_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.txt").write_text("years of work")
        with pytest.raises(WrongUsage, match=r"did not generate: thesis\.txt"):
            TPCH.generate(SCALE, tmp_path)
        assert names_in(tmp_path) == ["thesis.txt"]

    def test_a_file_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("")
        with pytest.raises(WrongUsage, match="is a file"):
            TPCH.generate(SCALE, tmp_path / "out")

    def test_an_empty_folder_is_free(self, tmp_path: Path) -> None:
        (tmp_path / "out").mkdir()
        assert not toy().generate(SCALE, tmp_path / "out").reused
        assert names_in(tmp_path / "out") == [MARKER]

    def test_a_folder_whose_parent_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreUnavailable) as caught:
            TPCH.generate(SCALE, tmp_path / "file" / "out")
        assert caught.value.hint

    def test_too_little_room_is_said_before_the_work(self, tmp_path: Path) -> None:
        hungry = replace(TPCH, bytes_per_scale=10**24)
        with pytest.raises(StoreFull, match="are needed"):
            hungry.generate(SCALE, tmp_path / "out")
        assert names_in(tmp_path) == []

    def test_a_mount_point_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "out")
        with pytest.raises(WrongUsage, match="mount point"):
            toy().generate(SCALE, tmp_path / "out")


@pytest.mark.slow
class TestDamage:
    def test_a_torn_marker(self, tmp_path: Path) -> None:
        toy().generate(SCALE, tmp_path / "out")
        (tmp_path / "out" / MARKER).write_text('{"version": 1, "worklo')
        with pytest.raises(StoreCorrupt, match="damaged"):
            toy().generate(SCALE, tmp_path / "out")

    def test_a_marker_of_a_later_release(self, tmp_path: Path) -> None:
        toy().generate(SCALE, tmp_path / "out")
        marker = tmp_path / "out" / MARKER
        marker.write_text(marker.read_text().replace('"version": 1', '"version": 2'))
        with pytest.raises(WrongUsage, match="version 2"):
            toy().generate(SCALE, tmp_path / "out")

    @pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"PAR1")])
    def test_a_lost_or_changed_file(self, harm, tmp_path: Path) -> None:
        data = TPCH.generate(SCALE, tmp_path / "out")
        harm(data.tables["nation"].files[0])
        with pytest.raises(StoreCorrupt, match=r"nation/part-00000\.parquet"):
            TPCH.generate(SCALE, tmp_path / "out")


class TestFailuresOnTheWay:
    @pytest.mark.parametrize(
        ("failure", "error"),
        [
            (OSError(errno.ENOSPC, "No space left on device"), StoreFull),
            (OSError(errno.EDQUOT, "Disk quota exceeded"), StoreFull),
            (OSError(errno.EROFS, "Read-only file system"), StoreUnavailable),
            (duckdb.IOException("Could not write: No space left on device"), StoreFull),
            (duckdb.IOException("Could not open file"), StoreUnavailable),
            (KeyboardInterrupt(), KeyboardInterrupt),
        ],
    )
    def test_nothing_is_kept_and_the_next_call_succeeds(
        self, failure: BaseException, error: type[BaseException], tmp_path: Path
    ) -> None:
        def fail(staging: Staging, scale: float, parts: int | None, progress: Progress) -> None:
            (staging.data / "half").mkdir()
            (staging.scratch / "half").write_text("half")
            raise failure

        with pytest.raises(error):
            toy(fail).generate(SCALE, tmp_path / "out")
        assert names_in(tmp_path) == []
        assert not toy().generate(SCALE, tmp_path / "out").reused

    def test_a_folder_filled_meanwhile_is_not_overwritten(self, tmp_path: Path) -> None:
        out = tmp_path / "out"

        def be_overtaken(
            staging: Staging, scale: float, parts: int | None, progress: Progress
        ) -> None:
            out.mkdir()
            (out / "theirs").write_text("")

        with pytest.raises(StoreConflict, match="somebody else"):
            toy(be_overtaken).generate(SCALE, out)
        assert names_in(tmp_path) == ["out"] and names_in(out) == ["theirs"]

    def test_two_at_once_do_not_disturb_each_other(self, tmp_path: Path) -> None:
        with staged_beside(tmp_path / "out"):
            with pytest.raises(StoreConflict, match="another process"):
                toy().generate(SCALE, tmp_path / "out")
            assert not toy().generate(SCALE, tmp_path / "out2").reused
        assert not toy().generate(SCALE, tmp_path / "out").reused

    @pytest.mark.parametrize(
        ("complaint", "error"), [("No space left on device", StoreFull), ("oops", QueryFailed)]
    )
    def test_tpchgen_failing(
        self,
        complaint: str,
        error: type[HeadwayError],
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        program = tmp_path / "bin" / "tpchgen-cli"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\necho 'Error: {complaint}' >&2\nexit 1\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(program.parent / "python"))
        with pytest.raises(error):
            TPCH.generate(SCALE, tmp_path / "out")
        assert names_in(tmp_path) == ["bin"]

    def test_tpchgen_missing(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(FileNotReadable, match="not installed") as caught:
            TPCH.generate(SCALE, tmp_path / "out")
        assert caught.value.hint == "pip install tpchgen-cli"

    def test_extension_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(duckdb, "__version__", "0.0.1")
        with pytest.raises(FileNotReadable, match="not installed"):
            TPCDS.queries()

    def test_our_own_errors_keep_their_names(self, tmp_path: Path) -> None:
        with pytest.raises(QueryFailed), storage_errors(tmp_path):
            raise QueryFailed("as it was")


@pytest.mark.slow
class TestKilled:
    """A generator killed without warning leaves nothing that the next one trips over."""

    PROGRAM = """
import sys
from headway.workloads import WORKLOADS
WORKLOADS[sys.argv[1]].generate(float(sys.argv[2]), sys.argv[3])
"""

    @pytest.mark.parametrize(
        ("name", "scale", "begun"),
        [
            ("tpch", "1", "data/lineitem/*.inprogress"),
            ("tpcds", "1", "scratch/tpcds.duckdb"),
            ("tpcds", "0.01", "data/catalog_sales"),
        ],
    )
    def test_in_the_middle(self, name: str, scale: str, begun: str, tmp_path: Path) -> None:
        out = tmp_path / "out"
        victim = subprocess.Popen([sys.executable, "-c", self.PROGRAM, name, scale, str(out)])
        try:
            self.wait_for(tmp_path, f".out.generating-*/{begun}", victim)
        finally:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        assert not out.exists()
        assert [entry.startswith(".out.generating-") for entry in names_in(tmp_path)] == [True]

        data = WORKLOADS[name].generate(SCALE, out)
        assert not data.reused
        assert names_in(tmp_path) == ["out"]
        assert sorted(find_tables(out)) == sorted(WORKLOADS[name].tables)

    @staticmethod
    def wait_for(folder: Path, pattern: str, victim: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 60
        while not any(folder.glob(pattern)):
            assert victim.poll() is None and time.monotonic() < deadline
            time.sleep(0.002)


def touch(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return root


class TestFindTables:
    def test_folders_and_files(self, tmp_path: Path) -> None:
        touch(tmp_path, "sales/b.parquet", "sales/a.snappy.parquet", "sales/_SUCCESS")
        touch(tmp_path, "sales/.a.parquet.crc", "shops.csv", "visits.json", "old.orc")
        touch(tmp_path, "headway-data.json", "_notes.csv", ".hidden/x.csv", "README.md", "empty/x")
        found = find_tables(str(tmp_path))
        assert {name: table.format for name, table in found.items()} == {
            "old": "orc",
            "sales": "parquet",
            "shops": "csv",
            "visits": "json",
        }
        assert [file.name for file in found["sales"].files] == ["a.snappy.parquet", "b.parquet"]
        assert found["sales"].path == tmp_path / "sales"
        assert found["shops"].files == (tmp_path / "shops.csv",)
        assert list(found) == sorted(found)

    def test_names_lose_formats_and_compressions(self, tmp_path: Path) -> None:
        touch(tmp_path, "a.csv.gz", "b.snappy.parquet", "c.parquet/part-0.parquet", "D.JSON")
        found = find_tables(tmp_path)
        assert {name: table.format for name, table in found.items()} == {
            "D": "json",
            "a": "csv",
            "b": "parquet",
            "c": "parquet",
        }

    def test_partitions(self, tmp_path: Path) -> None:
        touch(tmp_path, "sales/year=2024/_day=1/x.parquet", "sales/year=2025/_day=2/y.parquet")
        touch(tmp_path, "flat/x.csv")
        found = find_tables(tmp_path)
        assert found["sales"].partitioned and not found["flat"].partitioned
        assert [file.name for file in found["sales"].files] == ["x.parquet", "y.parquet"]

    @pytest.mark.parametrize(
        ("files", "error", "message"),
        [
            ([], TableNotFound, "no tables"),
            (["README.md", "deep/er/x.csv"], TableNotFound, "no tables"),
            (["t/a.csv", "t/b.parquet"], WrongUsage, "mixes formats: csv, parquet"),
            (["t/d=1/a.csv", "t/d=2/b.json"], WrongUsage, "mixes formats: csv, json"),
            (["Sales/a.csv", "sales.csv"], WrongUsage, "both table sales"),
            (["sales.parquet", "sales.csv"], WrongUsage, "both table sales"),
            (["t/d=1/a.csv", "t/b.csv"], WrongUsage, "no partition and d"),
            (["t/d=1/a.csv", "t/e=1/b.csv"], WrongUsage, "partition layouts: d and e"),
            (["t/a.csv", "t/more/b.csv"], WrongUsage, "not a partition"),
            (["d=1/a.csv"], WrongUsage, "one partitioned table"),
            (["t/_delta_log/0.json", "t/a.parquet"], WrongUsage, "Delta"),
            (["a.b.csv"], InvalidIdentifier, "'a.b'"),
            (["a`b/x.csv"], InvalidIdentifier, "a`b"),
        ],
    )
    def test_what_cannot_be_understood_is_named(
        self, files: list[str], error: type[HeadwayError], message: str, tmp_path: Path
    ) -> None:
        with pytest.raises(error, match=message) as caught:
            find_tables(touch(tmp_path, *files))
        assert caught.value.hint

    def test_a_missing_directory(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidPath, match="does not exist"):
            find_tables(tmp_path / "nowhere")
        with pytest.raises(InvalidPath, match="is not a directory"):
            find_tables(touch(tmp_path, "t.csv") / "t.csv")

    def test_an_unreadable_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def refuse(path: Path) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(Path, "iterdir", refuse)
        with pytest.raises(FileNotReadable, match="Permission denied"):
            find_tables(tmp_path)
