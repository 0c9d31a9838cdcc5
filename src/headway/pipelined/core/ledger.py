"""The tables in memory, and the changes to them that are not yet written."""

from __future__ import annotations

from typing import Any

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.records import Change, ChannelRow, LineageRow, Tables, TaskRow, WorkerRow


class Ledger:
    """Every change goes through here, so that what is written is all that has changed."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._changes: dict[tuple[str, Any], Any] = {}

    def set_worker(self, worker: str, row: WorkerRow) -> None:
        self._change("workers", worker, row)

    def set_channel(self, channel: ChannelId, row: ChannelRow) -> None:
        self._change("channels", channel, row)

    def set_lineage(self, task: TaskId, row: LineageRow) -> None:
        self._change("lineage", task, row)

    def set_task(self, task: TaskId, row: TaskRow) -> None:
        self._change("tasks", task, row)

    def remove_task(self, task: TaskId) -> None:
        self._change("tasks", task, None)

    def take_changes(self) -> list[Change]:
        """What changed since the last call, as one transaction."""
        changes = [Change(table, key, row) for (table, key), row in self._changes.items()]
        self._changes.clear()
        return changes

    def _change(self, table: str, key: Any, row: Any) -> None:
        self.tables.apply([Change(table, key, row)])
        self._changes[table, key] = row
