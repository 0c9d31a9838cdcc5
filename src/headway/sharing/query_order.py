"""The order in which queries are taken: each overlaps with the next as much as possible."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from headway.sharing.overlap import OverlapGraph

_SCALE = 1_000_000


def heuristic_order(graph: OverlapGraph) -> list[int]:
    """Longest paths through the truncated graph, one after the other until no query is left."""
    left = set(range(graph.size))
    order: list[int] = []
    while left:
        path = _longest_path(graph, left)
        order += path
        left.difference_update(path)
    return order


def _longest_path(graph: OverlapGraph, left: set[int]) -> list[int]:
    """The heaviest path among these queries; of equal ones that with the most queries."""
    best: dict[int, tuple[float, int]] = {}
    before: dict[int, int | None] = {}
    # Edges lead upwards in rank, so whoever can precede a query is done before it.
    for j in sorted(left, key=graph.rank):
        best.setdefault(j, (0.0, 1))
        before.setdefault(j, None)
        weight, length = best[j]
        for k in graph.truncated[j]:
            if k not in left:
                continue
            reached = (weight + graph.weight(j, k), length + 1)
            if reached > best.get(k, (0.0, 1)):
                best[k] = reached
                before[k] = j
    end: int | None = max(best, key=lambda n: (best[n], -n))
    path = []
    while end is not None:
        path.append(end)
        end = before[end]
    return path[::-1]


def exact_order(graph: OverlapGraph, seconds: float) -> list[int]:
    """The heaviest order of all, or the best that the solver finds in time; never worse than the
    heuristic's."""
    known = heuristic_order(graph)
    if graph.size < 3:
        reverse = known[::-1]
        return max(known, reverse, key=graph.path_weight)
    found = _solve(graph, known, seconds)
    return max(known, found, key=graph.path_weight)


def _solve(graph: OverlapGraph, hint: Sequence[int], seconds: float) -> list[int]:
    """A circuit through all queries and a place beside them, where the order begins and ends."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    outside = graph.size
    following = {*pairwise(hint), (outside, hint[0]), (hint[-1], outside)}
    arcs = {}
    for i in range(graph.size + 1):
        for j in range(graph.size + 1):
            if i != j:
                arcs[i, j] = model.new_bool_var(f"{i} before {j}")
                model.add_hint(arcs[i, j], (i, j) in following)
    model.add_circuit([(i, j, arc) for (i, j), arc in arcs.items()])
    model.maximize(
        sum(
            round(graph.weight(i, j) * _SCALE) * arc
            for (i, j), arc in arcs.items()
            if outside not in (i, j)
        )
    )
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return list(hint)
    after = {i: j for (i, j), arc in arcs.items() if solver.value(arc)}
    order = []
    number = after[outside]
    while number != outside:
        order.append(number)
        number = after[number]
    return order
