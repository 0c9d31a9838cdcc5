"""The order of queries: no cycles, every query once, and the exact one never worse."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.sharing.overlap import JoinGraph, OverlapGraph
from headway.sharing.query_order import exact_order, heuristic_order

EDGES = ("ab", "bc", "cd", "de", "ef", "fg")
graphs = st.lists(st.sets(st.sampled_from(EDGES)), min_size=1, max_size=7).map(
    lambda found: OverlapGraph([graph(f"q{n}", edges) for n, edges in enumerate(found)])
)


def graph(name: str, edges: set[str]) -> JoinGraph:
    return JoinGraph(name, frozenset("".join(edges) or "a"), frozenset(edges))


def test_queries_that_subsume_others_come_first() -> None:
    """Figures 3 and 4 of the paper: each of three queries joins what the one before it joins."""
    found = OverlapGraph(
        [graph("q1", {"de"}), graph("q2", {"de", "cd"}), graph("q3", {"de", "cd", "bc"})]
    )
    assert found.weight(0, 1) == found.weight(1, 2) == 1
    assert found.weight(1, 0) == 1 / 2 and found.weight(2, 1) == 2 / 3
    assert found.truncated == ((1, 2), (2,), ())
    assert heuristic_order(found) == [0, 1, 2]
    assert exact_order(found, 5) == [0, 1, 2]


def test_equal_queries_stay_together() -> None:
    """Queries with the same joins have the same weight in both directions: one of them is kept."""
    found = OverlapGraph([graph(f"q{n}", {"ab"} if n % 2 else {"cd", "de"}) for n in range(8)])
    order = heuristic_order(found)
    assert found.path_weight(order) == 6
    assert [found.graphs[n].edges for n in order[:4]] in (
        [frozenset({"ab"})] * 4,
        [frozenset({"cd", "de"})] * 4,
    )


def test_a_query_without_joins_overlaps_by_its_tables() -> None:
    alone = JoinGraph("scan", frozenset("a"), frozenset())
    found = OverlapGraph([graph("q1", {"ab"}), alone])
    assert found.weight(1, 0) == 1 and found.weight(0, 1) == 0
    assert heuristic_order(found) == [1, 0]


@given(graphs)
def test_no_path_comes_back(found: OverlapGraph) -> None:
    reached: set[int] = set()

    def visit(number: int, above: frozenset[int]) -> None:
        assert number not in above, "a cycle"
        if number not in reached:
            reached.add(number)
            for other in found.truncated[number]:
                visit(other, above | {number})

    for number in range(found.size):
        visit(number, frozenset())


@given(graphs)
def test_every_query_comes_once(found: OverlapGraph) -> None:
    assert sorted(heuristic_order(found)) == list(range(found.size))


@settings(max_examples=25, deadline=None)
@given(graphs)
def test_the_exact_order_is_never_worse(found: OverlapGraph) -> None:
    exact = exact_order(found, 5)
    assert sorted(exact) == list(range(found.size))
    assert found.path_weight(exact) >= found.path_weight(heuristic_order(found)) - 1e-9
