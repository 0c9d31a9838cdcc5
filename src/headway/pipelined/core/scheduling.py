"""What the next task of a channel reads, decided from what is committed and delivered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.lineage.names import ChannelId
from headway.lineage.records import Lineage
from headway.lineage.topology import Feed, Side, Stage
from headway.pipelined.core.events import Options
from headway.pipelined.core.progress import ChannelProgress, Pool, Progress, SideProgress, Stream

_JOINED = 4
"""Hashing a table takes as long as reading about twice its bytes: that many more are read."""


def next_lineage(
    stage: Stage, channel: ChannelId, progress: Progress, options: Options
) -> Lineage | None:
    """None when there is nothing that the channel could do now.

    Sides that others wait for come first; among the rest, outputs that take up memory come before
    tables, and more bytes before fewer.
    """
    state = progress.channels[channel]
    if state.owed is not None:
        return state.owed
    best: tuple[tuple[bool, bool, int], Lineage] | None = None
    for position, side in enumerate(stage.sides):
        if not _may_read(state, side, position):
            continue
        found = _lineage_of(stage, channel, position, progress, options)
        if found is None:
            continue
        lineage, size = found
        awaited = any(position in other.after for other in stage.sides)
        rank = (awaited, side.feed is Feed.EXCHANGE and lineage.count > 0, size)
        if best is None or rank > best[0]:
            best = (rank, lineage)
    return best[1] if best is not None else None


def _may_read(state: ChannelProgress, side: Side, position: int) -> bool:
    return not state.sides[position].ending and all(state.sides[s].ended for s in side.after)


def _lineage_of(
    stage: Stage, channel: ChannelId, position: int, progress: Progress, options: Options
) -> tuple[Lineage, int] | None:
    """What a task would read of that side, and how many bytes."""
    side = stage.sides[position]
    state = progress.channels[channel].sides[position]
    match side.feed:
        case Feed.SHARED:
            pool = progress.pools[channel.stage, position]
            worth = _worth_a_task(stage, channel, position, progress, options)
            limit = max(worth, _share(pool, stage.channels, options))
            for_others = limit * stage.channels if stage.channels > 1 else 0
            if progress.channels[channel].outstanding and pool.free_bytes < for_others:
                return None
            return _next_units(position, side.units, pool.free, limit, options)
        case Feed.REPLICATED:
            free = [range(state.next_unit, len(side.units))]
            return _next_units(position, side.units, free, options.task_bytes, options)
        case Feed.EXCHANGE:
            worth = _worth_a_task(stage, channel, position, progress, options)
            return _next_outputs(position, state, progress, worth, options)


def _worth_a_task(
    stage: Stage, channel: ChannelId, position: int, progress: Progress, options: Options
) -> int:
    """From how many bytes on a task is worth its cost while more is to come: every task goes
    through the statements once, and hashes the tables of the sides that it is joined with."""
    joined = 0
    for other in stage.sides[position].after:
        match stage.sides[other].feed:
            case Feed.REPLICATED:
                joined += sum(stage.sides[other].units)
            case Feed.EXCHANGE:
                joined += progress.channels[channel].sides[other].bytes_taken
    return min(options.task_bytes, max(options.least_bytes, _JOINED * joined))


def _share(pool: Pool, channels: int, options: Options) -> int:
    """What a task reads of a shared table: equal parts, with which all channels come to the end
    together; or if they would not, smaller ones towards the end."""
    rounds = max(1, -(-pool.total_bytes // (channels * options.task_bytes)))
    equal = -(-pool.total_bytes // (channels * rounds))
    return min(equal, pool.free_bytes // channels) if pool.uneven else equal


def _next_units(
    position: int, units: tuple[int, ...], free: Sequence[range], limit: int, options: Options
) -> tuple[Lineage, int]:
    first = free[0] if free else range(0)
    sizes = units[first.start : first.stop]
    count = _how_many(sizes, limit, options)
    ends = count == sum(map(len, free))
    return Lineage(position, -1, first.start if count else 0, count, ends), sum(sizes[:count])


def _next_outputs(
    position: int, side: SideProgress, progress: Progress, worth: int, options: Options
) -> tuple[Lineage, int] | None:
    best: tuple[int, int, Stream] | None = None
    for stream in side.streams.values():
        count = _takeable(stream, progress.channels[stream.source].ended, worth, options)
        if count:
            size = sum(size for _, size in stream.entries[stream.head : stream.head + count])
            if best is None or size > best[0]:
                best = (size, count, stream)
    if best is None:
        if side.open_sources or side.waiting:
            return None
        return Lineage(position, ends=True), 0
    size, count, stream = best
    # Outputs without rows for this reader are stepped over together with the last one taken.
    after = stream.head + count
    if after < len(stream.entries):
        end = stream.entries[after][0]
    else:
        end = progress.channels[stream.source].committed
    ends = not side.open_sources and side.waiting == count
    taken = end - stream.taken
    return Lineage(position, stream.source.channel, stream.taken, taken, ends), size


def _takeable(stream: Stream, source_ended: bool, worth: int, options: Options) -> int:
    """How many of the delivered outputs a task takes: none while it pays to wait for more."""
    ready = stream.ready - stream.head
    at_the_end = source_ended and ready == stream.waiting
    fixed = options.inputs_per_task
    if fixed is not None:
        return fixed if ready >= fixed else ready if at_the_end else 0
    sizes = [size for _, size in stream.ready_entries()]
    if not at_the_end and sum(sizes) < worth:
        return 0
    return _how_many(sizes, options.task_bytes, options)


def _how_many(sizes: Iterable[int], limit: int, options: Options) -> int:
    """How many from the first on come closest to the limit; at least one where there is one."""
    if options.inputs_per_task is not None:
        return sum(1 for _ in zip(sizes, range(options.inputs_per_task), strict=False))
    total = 0
    count = 0
    for size in sizes:
        if count and total + size // 2 > limit:
            break
        total += size
        count += 1
    return count
