"""How much of one query's joins another one has too, for every pair of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from headway.plan.nodes import JoinKey
from headway.sharing.members import Member, field_of, table_of


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """What a query joins: its tables, and the equalities between them."""

    query: str
    tables: frozenset[str]
    edges: frozenset[str]

    @property
    def parts(self) -> frozenset[str]:
        """What overlap is measured by: equalities, or the tables of a query that joins nothing."""
        return self.edges or self.tables


def join_graph(query: str, members: Iterable[Member]) -> JoinGraph:
    """Of all members of a query together."""
    tables: set[str] = set()
    edges: set[str] = set()
    for member in members:
        tables |= {table.source.table for table in member.tables}
        keys = [*member.keys, *(key for table in member.tables for key in table.keys)]
        edges |= {_edge(member, key) for key in keys}
    return JoinGraph(query, frozenset(tables), frozenset(edges))


def _edge(member: Member, key: JoinKey) -> str:
    sides = []
    for side in (key.left, key.right):
        names = {
            n: f"{member.tables[table_of(n)].source.table}.{field_of(n)}" for n in side.columns
        }
        sides.append(side.rename(names).text)
    return " = ".join(sorted(sides))


@dataclass(frozen=True)
class OverlapGraph:
    """Queries are numbered as they are given; `weight(i, j)` is the part of i that j has too."""

    graphs: Sequence[JoinGraph]

    @property
    def size(self) -> int:
        return len(self.graphs)

    @cached_property
    def weights(self) -> tuple[tuple[float, ...], ...]:
        return tuple(
            tuple(0.0 if i == j else _weight(a, b) for j, b in enumerate(self.graphs))
            for i, a in enumerate(self.graphs)
        )

    def weight(self, i: int, j: int) -> float:
        return self.weights[i][j]

    @cached_property
    def truncated(self) -> tuple[tuple[int, ...], ...]:
        """For each query those that may follow it: of two directions the heavier one is kept.

        The heavier edge leads to the query with more joins, or, where there are none, with more
        tables. Between queries with as many, it leads to the one that came later: so equal queries
        can follow each other, and no path comes back.
        """
        return tuple(
            tuple(
                j for j in range(self.size) if self.weight(i, j) > 0 and self.rank(i) < self.rank(j)
            )
            for i in range(self.size)
        )

    def rank(self, number: int) -> tuple[bool, int, int]:
        """Edges of the truncated graph lead upwards in it."""
        graph = self.graphs[number]
        return bool(graph.edges), len(graph.parts), number

    def path_weight(self, order: Sequence[int]) -> float:
        """What an order is worth: the overlap of each query with the next."""
        return sum(self.weight(i, j) for i, j in pairwise(order))


def _weight(a: JoinGraph, b: JoinGraph) -> float:
    if not a.parts:
        return 0.0
    common = a.edges & b.edges if a.edges else a.tables & b.tables
    return len(common) / len(a.parts)
