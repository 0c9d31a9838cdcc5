"""The rows of a coordinator's tables as bytes, and their keys as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from headway.base.errors import InternalError, StoreCorrupt
from headway.lineage.names import ChannelId, TaskId
from headway.lineage.records import ChannelRow, LineageRow, Tables, TaskRow, WorkerRow

FORMAT_VERSION = 1
Row = WorkerRow | ChannelRow | LineageRow | TaskRow
Key = str | ChannelId | TaskId

_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True)
class Table:
    """One of the tables: its key's columns with their types in SQL, and what its rows are."""

    name: str
    key_columns: tuple[tuple[str, str], ...]
    key_type: Any
    row_type: type[Row]

    def key_values(self, key: Key) -> tuple[str | int, ...]:
        return (key,) if isinstance(key, str) else key

    def key(self, values: Iterable[Any]) -> Key:
        try:
            found: Key = self.key_type(*values)
        except TypeError as error:
            raise self._corrupt(error) from error
        return found

    def encode(self, row: Row) -> bytes:
        if type(row) is not self.row_type:
            raise InternalError(f"a {type(row).__name__} is no row of {self.name}")
        return _encode(row)

    def decode(self, data: bytes) -> Row:
        try:
            return msgspec.msgpack.decode(data, type=self.row_type)
        except msgspec.DecodeError as error:
            raise self._corrupt(error) from error

    def _corrupt(self, error: Exception) -> StoreCorrupt:
        return StoreCorrupt(f"a row of the control store's table {self.name}: {error}")


_CHANNEL = (("stage", "INTEGER"), ("channel", "INTEGER"))
_TASK = (*_CHANNEL, ("sequence", "INTEGER"))
TABLES = {
    table.name: table
    for table in (
        Table("workers", (("worker", "TEXT"),), str, WorkerRow),
        Table("channels", _CHANNEL, ChannelId, ChannelRow),
        Table("lineage", _TASK, TaskId, LineageRow),
        Table("tasks", _TASK, TaskId, TaskRow),
    )
}


def empty_tables() -> Tables:
    return Tables(workers={}, channels={}, lineage={}, tasks={})
