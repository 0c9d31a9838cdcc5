"""What is on its way: slices sent again, committed tasks that are being repeated, outputs that only
their maker's memory holds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.lineage.names import ChannelId, TaskId
from headway.lineage.reading import Slice
from headway.pipelined.core.messages import Done


@dataclass(frozen=True, slots=True)
class InMemory:
    """A task that is done and whose output no copy protects. It is not committed before every
    reader has it: until then its worker keeps it in memory, and sends it where it is missing."""

    worker: str
    done: Done


@dataclass(slots=True)
class Supply:
    """None of it is durable. A coordinator that starts again finds out, or has it done again."""

    replays: dict[TaskId, dict[Slice, str]] = field(default_factory=dict)
    """The worker that was asked to send each slice again."""
    repeats: dict[TaskId, str] = field(default_factory=dict)
    """The worker that was told to repeat each task."""
    repeating: dict[ChannelId, int] = field(default_factory=dict)
    """How many tasks each channel repeats; those of stateless stages are not counted."""
    reached: dict[ChannelId, int] = field(default_factory=dict)
    """For an ended channel that is not let go: the last task with a trace in its state."""
    in_memory: dict[TaskId, InMemory] = field(default_factory=dict)
    failed: set[Slice] = field(default_factory=set)
    """Did not arrive; to be tried again after a while."""
    unchanged: dict[ChannelId, tuple[int, int]] = field(default_factory=dict)
    """How many tasks a channel was repeating, and for how many ticks."""

    def replaying(self) -> set[Slice]:
        return {each for slices in self.replays.values() for each in slices}

    def is_replaying(self, slice_: Slice) -> bool:
        return slice_ in self.replays.get(slice_.output, ())

    def answer(self, output: TaskId, worker: str) -> list[Slice]:
        """The slices that this worker was asked for; they are no longer on their way."""
        asked = self.replays.get(output, {})
        found = [each for each, by in asked.items() if by == worker]
        for each in found:
            del asked[each]
        if not asked:
            self.replays.pop(output, None)
        return found

    def repeat(self, task: TaskId, worker: str, counted: bool) -> None:
        if counted and task not in self.repeats:
            self.repeating[task.of] = self.repeating.get(task.of, 0) + 1
        self.repeats[task] = worker

    def repeated(self, task: TaskId) -> None:
        """The task need not be waited for any more."""
        del self.repeats[task]
        if task.of in self.repeating:
            self.repeating[task.of] -= 1
            if not self.repeating[task.of]:
                del self.repeating[task.of]

    def tick(self, patience: int) -> list[ChannelId]:
        """The channels that have not repeated a task for that many ticks, once in a while."""
        stuck = []
        unchanged = {}
        for channel, count in self.repeating.items():
            former, ticks = self.unchanged.get(channel, (count, 0))
            ticks = ticks + 1 if former == count else 0
            if ticks >= patience:
                stuck.append(channel)
                ticks = 0
            unchanged[channel] = (count, ticks)
        self.unchanged = unchanged
        return stuck

    def lose(self, worker: str) -> None:
        """Nothing comes from this worker any more."""
        for output in list(self.replays):
            self.answer(output, worker)
        for task in [task for task, by in self.repeats.items() if by == worker]:
            self.repeated(task)
        self.in_memory = {t: each for t, each in self.in_memory.items() if each.worker != worker}

    def restart(self, channels: Iterable[ChannelId], stateless: frozenset[ChannelId]) -> None:
        """These channels have new owners: what was meant for or made by the former ones is void.
        A repeated task of a stateless channel does not belong to its owner, and goes on."""
        restarted = set(channels)
        for task in [task for task in self.repeats if task.of in restarted - stateless]:
            self.repeated(task)
        for task in [task for task in self.in_memory if task.of in restarted]:
            if task not in self.repeats:
                del self.in_memory[task]
                self.replays.pop(task, None)
        for output, slices in list(self.replays.items()):
            kept = {each: by for each, by in slices.items() if each.reader not in restarted}
            if kept:
                self.replays[output] = kept
            else:
                del self.replays[output]
        self.failed = {each for each in self.failed if each.reader not in restarted}
        for channel in restarted:
            self.reached.pop(channel, None)
