"""What is done of a query that is running, and whoever keeps it: `spark_keeper.py` for queries that
Spark runs, `pipelined_keeper.py` for those on the workers."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headway.base.clock import Until, whenever
from headway.plan.nodes import QueryPlan
from headway.session.resuming import Origin, QueryImage

LOOK_SECONDS = 0.1
"""Between two looks at a query that is waited for."""
BEGIN_SECONDS = 2.0
"""For how long a query is waited for that has no pipeline under way: one may be about to begin."""


@dataclass(frozen=True, slots=True)
class HeldState:
    """Rows that are there and are still needed. None for what nobody has counted."""

    rows: float | None
    bytes: float | None
    kept: bool = False
    """In the store already."""
    steps: Mapping[int, float] | None = None
    """The seconds of what was done for it, where they were seen, by numbers of the engine: states
    may have some of it in common."""
    moving_seconds: float = 0.0
    """What its rows take that are read from the store, to come to where they are needed."""

    @property
    def made(self) -> bool:
        """Whether the query has done something for it: not for what its session had cached, nor for
        a state that it began with."""
        return self.steps != {}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a running query stands: what is left of it, and the states that this needs, by their
    names. Pipelines are those of its engine. Nothing is read or written for this."""

    plan: QueryPlan
    states: Mapping[str, HeldState]
    finished: int
    total: int
    origins: Mapping[str, Origin] = field(default_factory=dict)

    @property
    def new_bytes(self) -> float:
        """What would have to be written to keep all of it."""
        return sum(state.bytes or 0.0 for state in self.states.values() if not state.kept)


class StateKeeper(Protocol):
    """Keeps what is done of one running query; what was kept once is not written again."""

    def stand(self, without: Collection[str] = ()) -> Standing | None:
        """None when nothing can be kept of the query. In the place of states that it is to be
        `without` are those that they were made from, as far as the engine has them."""

    def finished(self) -> int:
        """How many pipelines are. Asked far more often than where the query stands."""

    def settle(self, until: float | None, ended: Callable[[], bool], *, to_its_end: bool) -> None:
        """Wait for the pipelines that are running, as far as the time allows; for the one that puts
        out the result only where that is wanted, or where it is like others."""

    def image(
        self,
        without: Collection[str] = (),
        *,
        origins: bool = False,
        until: Until = whenever,
        given_up: Callable[[], bool] = lambda: False,
    ) -> QueryImage | None:
        """Writes what is not yet kept. The query goes on meanwhile, if nobody stops it. `origins`
        are in it where they are asked for. States that are not written `until` then give way to
        those that they were made from, as far as these are kept already. None once it is
        `given_up`."""

    def hurry(self) -> None:
        """Stop what is just being written, for an image that is given up."""

    def keep_only(self, states: Collection[str]) -> None:
        """What else it had kept is no longer in the store."""

    def quiet(self, stop: Callable[[], None]) -> None:
        """Have the machine free for writing the image of a query that is to be stopped."""

    def go_on(self) -> bool:
        """After that, when there is to be no image: whether the query goes on from where it is."""


class NothingKept:
    """Of a query that has not begun, such as while its tables are brought to the workers."""

    def stand(self, without: Collection[str] = ()) -> Standing | None:
        return None

    def finished(self) -> int:
        return 0

    def settle(self, until: float | None, ended: Callable[[], bool], *, to_its_end: bool) -> None:
        """There is no pipeline to wait for."""

    def image(
        self,
        without: Collection[str] = (),
        *,
        origins: bool = False,
        until: Until = whenever,
        given_up: Callable[[], bool] = lambda: False,
    ) -> QueryImage | None:
        return None

    def hurry(self) -> None:
        """Nothing is being written."""

    def keep_only(self, states: Collection[str]) -> None:
        """It had kept none."""

    def quiet(self, stop: Callable[[], None]) -> None:
        """Nothing is to be written."""

    def go_on(self) -> bool:
        return True


def state_prefix(query: str) -> str:
    """What the names of a query's states begin with: names have at most 64 characters."""
    return f"{query[:40]}-{secrets.token_hex(4)}"
