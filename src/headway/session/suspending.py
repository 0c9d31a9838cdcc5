"""How a running query is stopped, and which of its states are kept for it.

A state is kept where that is cheaper than making it again: with the seconds to write it, those to
read it, and those of the work that would be done twice. One that is not worth it is passed over for
those that it was made from, which may be smaller, or in the end for the tables.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from headway.base.errors import StoreFull
from headway.session.history import StoreSpeed
from headway.session.keepers import LOOK_SECONDS, Standing, StateKeeper
from headway.session.resuming import QueryImage

_TRIALS = 16
SMALL_BYTES = 8 << 20
"""States up to here are kept without weighing them."""
_READING = 0.5
"""The time to read a state, of that to write it."""
_RESERVE = 0.2
_RESERVE_SECONDS = 1.0
"""Of the time until the machine is gone, for what comes after the states: a fifth, or this."""
_PLENTY = float(64 << 30)
"""Free bytes of a store with which nobody asks whether there is room."""
_LATE = 1000.0
"""What a second counts after the machine is gone, or that there is no room for."""
_RESUMING_SECONDS = 1.0
"""What it takes to go on elsewhere, however little is left: the plan is read and compiled again."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """How queries are stopped: after the pipelines that are running, and then as long as waiting
    is `cheaper` than moving; or at once. And how many seconds there are until the machine is
    gone."""

    wait: bool = True
    within: float | None = None
    cheaper: bool = True

    def until(self) -> float | None:
        """The end of that time, when it begins now."""
        return None if self.within is None else time.monotonic() + self.within


@dataclass(frozen=True, slots=True)
class Work:
    """What a query has behind it: when it began, and which share of its work is done where it
    stands."""

    began: float
    share_done: Callable[[Standing], float]
    portable: bool = False
    """Whether another session could begin the query anew."""

    def again(self, standing: Standing, newest: Standing) -> float:
        """The seconds of work between the two, which would be done a second time: as they were
        seen, or else by estimates."""
        seen = [seconds_behind(each) for each in (newest, standing)]
        if seen[0] is not None and seen[1] is not None:
            return max(0.0, seen[0] - seen[1])
        done = self.share_done(newest)
        if done <= 0.0:
            return 0.0
        return (time.monotonic() - self.began) * max(0.0, 1.0 - self.share_done(standing) / done)

    def left(self, standing: Standing) -> float:
        """The seconds that the rest is expected to take."""
        done = self.share_done(standing)
        if done <= 0.0:
            return math.inf
        return (time.monotonic() - self.began) * max(0.0, 1.0 - done) / done


class Haste:
    """Those who need the machine, by a certain time where they said so. Safe from several
    threads."""

    def __init__(self) -> None:
        self._demands: dict[object, float | None] = {}

    def ask(self, until: float | None) -> object:
        """What to withdraw when it is one's turn."""
        demand = object()
        self._demands[demand] = until
        return demand

    def withdraw(self, demand: object) -> None:
        self._demands.pop(demand, None)

    @property
    def asked(self) -> bool:
        return bool(self._demands)

    def at_latest(self, until: float | None) -> float | None:
        """The earliest of that time, and of those that are asked for."""
        ends = (until, *list(self._demands.values()))
        return min((end for end in ends if end is not None), default=None)


class Deadline:
    """When the states of an image are to be there: in time for what is written after them, by the
    earliest of `until` and of what those ask for who are in haste, as long as it is written."""

    def __init__(self, until: float | None, haste: Haste, speed: StoreSpeed) -> None:
        self._until = until
        self._haste = haste
        self._speed = speed
        self._known: tuple[float | None, float | None] = (None, None)
        """The last time asked for, and the deadline for that."""

    def __call__(self) -> float | None:
        asked = self._haste.at_latest(self._until)
        if asked != self._known[0]:
            self._known = asked, _before(asked, self._speed)
        return self._known[1]


def seconds_behind(standing: Standing) -> float | None:
    """That the states have taken to make, where all of that was seen."""
    together: dict[int, float] = {}
    for state in standing.states.values():
        if state.steps is None:
            return None
        together |= state.steps
    return sum(together.values())


def suspend(
    keeper: StateKeeper,
    how: Suspension,
    until: float | None,
    speed: StoreSpeed,
    work: Work,
    stop: Callable[[], None],
    ended: Callable[[], bool],
    haste: Haste,
    *,
    room: Callable[[], float] = lambda: math.inf,
    failed: Callable[[], bool] = lambda: False,
    origins: bool = False,
) -> QueryImage | None:
    """The image of a query that is stopped for it: after the pipelines that are running, where
    these are waited for, and nobody is in `haste`. None when nothing of it can be kept, or when it
    was quicker; of one that has `failed` meanwhile, what was done of it is there. What cannot be
    written `until` that time, with what makes it valid, is not in it, nor what there is no `room`
    for then; where there is no such time, StoreFull, before the query is stopped. Where that fails,
    the query goes on, if that is still possible."""

    def waited_for() -> bool:
        return ended() or haste.asked

    deadline = Deadline(until, haste, speed)
    try:
        if how.wait:
            keeper.settle(deadline(), waited_for, to_its_end=not how.cheaper)
            if how.cheaper:
                _await_cheaper(keeper, deadline(), speed, work, waited_for)
        image = None
        if not ended() or failed():
            free = room()
            if deadline() is None and free < _PLENTY:
                _check_room(keeper, speed, work, free)
            keeper.quiet(stop)
            newest = keeper.stand()
            if newest is not None and not (work.portable and _is_nothing_done(newest)):
                without = in_time(keeper, newest, deadline(), speed, work, free)
                image = keeper.image(without, origins=origins, until=deadline)
    except BaseException:
        if not keeper.go_on():
            stop()
        raise
    stop()
    return image


def _check_room(keeper: StateKeeper, speed: StoreSpeed, work: Work, room: float) -> None:
    newest = keeper.stand()
    if newest is None or newest.new_bytes <= room:
        return
    without = in_time(keeper, newest, None, speed, work)
    chosen = keeper.stand(without) if without else newest
    if chosen is not None and chosen.new_bytes > room:
        raise StoreFull(
            f"what is done would take {chosen.new_bytes / 1e6:.0f} MB of the store, which has "
            f"{room / 1e6:.0f} MB left",
            hint="free some space there; with --within, what fits is kept",
        )


def _is_nothing_done(standing: Standing) -> bool:
    """Whether all that would be kept, and it is much, are tables that the session has cached."""
    made = any(state.made for state in standing.states.values())
    return standing.new_bytes > SMALL_BYTES and not made


def _before(until: float | None, speed: StoreSpeed) -> float | None:
    """When the states are to be there: the image itself and two events are written last."""
    if until is None:
        return None
    part = _RESERVE * max(0.0, until - time.monotonic())
    return until - min(part, max(_RESERVE_SECONDS, 3 * speed.seconds(0.0)))


def _await_cheaper(
    keeper: StateKeeper,
    until: float | None,
    speed: StoreSpeed,
    work: Work,
    ended: Callable[[], bool],
) -> None:
    """Goes on waiting while that has taken less than moving would: after the next pipeline there
    may be far less to move, and what is done meanwhile need not be done elsewhere; or the query is
    at its end by then. So nobody waits for more than what moving at once would have cost him, and
    as much again once what is left is expected to take less than to move it."""
    began = time.monotonic()
    finished, cost, writing, nearly_done = -1, 0.0, 0.0, False
    while not ended():
        if finished != (now_finished := keeper.finished()):
            standing = keeper.stand()
            if standing is None:
                return
            finished, writing = now_finished, writing_seconds(standing, speed)
            again = work.again(replace(standing, states={}), standing)
            cost = _RESUMING_SECONDS + writing + min(reading_seconds(standing, speed), again)
            if not nearly_done and work.left(standing) < cost:
                began, nearly_done = time.monotonic(), True
        now = time.monotonic()
        late = until is not None and now + 2 * writing >= until
        if late or now - began >= cost:
            return
        time.sleep(LOOK_SECONDS)


def in_time(
    keeper: StateKeeper,
    newest: Standing,
    end: float | None,
    speed: StoreSpeed,
    work: Work,
    room: float = math.inf,
) -> frozenset[str]:
    """The states to pass over for an image that is to be there by its `end`: small ones too, where
    not all can be written until then, or there is no `room` for all."""
    seconds = None if end is None else end - time.monotonic()
    late = seconds is not None and writing_seconds(newest, speed) > seconds
    moving = moving_cost(newest, speed, work, seconds)

    def cost(standing: Standing) -> float:
        """Of two that do not fit, the smaller one."""
        excess = max(0.0, standing.new_bytes - room)
        return moving(standing) + _LATE * speed.seconds(excess) if excess else moving(standing)

    small = 0 if late or newest.new_bytes > room else SMALL_BYTES
    return cheapest(keeper, newest, cost, small)


def moving_cost(
    newest: Standing, speed: StoreSpeed, work: Work, within: float | None = None
) -> Callable[[Standing], float]:
    """What it takes to go on elsewhere from where a query stands, in seconds, beyond what it takes
    in any case: an image is written, and something is read."""
    in_any_case = (1.0 + _READING) * speed.seconds(0.0)

    def cost(standing: Standing) -> float:
        writing = writing_seconds(standing, speed)
        late = 0.0 if within is None else max(0.0, writing - within)
        moving = max(0.0, writing + reading_seconds(standing, speed) - in_any_case)
        return moving + work.again(standing, newest) + _LATE * late

    return cost


def writing_seconds(standing: Standing, speed: StoreSpeed) -> float:
    return speed.seconds(standing.new_bytes) if standing.new_bytes else 0.0


def reading_seconds(standing: Standing, speed: StoreSpeed) -> float:
    stored = sum(state.bytes or 0.0 for state in standing.states.values())
    moving = sum(state.moving_seconds for state in standing.states.values())
    return _READING * speed.seconds(stored) + moving if stored else 0.0


def cheapest(
    keeper: StateKeeper,
    newest: Standing,
    cost: Callable[[Standing], float],
    small: int = SMALL_BYTES,
) -> frozenset[str]:
    """The states to pass over. Large ones are tried first: with those in their place that they
    were made from, and without these as well. `small` ones are not weighed."""
    without: frozenset[str] = frozenset()
    best, least = newest, cost(newest)
    tried: set[str] = set()
    for _ in range(_TRIALS):
        sizes = {
            name: state.bytes or 0.0
            for name, state in best.states.items()
            if not state.kept and name not in tried
        }
        name = max(sizes, key=lambda each: sizes[each], default=None)
        if name is None or sizes[name] <= small:
            break
        tried.add(name)
        passed_over = without | {name}
        for _ in range(2):
            other = keeper.stand(passed_over)
            if other is None:
                break
            if cost(other) < least:
                without, best, least = passed_over, other, cost(other)
            appeared = other.states.keys() - best.states.keys()
            if not appeared:
                break
            passed_over |= appeared
    return without
