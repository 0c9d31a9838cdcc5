"""What it would cost to go on with queries that nobody runs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.plan.nodes import QueryPlan
from headway.plan.states import image_state
from headway.session.history import StoreSpeed
from headway.session.resuming import Resumed
from headway.session.standings import image_to_builtins
from headway.spark.results import KeptResult
from headway.storage import ReliableStore
from headway.testing.example_plans import table

MIB = 1 << 20


@pytest.mark.parametrize(("size", "pays"), [(100 * MIB, True), (400 * MIB, False)])
def test_an_image_costs_what_a_running_query_would(
    make_store: Callable[[str], ReliableStore], size: int, pays: bool
) -> None:
    """Its states are written: what is left is to read them, which takes half of that."""
    speed = StoreSpeed(make_store("local"))
    for _ in range(3):
        speed.add(1000, 0.1)
        speed.add(100 * MIB, 1.1)
    plan = QueryPlan(image_state("s", [("int", True)]), ("a",))
    kept = KeptResult(10, size, ("states/s/0",), "")
    resumed = Resumed(states={"s": kept}, plans={"q": plan}, progress={"q": (2, 3, 1.0)})
    told = image_to_builtins(resumed, speed)["q"]
    assert told["seconds_to_move"] == pytest.approx(speed.seconds(size) / 2, abs=0.01)
    assert told["seconds_to_restart"] == 1.0 and told["moving_pays"] is pays
    assert told["share_done"] is None and told["seconds_left"] is None


def test_an_image_without_states_saves_nothing(
    make_store: Callable[[str], ReliableStore],
) -> None:
    plan = QueryPlan(table("t", a="int"), ("a",))
    resumed = Resumed(plans={"q": plan}, progress={"q": (1, 3, 5.0)})
    told = image_to_builtins(resumed, StoreSpeed(make_store("local")))["q"]
    assert told["seconds_to_move"] == 5.0 and not told["moving_pays"]
