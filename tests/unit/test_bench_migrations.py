"""What the migrate benchmark reports of the queries that it stopped."""

from __future__ import annotations

import pytest

from headway.bench.migrations import HALF, Migration, Stopped, Way, report_of
from headway.bench.overhead import together
from headway.bench.peers import middle_half


def migration(
    query: str,
    *,
    ratio: float = 0.5,
    point: float | None = HALF,
    way: Way = "after pipelines",
    states: tuple[tuple[str, int], ...] = (("Aggregate", 1000),),
) -> Migration:
    return Migration(
        "spark",
        query,
        point,
        passed=2.0,
        pipelines_done=1,
        pipelines=4,
        alone=4.0,
        select=0.01,
        extract=0.1,
        transfer=0.05,
        suspend=0.5,
        fetch=0.01,
        rest=4.0 * ratio - 0.5,
        states=states,
        equal=True,
        way=way,
    )


def stopped(
    *migrations: Migration, query: str = "", ended: dict[Way, float] | None = None
) -> Stopped:
    return Stopped("spark", query, 4.0, 4, list(migrations), {}, ended or {})


def test_queries_asked_at_half_of_their_time_are_told_apart() -> None:
    found = [
        migration("moved", ratio=0.6),
        migration("moved", ratio=0.5, way="cheapest"),
        migration("moved", ratio=1.2, way="at once"),
        migration("dear", ratio=1.1),
        migration("dear", ratio=1.05, way="cheapest"),
        migration("ended", ratio=0.9),
        migration("early", ratio=1.5, point=0.1),
        migration("short", ratio=2.0, point=None, way="at once"),
    ]
    report = report_of([stopped(*found), stopped(query="ended", ended={"cheapest": 0.4})])
    assert report["migrations"] == 8
    assert report["beats_restart_share"] == 2 / 3, "all but dear, as the command is used"
    half = report["at_half"]
    assert half["cheapest"]["asked"] == 3 and half["cheapest"]["moved"] == 2
    assert half["cheapest"]["moved_beat_restart"] == 1 / 2
    assert half["after pipelines"]["beat_restart"] == 2 / 3
    assert half["after pipelines"]["ratio_of_moved"] == pytest.approx(0.9)
    assert half["at once"]["beat_restart"] == 0


def test_restarts_are_measured_beside_the_stops() -> None:
    query = stopped(migration("q", ratio=0.5), query="q", ended={"cheapest": 0.8})
    query.compare_with(5.0)
    assert query.alone == 5.0
    assert query.migrations[0].ratio == pytest.approx(0.4)
    assert query.ended_at_half == {"cheapest": pytest.approx(0.64)}


def test_sizes_are_told_by_migration_and_by_state() -> None:
    states = (("Aggregate", 100), ("Join", 3000))
    found = [migration("one", states=states), migration("other", states=())]
    report = report_of([stopped(*found)])
    assert report["state_bytes_median"] == 1550 and report["state_bytes_max"] == 3100
    assert report["single_state_bytes_mean"] == 1550
    assert report["state_bytes_by_operator"]["Join"]["states"] == 1


def test_what_is_rare_moves_no_overhead() -> None:
    ratios = [1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.0, 1.0]
    found, error = middle_half([*ratios * 10, 5.0, 7.0])
    assert found == pytest.approx(1.0, abs=0.005) and 0 < error < 0.01


def test_overheads_count_by_how_closely_they_are_known() -> None:
    steady = [0.004 + 0.001 * (n % 3 - 1) for n in range(60)]
    wild = [0.1 + 0.2 * (n % 3 - 1) for n in range(60)]
    found, error = together({"steady": steady, "wild": wild})
    assert found == pytest.approx(0.004, abs=0.001) and error < 0.001


def test_nothing_was_long_enough() -> None:
    report = report_of([])
    assert report["migrations"] == 0 and report["beats_restart_share"] is None
