"""Copies of outputs: written whole, read by slice, deleted, and found missing."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from headway.base.errors import InternalError, PieceMissing
from headway.lineage.names import ChannelId, TaskId
from headway.lineage.topology import Feed, Partitioning, Side, Stage, Topology
from headway.pipelined.core.messages import Destination, Input
from headway.pipelined.worker.backups import Backups, Pieces
from headway.pipelined.worker.slices import SlicedFile, encode_slices, position, sizes
from headway.storage import ReliableStore, Run, new_manifest

OUTPUT = TaskId(0, 1, 7)


def rows(start: int, count: int) -> pa.Table:
    return pa.table({"n": pa.array(range(start, start + count), pa.int64()), "s": ["x"] * count})


def sliced() -> tuple[tuple[pa.Table, ...], ...]:
    whole = rows(0, 100_000)
    return (tuple(whole.slice(n * 25_000, 25_000) for n in range(4)), (whole, whole))


def test_each_slice_is_read_alone(tmp_path: Path) -> None:
    backups = Backups(tmp_path / "backups", 0)
    backups.keep(OUTPUT, 2, sliced())
    opened = backups.open(OUTPUT, 1)
    assert opened is not None
    file, epoch = opened
    assert epoch == 2
    for consumer, readers in enumerate(sliced()):
        for reader, table in enumerate(readers):
            read = file.read(consumer, reader)
            assert read.equals(table)
            assert not read.schema.metadata


def test_what_memory_takes_is_not_written(tmp_path: Path) -> None:
    whole = rows(0, 100_000)
    backups = Backups(tmp_path / "backups", 2 * whole.nbytes)
    outputs = [TaskId(0, 1, sequence) for sequence in range(4)]
    for output in outputs[:3]:
        backups.keep(output, 0, ((whole, whole),))  # one table for two readers counts once
    assert [path.name for path in (tmp_path / "backups").iterdir()] == ["0-1-2-e0-0.arrow"]
    backups.delete([Input(outputs[0], 0)])
    backups.keep(outputs[1], 1, ((whole,),))
    backups.keep(outputs[3], 0, ((whole,),))
    assert len(list((tmp_path / "backups").iterdir())) == 1
    for output, epoch in ((outputs[1], 1), (outputs[2], 0), (outputs[3], 0)):
        opened = backups.open(output, 0)
        assert opened is not None and opened[1] == epoch
        assert opened[0].read(0, 0).equals(whole)


def test_equal_slices_are_written_once() -> None:
    whole = rows(0, 100_000)
    once = encode_slices(((whole,),)).size
    assert encode_slices(((whole,) * 8,)).size < once + 500


def test_empty_slices_and_rows_without_columns() -> None:
    whole = rows(0, 10)
    file = SlicedFile(encode_slices(((whole.slice(0, 0), whole),)))
    assert file.read(0, 0).equals(whole.slice(0, 0))
    assert file.read(0, 1).equals(whole)
    bare = pa.Table.from_batches(
        [pa.RecordBatch.from_struct_array(pa.array([{}] * 5, pa.struct([])))]
    )
    assert SlicedFile(encode_slices(((bare,),))).read(0, 0).num_rows == 5
    assert sizes(((bare, whole.slice(0, 0), whole),)) == ((1, 0, whole.nbytes),)


def test_an_older_version_is_not_the_one_that_was_asked_for(tmp_path: Path) -> None:
    backups = Backups(tmp_path / "backups", 0)
    backups.keep(OUTPUT, 2, sliced())
    assert backups.open(OUTPUT, 3) is None
    backups.keep(OUTPUT, 3, sliced())
    backups.keep(OUTPUT, 1, ((rows(0, 1),),))
    opened = backups.open(OUTPUT, 0)
    assert opened is not None and opened[1] == 3
    assert [path.name for path in (tmp_path / "backups").iterdir()] == ["0-1-7-e3-1.arrow"]


def test_deleted_and_lost_backups_are_not_there(tmp_path: Path) -> None:
    backups = Backups(tmp_path / "backups", 0)
    other = TaskId(0, 1, 8)
    backups.keep(OUTPUT, 0, sliced())
    backups.keep(other, 0, sliced())
    backups.delete([Input(OUTPUT, 0), Input(other, -1), Input(TaskId(9, 9, 9), 0)])
    assert backups.open(OUTPUT, 0) is None
    (file,) = (tmp_path / "backups").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert backups.open(other, 0) is None
    file.unlink()
    assert backups.open(other, 0) is None
    backups.close()
    assert not (tmp_path / "backups").exists()


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    backups = Backups(tmp_path / "backups", 0)
    with (
        patch.object(os, "write", side_effect=OSError(errno.ENOSPC, "no space")),
        pytest.raises(OSError, match="no space"),
    ):
        backups.keep(OUTPUT, 0, sliced())
    assert backups.open(OUTPUT, 0) is None
    assert not list((tmp_path / "backups").iterdir())


def test_short_writes_are_continued(tmp_path: Path) -> None:
    real: Callable[[int, Any], int] = os.write
    backups = Backups(tmp_path / "backups", 0)
    with patch.object(os, "write", lambda handle, data: real(handle, data[:1000])):
        backups.keep(OUTPUT, 0, sliced())
    opened = backups.open(OUTPUT, 0)
    assert opened is not None and opened[0].read(1, 0).equals(sliced()[1][0])


@pytest.fixture
def run(make_store: Callable[[str], ReliableStore]) -> Run:
    return Run.create(make_store("local"), new_manifest(()))


def test_pieces_of_the_reliable_store(run: Run) -> None:
    pieces = Pieces(run.store.url, run.run_id, "q7")
    name = pieces.write_slices(OUTPUT, 4, sliced())
    assert name == "spool/q7/0-1-7-e4"
    assert pieces.open(name).read(0, 3).equals(sliced()[0][3])
    result = pieces.write_result(OUTPUT, 4, rows(0, 10))
    assert result == "results/q7/0-1-7-e4"
    assert pa.ipc.open_stream(run.read_piece(result)).read_all().equals(rows(0, 10))
    with pytest.raises(PieceMissing):
        pieces.open("spool/q7/0-1-8-e0")


def test_the_place_of_a_destination_in_the_slices() -> None:
    topology = Topology(
        (
            Stage((Side(Feed.SHARED, units=(1,), keeps=False),), channels=2),
            Stage(
                (
                    Side(Feed.EXCHANGE, upstream=0, partitioning=Partitioning.BROADCAST),
                    Side(Feed.EXCHANGE, upstream=0, partitioning=Partitioning.HASH),
                ),
                channels=3,
            ),
            Stage((Side(Feed.EXCHANGE, upstream=0, partitioning=Partitioning.GATHER),)),
        )
    )

    def place(stage: int, channel: int, side: int) -> tuple[int, int]:
        destination = Destination(ChannelId(stage, channel), side, 0, "w")
        return position(topology, TaskId(0, 1, 0), destination)

    assert place(1, 2, 0) == (0, 2)
    assert place(1, 2, 1) == (1, 2)
    assert place(2, 0, 0) == (2, 0)
    with pytest.raises(InternalError):
        place(2, 1, 0)
