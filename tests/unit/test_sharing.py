"""Sharing without Spark: members, chains, costs, mini-batches, checkpoints."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import permutations

import pytest

from headway.plan.expressions import Expression
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Column,
    Filter,
    Join,
    JoinKind,
    Named,
    Node,
    Project,
    QueryPlan,
    Sort,
    SortKey,
)
from headway.plan.sources import Source
from headway.plan.statistics import TableStatistics
from headway.session.batch_planning import BatchOptions, BatchPlanner
from headway.session.planning import PlannedQuery
from headway.session.sharing import shareable
from headway.sharing import global_plan, placement
from headway.sharing.checkpoints import choose_checkpoints, usual_cost
from headway.sharing.cost_model import CostModel
from headway.sharing.costs import Work
from headway.sharing.estimates import expectation
from headway.sharing.failures import Failures, Stage, seconds_with_failures, stages_of
from headway.sharing.global_plan import Candidate, GlobalPlan, walk_chain
from headway.sharing.members import NotShared, find_members
from headway.sharing.mini_batches import BatchQuery, Rules, next_mini_batch
from headway.sharing.overlap import OverlapGraph, join_graph
from headway.sharing.placement import any_of
from headway.sharing.shapes import Shape, shape_of
from headway.sharing.shared_plan import shared_plan
from headway.testing.example_plans import condition, equal, reference, renamed, table

ROWS = {"sales": 1_000_000, "days": 1_000, "items": 10_000, "shops": 100, "makers": 50}
SALES = table("sales", s_day="int", s_item="int", s_shop="int", s_number="int")
OTHERS = {
    "days": (table("days", d_key="int", d_year="int"), "s_day", "d_key"),
    "items": (table("items", i_key="int", i_kind="int"), "s_item", "i_key"),
    "shops": (table("shops", h_key="int", h_size="int"), "s_shop", "h_key"),
    "makers": (table("makers", m_key="int", m_land="int"), "s_number", "m_key"),
}
RATES = Work(*(1e-6 for _ in Work().values()))


def statistics(source: Source) -> TableStatistics:
    return TableStatistics(ROWS[source.table], ROWS[source.table] * 8)


def query(number: int, *others: str, where: str | None = None, group: bool = True) -> QueryPlan:
    """Sales joined with some tables, each under a condition of its own."""
    node: Node = renamed(SALES, f"_{number}")
    if where is not None:
        node = Filter(node, condition(where.replace("#", f"_{number}")))
    for name in others:
        scan, left, right = OTHERS[name]
        other: Node = renamed(scan, f"_{number}")
        last = other.column_names[-1]
        other = Filter(other, condition(f"(`{last}` = {number})"))
        key = equal(node, f"{left}_{number}", other, f"{right}_{number}")
        node = Join(node, other, JoinKind.INNER, (key,))
    if group:
        counted = AggregateCall(
            Column(f"n_{number}", "bigint", False), "count", (Expression("1", "int", False),)
        )
        keys = (Named(f"k_{number}", reference(node, f"s_number_{number}")),)
        node = Aggregate(node, keys, (counted,))
    return QueryPlan(node, node.column_names)


def shape(name: str, plan: QueryPlan) -> Shape:
    (member,) = find_members(name, plan).members
    found = shape_of(member, lambda source: float(ROWS[source.table]))
    assert isinstance(found, Shape)
    return found


def candidate(name: str, plan: QueryPlan) -> Candidate:
    found = shape(name, plan)
    return Candidate(found, expectation(found, statistics))


# Members.


def test_a_member_is_written_over_the_fields_of_its_tables() -> None:
    inner = Project(SALES, (Named("twice", Expression("(`s_number` * 2)", "int")),))
    plan = QueryPlan(Filter(inner, condition("((`twice` > 4) AND (`twice` < 9))")), ("twice",))
    (member,) = find_members("q", plan).members
    assert [c.text for c in member.conditions] == [
        "(((`0.s_number` * 2)) > 4)",
        "(((`0.s_number` * 2)) < 9)",
    ]
    assert member.calls is None


def test_what_is_above_a_member_stays_with_its_query() -> None:
    plan = query(1, "days")
    root = Sort(plan.root, (SortKey(reference(plan.root, "n_1")),))
    found = find_members("q", QueryPlan(root, plan.names))
    assert [member.top for member in found.members] == [plan.root]
    assert [table.source.table for table in found.members[0].tables] == ["sales", "days"]


def test_an_aggregate_that_has_no_parts_leaves_its_rows_to_be_shared() -> None:
    scan = Filter(SALES, condition("(`s_number` > 1)"))
    calls = (
        AggregateCall(Column("n", "bigint"), "count", (reference(scan, "s_day"),), distinct=True),
    )
    (member,) = find_members("q", QueryPlan(Aggregate(scan, (), calls), ("n",))).members
    assert member.top is scan and member.calls is None


@pytest.mark.parametrize("kind", [JoinKind.FULL, JoinKind.NULL_AWARE_ANTI])
def test_joins_that_are_not_shared_are_named(kind: JoinKind) -> None:
    scan, left, right = OTHERS["days"]
    join = Join(SALES, scan, kind, (equal(SALES, left, scan, right),))
    found = find_members("q", QueryPlan(join, join.column_names))
    assert NotShared("q", "Join", f"{kind} joins are not shared") in found.not_shared


def test_tables_without_an_equality_are_not_shared() -> None:
    join = Join(SALES, OTHERS["days"][0], JoinKind.CROSS)
    (member,) = find_members("q", QueryPlan(join, join.column_names)).members
    found = shape_of(member, lambda source: 1.0)
    assert isinstance(found, NotShared) and "equality" in found.reason


def test_the_walk_begins_with_the_largest_table() -> None:
    scan, left, right = OTHERS["items"]
    turned = Join(scan, SALES, JoinKind.INNER, (equal(scan, right, SALES, left),))
    found = shape("q", QueryPlan(turned, turned.column_names))
    assert found.source.table == "sales"
    assert [step.table for step in found.steps] == [0]


# Chains and costs.


def test_rows_that_any_query_wants() -> None:
    assert any_of([0.5, 0.5]) == 0.75
    assert any_of([1.0, 0.1]) == 1.0


def test_a_join_that_is_there_costs_only_the_rows_that_are_added() -> None:
    plan = GlobalPlan(RATES)
    plan.add(candidate("q1", query(1, "days")))
    before = plan.work
    plan.add(candidate("q2", query(2, "days")))
    added = plan.work - before
    assert len(plan.chains) == 1 and len(plan.chains[0].chain.roles) == 1
    assert added.values_read == 0 and added.rows_built < before.rows_built
    alone = GlobalPlan(RATES)
    alone.add(candidate("q2", query(2, "days")))
    assert added.times(RATES) < alone.seconds / 2


def test_every_query_reads_all_rows_of_its_chain() -> None:
    plan = GlobalPlan(RATES)
    for number in range(3):
        plan.add(candidate(f"q{number}", query(number, "days")))
    (planned,) = plan.chains
    assert planned.work.rows_kept > 0
    assert planned.work.rows_read == pytest.approx(3 * planned.work.rows_kept)


def test_members_with_other_joins_pass() -> None:
    """One chain with every table once, whatever the queries join."""
    plan = GlobalPlan(RATES)
    for number, tables in enumerate((("days",), ("items", "shops"), ("days", "shops"))):
        plan.add(candidate(f"q{number}", query(number, *tables)))
    (planned,) = plan.chains
    assert sorted(role.label for role in planned.chain.roles) == ["days", "items", "shops"]
    users = {role.label: sorted(role.users) for role in planned.chain.roles}
    assert users == {"days": [0, 2], "items": [1], "shops": [1, 2]}


def expecting(made: Candidate, rng: random.Random) -> Candidate:
    """The same query, with other expectations: tables large and small, with keys that are there
    many times."""
    known = made.expected
    others = sorted(set(known.rows) - {made.shape.root})
    changed = replace(
        known,
        rows=known.rows | {n: rng.choice((1e2, 1e5, 1e6)) for n in others},
        wanted=known.wanted | {n: rng.choice((0.1, 0.5, 1.0)) for n in others},
        share=known.share | {n: rng.choice((0.05, 0.5, 1.0)) for n in others},
        fan_out=known.fan_out | {n: rng.choice((1.0, 1.0, 4.0)) for n in others},
    )
    return Candidate(made.shape, changed)


@pytest.mark.parametrize("seed", range(20))
def test_new_joins_are_placed_where_they_cost_least(seed: int) -> None:
    """Against all orders that keep the old joins in theirs."""
    rng = random.Random(seed)
    rates = replace(RATES, steps=1e3, rows_passed=4e-6)
    plan = GlobalPlan(rates)
    plan.add(expecting(candidate("q1", query(1, "shops", "days")), rng))
    old = [role.label for role in plan.chains[0].chain.roles]
    added = expecting(candidate("q2", query(2, "days", "items", "makers")), rng)
    best = plan.copy()
    best.add(added)
    assert len(best.chains) == 1
    costs = []
    for order in permutations(["days", "items", "makers", "shops"]):
        if [label for label in order if label in old] == old:
            planned = plan.chains[0].copy()
            matched = planned.chain.matched(added.shape)
            planned.add(added, matched, list(order))
            costs.append(walk_chain(planned)[0].times(rates))
    assert best.seconds == pytest.approx(min(costs), rel=1e-12)


def test_a_table_joined_twice_has_two_roles() -> None:
    scan, _, right = OTHERS["shops"]
    first, second = renamed(scan, "_a"), renamed(scan, "_b")
    node = Join(SALES, first, JoinKind.SEMI, (equal(SALES, "s_shop", first, f"{right}_a"),))
    node = Join(node, second, JoinKind.SEMI, (equal(SALES, "s_shop", second, f"{right}_b"),))
    plan = GlobalPlan(RATES)
    plan.add(candidate("q", QueryPlan(node, node.column_names)))
    assert [role.label for role in plan.chains[0].chain.roles] == ["shops", "shops_2"]


def test_queries_that_group_alike_are_one_class() -> None:
    plan = GlobalPlan(RATES)
    for number in range(3):
        plan.add(candidate(f"q{number}", query(number, "days")))
    made = shared_plan(plan.chains[0].chain, lambda source, fields: True)
    assert len(made.classes) == 1 and made.classes[0].members == 0b111
    assert isinstance(made.plan.root, Aggregate)


def left_joined(number: int, most: int) -> QueryPlan:
    """Grouped by a column that a left join adds, of the shops up to a size."""
    scan, left, right = OTHERS["shops"]
    suffix = f"_{number}"
    fact = Filter(renamed(SALES, suffix), condition(f"(`s_day{suffix}` > {number})"))
    shops = Filter(renamed(scan, suffix), condition(f"(`h_size{suffix}` < {most})"))
    keys = (equal(fact, f"{left}{suffix}", shops, f"{right}{suffix}"),)
    node = Join(fact, shops, JoinKind.LEFT, keys)
    groups = (Named(f"g{suffix}", reference(node, f"h_size{suffix}")),)
    ones = AggregateCall(Column(f"n{suffix}", "bigint", False), "count", (Expression("1", "int"),))
    root = Aggregate(node, groups, (ones,))
    return QueryPlan(root, root.column_names)


def test_queries_that_group_alike_by_what_a_left_join_adds_are_one_class() -> None:
    """Where the same rows take part in it; and the cost model knows that."""
    plan = GlobalPlan(RATES)
    for number in range(3):
        plan.add(candidate(f"q{number}", left_joined(number, most=5)))
    plan.add(candidate("q3", left_joined(3, most=6)))
    (planned,) = plan.chains
    made = shared_plan(planned.chain, lambda source, fields: True)
    assert [each.members for each in made.classes] == [0b0111, 0b1000]
    assert len({seat.groups for seat in planned.chain.seats}) == 2


def test_queries_with_little_in_common_have_chains_of_their_own() -> None:
    """Where joins that others pass cost much, a query is added to those that have its joins."""
    rates = replace(RATES, steps=0.1, rows_probed=1e-8, rows_passed=1e-5)
    plan = GlobalPlan(rates)
    for number, tables in enumerate((("days",), ("items",), ("days",), ("items",))):
        plan.add(candidate(f"q{number}", query(number, *tables)))
    assert [planned.queries for planned in plan.chains] == [("q0", "q2"), ("q1", "q3")]
    for planned in plan.chains:
        assert planned.work.rows_passed == 0 and planned.work.rows_probed > 0
    cheap = GlobalPlan(replace(rates, rows_passed=1e-8))
    for number, tables in enumerate((("days",), ("items",))):
        cheap.add(candidate(f"q{number}", query(number, *tables)))
    assert len(cheap.chains) == 1 and cheap.work.rows_passed > 0


def test_what_finishes_most_queries_comes_first() -> None:
    """A query is finished with the last of its chains; a chain of one query is no shared one."""
    plan = GlobalPlan(replace(RATES, steps=0.1, rows_probed=1e-8, rows_passed=1e-5))
    members = [
        *((name, "days") for name in ("a", "b", "c")),
        *((name, "items") for name in ("a", "b", "c", "d")),
        *((name, "shops") for name in ("e", "f")),
    ]
    for number, (name, joined) in enumerate(members):
        plan.add(candidate(name, query(number, joined)))
    assert len(plan.chains) == 3
    found = [planned.queries for planned in plan.shared_chains()]
    # Two queries wait for nothing else; then one; then those that were waited for.
    assert found == [("e", "f"), ("a", "b", "c", "d"), ("a", "b", "c")]
    plan.add(candidate("g", query(len(members), "days", "items", "shops")))
    served = [planned.queries for planned in plan.shared_chains()]
    assert all(len(queries) > 1 for queries in served)


# Mini-batches.


def batch_of(*plans: QueryPlan) -> tuple[list[BatchQuery], OverlapGraph]:
    queries = [BatchQuery(f"q{n}", (candidate(f"q{n}", plan),)) for n, plan in enumerate(plans)]
    graphs = [join_graph(q.name, (c.shape.member for c in q.candidates)) for q in queries]
    return queries, OverlapGraph(graphs)


def test_a_mini_batch_ends_where_overlap_is_weak() -> None:
    queries, graph = batch_of(query(0, "days"), query(1, "days"), query(2, "items"))
    found = next_mini_batch(queries, graph, [0, 1, 2], [1e9] * 3, CostModel(RATES))
    assert found is not None and [q.name for q in found.queries] == ["q0", "q1"]
    assert "little in common" in found.closed_by


def test_a_mini_batch_ends_where_time_does() -> None:
    queries, graph = batch_of(*(query(n, "days") for n in range(4)))
    model = CostModel(RATES)
    two = next_mini_batch(queries[:2], graph, [0, 1], [1e9] * 2, model)
    assert two is not None
    found = next_mini_batch(queries, graph, [0, 1, 2, 3], [two.seconds * 1.0001] * 4, model)
    assert found is not None and len(found.queries) == 2
    assert "longer than is left" in found.closed_by


def test_all_queries_are_taken_where_all_of_them_fit() -> None:
    count = 20
    queries, graph = batch_of(*(query(n, "days") for n in range(count)))
    model = CostModel(RATES)
    whole = next_mini_batch(queries, graph, list(range(count)), [1e9] * count, model)
    assert whole is not None and len(whole.queries) == count
    left = [whole.seconds * 1.0001] * count
    found = next_mini_batch(queries, graph, list(range(count)), left, model)
    assert found is not None and len(found.queries) == count


def test_a_query_that_does_not_fit_is_passed_over() -> None:
    queries, graph = batch_of(query(0, "days", "items", "shops"), query(1, where="(`s_day#` = 1)"))
    model = CostModel(RATES)
    alone = [next_mini_batch(queries, graph, [n], [1e9] * 2, model) for n in (0, 1)]
    seconds = [each.seconds for each in alone if each is not None]
    longer = seconds.index(max(seconds))
    order = [longer, 1 - longer]
    found = next_mini_batch(queries, graph, order, [sum(seconds) / 2] * 2, model)
    assert found is not None and [q.name for q in found.queries] == [f"q{1 - longer}"]
    assert found.closed_by == "none of the others can be expected in time"
    assert next_mini_batch(queries, graph, order, [1e-9] * 2, model) is None


def test_a_query_that_does_not_fit_does_not_end_a_mini_batch() -> None:
    """Those that come after it in the order are taken all the same."""
    long_one = query(1, "days", "items", "shops", where="(`s_day#` > 0)")
    queries, graph = batch_of(query(0, "days"), long_one, query(2, "days"))
    model = CostModel(RATES)
    both = next_mini_batch(queries, graph, [0, 2], [1e9] * 3, model)
    assert both is not None
    left = [1e9, 1e-9, 1e9]  # of which the second needs more
    found = next_mini_batch(queries, graph, [0, 1, 2], left, model)
    assert found is not None and [q.name for q in found.queries] == ["q0", "q2"]


def test_queries_that_share_nothing_are_run_together() -> None:
    nothing = [BatchQuery(f"q{n}") for n in range(5)]
    graph = OverlapGraph([join_graph(each.name, ()) for each in nothing])
    for together in (1, 2, 4):
        rules = Rules(alone_together=together)
        found = next_mini_batch(nothing, graph, [0, 1, 2, 3, 4], [1e9] * 5, CostModel(RATES), rules)
        assert found is not None and len(found.queries) == together


def test_the_earliest_deadline_of_a_mini_batch_counts() -> None:
    queries, graph = batch_of(*(query(n, "days") for n in range(3)))
    model = CostModel(RATES)
    one = next_mini_batch(queries, graph, [0], [1e9] * 3, model)
    assert one is not None
    found = next_mini_batch(
        queries, graph, [0, 1, 2], [one.seconds * 1.0001, 1e9, 1e9], model, Rules()
    )
    assert found is not None and [q.name for q in found.queries] == ["q0"]


# The cost model.


def test_rates_follow_what_is_observed() -> None:
    model = CostModel(RATES)
    work = Work(rows_probed=1e6, values_read=2e6)
    for _ in range(8):
        model.observe(work, 30.0)
    assert model.predict(work) == pytest.approx(30.0, rel=0.2)


def test_the_margin_grows_with_surprises() -> None:
    work = Work(rows_probed=1e6)
    calm, surprised = CostModel(RATES), CostModel(RATES)
    for number in range(6):
        calm.observe(work, 1.0)
        surprised.observe(work, 1.0 if number % 2 else 5.0)
    assert surprised.margin > calm.margin
    assert calm.margin < CostModel(RATES).margin


def test_the_margin_is_what_predictions_were_below_not_what_the_fit_is() -> None:
    work = Work(rows_probed=1e6)
    model = CostModel(RATES)
    first = model.margin
    model.observe(work, 40.0)
    assert model.margin == first  # nobody knew this machine
    model.observe(work, 40.0)
    calm = model.margin
    model.observe(work, 4 * model.predict(work))
    assert calm < first < model.margin


# Checkpoints and failures.

OFTEN = Failures(60, workers=4)


def stage(
    position: int,
    *,
    step: str = "a",
    queries: int = 10,
    seconds: float = 60.0,
    size: float = 1e6,
    last: bool = False,
) -> Stage:
    return Stage(step, position, seconds, 4, queries, size, last)


def test_a_failure_costs_what_was_lost_since_the_last_checkpoint() -> None:
    stages = [stage(0), stage(1), stage(2, last=True)]
    assert seconds_with_failures(stages, Failures(0, 4)) == 180
    often, seldom = (seconds_with_failures(stages, Failures(n, 4)) for n in (36, 3.6))
    assert often > seldom > 180
    kept = [seconds_with_failures(stages, OFTEN, {("a", n)}) for n in (0, 1)]
    assert max(kept) < seconds_with_failures(stages, OFTEN)
    both = seconds_with_failures(stages, OFTEN, {("a", 0), ("a", 1)})
    assert both < min(kept)


def test_many_workers_make_up_for_a_loss_sooner_but_not_sooner_than_a_task() -> None:
    """What one had done is shared out among the others, in whole tasks."""
    alone = [Stage("a", 0, 60.0, 40, 1, 0.0, last=True)]
    few = seconds_with_failures(alone, Failures(60, workers=2))
    many = seconds_with_failures(alone, Failures(60, workers=5))
    assert 60 < many < few
    long_tasks = [Stage("a", 0, 60.0, 4, 1, 0.0, last=True)]
    short_tasks = [Stage("a", 0, 60.0, 400, 1, 0.0, last=True)]
    assert seconds_with_failures(short_tasks, OFTEN) < seconds_with_failures(long_tasks, OFTEN)


def test_the_budget_goes_to_the_steps_that_most_queries_wait_for() -> None:
    many = [stage(0), stage(1, last=True)]
    few = [stage(0, step="b", queries=2), stage(1, step="b", last=True)]
    price = 2 * usual_cost(1e6)
    assert choose_checkpoints([*few, *many], 2.5 * price, OFTEN) == {("a", 0), ("b", 0)}
    assert choose_checkpoints([*few, *many], 1.5 * price, OFTEN) == {("a", 0)}
    assert choose_checkpoints([*few, *many], 0.5 * price, OFTEN) == set()


def test_a_stage_that_costs_more_than_it_saves_is_not_kept() -> None:
    large = [stage(0, size=1e10), stage(1, last=True)]
    assert choose_checkpoints(large, 1e9, OFTEN) == set()
    assert choose_checkpoints([stage(0), stage(1, last=True)], 1e9, Failures(0, 4)) == set()


def test_every_query_of_a_chain_depends_on_all_its_stages() -> None:
    plan = GlobalPlan(RATES)
    for number, tables in enumerate((("days",), ("days", "items"), ("shops", "items"))):
        plan.add(candidate(f"q{number}", query(number, *tables)))
    (planned,) = plan.chains
    stages = stages_of("a", planned, RATES, OFTEN)
    assert [each.last for each in stages] == [False, False, False, True]
    assert len(planned.chain.roles[0].users) < 3  # the others wait for the rows that it passes on
    assert [each.queries for each in stages] == [3, 3, 3, 3]
    assert sum(each.seconds for each in stages) == pytest.approx(planned.work.times(RATES))
    assert all(each.tasks == OFTEN.workers for each in stages)


def test_predictions_count_failures_and_checkpoints() -> None:
    queries, graph = batch_of(*(query(n, "days", "items") for n in range(3)))
    model = CostModel(Work(*(1e-4 for _ in Work().values())))

    def predicted(failures: Failures, budget: float) -> float:
        rules = Rules(failures=failures, checkpoint_budget=budget)
        found = next_mini_batch(queries, graph, [0, 1, 2], [1e9] * 3, model, rules)
        assert found is not None and len(found.queries) == 3
        return found.seconds

    calm = predicted(Failures(0, 4), 0.0)
    assert calm < predicted(OFTEN, 1e9) < predicted(OFTEN, 0.0)


# Bounds.


def test_many_tables_are_placed_without_trying_all_orders() -> None:
    """Twenty tables in one query: a million places each would have to be tried."""
    node: Node = renamed(SALES, "_0")
    for number in range(20):
        scan, left, right = OTHERS["shops"]
        other = Filter(renamed(scan, f"_{number}x"), condition(f"(`h_size_{number}x` = {number})"))
        key = equal(node, f"{left}_0", other, f"{right}_{number}x")
        node = Join(node, other, JoinKind.INNER, (key,))
    made = candidate("q", QueryPlan(node, node.column_names))
    plan = GlobalPlan(RATES)
    began = time.monotonic()
    plan.add(made)
    plan.add(candidate("q2", query(2, "days")))
    assert time.monotonic() - began < 30
    assert len(plan.chains) == 2 and len(plan.chains[0].chain.roles) == 20


def test_one_by_one_is_as_good_where_the_best_is_plain() -> None:
    """The most selective join comes first, however places are found."""
    made = candidate("q", query(1, "days", "items", "shops"))
    orders = []
    for most in (10, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(placement, "_MOST_PLACED", most)
            global_plan._alone.cache_clear()
            plan = GlobalPlan(RATES)
            plan.add(made)
            orders.append([role.label for role in plan.chains[0].chain.roles])
    assert orders[0] == orders[1]


# The order of deadlines.


def planner_of(*queries: PlannedQuery) -> BatchPlanner:
    return BatchPlanner([shareable(each) for each in queries], BatchOptions(0.0))


def test_where_nothing_fits_the_highest_priority_is_tried() -> None:
    planner = planner_of(
        PlannedQuery("small", "", None), PlannedQuery("important", "", None, priority=1.0)
    )
    left = {"small": 1e-9, "important": 1e-9}
    found = planner.next(["small", "important"], left, CostModel(RATES))
    assert [q.name for q in found.queries] == ["important"]


def test_late_queries_come_last() -> None:
    planner = planner_of(
        PlannedQuery("late", "", None, deadline=1.0, priority=5.0),
        PlannedQuery("soon", "", None, deadline=50.0),
        PlannedQuery("later", "", None, deadline=90.0),
    )
    names = ["late", "soon", "later"]
    model = CostModel(RATES)
    first = planner.next(names, {"late": -3.0, "soon": 46.0, "later": 86.0}, model)
    assert first.queries[0].name == "soon" and "late" not in {q.name for q in first.queries}
    assert [q.name for q in planner.next(["late"], {"late": -3.0}, model).queries] == ["late"]
