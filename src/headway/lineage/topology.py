"""A dataflow as the scheduler sees it: stages, channels, and who reads from whom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from headway.base.errors import InternalError
from headway.lineage.names import ChannelId


class Protection(StrEnum):
    """What keeps the outputs of a stage from being lost."""

    NONE = "none"
    """Nothing: a lost output is made again by its channel."""
    BACKUP = "backup"
    """A copy on the disk of the worker that made it, lost together with that worker."""
    SPOOL = "spool"
    """A copy in the reliable store, which is never lost."""


class Partitioning(StrEnum):
    """Which channels of the reading stage get which rows of an output."""

    HASH = "hash"
    """Every row goes to one channel, by the hash of its keys."""
    BROADCAST = "broadcast"
    """Every channel gets all rows."""
    GATHER = "gather"
    """Channel 0 gets all rows."""
    FORWARD = "forward"
    """The channel of the same number gets all rows."""


class Feed(StrEnum):
    """Where the rows of a side come from."""

    SHARED = "shared"
    """Units of a table, each read by one channel of the stage."""
    REPLICATED = "replicated"
    """Units of a table, each read by every channel of the stage."""
    EXCHANGE = "exchange"
    """Outputs of another stage."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the inputs of a stage."""

    feed: Feed
    units: tuple[int, ...] = ()
    """For a table: the bytes of each unit, such as a row group."""
    upstream: int = -1
    """For an exchange: the stage that it comes from."""
    partitioning: Partitioning | None = None
    after: frozenset[int] = frozenset()
    """Sides that have to be at their end before this one is read."""
    keeps: bool = True
    """Reading it changes the channel's state. If not, its tasks depend only on their inputs and
    on the sides of `after`, and one whose output nobody needs any more is not run again."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Operators between two exchanges, run by `channels` channels."""

    sides: tuple[Side, ...]
    channels: int = 1
    protection: Protection = Protection.BACKUP
    result: bool = False
    """Its outputs are the rows of the query; they go to the reliable store."""

    @property
    def stateless(self) -> bool:
        """Any worker can run any of its tasks at any time."""
        return all(s.feed is Feed.SHARED and not s.keeps and not s.after for s in self.sides)


@dataclass(frozen=True, slots=True)
class Consumer:
    """A side of a stage that reads another stage."""

    stage: int
    side: int
    partitioning: Partitioning


@dataclass(frozen=True)
class Topology:
    """All stages. A stage reads only from stages with a smaller number."""

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        for number, stage in enumerate(self.stages):
            for position, side in enumerate(stage.sides):
                _check_side(self, number, position, side)

    @cached_property
    def consumers(self) -> tuple[tuple[Consumer, ...], ...]:
        """For every stage the sides that read it, in the order of stages and sides."""
        found: list[list[Consumer]] = [[] for _ in self.stages]
        for number, stage in enumerate(self.stages):
            for position, side in enumerate(stage.sides):
                if side.feed is Feed.EXCHANGE:
                    assert side.partitioning is not None
                    found[side.upstream].append(Consumer(number, position, side.partitioning))
        return tuple(map(tuple, found))

    @cached_property
    def channels(self) -> tuple[ChannelId, ...]:
        return tuple(
            ChannelId(number, channel)
            for number, stage in enumerate(self.stages)
            for channel in range(stage.channels)
        )

    def readers(self, producer: ChannelId, consumer: Consumer) -> tuple[ChannelId, ...]:
        """The channels of that consumer that get a slice of the producer's outputs, in order."""
        if consumer.partitioning is Partitioning.GATHER:
            return (ChannelId(consumer.stage, 0),)
        if consumer.partitioning is Partitioning.FORWARD:
            return (ChannelId(consumer.stage, producer.channel),)
        return tuple(
            ChannelId(consumer.stage, c) for c in range(self.stages[consumer.stage].channels)
        )

    def sources(self, reader: ChannelId, side: int) -> tuple[ChannelId, ...]:
        """The channels whose outputs that side of the reader gets slices of."""
        found = self.stages[reader.stage].sides[side]
        assert found.feed is Feed.EXCHANGE
        upstream = (
            ChannelId(found.upstream, c) for c in range(self.stages[found.upstream].channels)
        )
        if found.partitioning is Partitioning.FORWARD:
            return tuple(c for c in upstream if c.channel == reader.channel)
        if found.partitioning is Partitioning.GATHER and reader.channel != 0:
            return ()
        return tuple(upstream)


def _check_side(topology: Topology, stage: int, position: int, side: Side) -> None:
    where = f"side {position} of stage {stage}"
    if side.feed is Feed.EXCHANGE:
        if not 0 <= side.upstream < stage or side.partitioning is None:
            raise InternalError(f"{where} reads from stage {side.upstream}")
        upstream, here = topology.stages[side.upstream], topology.stages[stage]
        if side.partitioning is Partitioning.FORWARD and upstream.channels != here.channels:
            raise InternalError(f"{where} is forwarded between different numbers of channels")
    if any(not 0 <= other < len(topology.stages[stage].sides) for other in side.after):
        raise InternalError(f"{where} waits for a side that is not there")
