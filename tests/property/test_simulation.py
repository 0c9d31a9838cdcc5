"""A whole query on simulated workers that fail in every way, for many seeds."""

from __future__ import annotations

import pytest

from headway.pipelined.core.coordinator import Coordinator
from headway.pipelined.core.events import Command, Event
from headway.testing.simulation import SimulationFailed, main, simulate

SEEDS = 300
CHUNK = 25


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_the_rows_are_right_whatever_fails(first: int) -> None:
    for seed in range(first, first + CHUNK):
        simulate(seed)  # a failure says how to replay its seed


@pytest.mark.parametrize("seed", range(1000, 1040))
def test_without_faults_nothing_is_done_twice(seed: int) -> None:
    result = simulate(seed, faults=False)
    assert result.repeated == 0 and not result.faults


def test_the_same_seed_gives_the_same_run() -> None:
    assert simulate(7) == simulate(7)


def test_every_kind_of_fault_strikes() -> None:
    struck = {fault for seed in range(100) for fault in simulate(seed).faults}
    assert struck >= {
        "answer lost",
        "crash",
        "cut off",
        "dies after a write",
        "dies before a write",
        "disk full",
        "pause",
        "restart",
        "slice lost",
        "slice repeated",
        "unreadable",
        "write fails",
    }


class _Silent(Coordinator):
    def handle(self, event: Event) -> list[Command]:
        return []


def test_a_failing_seed_says_how_to_replay_it() -> None:
    with pytest.raises(SimulationFailed, match=r"seed 3: the query does not end\n.* --seed 3 "):
        simulate(3, coordinator=_Silent)


def test_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first", "3", "--seeds", "2"]) == 0
    assert capsys.readouterr().out.startswith("2 seeds: ")
