"""What is known of tables: from Parquet footers, ranges, and nobody."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from headway.plan.sources import FileSource, RangeSource, SessionSource
from headway.plan.statistics import (
    ColumnStatistics,
    TableStatistics,
    number_of,
    parquet_statistics,
    source_statistics,
)


def write(path: Path, **columns: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), path, row_group_size=2)
    return str(path)


def known(files: list[str]) -> TableStatistics:
    found = parquet_statistics(files)
    assert found is not None
    return found


def test_footers_of_several_files_are_added_up(tmp_path: Path) -> None:
    files = [
        write(tmp_path / "1.parquet", a=[3, 1, None], s=["x", "yy", "zzz"]),
        write(tmp_path / "2.parquet", a=[7, 5, 6], s=[None, None, "a"]),
    ]
    found = known(files)
    assert found.rows == 6
    a, s = found.columns["a"], found.columns["s"]
    # The last row group of the first file holds a null only, so its extremes are not written.
    assert (a.low, a.high, a.nulls) == (None, None, 1)
    assert (s.low, s.high, s.nulls) == (None, None, 2)
    assert found.bytes == a.bytes + s.bytes > 0


def test_extremes_of_every_kind(tmp_path: Path) -> None:
    file = write(
        tmp_path / "t.parquet",
        number=[1, 2],
        real=[0.5, -1.5],
        day=[datetime.date(2020, 1, 2), datetime.date(2020, 1, 1)],
        moment=[datetime.datetime(1970, 1, 1, 0, 0, 5), datetime.datetime(1970, 1, 2)],
        amount=[decimal.Decimal("1.25"), decimal.Decimal("-3.50")],
        flag=[True, False],
    )
    found = known([file]).columns
    days = datetime.date(2020, 1, 1).toordinal()
    extremes = {name: (column.low, column.high) for name, column in found.items()}
    assert extremes == {
        "number": (1.0, 2.0),
        "real": (-1.5, 0.5),
        "day": (days, days + 1),
        "moment": (5.0, 86_400.0),
        "amount": (-3.5, 1.25),
        "flag": (0.0, 1.0),
    }


def test_infinite_extremes_are_none(tmp_path: Path) -> None:
    column = known([write(tmp_path / "t.parquet", a=[float("-inf"), float("inf")])]).columns["a"]
    assert (column.low, column.high) == (None, None)


def test_dates_beyond_the_calendar_are_none(tmp_path: Path) -> None:
    far = pa.array([10**7, -(10**7)], pa.int32()).cast(pa.date32())
    moments = pa.array([10**17, -(10**17)], pa.timestamp("ms"))
    found = known([write(tmp_path / "t.parquet", day=far, moment=moments)])
    assert found.rows == 2
    assert found.columns["day"].low is None
    assert found.columns["moment"].high is None


def test_a_dot_in_a_name_is_no_nesting(tmp_path: Path) -> None:
    nested = [{"x": 100, "y": 200}, {"x": 300, "y": None}]
    file = write(tmp_path / "t.parquet", **{"a.b": [1, 2], "n": nested, "l": [[1, 2], [3]]})
    found = known([file]).columns
    assert (found["a.b"].low, found["a.b"].high) == (1.0, 2.0)
    assert set(found) == {"a.b", "n", "l"}
    assert found["n"].low is None
    assert found["n"].nulls == 0
    assert found["n"].bytes > 0


@pytest.mark.parametrize("name", ["with space", "100%25", "größe=ü", "%20", "a#b"])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_paths_are_taken_to_the_letter(tmp_path: Path, name: str, scheme: str) -> None:
    file = write(tmp_path / name / "t.parquet", a=[1])
    assert known([scheme + file]).rows == 1


def test_a_footer_is_read_once_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = parquet.read_metadata

    def counted(file: Any) -> Any:
        read.append(file.path)
        return original(file)

    monkeypatch.setattr(parquet, "read_metadata", counted)
    path = tmp_path / "t.parquet"
    assert known([write(path, a=[1])]).rows == known([str(path)]).rows == 1
    assert len(read) == 1
    write(path, a=[1, 2, 3])
    assert known([str(path)]).rows == 3
    assert len(read) == 2


def test_of_many_files_a_sample_is_read(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2, 3]})
    files = [str(tmp_path / f"{number}.parquet") for number in range(256)]
    for file in files[::4]:  # the others are not even there
        parquet.write_table(table, file)
    found = known(files)
    assert found.rows == 256 * 3
    assert found.columns["a"].high == 3


def test_no_files_have_no_rows() -> None:
    assert parquet_statistics([]) == TableStatistics(0, 0)


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    file = write(tmp_path / "t.parquet", a=pa.array([], pa.int32()))
    assert known([file]).rows == 0


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 this is none")
    empty = tmp_path / "empty.parquet"
    empty.touch()
    for file in (str(broken), str(empty), str(tmp_path / "missing"), "nowhere://bucket/t.parquet"):
        assert parquet_statistics([file]) is None, file


@pytest.mark.parametrize(
    ("source", "rows", "low", "high"),
    [
        (RangeSource(0, 10, 1), 10, 0, 9),
        (RangeSource(0, 10, 3), 4, 0, 9),
        (RangeSource(1, 11, 4), 3, 1, 9),
        (RangeSource(10, 0, -3), 4, 1, 10),
        (RangeSource(-(2**63), 2**63 - 1, 1), 2**64 - 1, -(2.0**63), 2.0**63),
    ],
)
def test_ranges(source: RangeSource, rows: int, low: float, high: float) -> None:
    found = source_statistics(source)
    assert found is not None
    assert found.rows == rows
    assert found.columns["id"] == ColumnStatistics(low, high, 0, rows * 8)


@pytest.mark.parametrize("source", [RangeSource(5, 5, 1), RangeSource(0, 10, -1)])
def test_empty_ranges(source: RangeSource) -> None:
    assert source_statistics(source) == TableStatistics(0, 0)


def test_other_sources_tell_nothing(tmp_path: Path) -> None:
    assert source_statistics(SessionSource("s", "t")) is None
    assert source_statistics(FileSource("t", "csv", ("/t.csv",))) is None
    file = write(tmp_path / "t.parquet", a=[1])
    found = source_statistics(FileSource("t", "parquet", (file,)))
    assert found is not None and found.rows == 1


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1.0), (7, 7.0), (decimal.Decimal("2.5"), 2.5), (float("nan"), None),
        (decimal.Decimal("NaN"), None), ("x", None), (b"x", None), (None, None),
        (datetime.date(1, 1, 1), 1.0),
        (datetime.datetime(1970, 1, 1, 1, tzinfo=datetime.UTC), 3600.0),
    ],
)  # fmt: skip
def test_values_on_the_number_line(value: object, number: float | None) -> None:
    assert number_of(value) == number
