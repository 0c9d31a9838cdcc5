"""What the migrate benchmark reports of the queries that it stopped."""

from __future__ import annotations

from headway.bench.migrations import HALF, Migration, Stopped, report_of


def migration(
    query: str,
    *,
    ratio: float = 0.5,
    point: float | None = HALF,
    at_once: bool = False,
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
        at_once=at_once,
    )


def stopped(*migrations: Migration, query: str = "", ended: float | None = None) -> Stopped:
    return Stopped("spark", query, 4.0, 4, list(migrations), {}, ended)


def test_queries_asked_at_half_of_their_time_are_told_apart() -> None:
    found = [
        migration("moved", ratio=0.6),
        migration("moved", ratio=1.2, at_once=True),
        migration("dear", ratio=1.1),
        migration("ended", ratio=1.3, at_once=True),
        migration("early", ratio=1.5, point=0.1),
        migration("short", ratio=2.0, point=None, at_once=True),
    ]
    report = report_of([stopped(*found), stopped(query="ended", ended=0.4)])
    assert report["migrations"] == 6
    assert report["queries_at_half"] == 3 and report["ended_at_half"] == 1
    assert report["beats_restart_share"] == 2 / 3, "all but dear"
    assert report["beats_restart_share_of_moved"] == 1 / 2
    assert report["beats_restart_share_at_once"] == 0
    assert report["beats_restart_share_ended_at_once"] == 1 / 3, "moved alone"


def test_sizes_are_told_by_migration_and_by_state() -> None:
    states = (("Aggregate", 100), ("Join", 3000))
    found = [migration("one", states=states), migration("other", states=())]
    report = report_of([stopped(*found)])
    assert report["state_bytes_median"] == 1550 and report["state_bytes_max"] == 3100
    assert report["single_state_bytes_mean"] == 1550
    assert report["state_bytes_by_operator"]["Join"]["states"] == 1


def test_nothing_was_long_enough() -> None:
    report = report_of([])
    assert report["migrations"] == 0 and report["beats_restart_share"] is None
