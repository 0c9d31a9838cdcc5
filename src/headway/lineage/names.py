"""The names of channels, tasks and outputs."""

from __future__ import annotations

from typing import NamedTuple


class ChannelId(NamedTuple):
    """One of the parallel parts of a stage. It runs its tasks one after the other."""

    stage: int
    channel: int

    def task(self, sequence: int) -> TaskId:
        return TaskId(self.stage, self.channel, sequence)

    def __str__(self) -> str:
        return f"{self.stage}.{self.channel}"


class TaskId(NamedTuple):
    """A task, and the output that it makes: both have the same name."""

    stage: int
    channel: int
    sequence: int

    @property
    def of(self) -> ChannelId:
        return ChannelId(self.stage, self.channel)

    def __str__(self) -> str:
        return f"{self.stage}.{self.channel}.{self.sequence}"
