"""A whole query on simulated workers that fail in every way, for many seeds."""

from __future__ import annotations

import pytest

from headway.testing.simulation import main, simulate

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


def test_a_failing_seed_is_printed_with_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    assert "1 seeds" in capsys.readouterr().out
