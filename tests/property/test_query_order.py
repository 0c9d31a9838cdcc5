"""The order of queries: no cycles, every query once, and the exact one the heaviest of all."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.sharing.overlap import JoinGraph, OverlapGraph
from headway.sharing.query_order import _solve, exact_order, heuristic_order

EDGES = ("ab", "bc", "cd", "de", "ef", "fg")


def graph(name: str, edges: set[str]) -> JoinGraph:
    return JoinGraph(name, frozenset("".join(edges) or "a"), frozenset(edges))


def scan(name: str, tables: set[str]) -> JoinGraph:
    """A query that reads tables and joins nothing."""
    return JoinGraph(name, frozenset(tables), frozenset())


queries = st.one_of(
    st.sets(st.sampled_from(EDGES)).map(lambda edges: graph("q", edges)),
    st.sets(st.sampled_from("abcd"), min_size=1).map(lambda tables: scan("q", tables)),
)
graphs = st.lists(queries, min_size=1, max_size=6).map(OverlapGraph)


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
    found = OverlapGraph([graph("q1", {"ab"}), scan("q2", {"a"})])
    assert found.weight(1, 0) == 1 and found.weight(0, 1) == 0
    assert heuristic_order(found) == [1, 0]


def test_of_queries_without_joins_the_larger_one_follows() -> None:
    """It has all of the smaller one, which has half of it, whichever came first."""
    found = OverlapGraph([scan("q1", {"x", "y"}), scan("q2", {"x"})])
    assert found.weight(0, 1) == 0.5 and found.weight(1, 0) == 1
    assert found.truncated == ((), (0,))
    assert heuristic_order(found) == [1, 0]


@given(graphs)
def test_of_two_directions_the_heavier_one_is_kept(found: OverlapGraph) -> None:
    for i, j in permutations(range(found.size), 2):
        if found.weight(i, j) > found.weight(j, i):
            assert j in found.truncated[i] and i not in found.truncated[j]


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
def test_no_order_is_heavier_than_the_one_solved_for(found: OverlapGraph) -> None:
    """The solver begins with a bad order, so that what it finds is its own."""
    heaviest = max(map(found.path_weight, permutations(range(found.size))))
    lightest = min(permutations(range(found.size)), key=found.path_weight)
    solved = _solve(found, lightest, 5)
    assert sorted(solved) == list(range(found.size))
    assert found.path_weight(solved) == pytest.approx(heaviest, abs=1e-5)
    assert found.path_weight(exact_order(found, 5)) == pytest.approx(heaviest, abs=1e-5)


def test_the_exact_order_is_heavier_where_a_direction_was_given_up() -> None:
    """The query that has something of both others came first, and so can only lead to one."""
    found = OverlapGraph(
        [graph("q1", {"ab", "bc"}), graph("q2", {"ab", "cd"}), graph("q3", {"bc", "de"})]
    )
    assert found.path_weight(heuristic_order(found)) == 0.5
    assert found.path_weight(exact_order(found, 5)) == 1
