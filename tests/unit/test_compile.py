"""From plans to stages: who reads what, where rows move, and what is kept."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from headway.base.errors import FileNotReadable, NotSupported
from headway.lineage.topology import Feed, Partitioning, Protection
from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.kernels import channel
from headway.pipelined.printer import dataflow_to_builtins, print_dataflow
from headway.pipelined.programs import (
    BATCH,
    Action,
    Dataflow,
    NumberRange,
    SideProgram,
    StageProgram,
    decode_dataflow,
)
from headway.pipelined.units import table_input
from headway.plan.cardinalities import estimate
from headway.plan.expressions import Column, Expression, Subquery
from headway.plan.nodes import (
    Aggregate,
    AggregateCall,
    Filter,
    Generate,
    Join,
    JoinKind,
    Limit,
    Named,
    Node,
    Project,
    QueryPlan,
    Scan,
    ScanColumn,
    Side,
    Sort,
    SortKey,
    Union,
    Values,
    Window,
    WindowCall,
)
from headway.plan.sources import FileSource, RangeSource
from headway.testing.dataflows import rows_of, run_dataflow
from headway.testing.example_plans import (
    condition,
    equal,
    parquet_table,
    passed,
    reference,
    renamed,
    table,
)

SETTINGS = (("spark.sql.ansi.enabled", "true"), ("spark.sql.session.timeZone", "UTC"))
REPLICATED, BROADCAST, PARTITIONED = (
    Choices(workers=3, gather_bytes=0),
    Choices(workers=3, replicate_bytes=0, gather_bytes=0),
    Choices(workers=3, replicate_bytes=0, broadcast_bytes=0, gather_bytes=0),
)
GATHERED = Choices(workers=3)
ALL_CHOICES = (Choices(), REPLICATED, BROADCAST, PARTITIONED, GATHERED)


class Tables(NamedTuple):
    """`facts` are sold in `towns`; `visits` is as large as `facts`."""

    facts: Scan
    towns: Scan
    visits: Scan


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    folder = tmp_path_factory.mktemp("tables")
    facts = [(n % 40, n, n % 7) for n in range(2_000)]
    towns = [(n, f"town {n}") for n in range(40)]
    visits = [(n % 50, n) for n in range(1_500)]
    return Tables(
        parquet_table(
            folder / "facts", {"f_town": "int", "f_price": "bigint", "f_day": "int"}, facts,
            files=2, group_rows=300,
        ),
        parquet_table(folder / "towns", {"t_id": "int", "t_name": "string"}, towns),
        parquet_table(
            folder / "visits", {"v_town": "int", "v_guests": "bigint"}, visits, group_rows=400
        ),
    )  # fmt: skip


def compiled(root: Node, choices: Choices) -> Dataflow:
    plan = QueryPlan(root, root.column_names, SETTINGS)
    return compile_plan(plan, estimate(plan), choices)


def joined(left: Node, right: Node, kind: JoinKind = JoinKind.INNER) -> Join:
    return Join(left, right, kind, (equal(left, left.column_names[0], right, _first(right)),))


def _first(node: Node) -> str:
    return node.column_names[0]


def total(rows: Node, value: str, *keys: str) -> Aggregate:
    call = AggregateCall(Column(f"sum_{value}", "bigint"), "sum", (reference(rows, value),))
    return Aggregate(rows, passed(rows, *keys), (call,))


def feeds(stage: StageProgram) -> list[Feed | Partitioning]:
    """What a stage reads: feeds of tables, partitionings of exchanges."""
    return [side.partitioning or side.feed for side in stage.sides]


def actions(side: SideProgram) -> tuple[list[Action], list[Action]]:
    return [s.action for s in side.batch], [s.action for s in side.end]


def check(root: Node, *several: Choices) -> None:
    """With these choices the rows are those of one worker."""
    wanted = Counter(rows_of(run_dataflow(compiled(root, Choices()))))
    for choices in several or (REPLICATED, PARTITIONED):
        found = rows_of(run_dataflow(compiled(root, choices), task_bytes=4_000))
        assert Counter(found) == wanted, choices


# Joins


def test_one_worker_has_one_stage(tables: Tables) -> None:
    root = total(joined(tables.facts, tables.towns), "f_price", "t_name")
    (stage,) = compiled(root, Choices()).stages
    assert stage.channels == 1
    assert feeds(stage) == [Feed.SHARED, Feed.SHARED]
    build, probe = stage.sides
    assert build.table is not None and build.table.name == "towns"
    assert probe.after == (0,)
    assert actions(build) == ([Action.APPEND], [Action.DROP])
    assert actions(probe)[0] == [Action.APPEND, Action.COMPACT]
    assert Action.EMIT in actions(probe)[1]
    assert probe.end[-1].action is Action.DROP


def test_a_small_build_table_is_read_by_every_channel(tables: Tables) -> None:
    (stage,) = compiled(joined(tables.facts, tables.towns), REPLICATED).stages
    assert stage.channels == 3
    assert sorted(feeds(stage)) == [Feed.REPLICATED, Feed.SHARED]
    (build,) = [side for side in stage.sides if side.feed is Feed.REPLICATED]
    assert build.table is not None and build.table.name == "towns"


def test_a_middle_build_side_is_broadcast(tables: Tables) -> None:
    towns, stage = compiled(joined(tables.facts, tables.towns), BROADCAST).stages
    assert feeds(towns) == [Feed.SHARED]
    assert sorted(feeds(stage)) == [Partitioning.BROADCAST, Feed.SHARED]


def test_a_build_side_about_as_large_as_the_other_is_not_broadcast(tables: Tables) -> None:
    """Three copies of it would be more than both sides moved once."""
    stage = compiled(joined(tables.facts, tables.visits), BROADCAST).stages[-1]
    assert feeds(stage) == [Partitioning.HASH, Partitioning.HASH]


def test_a_large_build_side_is_partitioned_and_so_is_the_other(tables: Tables) -> None:
    *scans, stage = compiled(joined(tables.facts, tables.visits), PARTITIONED).stages
    assert [feeds(scan) for scan in scans] == [[Feed.SHARED], [Feed.SHARED]]
    assert stage.channels == 3
    assert feeds(stage) == [Partitioning.HASH, Partitioning.HASH]
    assert {side.keys for side in stage.sides} == {('"f_town"',), ('"v_town"',)}


@pytest.mark.parametrize("kind", [k for k in JoinKind if k not in (JoinKind.CROSS,)])
@pytest.mark.parametrize("build", Side)
def test_joins_give_the_same_rows(tables: Tables, kind: JoinKind, build: Side) -> None:
    few = Filter(tables.facts, condition("(`f_price` < 60L)"))
    late = Filter(tables.visits, condition("(`v_town` > 20)"))
    root = replace(
        joined(few, late) if kind is JoinKind.EXISTENCE else joined(few, late, kind),
        join=kind,
        build=build,
        exists="found" if kind is JoinKind.EXISTENCE else None,
    )
    check(root, REPLICATED, BROADCAST, PARTITIONED)


def test_a_join_without_keys_copies_the_build_side(tables: Tables) -> None:
    root = Join(
        tables.facts, tables.towns, JoinKind.INNER, residual=condition("(`f_day` < `t_id`)")
    )
    assert Partitioning.BROADCAST in feeds(compiled(root, PARTITIONED).stages[-1])


def test_not_in_needs_all_of_its_right_side_everywhere(tables: Tables) -> None:
    root = joined(tables.facts, tables.visits, JoinKind.NULL_AWARE_ANTI)
    assert Partitioning.BROADCAST in feeds(compiled(root, PARTITIONED).stages[-1])


def test_a_full_join_collects_both_sides_by_their_keys(tables: Tables) -> None:
    stage = compiled(joined(tables.facts, tables.towns, JoinKind.FULL), REPLICATED).stages[-1]
    assert feeds(stage) == [Partitioning.HASH, Partitioning.HASH]
    assert [actions(side)[0] for side in stage.sides] == [[Action.APPEND], [Action.APPEND]]
    assert stage.sides[1].after == (0,)
    assert stage.sides[1].end[0].action is Action.EMIT


def test_a_full_join_without_keys_is_in_one_channel(tables: Tables) -> None:
    some = Filter(tables.facts, condition("(`f_price` < 5L)"))
    root = Join(some, tables.towns, JoinKind.FULL, residual=condition("(`f_day` = `t_id` + 39)"))
    stage = compiled(root, REPLICATED).stages[-1]
    assert stage.channels == 1
    assert feeds(stage) == [Partitioning.GATHER, Partitioning.GATHER]
    check(root)


def test_a_table_is_there_until_the_last_of_its_readers_ends(tables: Tables) -> None:
    """In whichever order these come to their ends."""
    parts = Union((tables.facts, renamed(tables.facts, "2")), tables.facts.schema)
    united = replace(parts, columns=tuple(replace(c, name=f"u_{c.name}") for c in parts.columns))
    dataflow = compiled(joined(united, tables.towns), REPLICATED)
    (stage,) = dataflow.stages
    assert [side.keeps for side in stage.sides] == [True, False, False]
    assert [s.action for side in stage.sides for s in side.end] == []
    for seed in range(4):
        found = run_dataflow(dataflow, task_bytes=1, order=random.Random(seed))
        assert found.num_rows == 4_000


def test_keys_with_a_subquery_are_not_hashed_where_its_value_is_unknown(tables: Tables) -> None:
    least = Subquery("least", Aggregate(tables.visits, (), (_minimum(tables.visits, "v_town"),)))
    shifted = Expression("(`f_town` + :least)", "int", True, (least,))
    key = replace(equal(tables.facts, "f_town", tables.towns, "t_id"), left=shifted)
    for kind in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL, JoinKind.ANTI):
        check(Join(tables.facts, tables.towns, kind, (key,)))
    distinct = AggregateCall(
        Column("days", "bigint"), "count", (reference(tables.facts, "f_day"),), distinct=True
    )
    check(Aggregate(tables.facts, (Named("key", shifted),), (distinct,)))
    check(Aggregate(tables.facts, (Named("key", shifted),), ()))
    row = WindowCall(Column("row", "int", False), "row_number", ())
    order = (SortKey(reference(tables.facts, "f_price")),)
    check(Window(tables.facts, (shifted,), order, (row,)))


def _minimum(rows: Node, name: str) -> AggregateCall:
    found = reference(rows, name)
    return AggregateCall(Column(f"min_{name}", found.type), "min", (found,))


# Aggregates, windows, sorts


def test_an_aggregate_is_grouped_before_the_exchange_and_merged_after_it(tables: Tables) -> None:
    before, after = compiled(total(tables.facts, "f_price", "f_town"), REPLICATED).stages
    assert (before.channels, after.channels) == (3, 3)
    (scan,) = before.sides
    assert actions(scan) == ([Action.EMIT], [])
    assert "GROUP BY" in scan.batch[0].sql
    (groups,) = after.sides
    assert (groups.partitioning, groups.keys) == (Partitioning.HASH, ('"f_town"',))
    assert actions(groups)[0] == [Action.APPEND, Action.COMPACT]
    assert Action.EMIT in actions(groups)[1]


def test_few_groups_are_merged_and_put_in_order_in_one_channel(tables: Tables) -> None:
    groups = total(tables.facts, "f_price", "f_town")
    before, after = compiled(Sort(groups, (SortKey(reference(groups, "f_town")),)), GATHERED).stages
    assert (before.channels, after.channels) == (3, 1)
    assert feeds(after) == [Partitioning.GATHER]


def test_an_aggregate_without_keys_is_gathered(tables: Tables) -> None:
    before, after = compiled(total(tables.facts, "f_price"), REPLICATED).stages
    assert (before.channels, after.channels) == (3, 1)
    assert feeds(after) == [Partitioning.GATHER]


def test_an_aggregate_with_many_groups_moves_its_rows(tables: Tables) -> None:
    before, after = compiled(total(tables.facts, "f_day", "f_price"), REPLICATED).stages
    assert "GROUP BY" not in before.sides[0].batch[0].sql
    assert after.sides[0].keys == ('"f_price"',)


def test_an_aggregate_over_no_rows_has_one_row(tables: Tables) -> None:
    nothing = Filter(tables.facts, condition("(`f_day` > 100)"))
    for choices in ALL_CHOICES:
        found = rows_of(run_dataflow(compiled(total(nothing, "f_price"), choices)))
        assert found == [(None,)]
    for choices in ALL_CHOICES:
        result = run_dataflow(compiled(Aggregate(tables.facts, (), ()), choices))
        assert result.num_rows == 1
    assert not run_dataflow(compiled(total(nothing, "f_price", "f_town"), REPLICATED)).num_rows


def test_rows_that_are_together_are_not_moved_again(tables: Tables) -> None:
    together = joined(tables.facts, tables.visits)
    for key in ("f_town", "v_town"):
        grouped = total(together, "f_price", key)
        assert len(compiled(grouped, PARTITIONED).stages) == 3
        check(grouped)
    both = Aggregate(together, passed(together, "f_day", "f_town"), ())
    assert len(compiled(both, PARTITIONED).stages) == 3
    ranked = Window(
        together,
        (reference(together, "f_town"),),
        (SortKey(reference(together, "f_price")), SortKey(reference(together, "v_guests"))),
        (WindowCall(Column("rank", "int", False), "row_number", ()),),
    )
    assert len(compiled(ranked, PARTITIONED).stages) == 3
    other = total(together, "f_price", "f_day")
    assert len(compiled(other, PARTITIONED).stages) == 4


def test_a_join_reads_groups_where_they_are(tables: Tables) -> None:
    grouped = total(tables.facts, "f_price", "f_town")
    renaming = Project(grouped, (Named("town", reference(grouped, "f_town")),))
    root = Join(
        renaming, tables.visits, JoinKind.SEMI, (equal(renaming, "town", tables.visits, "v_town"),)
    )
    *_, last = compiled(root, PARTITIONED).stages
    assert sorted(feeds(last)) == [Partitioning.HASH, Partitioning.HASH]
    assert {side.upstream for side in last.sides} == {0, 1}
    check(root)


def test_a_window_has_its_partition_in_one_channel(tables: Tables) -> None:
    call = WindowCall(Column("row", "int", False), "row_number", ())
    order = (SortKey(reference(tables.facts, "f_price")),)
    spread = Window(tables.facts, (reference(tables.facts, "f_town"),), order, (call,))
    stage = compiled(spread, REPLICATED).stages[-1]
    assert (stage.channels, stage.sides[0].keys) == (3, ('"f_town"',))
    check(spread)
    whole = compiled(Window(tables.facts, (), order, (call,)), REPLICATED).stages[-1]
    assert (whole.channels, feeds(whole)) == (1, [Partitioning.GATHER])


def test_a_sort_is_in_one_channel(tables: Tables) -> None:
    root = Sort(tables.facts, (SortKey(reference(tables.facts, "f_price"), ascending=False),))
    before, after = compiled(root, REPLICATED).stages
    assert (before.channels, after.channels) == (3, 1)
    assert "ORDER BY" not in before.sides[0].batch[0].sql
    found = rows_of(run_dataflow(compiled(root, REPLICATED)))
    assert [row[1] for row in found] == list(reversed(range(2_000)))


def test_of_the_first_rows_in_order_each_channel_sends_as_many(tables: Tables) -> None:
    sort = Sort(tables.facts, (SortKey(reference(tables.facts, "f_price")),))
    dataflow = compiled(Limit(sort, 5, 10), REPLICATED)
    before, after = dataflow.stages
    assert before.sides[0].batch[0].sql.endswith(" LIMIT 15")
    emit = next(s.sql for s in after.sides[0].end if s.action is Action.EMIT)
    assert emit.endswith(" LIMIT 5 OFFSET 10")
    assert [row[1] for row in rows_of(run_dataflow(dataflow))] == [10, 11, 12, 13, 14]
    rest = compiled(Limit(sort, None, 1_990), REPLICATED)
    assert [row[1] for row in rows_of(run_dataflow(rest))] == list(range(1_990, 2_000))


def test_a_limit_takes_rows_of_any_channel(tables: Tables) -> None:
    before, after = compiled(Limit(tables.facts, 7), REPLICATED).stages
    assert (before.channels, after.channels) == (3, 1)
    for choices in ALL_CHOICES:
        for root in (Limit(tables.facts, 7), Limit(tables.facts, 7, 1_990), Limit(tables.facts, 0)):
            wanted = min(7, root.count or 0)
            assert run_dataflow(compiled(root, choices), task_bytes=1).num_rows == wanted
    assert run_dataflow(compiled(Limit(tables.facts, None, 1_995), REPLICATED)).num_rows == 5


def test_what_stands_above_a_sort_keeps_its_order(tables: Tables) -> None:
    sort = Sort(tables.facts, (SortKey(reference(tables.facts, "f_price")),))
    some = Filter(sort, condition("(`f_day` = 3)"))
    root = Limit(Project(some, passed(some, "f_price")), 3, 1)
    for choices in ALL_CHOICES:
        assert rows_of(run_dataflow(compiled(root, choices))) == [(10,), (17,), (24,)]


def test_a_sort_with_another_reader_keeps_its_order(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it comes in portions, which are not in order between stages."""
    monkeypatch.setattr(channel, "_FEWEST_ROWS", 10)
    monkeypatch.setattr(channel, "_OUTPUT_BYTES", 1)
    grouped = total(tables.facts, "f_day", "f_town")
    sort = Sort(grouped, (SortKey(reference(grouped, "f_town"), ascending=False),))
    named = Project(sort, passed(sort, "f_town"))
    least = Subquery("least", Aggregate(named, (), (_minimum(named, "f_town"),)))
    above = Expression("(`f_town` >= :least)", "boolean", True, (least,))
    for choices in ALL_CHOICES:
        found = rows_of(run_dataflow(compiled(Filter(named, above), choices)))
        assert found == [(n,) for n in reversed(range(40))]


# Results with several readers, subqueries, unions, constants


def test_a_result_with_two_readers_is_made_once(tables: Tables) -> None:
    grouped = total(tables.facts, "f_price", "f_town")
    most = Aggregate(grouped, (), (_minimum(grouped, "sum_f_price"),))
    root = Join(grouped, most, JoinKind.CROSS)
    (stage,) = compiled(root, Choices()).stages
    assert len([side for side in stage.sides if side.table is not None]) == 1
    assert any(name.startswith("shared") for name in stage.tables)
    dataflow = compiled(root, REPLICATED)
    (made,) = [n for n, found in enumerate(dataflow.topology.consumers) if len(found) == 2]
    assert feeds(dataflow.stages[made]) == [Partitioning.HASH]
    readers = {c.partitioning for c in dataflow.topology.consumers[made]}
    assert readers == {Partitioning.FORWARD}
    check(root)


def test_a_result_that_is_read_as_it_is_is_not_passed_on(tables: Tables) -> None:
    """Its second reader hashes it anew, without a stage in between."""
    grouped = total(tables.facts, "f_price", "f_town")
    other = Project(grouped, (Named("x", reference(grouped, "sum_f_price")),))
    doubled = Join(grouped, other, JoinKind.INNER, (equal(grouped, "sum_f_price", other, "x"),))
    again = Aggregate(grouped, passed(grouped, "sum_f_price"), ())
    value = Subquery("value", Aggregate(again, (), (_minimum(again, "sum_f_price"),)))
    above = Expression("(`x` >= :value)", "boolean", True, (value,))
    root = Filter(doubled, above)
    dataflow = compiled(root, PARTITIONED)
    makers = [n for n, found in enumerate(dataflow.topology.consumers) if len(found) > 1]
    assert makers
    check(root)


def test_a_table_with_two_readers_is_read_twice(tables: Tables) -> None:
    other = Project(tables.facts, (Named("again", reference(tables.facts, "f_price")),))
    root = Join(
        tables.facts, other, JoinKind.INNER, (equal(tables.facts, "f_price", other, "again"),)
    )
    (stage,) = compiled(root, Choices()).stages
    assert feeds(stage) == [Feed.SHARED, Feed.SHARED]
    assert not any(name.startswith("shared") for name in stage.tables)


def test_the_value_of_a_subquery_is_kept_where_it_is_used(tables: Tables) -> None:
    lowest = Aggregate(tables.visits, (), (_minimum(tables.visits, "v_town"),))
    above = Expression("(`f_town` > :value)", "boolean", True, (Subquery("value", lowest),))
    root = Filter(tables.facts, above)
    *_, stage = compiled(root, REPLICATED).stages
    assert sorted(feeds(stage)) == [Partitioning.BROADCAST, Feed.SHARED]
    (rows,) = [side for side in stage.sides if side.feed is Feed.SHARED]
    value = next(n for n, side in enumerate(stage.sides) if side.feed is Feed.EXCHANGE)
    assert rows.after == (value,)
    check(root)


def test_a_union_is_one_stage_with_all_inputs(tables: Tables) -> None:
    places = Project(tables.facts, passed(tables.facts, "f_town"))
    others = Project(tables.visits, passed(tables.visits, "v_town"))
    constant = Values((Column("n", "int"),), (("1",), ("2",)))
    root = Union((places, others, constant), (Column("place", "int"),))
    dataflow = compiled(root, REPLICATED)
    stage = dataflow.stages[-1]
    assert stage.channels == 3
    assert sorted(feeds(stage)) == [Partitioning.HASH, Feed.SHARED, Feed.SHARED]
    assert len(dataflow.stages) == 2
    check(root)


def test_a_union_of_a_shared_result_with_itself(tables: Tables) -> None:
    grouped = total(tables.facts, "f_price", "f_town")
    check(Union((grouped, grouped), (Column("town", "int"), Column("price", "bigint"))))


def test_constants_alone(tables: Tables) -> None:
    root = Values((Column("n", "int"), Column("s", "string")), (("1", "'a'"), ("2", "'b'")))
    for choices in ALL_CHOICES:
        dataflow = compiled(root, choices)
        assert len(dataflow.stages) == 1
        assert rows_of(run_dataflow(dataflow)) == [(1, "a"), (2, "b")]
    assert run_dataflow(compiled(replace(root, rows=()), REPLICATED)).num_rows == 0
    assert run_dataflow(compiled(Values((), ((), ())), REPLICATED)).num_rows == 2


def test_inputs_without_columns(tables: Tables) -> None:
    """Only how many rows there are matters."""
    none = Project(tables.towns, ())
    few = Project(Filter(tables.facts, condition("(`f_price` < 30L)")), ())
    named = Project(tables.towns, passed(tables.towns, "t_name"))
    row = WindowCall(Column("row", "int", False), "row_number", ())
    for root in (
        Join(none, few, JoinKind.CROSS),
        Join(named, few, JoinKind.CROSS),
        Join(few, named, JoinKind.CROSS),
        Join(few, named, JoinKind.EXISTENCE, exists="found"),
        Join(none, few, JoinKind.FULL),
        Join(none, few, JoinKind.LEFT),
        Window(none, (), (), (row,)),
        Union((none, few), ()),
        Aggregate(none, (), ()),
        Sort(none, (SortKey(Expression("(1 + 1)", "int", False)),)),
        Limit(none, 3),
    ):
        check(root, REPLICATED)


# The dataflow as a whole


def _some_dataflow(tables: Tables) -> Dataflow:
    grouped = total(joined(tables.facts, tables.towns), "f_price", "f_town")
    least = Subquery("least", Aggregate(tables.visits, (), (_minimum(tables.visits, "v_town"),)))
    above = Expression("(`f_town` > :least)", "boolean", True, (least,))
    root = joined(Filter(grouped, above), renamed(tables.visits, "2"), JoinKind.SEMI)
    sort = Sort(root, (SortKey(reference(root, "f_town")),))
    return compiled(sort, replace(BROADCAST, protection=Protection.SPOOL))


def test_every_side_comes_after_those_that_it_waits_for(tables: Tables) -> None:
    for stage in _some_dataflow(tables).stages:
        for number, side in enumerate(stage.sides):
            assert all(other < number for other in side.after)


def test_a_dataflow_travels(tables: Tables) -> None:
    dataflow = _some_dataflow(tables)
    found = decode_dataflow(dataflow.encode())
    assert found == dataflow
    assert found.topology == dataflow.topology


def test_the_topology_is_that_of_the_stages(tables: Tables) -> None:
    dataflow = _some_dataflow(tables)
    stages = dataflow.topology.stages
    assert [stage.channels for stage in stages] == [stage.channels for stage in dataflow.stages]
    assert [stage.result for stage in stages] == [False] * (len(stages) - 1) + [True]
    assert {stage.protection for stage in stages} == {Protection.SPOOL}
    for program, stage in zip(dataflow.stages, stages, strict=True):
        for side_program, side in zip(program.sides, stage.sides, strict=True):
            assert side.after == set(side_program.after)
            assert side.units == (side_program.table.bytes if side_program.table else ())
            assert side.keeps == any(
                s.action is not Action.EMIT for s in (*side_program.batch, *side_program.end)
            )
    scan = next(stage for stage in stages if [s.feed for s in stage.sides] == [Feed.SHARED])
    assert scan.stateless


def test_statements_over_batches_are_with_batches(tables: Tables) -> None:
    for stage in _some_dataflow(tables).stages:
        for side in stage.sides:
            assert all(
                BATCH in s.sql for s in side.batch if s.action in (Action.EMIT, Action.APPEND)
            )
            assert not any(BATCH in s.sql for s in side.end)


def test_a_dataflow_for_people(tables: Tables) -> None:
    dataflow = compiled(total(tables.facts, "f_price", "f_town"), REPLICATED)
    text = print_dataflow(dataflow)
    assert "Stage 0: 3 channels, protection backup" in text
    assert "0. reads facts: 8 units" in text
    assert '→ stage 1, hash by "f_town"' in text
    assert "Stage 1: 3 channels, the result, in the reliable store" in text
    assert "0. reads stage 0" in text
    first, second = dataflow_to_builtins(dataflow)
    assert (first["stage"], first["channels"], first["protection"]) == (0, 3, "backup")
    assert first["inputs"][0]["units"] == 8
    assert second["inputs"][0]["keys"] == ['"f_town"']


# Units


def test_units_are_row_groups(tables: Tables) -> None:
    found = table_input(tables.facts)
    assert [(f.first, f.rows, f.whole) for f in found.files] == 2 * [
        (0, 300, False), (300, 300, False), (600, 300, False), (900, 100, False)
    ]  # fmt: skip
    assert all(size > 0 for size in found.bytes)
    narrow = replace(tables.facts, columns=tables.facts.columns[:1])
    assert sum(table_input(narrow).bytes) < sum(found.bytes)
    assert [f.whole for f in table_input(tables.towns).files] == [True]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (RangeSource(0, 5, 1), [NumberRange(0, 5, 1)]),
        (RangeSource(5, 5, 1), []),
        (RangeSource(5, 0, 1), []),
        (RangeSource(5, 0, -2), [NumberRange(5, 0, -2)]),
        (
            RangeSource(0, 8_000_001, 2),
            [NumberRange(0, 8_000_000, 2), NumberRange(8_000_000, 8_000_001, 2)],
        ),
    ],
)  # fmt: skip
def test_units_are_parts_of_a_range(source: RangeSource, wanted: list[NumberRange]) -> None:
    scan = Scan(source, (ScanColumn("id", Column("id", "bigint")),))
    assert list(table_input(scan).numbers) == wanted


def test_ranges_up_to_the_largest_number() -> None:
    for source in (RangeSource(2**63 - 5, 2**63 - 1, 3), RangeSource(3 - 2**63, -(2**63), -2)):
        scan = Scan(source, (ScanColumn("id", Column("id", "bigint")),))
        found = rows_of(run_dataflow(compiled(scan, Choices())))
        assert found == [(n,) for n in range(source.start, source.end, source.step)]


def test_a_short_range_is_a_small_table(tables: Tables) -> None:
    scan = Scan(RangeSource(0, 10, 1), (ScanColumn("id", Column("id", "bigint")),))
    key = (equal(tables.facts, "f_price", scan, "id"),)
    (stage,) = compiled(Join(tables.facts, scan, JoinKind.INNER, key), REPLICATED).stages
    assert sorted(feeds(stage)) == [Feed.REPLICATED, Feed.SHARED]


def test_tables_that_are_not_there(tables: Tables, tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="it was not staged"):
        compiled(table("t", a="int"), Choices())
    columns = tables.towns.columns
    gone = Scan(FileSource("gone", "parquet", (str(tmp_path / "gone.parquet"),)), columns)
    with pytest.raises(FileNotReadable, match="gone"):
        compiled(gone, Choices())
    remote = Scan(FileSource("far", "parquet", ("memory://far.parquet",)), columns)
    with pytest.raises(NotSupported, match="local files"):
        compiled(remote, Choices())


def test_an_operator_without_a_kernel(tables: Tables) -> None:
    exploded = Expression("explode(array(1))", "int")
    with pytest.raises(NotSupported, match="operator Generate"):
        compiled(Generate(tables.facts, exploded, False, (Column("x", "int"),)), Choices())
