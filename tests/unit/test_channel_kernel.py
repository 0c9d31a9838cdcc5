"""Channels at work: the same rows whatever the batches, slices that agree, portions, and limits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest

from headway.base.errors import InternalError
from headway.lineage.names import ChannelId
from headway.lineage.records import Lineage
from headway.lineage.topology import Feed, Partitioning
from headway.pipelined.kernels import channel as channel_module
from headway.pipelined.kernels.channel import ChannelKernel, Output, QueryKernels, ReadPiece
from headway.pipelined.kernels.reading import folders_of, rows_of_units
from headway.pipelined.kernels.translate import translate
from headway.pipelined.programs import (
    Action,
    ColumnType,
    Dataflow,
    FileRange,
    NumberRange,
    SideProgram,
    StageProgram,
    Statement,
    StoredPiece,
    TableInput,
)
from headway.pipelined.units import table_input
from headway.plan.expressions import Column, Expression
from headway.plan.sources import FileSource
from headway.testing.dataflows import rows_of, run_dataflow
from headway.testing.example_plans import parquet_table

N, S, D = ColumnType("n", "BIGINT"), ColumnType("s", "VARCHAR"), ColumnType("d", "DOUBLE")
READ = (('"range"', "n"),)
EMIT_ALL = Statement(Action.EMIT, 'SELECT * FROM "#batch"')
KEEP_ALL = Statement(Action.APPEND, 'SELECT * FROM "#batch"', "kept")
EMIT_KEPT = Statement(Action.EMIT, "SELECT * FROM kept")
DROP_KEPT = Statement(Action.DROP, table="kept")


def numbers(count: int, units: int = 1) -> TableInput:
    """The first numbers, in units of about the same size."""
    bounds = [count * unit // units for unit in range(units + 1)]
    ranges = tuple(NumberRange(*ends, 1) for ends in pairwise(bounds))
    return TableInput(READ, numbers=ranges, bytes=tuple(8 for _ in ranges), name="numbers")


def scanning(table: TableInput, *statements: Statement, channels: int = 1) -> StageProgram:
    side = SideProgram(Feed.SHARED, (N,), table, batch=statements)
    return StageProgram(channels, (side,), {}, (N,))


def collecting(
    upstream: int = 0,
    columns: tuple[ColumnType, ...] = (N,),
    *,
    channels: int = 1,
    keys: tuple[str, ...] = (),
    end: tuple[Statement, ...] = (EMIT_KEPT, DROP_KEPT),
) -> StageProgram:
    """Keeps what it reads, and puts it out at its end."""
    how = Partitioning.HASH if keys else Partitioning.GATHER
    side = SideProgram(
        Feed.EXCHANGE, columns, None, upstream, how, keys, batch=(KEEP_ALL,), end=end
    )
    return StageProgram(channels, (side,), {"kept": columns}, columns)


@pytest.fixture
def opened() -> Iterator[Callable[..., QueryKernels]]:
    """Opens the kernels of stages, and closes them at the end."""
    made: list[QueryKernels] = []

    def make(
        *stages: StageProgram, ordered: bool = False, read_piece: ReadPiece | None = None
    ) -> QueryKernels:
        names = tuple(column.name for column in stages[-1].output)
        payload = Dataflow(stages, names, ordered).encode()
        made.append(QueryKernels(payload, read_piece=read_piece))
        return made[-1]

    yield make
    for kernels in made:
        kernels.close()


def batch(values: list[int]) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def values(table: pa.Table) -> list[int]:
    found: list[int] = table.column("n").to_pylist() if table.num_columns else []
    return found


def ended(kernel: ChannelKernel, *batches: pa.Table) -> list[Output]:
    """All outputs of the end of side 0, which reads these batches, one by one."""
    for number, each in enumerate(batches):
        kernel.execute(Lineage(0, 0, number, 1), [each])
    outputs = [kernel.execute(Lineage(0, ends=True), [])]
    while outputs[-1].more:
        portion = len(outputs)
        outputs.append(kernel.execute(Lineage(0, ends=True, portion=portion), []))
    return outputs


# Batches


GROUPS = Statement(Action.EMIT, "SELECT n, CAST(count(*) AS BIGINT) AS c FROM kept GROUP BY n")
COUNTED = (N, ColumnType("c", "BIGINT"))


def counting(channels: int, units: int) -> Dataflow:
    """How many of the first numbers have which last digit."""
    digit = Statement(Action.EMIT, 'SELECT n % 10 AS n FROM "#batch"')
    counted = collecting(channels=channels, keys=('"n"',), end=(GROUPS, DROP_KEPT))
    counted = msgspec.structs.replace(counted, output=COUNTED)
    return Dataflow(
        (scanning(numbers(1_000, units), digit, channels=channels), counted), ("n", "c")
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("units", [1, 20])
def test_rows_do_not_depend_on_batches_and_channels(channels: int, units: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    found = run_dataflow(counting(channels, units), task_bytes=16, order=random.Random(seed))
    assert Counter(rows_of(found)) == Counter((n, 100) for n in range(10))


def test_several_inputs_are_one_batch(opened: Callable[..., QueryKernels]) -> None:
    counted = Statement(Action.EMIT, 'SELECT count(*) AS n FROM "#batch"')
    side = SideProgram(Feed.EXCHANGE, (N,), None, 0, Partitioning.GATHER, batch=(counted,))
    kernels = opened(scanning(numbers(1), EMIT_ALL), StageProgram(1, (side,), {}, (N,)))
    kernel = kernels.open(ChannelId(1, 0))
    output = kernel.execute(Lineage(0, 0, 0, 2), [batch([1, 2]), batch([3])])
    assert values(output.table) == [3]
    assert kernel.execute(Lineage(0, 0, 2, 0), []).rows == 0


def test_units_of_one_task_are_one_batch(opened: Callable[..., QueryKernels]) -> None:
    total = Statement(Action.EMIT, 'SELECT CAST(sum(n) AS BIGINT) AS n FROM "#batch"')
    kernel = opened(scanning(numbers(100, 10), total)).open(ChannelId(0, 0))
    assert values(kernel.execute(Lineage(0, -1, 2, 3), []).table) == [sum(range(20, 50))]


def test_nothing_comes_of_nothing(opened: Callable[..., QueryKernels]) -> None:
    kernels = opened(scanning(numbers(0, 1), EMIT_ALL), collecting(channels=2, keys=('"n"',)))
    output = kernels.open(ChannelId(0, 0)).execute(Lineage(0, -1, 0, 1, ends=True), [])
    assert (output.rows, output.more, output.sizes) == (0, False, ((0, 0),))
    (end,) = ended(kernels.open(ChannelId(1, 0)))
    assert (end.rows, end.more) == (0, False)


def test_a_channel_opens_with_nothing_in_its_state(opened: Callable[..., QueryKernels]) -> None:
    kernels = opened(scanning(numbers(1), EMIT_ALL), collecting())
    first = kernels.open(ChannelId(1, 0))
    first.execute(Lineage(0, 0, 0, 1), [batch([1])])
    (end,) = ended(kernels.open(ChannelId(1, 0)), batch([2]))
    assert values(end.table) == [2]
    first.close()


def test_two_sides_may_end_in_any_order(opened: Callable[..., QueryKernels]) -> None:
    """The table is there until the last of them has."""
    joined = Statement(Action.EMIT, 'SELECT n FROM "#batch" WHERE n IN (SELECT n FROM kept)')
    build = SideProgram(Feed.SHARED, (N,), numbers(5), batch=(KEEP_ALL,), end=(DROP_KEPT,))
    probe = SideProgram(
        Feed.SHARED, (N,), numbers(9), after=(0,), batch=(joined,), end=(DROP_KEPT,)
    )
    program = StageProgram(1, (build, probe, probe), {"kept": (N,)}, (N,))
    for last in (1, 2):
        kernel = opened(program).open(ChannelId(0, 0))
        kernel.execute(Lineage(0, -1, 0, 1, ends=True), [])
        kernel.execute(Lineage(3 - last, -1, 0, 1, ends=True), [])
        output = kernel.execute(Lineage(last, -1, 0, 1, ends=True), [])
        assert values(output.table) == [0, 1, 2, 3, 4]
        with pytest.raises(duckdb.CatalogException):
            kernel.execute(Lineage(1, -1, 0, 1), [])


# Slices


def test_producers_agree_where_a_key_goes(opened: Callable[..., QueryKernels]) -> None:
    """Also when they know it as text of another expression, and whoever asks."""
    keys = ('"n"', "upper('x')")
    stages = (
        scanning(numbers(500, 5), EMIT_ALL, channels=2),
        scanning(numbers(500, 1), EMIT_ALL),
    )
    sides = tuple(
        SideProgram(Feed.EXCHANGE, (N,), None, n, Partitioning.HASH, keys, batch=(EMIT_ALL,))
        for n in range(2)
    )
    kernels = opened(*stages, StageProgram(3, sides, {}, (N,)))
    homes: dict[int, set[int]] = {}
    for producer, units in ((ChannelId(0, 0), 3), (ChannelId(0, 1), 5), (ChannelId(1, 0), 1)):
        output = kernels.open(producer).execute(Lineage(0, -1, 0, units), [])
        (slices,) = output.slices
        assert Counter(n for s in slices for n in values(s)) == Counter(values(output.table))
        assert [bool(size) for size in output.sizes[0]] == [bool(s.num_rows) for s in slices]
        for reader, table in enumerate(slices):
            for n in values(table):
                homes.setdefault(n, set()).add(reader)
    assert len(homes) == 500
    assert all(len(found) == 1 for found in homes.values())
    assert len({reader for found in homes.values() for reader in found}) == 3


def test_every_consumer_has_its_slices(opened: Callable[..., QueryKernels]) -> None:
    def reading(how: Partitioning, *keys: str) -> SideProgram:
        return SideProgram(Feed.EXCHANGE, (N,), None, 0, how, keys, batch=(EMIT_ALL,))

    hashed, copied, gathered, forwarded = (
        reading(Partitioning.HASH, '"n" % 2'),
        reading(Partitioning.BROADCAST),
        reading(Partitioning.GATHER),
        reading(Partitioning.FORWARD),
    )
    kernels = opened(
        scanning(numbers(10), EMIT_ALL, channels=2),
        StageProgram(2, (hashed, copied, gathered, forwarded), {}, (N,)),
        StageProgram(300, (reading(Partitioning.HASH, '"n"'),), {}, (N,)),
    )
    output = kernels.open(ChannelId(0, 1)).execute(Lineage(0, -1, 0, 1), [])
    by_parity, copies, one, same, spread = output.slices
    assert sorted(len({n % 2 for n in values(s)}) for s in by_parity) in ([0, 2], [1, 1])
    assert [sorted(values(s)) for s in copies] == 2 * [list(range(10))]
    assert [values(s) for s in one] == [list(range(10))]
    assert [values(s) for s in same] == [list(range(10))]
    assert len(spread) == 300
    assert sorted(n for s in spread for n in values(s)) == list(range(10))


# Portions


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "_FEWEST_ROWS", 10)
    monkeypatch.setattr(channel_module, "_OUTPUT_BYTES", 1)


TYPED = (N, D)


def floats(rows: list[int], noise: float) -> pa.Table:
    """Rows whose doubles differ in their last digits, as sums in another order do."""
    return pa.table({"n": pa.array(rows, pa.int64()), "d": [n / 3 + noise for n in rows]})


@pytest.mark.usefixtures("small_portions")
def test_portions_are_the_whole_and_the_same_when_repeated(
    opened: Callable[..., QueryKernels],
) -> None:
    stages = (
        msgspec.structs.replace(scanning(numbers(1), EMIT_ALL), output=TYPED),
        collecting(columns=TYPED),
        collecting(1, TYPED, channels=2, keys=('"n"',)),
    )
    kernels = opened(*stages)
    rows = list(range(57))
    first = ended(kernels.open(ChannelId(1, 0)), floats(rows[:20], 0), floats(rows[20:], 0))
    again = ended(kernels.open(ChannelId(1, 0)), floats(rows[40:], 1e-12), floats(rows[:40], 1e-12))
    assert len(first) == 6  # of ten rows or so
    assert [o.more for o in first] == 5 * [True] + [False]
    assert sorted(n for output in first for n in values(output.table)) == rows
    for one, other in zip(first, again, strict=True):
        assert sorted(values(one.table)) == sorted(values(other.table))
        for mine, theirs in zip(one.slices[0], other.slices[0], strict=True):
            assert sorted(values(mine)) == sorted(values(theirs))
    result = opened(*stages[:2])
    first = ended(result.open(ChannelId(1, 0)), floats(rows[:20], 0), floats(rows[20:], 0))
    again = ended(result.open(ChannelId(1, 0)), floats(rows[40:], 0), floats(rows[:40], 0))
    for one, other in zip(first, again, strict=True):
        assert sorted(values(one.table)) == sorted(values(other.table))


@pytest.mark.usefixtures("small_portions")
def test_portions_of_an_ordered_result_are_in_order(opened: Callable[..., QueryKernels]) -> None:
    ordered = Statement(Action.EMIT, "SELECT * FROM kept ORDER BY n DESC")
    result = collecting(end=(ordered, DROP_KEPT))
    kernels = opened(scanning(numbers(1), EMIT_ALL), result, ordered=True)
    outputs = ended(kernels.open(ChannelId(1, 0)), batch(list(range(0, 25, 2))), batch([7, 9, 11]))
    assert [n for o in outputs for n in values(o.table)] == sorted(
        [*range(0, 25, 2), 7, 9, 11], reverse=True
    )
    assert len(outputs) == 2


@pytest.mark.usefixtures("small_portions")
def test_an_output_with_a_batch_is_never_in_portions(opened: Callable[..., QueryKernels]) -> None:
    kernels = opened(scanning(numbers(50), EMIT_ALL), collecting())
    output = kernels.open(ChannelId(0, 0)).execute(Lineage(0, -1, 0, 1, ends=True), [])
    assert (output.rows, output.more) == (50, False)


def test_a_small_end_is_one_portion(opened: Callable[..., QueryKernels]) -> None:
    kernels = opened(scanning(numbers(1), EMIT_ALL), collecting(), collecting(1))
    (output,) = ended(kernels.open(ChannelId(1, 0)), batch(list(range(100))))
    assert output.rows == 100


# State


def test_a_table_is_compacted_when_it_has_grown(
    opened: Callable[..., QueryKernels], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_module, "_COMPACT_ROWS", 20)
    compact = Statement(
        Action.COMPACT, "SELECT n, CAST(sum(c) AS BIGINT) AS c FROM groups GROUP BY n", "groups"
    )
    added = Statement(
        Action.APPEND, 'SELECT n % 3 AS n, CAST(1 AS BIGINT) AS c FROM "#batch"', "groups"
    )
    sums = Statement(Action.EMIT, "SELECT n, CAST(sum(c) AS BIGINT) FROM groups GROUP BY n")
    sizes = Statement(Action.EMIT, "SELECT count(*) AS n, CAST(0 AS BIGINT) AS c FROM groups")
    side = SideProgram(
        Feed.SHARED, (N,), numbers(90, 9), batch=(added, compact, sizes), end=(sums,)
    )
    program = StageProgram(1, (side,), {"groups": COUNTED}, COUNTED)
    kernel = opened(program).open(ChannelId(0, 0))
    grown = [values(kernel.execute(Lineage(0, -1, unit, 1), []).table)[0] for unit in range(9)]
    assert grown == [10, 3, 13, 3, 13, 3, 13, 3, 13]
    (end,) = ended(kernel)
    assert Counter(rows_of(end.table)) == Counter([(0, 30), (1, 30), (2, 30)])


# Tables


def test_any_row_groups_of_a_file_are_read(
    opened: Callable[..., QueryKernels], tmp_path: Path
) -> None:
    scan = parquet_table(
        tmp_path / "it's", {"n": "bigint"}, [(n,) for n in range(95)], files=2, group_rows=10
    )
    table = table_input(scan)
    assert len(table.files) == 10
    kernel = opened(scanning(table, EMIT_ALL)).open(ChannelId(0, 0))
    whole = kernel.execute(Lineage(0, -1, 0, 10), [])
    assert sorted(values(whole.table)) == list(range(95))
    some = kernel.execute(Lineage(0, -1, 3, 3), [])
    assert sorted(values(some.table)) == list(range(30, 57))
    last = kernel.execute(Lineage(0, -1, 9, 1), [])
    assert sorted(values(last.table)) == list(range(87, 95))


def test_row_groups_that_follow_each_other_are_one_range() -> None:
    ranges = (
        FileRange("/a", 0, 10, False),
        FileRange("/a", 10, 10, False),
        FileRange("/b", 20, 10, False),
        FileRange("/c", 0, 5, True),
        FileRange("/d", 0, 5, True),
    )
    text = rows_of_units(TableInput((("n", "n"),), files=ranges, bytes=(1,) * 5), range(5))
    assert "BETWEEN 0 AND 19" in text
    assert "BETWEEN 20 AND 29" in text
    assert "read_parquet(['/c', '/d'])" in text


def test_a_column_that_a_file_does_not_have_is_null(
    opened: Callable[..., QueryKernels], tmp_path: Path
) -> None:
    """Some files are older than the column; Spark reads them so too."""
    parts = [
        parquet_table(tmp_path / "new", {"n": "bigint", "d": "double"}, [(1, 0.5), (2, 1.5)]),
        parquet_table(tmp_path / "old", {"N": "bigint"}, [(3,), (4,)]),
        parquet_table(tmp_path / "turned", {"d": "double", "n": "bigint"}, [(2.5, 5)]),
        parquet_table(tmp_path / "groups", {"n": "bigint"}, [(6,), (7,)], group_rows=1),
    ]
    files = tuple(file for part in parts for file in part.source.files)  # type: ignore[union-attr]
    table = table_input(replace(parts[0], source=FileSource("t", "parquet", files)))
    program = msgspec.structs.replace(scanning(table, EMIT_ALL), output=TYPED)
    kernel = opened(program).open(ChannelId(0, 0))
    wanted = [(1, 0.5), (2, 1.5), (3, None), (4, None), (5, 2.5), (6, None), (7, None)]
    assert sorted(rows_of(kernel.execute(Lineage(0, -1, 0, 5), []).table)) == wanted
    old = kernel.execute(Lineage(0, -1, 1, 1), []).table
    assert rows_of(old) == [(3, None), (4, None)]
    assert old.schema.types == [pa.int64(), pa.float64()]


def test_staged_pieces_are_read_through_the_store(opened: Callable[..., QueryKernels]) -> None:
    pieces = tuple(StoredPiece("run", f"piece {n}") for n in range(3))
    asked: list[StoredPiece] = []

    def read(piece: StoredPiece) -> pa.Table:
        asked.append(piece)
        number = pieces.index(piece)
        return pa.table({"field": pa.array([number * 10, number * 10 + 1], pa.int32())})

    table = TableInput((('CAST("field" AS BIGINT)', "n"),), pieces=pieces, bytes=(1, 1, 1))
    kernel = opened(scanning(table, EMIT_ALL), read_piece=read).open(ChannelId(0, 0))
    assert values(kernel.execute(Lineage(0, -1, 1, 2), []).table) == [10, 11, 20, 21]
    assert asked == list(pieces[1:])
    assert values(kernel.execute(Lineage(0, -1, 0, 1), []).table) == [0, 1]
    alone = opened(scanning(table, EMIT_ALL)).open(ChannelId(0, 0))
    with pytest.raises(InternalError, match="no store"):
        alone.execute(Lineage(0, -1, 0, 1), [])


def test_numbers_downwards_and_without_columns(opened: Callable[..., QueryKernels]) -> None:
    table = TableInput(READ, numbers=(NumberRange(5, 0, -2), NumberRange(0, 2, 1)), bytes=(1, 1))
    kernel = opened(scanning(table, EMIT_ALL)).open(ChannelId(0, 0))
    assert values(kernel.execute(Lineage(0, -1, 0, 2), []).table) == [5, 3, 1, 0, 1]
    bare = msgspec.structs.replace(table, columns=())
    program = msgspec.structs.replace(
        scanning(bare, EMIT_ALL), output=(ColumnType("no_columns", "INTEGER"),)
    )
    assert opened(program).open(ChannelId(0, 0)).execute(Lineage(0, -1, 0, 2), []).rows == 5


# Results and errors


QUOTIENT = translate(
    Expression("(`n` DIV (`n` - 3L))", "bigint"),
    {"n": Column("n", "bigint")},
    {"spark.sql.ansi.enabled": "true"},
).text


def test_a_result_has_the_users_names_and_sparks_types() -> None:
    made = Statement(
        Action.EMIT,
        "SELECT n AS a, 'x' AS b, TIMESTAMPTZ '2020-01-01 00:00:00+00' AS c FROM \"#batch\"",
    )
    columns = (
        ColumnType("a", "BIGINT"),
        ColumnType("b", "VARCHAR"),
        ColumnType("c", "TIMESTAMP WITH TIME ZONE"),
    )
    program = msgspec.structs.replace(scanning(numbers(1), made), output=columns)
    result = run_dataflow(Dataflow((program,), ("n", "n", "it's")))
    assert result.schema.names == ["n", "n", "it's"]
    assert result.schema.types == [pa.int64(), pa.string(), pa.timestamp("us", tz="UTC")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"SELECT CAST({QUOTIENT} AS BIGINT) AS n", "(?i)divide.by.zero"),
        ("SELECT CAST(n + 9223372036854775807 AS BIGINT) AS n", "(?i)overflow|out of range"),
        ("SELECT CAST('x' || n AS BIGINT) AS n", "(?i)could not convert"),
    ],
)  # fmt: skip
def test_errors_of_a_query_come_out_as_they_are(
    text: str, error: str, opened: Callable[..., QueryKernels]
) -> None:
    failing = Statement(Action.EMIT, f'{text} FROM "#batch"')
    kernel = opened(scanning(numbers(10), failing)).open(ChannelId(0, 0))
    with pytest.raises(duckdb.Error, match=error):
        kernel.execute(Lineage(0, -1, 0, 1), [])


def test_only_the_folders_of_the_tables_can_be_read(
    opened: Callable[..., QueryKernels], tmp_path: Path
) -> None:
    inside = parquet_table(tmp_path / "inside", {"n": "bigint"}, [(1,)])
    outside = parquet_table(tmp_path / "outside", {"n": "bigint"}, [(2,)])
    table = table_input(inside)
    secret = table_input(outside).files[0].path
    assert folders_of(Dataflow((scanning(table),), ("n",))) == [str(tmp_path / "inside")]
    reading: list[Any] = [
        f"SELECT n FROM read_parquet('{secret}')",
        f"SELECT n FROM read_parquet('{tmp_path}/inside/../outside/*.parquet')",
        "SELECT length(content) AS n FROM read_text('/etc/hostname')",
        f"SELECT n FROM '{secret}'",
    ]
    for text in reading:
        statement = Statement(Action.EMIT, f'{text} UNION ALL SELECT n FROM "#batch"')
        kernel = opened(scanning(table, statement)).open(ChannelId(0, 0))
        with pytest.raises(duckdb.Error, match=r"(?i)permission|disabled|cannot access|not exist"):
            kernel.execute(Lineage(0, -1, 0, 1), [])
    kernel = opened(scanning(table, Statement(Action.EMIT, "SET enable_external_access = true")))
    with pytest.raises(duckdb.Error):
        kernel.open(ChannelId(0, 0)).execute(Lineage(0, -1, 0, 1), [])
