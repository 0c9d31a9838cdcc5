"""A channel on a worker under one epoch: its tasks, and how far each has come."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headway.lineage.names import ChannelId, TaskId
from headway.pipelined.core.effects import Executed
from headway.pipelined.core.messages import Destination, Done, Failed, Run


@dataclass(slots=True, eq=False)
class TaskProgress:
    """A task from the moment the worker is told to run it.

    It is executed; its output is kept and delivered, side by side; then it is done, and at last
    committed. `kept` and `delivered` are None as long as that is not finished.
    """

    run: Run
    executed: Executed | None = None
    kept: bool | None = None
    piece: str | None = None
    delivering: bool = False
    delivered: tuple[Destination, ...] | None = None
    done: Done | None = None
    failed: Failed | None = None
    committed: bool = False


@dataclass(slots=True, eq=False)
class Incarnation:
    """Tasks run in the order in which the worker was told of them."""

    channel: ChannelId
    epoch: int
    tasks: dict[TaskId, TaskProgress] = field(default_factory=dict)
    waiting: deque[TaskProgress] = field(default_factory=deque)
    """Not yet executed."""
    executing: TaskProgress | None = None
    unfinished: list[TaskProgress] = field(default_factory=list)
    """Executed, and not yet done."""
    uncommitted: deque[TaskProgress] = field(default_factory=deque)
    """New tasks in their order, without repeated ones."""

    def add(self, run: Run) -> None:
        task = TaskProgress(run)
        self.tasks[run.task] = task
        self.waiting.append(task)
        if not run.repeated:
            self.uncommitted.append(task)

    def may_execute(self) -> bool:
        """One output may wait for its delivery while the next is made, so that memory does not
        fill up with outputs."""
        return bool(self.waiting) and self.executing is None and len(self.unfinished) <= 1

    def may_deliver(self, task: TaskProgress) -> bool:
        """Only the last output of a channel may be uncommitted."""
        return task.run.repeated or self.uncommitted[0] is task

    def commit(self, task: TaskProgress) -> None:
        task.committed = True
        if not task.run.repeated:
            self.uncommitted.remove(task)
