"""Random join trees: the rules that reorder and reduce them change no row."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from headway.pipelined.compile import compile_plan
from headway.pipelined.kernels.operators import explain_support
from headway.plan import reduction
from headway.plan.cardinalities import estimate
from headway.plan.expressions import Column, Expression, column_reference
from headway.plan.graph import walk
from headway.plan.join_order import order_joins
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Join,
    JoinKey,
    JoinKind,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
)
from headway.plan.reduction import reduce_by_joins
from headway.plan.sides import choose_build_sides
from headway.testing.dataflows import rows_of, run_dataflow
from headway.testing.example_plans import condition, parquet_table, renamed
from headway.testing.runnable_plans import runnable_plans, small_tables

SEED = int(os.environ.get("HEADWAY_TEST_SEED", time.time()))
QUICK = settings(
    max_examples=20,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
KINDS = (
    *(JoinKind.INNER,) * 6, JoinKind.SEMI, JoinKind.SEMI, JoinKind.ANTI, JoinKind.LEFT,
    JoinKind.EXISTENCE,
)  # fmt: skip
MOST_ROWS = 20_000
T = TypeVar("T")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scan, ...]:
    """Tables of an own key and two columns that refer to keys, with nulls."""
    print(f"seed {SEED}")
    rng, folder = random.Random(SEED), tmp_path_factory.mktemp("tables")

    def refer() -> int | None:
        return None if rng.random() < 0.1 else rng.randrange(8)

    return tuple(
        parquet_table(
            folder / f"table {size}",
            {"id": "int", "one": "int", "two": "int"},
            [(n, refer(), refer()) for n in range(size)],
        )
        for size in (0, 3, 8, 12)
    )


@pytest.fixture(autouse=True)
def always_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduction, "_FEWEST_ROWS", 0.0)
    monkeypatch.setattr(reduction, "_MOST_SHARE", 1.0)


class TreeMaker:
    """Makes a join tree bottom-up."""

    def __init__(
        self, draw: Callable[[st.SearchStrategy[int]], int], tables: Sequence[Scan]
    ) -> None:
        self._draw = draw
        self._tables = tables
        self._made = 0

    def tree(self) -> Node:
        nodes = [self._leaf() for _ in range(self._number(2, 10))]
        while len(nodes) > 1:
            left = nodes.pop(self._number(0, len(nodes) - 1))
            right = nodes.pop(self._number(0, len(nodes) - 1))
            nodes.append(self._narrowed(self._join(left, right)))
        return nodes[0]

    def _number(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def _pick(self, items: Sequence[T]) -> T:
        return items[self._number(0, len(items) - 1)]

    def _chance(self, of: int) -> bool:
        return self._number(1, of) == of

    def _name(self) -> str:
        self._made += 1
        return f"x{self._made}"

    def _leaf(self) -> Node:
        scan = renamed(self._pick(self._tables), f"_{self._name()}")
        choice = self._number(0, 5)
        if choice == 0:
            return Filter(scan, condition(f"(`{scan.column_names[1]}` < 4)"))
        if choice == 1:
            count = AggregateCall(
                Column(self._name(), "bigint", False), "count", (Expression("1", "int", False),)
            )
            key = scan.schema[self._number(0, 2)]
            return Aggregate(scan, (Named(self._name(), column_reference(key)),), (count,))
        return scan

    def _column(self, node: Node) -> Expression:
        return column_reference(self._pick([c for c in node.schema if c.type == "int"]))

    def _key(self, left: Node, right: Node) -> JoinKey:
        ours, theirs = self._column(left), self._column(right)
        if self._chance(6):
            ours = Expression(f"({ours.text} + 1)", "int")
        elif self._chance(6):
            ours = Expression(f"({ours.text} - {self._column(left).text})", "int")
        return JoinKey(ours, theirs, null_safe=self._chance(8))

    def _join(self, left: Node, right: Node) -> Join:
        kind = self._pick(KINDS)
        keys = tuple(self._key(left, right) for _ in range(self._pick((1, 1, 1, 2))))
        residual = None
        if self._chance(5):
            residual = condition(f"({self._column(left).text} <= {self._column(right).text})")
        exists = self._name() if kind is JoinKind.EXISTENCE else None
        return Join(left, right, kind, keys, residual, exists)

    def _narrowed(self, node: Node) -> Node:
        """Some columns left out; one that can be joined by stays."""
        if not self._chance(4):
            return node
        first = next(c for c in node.schema if c.type == "int")
        kept = [c for c in node.schema if c == first or self._chance(2)]
        return Project(node, tuple(Named(c.name, column_reference(c)) for c in kept))


def changed_by_rules(plan: QueryPlan) -> QueryPlan:
    for rule in (order_joins, reduce_by_joins):
        plan = rule(plan)
    return choose_build_sides(plan, estimate(plan))


def check(plan: QueryPlan) -> None:
    estimates = estimate(plan)
    assume(max(estimates[node].rows for node in walk(plan.root)) < MOST_ROWS)
    changed = changed_by_rules(plan)
    assert changed.root.column_names == plan.root.column_names
    before = run_dataflow(compile_plan(plan, estimates))
    after = run_dataflow(compile_plan(changed, estimate(changed)))
    assert Counter(rows_of(after)) == Counter(rows_of(before))


@settings(QUICK, max_examples=30)
@given(data=st.data())
def test_join_trees(data: st.DataObject, tables: tuple[Scan, ...]) -> None:
    root = TreeMaker(data.draw, tables).tree()
    check(QueryPlan(root, root.column_names, (("spark.sql.ansi.enabled", "true"),)))


@pytest.fixture(scope="module")
def any_tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scan, ...]:
    print(f"seed {SEED}")
    return small_tables(tmp_path_factory.mktemp("tables"), random.Random(SEED))


@QUICK
@given(data=st.data())
def test_any_plans(data: st.DataObject, any_tables: tuple[Scan, ...]) -> None:
    plan = data.draw(runnable_plans(any_tables))
    assume(not explain_support(plan))
    check(plan)
