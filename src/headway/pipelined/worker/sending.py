"""The slices of an output on their way to the readers: over the network, or within the worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pyarrow as pa

from headway.lineage.names import TaskId
from headway.pipelined.core.effects import Arrived
from headway.pipelined.core.messages import Destination, Message
from headway.pipelined.worker.exchange import Attempt, Peers
from headway.pipelined.worker.inbox import Inbox
from headway.pipelined.worker.slices import size
from headway.pipelined.worker.threads import Threads

_Found = list[tuple[Destination, pa.Table]]


class Surroundings(Protocol):
    """What a query uses of the worker that it runs on."""

    @property
    def worker(self) -> str: ...

    @property
    def peers(self) -> Peers: ...

    @property
    def put_seconds(self) -> float: ...

    @property
    def computing(self) -> Threads: ...

    @property
    def repeating(self) -> Threads: ...

    @property
    def moving(self) -> Threads: ...

    def report(self, query: str, message: Message) -> None:
        """To the query's coordinator."""
        ...

    def leave(self, reason: str) -> None:
        """The worker cannot go on."""
        ...


class Sender:
    """Sends slices of one query."""

    def __init__(
        self,
        query: str,
        around: Surroundings,
        inbox: Inbox,
        arrive: Callable[[Arrived, pa.Table], bool],
    ) -> None:
        """`arrive` takes the slices for channels of the same worker."""
        self._query = query
        self._around = around
        self._inbox = inbox
        self._arrive = arrive

    def send(
        self,
        output: TaskId,
        epoch: int,
        destinations: tuple[Destination, ...],
        find: Callable[[Destination], pa.Table],
    ) -> tuple[Destination, ...]:
        """Those destinations that have their slice now. An empty slice needs no sending."""
        arrived: set[Destination] = set()
        found: dict[str, _Found] = {}
        for destination in destinations:
            table = find(destination)
            if table.num_rows:
                found.setdefault(destination.worker, []).append((destination, table))
            else:
                arrived.add(destination)
        local = found.pop(self._around.worker, [])
        puts = [(slices, self._put(name, output, epoch, slices)) for name, slices in found.items()]
        arrived.update(self._hand_over(output, epoch, local))
        for slices, put in puts:
            accepted = put.wait(self._around.put_seconds)
            arrived.update(slices[place][0] for place, taken in enumerate(accepted) if taken)
        return tuple(each for each in destinations if each in arrived)

    def _put(self, worker: str, output: TaskId, epoch: int, slices: _Found) -> Attempt:
        described = [(d.channel, d.side, d.epoch, table) for d, table in slices]
        return self._around.peers.put(worker, self._query, output, epoch, described)

    def _hand_over(self, output: TaskId, epoch: int, slices: _Found) -> list[Destination]:
        """Within this worker nothing is copied."""
        taken = []
        for destination, table in slices:
            arrived = Arrived(
                destination.channel, destination.side, destination.epoch, output, epoch
            )
            with self._inbox.room(size(table), lambda: None):
                if self._arrive(arrived, table):
                    taken.append(destination)
        return taken
