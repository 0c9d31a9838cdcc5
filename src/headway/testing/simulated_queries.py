"""Small random queries for the simulation, with kernels that show every mistake in the result.

A row is a number. Build sides fold all their rows into one number, which goes into every row that
is made from it: a build row too many, too few or from the wrong channel changes the result. Which
channel reads a unit of a shared table is decided while the query runs, hence operators over such
sides are those whose result does not depend on it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from headway.lineage.names import ChannelId
from headway.lineage.reading import Layout, Sizes
from headway.lineage.records import Lineage
from headway.lineage.topology import Feed, Partitioning, Protection, Side, Stage, Topology

Rows = tuple[int, ...]
_PORTION = 2
_ROW_BYTES = 10


class Role(StrEnum):
    """What a stage does with the rows of a side."""

    BUILD = "build"
    """Folds them into a number."""
    STREAM = "stream"
    """Puts them out one for one."""
    TALLY = "tally"
    """Puts them out one for one, and at the end one row about all of them."""
    BUFFER = "buffer"
    """Puts them out at the end, in portions."""


@dataclass(frozen=True)
class SimulatedQuery:
    topology: Topology
    roles: tuple[tuple[Role, ...], ...]

    def unit(self, stage: int, side: int, unit: int) -> Rows:
        """The rows of a unit of a table; some have none."""
        seed = hash((stage, side, unit, len(self.topology.stages)))
        return tuple(hash((seed, number)) for number in range(seed % 4))

    def row(self, stage: int, side: int, row: int, builds: Rows) -> int:
        return hash((stage, side, row, builds))

    def closing_row(self, stage: int, side: int, total: int, builds: Rows) -> int:
        return hash((stage, side, total, builds, 0))

    def has_closing_row(self, stage: int, side: int) -> bool:
        """Only where it is fixed which channel reads what."""
        found = self.topology.stages[stage].sides[side]
        fixed = found.feed is Feed.EXCHANGE and found.partitioning is not Partitioning.FORWARD
        return fixed and self.roles[stage][side] is Role.TALLY


def fold(total: int, rows: Iterable[int]) -> int:
    """The same for any order of the rows."""
    for row in rows:
        total = (total + hash((row, 1))) % (1 << 61)
    return total


def partition(row: int, stage: int, side: int, channels: int) -> int:
    return hash((row, stage, side)) % channels


@dataclass(frozen=True)
class FakeOutput:
    """`trace` stands for all that the output depends on, in its order."""

    slices: tuple[tuple[Rows, ...], ...]
    rows: Rows
    more: bool
    trace: int

    @property
    def sizes(self) -> Sizes:
        return tuple(tuple(len(rows) * _ROW_BYTES for rows in each) for each in self.slices)


@dataclass
class FakeKernel:
    """The state of a channel. It checks that sides are read in a permitted order."""

    query: SimulatedQuery
    layout: Layout
    channel: ChannelId
    totals: dict[int, int] = field(default_factory=dict)
    buffers: dict[int, list[int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    trace: int = 0

    def execute(self, lineage: Lineage, inputs: list[Rows]) -> FakeOutput:
        number, side = self.channel.stage, lineage.side
        found = self.query.topology.stages[number].sides[side]
        assert found.after <= self.ended, f"side {side} is read before {set(found.after)} ended"
        batches = inputs
        if found.feed is not Feed.EXCHANGE:
            units = range(lineage.first, lineage.first + lineage.count)
            batches = [self.query.unit(number, side, unit) for unit in units]
        rows = tuple(row for batch in batches for row in batch)
        builds = tuple(self.totals.get(each, 0) for each in sorted(found.after))
        before = (builds, lineage, tuple(batches))
        if self.layout.skippable(self.channel, lineage):
            trace = hash((before, 0))
        else:
            assert side not in self.ended, f"side {side} is read after its end"
            self.trace = trace = hash((self.trace, before))
        made, more = self._put_out(lineage, rows, builds)
        return self._cut(made, more, trace)

    def _put_out(self, lineage: Lineage, rows: Rows, builds: Rows) -> tuple[Rows, bool]:
        number, side = self.channel.stage, lineage.side
        role = self.query.roles[number][side]
        mapped = tuple(self.query.row(number, side, row, builds) for row in rows)
        more = False
        if role in (Role.BUILD, Role.TALLY):
            self.totals[side] = fold(self.totals.get(side, 0), rows)
        if role is Role.BUFFER:
            buffer = self.buffers.setdefault(side, [])
            buffer += mapped
            start = lineage.portion * _PORTION
            mapped = tuple(buffer[start : start + _PORTION]) if lineage.ends else ()
            more = lineage.ends and start + _PORTION < len(buffer)
        if lineage.ends and not more:
            self.ended.add(side)
            if self.query.has_closing_row(number, side):
                total = self.totals.get(side, 0)
                mapped += (self.query.closing_row(number, side, total, builds),)
        return () if role is Role.BUILD else mapped, more

    def _cut(self, rows: Rows, more: bool, trace: int) -> FakeOutput:
        topology = self.query.topology
        slices = []
        for consumer in topology.consumers[self.channel.stage]:
            readers = topology.readers(self.channel, consumer)
            if consumer.partitioning is not Partitioning.HASH:
                slices.append(tuple(rows for _ in readers))
                continue
            parts: list[list[int]] = [[] for _ in readers]
            for row in rows:
                parts[partition(row, consumer.stage, consumer.side, len(readers))].append(row)
            slices.append(tuple(map(tuple, parts)))
        return FakeOutput(tuple(slices), rows, more, trace)


def expected_rows(query: SimulatedQuery) -> Counter[int]:
    """The rows of the query's result, worked out stage by stage."""
    made: list[Rows] = []
    for number in range(len(query.topology.stages)):
        rows: list[int] = []
        for channel in range(query.topology.stages[number].channels):
            rows += _rows_of(query, ChannelId(number, channel), made)
        made.append(tuple(rows))
    return Counter(made[-1])


def _rows_of(query: SimulatedQuery, channel: ChannelId, made: list[Rows]) -> list[int]:
    number = channel.stage
    totals: dict[int, int] = {}
    rows: list[int] = []
    for position, side in enumerate(query.topology.stages[number].sides):
        role = query.roles[number][position]
        read = _read(query, channel, position, made)
        builds = tuple(totals[each] for each in sorted(side.after))
        totals[position] = fold(0, read)
        if role is not Role.BUILD:
            rows += [query.row(number, position, row, builds) for row in read]
        if query.has_closing_row(number, position):
            rows.append(query.closing_row(number, position, totals[position], builds))
    return rows


def _read(
    query: SimulatedQuery, channel: ChannelId, position: int, made: list[Rows]
) -> Iterable[int]:
    """What the channel reads; where that is not fixed, all of it counts for channel 0."""
    stage = query.topology.stages[channel.stage]
    side = stage.sides[position]
    if side.feed is not Feed.EXCHANGE:
        if side.feed is Feed.SHARED and channel.channel != 0:
            return ()
        units = range(len(side.units))
        return [row for u in units for row in query.unit(channel.stage, position, u)]
    rows = made[side.upstream]
    if side.partitioning is Partitioning.BROADCAST:
        return rows
    if side.partitioning is Partitioning.HASH:
        count = stage.channels
        return [r for r in rows if partition(r, channel.stage, position, count) == channel.channel]
    return rows if channel.channel == 0 else ()


def random_query(rng: random.Random) -> SimulatedQuery:
    stages: list[Stage] = []
    roles: list[tuple[Role, ...]] = []
    unread: set[int] = set()
    weights = rng.choice(((2, 6, 1), (0, 1, 0), (3, 1, 0)))  # none, backup, spool
    for number in range(rng.randint(1, 6)):
        protection = rng.choices(tuple(Protection), weights)[0]
        make = _scan if number == 0 or rng.random() < 0.3 else _operators
        stage, role = make(rng, stages, unread, protection)
        unread -= {side.upstream for side in stage.sides}
        unread.add(number)
        stages.append(stage)
        roles.append(role)
    stage, role = _result(rng, stages, sorted(unread))
    topology = Topology((*stages, stage))
    return SimulatedQuery(topology, (*roles, role))


def _units(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.randint(1, 40) for _ in range(rng.choice((0, 2, 4, 6, 8, 10))))


def _scan(
    rng: random.Random, stages: list[Stage], unread: set[int], protection: Protection
) -> tuple[Stage, tuple[Role, ...]]:
    side = Side(Feed.SHARED, _units(rng), keeps=False)
    return Stage((side,), rng.randint(1, 3), protection), (Role.STREAM,)


def _operators(
    rng: random.Random, stages: list[Stage], unread: set[int], protection: Protection
) -> tuple[Stage, tuple[Role, ...]]:
    channels = rng.randint(1, 3)
    upstream = rng.choice(sorted(unread)) if rng.random() < 0.7 else rng.randrange(len(stages))
    kinds = [Partitioning.HASH] * 4 + [Partitioning.GATHER, Partitioning.BROADCAST]
    if stages[upstream].channels == channels:
        kinds += [Partitioning.FORWARD] * 3
    main = Side(Feed.EXCHANGE, (), upstream, rng.choice(kinds))
    if rng.random() < 0.2:
        main = Side(Feed.SHARED, _units(rng))
    fixed = main.feed is Feed.EXCHANGE and main.partitioning is not Partitioning.FORWARD
    builds = [_build(rng, len(stages), fixed) for _ in range(rng.choice((0, 1, 1, 2)))]
    role = rng.choice((Role.STREAM, Role.STREAM, Role.TALLY, Role.BUFFER))
    after = frozenset(range(len(builds)))
    main = Side(main.feed, main.units, main.upstream, main.partitioning, after, _keeps(role))
    stage = Stage((*builds, main), channels, protection)
    return stage, (*[Role.BUILD] * len(builds), role)


def _keeps(role: Role) -> bool:
    return role is not Role.STREAM


def _build(rng: random.Random, stages: int, fixed: bool) -> Side:
    """Without a fixed assignment of rows to channels, all channels must have the same build."""
    if rng.random() < 0.25:
        return Side(Feed.REPLICATED, _units(rng))
    kinds = [Partitioning.BROADCAST]
    if fixed:
        kinds += [Partitioning.HASH, Partitioning.HASH, Partitioning.GATHER]
    return Side(Feed.EXCHANGE, (), rng.randrange(stages), rng.choice(kinds))


def _result(
    rng: random.Random, stages: list[Stage], unread: list[int]
) -> tuple[Stage, tuple[Role, ...]]:
    """Reads all that nobody has read so far, one side for each."""
    channels = rng.choice((1, 1, 2))
    sides: list[Side] = []
    roles: list[Role] = []
    for position, upstream in enumerate(unread):
        role = rng.choice((Role.STREAM, Role.TALLY, Role.BUFFER, Role.BUILD))
        if position == len(unread) - 1 and role is Role.BUILD:
            role = Role.BUFFER
        kind = rng.choice((Partitioning.HASH, Partitioning.GATHER))
        after = frozenset(p for p in range(position) if roles[p] is Role.BUILD)
        sides.append(Side(Feed.EXCHANGE, (), upstream, kind, after, _keeps(role)))
        roles.append(role)
    return Stage(tuple(sides), channels, Protection.BACKUP, result=True), tuple(roles)
