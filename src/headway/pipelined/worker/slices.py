"""The slices of an output as one Arrow file, from which each can be read alone.

The file holds record batches; its schema's metadata says which of them make up which slice. Slices
that are the same table, as those of a broadcast are, are in it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa

from headway.base.errors import InternalError
from headway.lineage.names import TaskId
from headway.lineage.topology import Topology
from headway.pipelined.core.messages import Destination

_KEY = b"headway.slices.v1"
_MOST_ROWS = 1 << 18
_MOST_BYTES = 16 << 20  # about, of a batch: a message of gRPC cannot be larger than 2 GiB
Slices = tuple[tuple[pa.Table, ...], ...]
"""By consumer in the order of the topology, and by reader."""

_Place = tuple[int, int]  # first batch, number of batches
_LAYOUT = msgspec.msgpack.Decoder(tuple[tuple[_Place, ...], ...])


def position(topology: Topology, output: TaskId, destination: Destination) -> tuple[int, int]:
    """Where in the slices of the output the destination's own is: consumer and reader."""
    for number, consumer in enumerate(topology.consumers[output.stage]):
        if (consumer.stage, consumer.side) == (destination.channel.stage, destination.side):
            readers = topology.readers(output.of, consumer)
            if destination.channel in readers:
                return number, readers.index(destination.channel)
    raise InternalError(f"{destination} does not read output {output}")


def sizes(slices: Slices) -> tuple[tuple[int, ...], ...]:
    """Bytes of each slice: 0 where it has no rows, and never otherwise."""
    return tuple(tuple(map(size, readers)) for readers in slices)


def size(table: pa.Table) -> int:
    """Rows without columns count too: a reader that counts them needs them."""
    return max(1, int(table.nbytes)) if table.num_rows else 0


def batches(table: pa.Table) -> list[pa.RecordBatch]:
    """Without empty ones, and none of them large."""
    width = max(1, table.nbytes // max(1, table.num_rows))
    rows = max(1, min(_MOST_ROWS, _MOST_BYTES // width))
    return [each for each in table.to_batches(max_chunksize=rows) if each.num_rows]


def encode_slices(slices: Slices) -> pa.Buffer:
    """The whole file, compressed."""
    places: dict[int, _Place] = {}
    contents: list[pa.RecordBatch] = []
    for table in (table for readers in slices for table in readers):
        if id(table) not in places:
            found = batches(table)
            places[id(table)] = (len(contents), len(found))
            contents.extend(found)
    layout = tuple(tuple(places[id(table)] for table in readers) for readers in slices)
    schema = next(table.schema for readers in slices for table in readers)
    described = schema.with_metadata(
        {**(schema.metadata or {}), _KEY: msgspec.msgpack.encode(layout)}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, described, options=compressed()) as writer:
        for batch in contents:
            writer.write_batch(batch)
    return sink.getvalue()


class SlicedFile:
    """An encoded output, open for reading."""

    def __init__(self, source: Any) -> None:
        self._reader = pa.ipc.open_file(source)
        metadata = dict(self._reader.schema.metadata or {})
        self._layout = _LAYOUT.decode(metadata.pop(_KEY))
        self._schema = self._reader.schema.with_metadata(metadata or None)

    def read(self, consumer: int, reader: int) -> pa.Table:
        first, count = self._layout[consumer][reader]
        return self._table(self._reader.get_batch(first + each) for each in range(count))

    def _table(self, found: Iterable[pa.RecordBatch]) -> pa.Table:
        bare = [each.replace_schema_metadata(self._schema.metadata) for each in found]
        return pa.Table.from_batches(bare, self._schema)


def compressed() -> pa.ipc.IpcWriteOptions:
    return pa.ipc.IpcWriteOptions(compression="lz4")


def encode_stream(table: pa.Table) -> pa.Buffer:
    """A table as results are kept: an Arrow stream, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=compressed()) as writer:
        writer.write_table(table)
    return sink.getvalue()
