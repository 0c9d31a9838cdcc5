"""Fingerprints of table files."""

from __future__ import annotations

from pathlib import Path

import fsspec
import numpy
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.base.errors import FileNotReadable, InvalidPath
from headway.session.planning import changed_tables
from headway.storage import (
    TableRecord,
    fingerprint_file,
    fingerprint_files,
    same_data,
    written_again,
)
from headway.storage.fingerprints import READ_WHOLE


def write_parquet(path: Path, rows: int, *, swapped: bool = False) -> None:
    values = numpy.random.default_rng(1).permutation(rows)
    if swapped:
        values[1 : rows - 1] = values[1 : rows - 1][::-1]
    pq.write_table(pa.table({"a": values}), path, compression="none", use_dictionary=False)


def test_a_copy_has_the_same_data(tmp_path: Path) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "with space.parquet"
    write_parquet(first, 300_000)
    second.write_bytes(first.read_bytes())
    fsspec.filesystem("memory").pipe_file("/copy.parquet", first.read_bytes())
    urls = [str(first), second.as_uri(), "memory://copy.parquet"]
    prints = fingerprint_files(urls)
    assert [found.path for found in prints] == urls
    assert all(same_data(prints[0], other) for other in prints)


@pytest.mark.parametrize("rows", [1_000, 300_000])
def test_parquet_with_the_same_footer_and_other_rows_differs(tmp_path: Path, rows: int) -> None:
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    write_parquet(first, rows)
    write_parquet(second, rows, swapped=True)
    assert first.stat().st_size == second.stat().st_size
    assert not same_data(*fingerprint_files([str(first), str(second)]))


def test_one_byte_of_a_text_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(b"1,2,3\n" * 500_000)
    before = fingerprint_file(str(file))
    with file.open("r+b") as stream:
        stream.seek(1_234_567)
        stream.write(b"9")
    assert not same_data(before, fingerprint_file(str(file)))


def test_a_very_large_file_is_sampled(tmp_path: Path) -> None:
    file = tmp_path / "large.csv"
    with file.open("wb") as stream:
        stream.truncate(4 * READ_WHOLE)
    before = fingerprint_file(str(file))
    with file.open("r+b") as stream:
        stream.seek(-5, 2)
        stream.write(b"9")
    assert not same_data(before, fingerprint_file(str(file)))


def test_a_sampled_file_that_was_written_again_is_noticed(tmp_path: Path) -> None:
    """In a place that no sample is from; where it has moved, nobody can tell."""
    file = tmp_path / "large.csv"
    with file.open("wb") as stream:
        stream.truncate(4 * READ_WHOLE)
    before = fingerprint_file(str(file))
    assert before.version and not fingerprint_file(__file__).version
    with file.open("r+b") as stream:
        stream.seek(2 * READ_WHOLE + 12_345)
        stream.write(b"9")
    after = fingerprint_file(str(file))
    assert same_data(before, after) and written_again(before, after)
    tables = [[TableRecord("t", "csv", (each,))] for each in (before, after)]
    assert changed_tables(*tables) == ("t",) and changed_tables(tables[0], tables[0]) == ()
    moved = file.rename(tmp_path / "moved.csv")
    assert not written_again(before, fingerprint_file(str(moved)))


def test_a_false_parquet_end_is_read_as_any_file(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1" + b"x" * 2_000_000 + b"\xff\xff\xff\xffPAR1")
    before = fingerprint_file(str(file))
    file.write_bytes(b"PAR1" + b"y" * 2_000_000 + b"\xff\xff\xff\xffPAR1")
    assert not same_data(before, fingerprint_file(str(file)))


def test_an_empty_file_has_a_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    fsspec.filesystem("memory").pipe_file("/empty", b"")
    local, remote = fingerprint_files([str(tmp_path / "empty"), "memory://empty"])
    assert local.size == 0 and same_data(local, remote)


def test_s3_files(s3_bucket: str, tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    write_parquet(file, 200_000)
    url = f"{s3_bucket}/tables/a.parquet"
    fsspec.filesystem("s3", use_listings_cache=False).pipe_file(url, file.read_bytes())
    local, *remote = fingerprint_files([str(file), url, url.replace("s3://", "s3a://")])
    assert all(same_data(local, found) for found in remote)


def test_what_cannot_be_read_is_named(tmp_path: Path, s3_bucket: str) -> None:
    for url in (
        str(tmp_path / "none"),
        str(tmp_path),
        f"{s3_bucket}/none",
        "memory://none",
        "nosuch://a/b",
    ):
        with pytest.raises(FileNotReadable, match="cannot be read") as caught:
            fingerprint_file(url)
        assert url in caught.value.message
    with pytest.raises(InvalidPath):
        fingerprint_file("a\0b")
