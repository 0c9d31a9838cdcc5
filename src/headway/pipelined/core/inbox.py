"""Which slices a worker has in memory for its channels, in which versions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.lineage.names import ChannelId
from headway.lineage.reading import Slice
from headway.pipelined.core.effects import Arrived, Discard, Reception
from headway.pipelined.core.messages import Input, Run


@dataclass(slots=True)
class _Held:
    """The version of a slice, and the owner of the channel that it was sent to. One that a task
    has begun to read stays as it is. If it arrives once more meanwhile, that may be for the same
    task to be repeated: then it outlives the task's commit."""

    epoch: int
    reader_epoch: int
    in_use: bool = False
    arrived_again: bool = False


class InboxIndex:
    """The slices themselves are with the process."""

    def __init__(self) -> None:
        self._held: dict[ChannelId, dict[Slice, _Held]] = {}
        self._oldest: dict[ChannelId, int] = {}

    def oldest(self, channel: ChannelId) -> int:
        """Epochs of the channel before this one are over."""
        return self._oldest.get(channel, 0)

    def receive(self, arrived: Arrived) -> Reception:
        """A slice is often earlier than the word that this worker is to run the channel, hence
        one for a later epoch is taken."""
        if arrived.reader_epoch < self.oldest(arrived.channel):
            return Reception.REFUSE
        held = self._held.setdefault(arrived.channel, {})
        slice_ = Slice(arrived.channel, arrived.side, arrived.output)
        found = held.get(slice_)
        if found is not None:
            if found.reader_epoch > arrived.reader_epoch:
                return Reception.REFUSE
            there = found.in_use or found.epoch >= arrived.epoch
            if there and found.reader_epoch == arrived.reader_epoch:
                found.arrived_again = found.in_use
                return Reception.HAVE
        held[slice_] = _Held(arrived.epoch, arrived.reader_epoch)
        return Reception.TAKE

    def take(self, run: Run) -> tuple[Input, ...] | None:
        """The versions that the task reads from now on; None while one is missing."""
        held = self._held.get(run.task.of, {})
        found = []
        for wanted in run.inputs:
            there = held.get(Slice(run.task.of, run.lineage.side, wanted.output))
            if there is None or there.reader_epoch != run.epoch or there.epoch < wanted.epoch:
                return None
            found.append((there, Input(wanted.output, there.epoch)))
        for there, _ in found:
            there.in_use = True
        return tuple(each for _, each in found)

    def discard_read(self, run: Run) -> list[Discard]:
        """What a committed task has read."""
        held = self._held.get(run.task.of, {})
        read = []
        for each in run.inputs:
            slice_ = Slice(run.task.of, run.lineage.side, each.output)
            found = held.get(slice_)
            if found is None or found.reader_epoch != run.epoch:
                continue
            if found.arrived_again:
                found.in_use = found.arrived_again = False
            else:
                read.append(slice_)
        return self._discard(run.task.of, read)

    def discard_before(self, channel: ChannelId, epoch: int) -> list[Discard]:
        """All that was sent to owners of the channel before this epoch; no more of it is taken."""
        self._oldest[channel] = epoch
        held = self._held.get(channel, {})
        return self._discard(channel, [s for s in held if held[s].reader_epoch < epoch])

    def held(self, channel: ChannelId, epoch: int) -> tuple[tuple[int, Input], ...]:
        """What waits for that owner of the channel, by side."""
        return tuple(
            (each.side, Input(each.output, held.epoch))
            for each, held in self._held.get(channel, {}).items()
            if held.reader_epoch == epoch
        )

    def _discard(self, channel: ChannelId, slices: Iterable[Slice]) -> list[Discard]:
        by_side: dict[int, list[Input]] = {}
        for each in slices:
            epoch = self._held[channel].pop(each).epoch
            by_side.setdefault(each.side, []).append(Input(each.output, epoch))
        return [Discard(channel, side, tuple(inputs)) for side, inputs in by_side.items()]
