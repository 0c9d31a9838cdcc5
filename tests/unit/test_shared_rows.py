"""What a query gets of shared work is what it gets alone: cases by hand, each of them awkward."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from headway.pipelined.compile import compile_plan
from headway.plan.cardinalities import estimate
from headway.plan.expressions import Column, Expression
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
from headway.plan.sources import FileSource
from headway.sharing.members import find_members
from headway.sharing.ranges import condition_on
from headway.testing.dataflows import rows_of, run_dataflow
from headway.testing.example_plans import condition, equal, parquet_table, reference, renamed
from headway.testing.shared_batches import SharedRun, run_shared

SETTINGS = (
    ("spark.sql.ansi.enabled", "true"),
    ("spark.sql.session.timeZone", "UTC"),
    ("spark.sql.decimalOperations.allowPrecisionLoss", "true"),
)
ONE = Expression("1", "int", False)


def plan_of(root: Node) -> QueryPlan:
    return QueryPlan(root, tuple(f"c{n}" for n in range(len(root.schema))), SETTINGS)


def check(**roots: Node) -> SharedRun:
    """Runs them shared, in one chain, and each alone."""
    plans = {name: plan_of(root) for name, root in roots.items()}
    run = run_shared(plans)
    for name, plan in plans.items():
        alone = rows_of(run_dataflow(compile_plan(plan, estimate(plan))))
        assert Counter(rows_of(run.tables[name])) == Counter(alone), name
    return run


def counted(node: Node, suffix: str, *keys: str) -> Aggregate:
    groups = tuple(Named(f"{key}_key", reference(node, key)) for key in keys)
    rows = AggregateCall(Column(f"n{suffix}", "bigint", False), "count", (ONE,))
    return Aggregate(node, groups, (rows,))


@pytest.fixture
def facts(tmp_path: Path) -> Scan:
    rows = [(1, 10, 0), (2, 20, 3), (None, 30, 4), (1, 40, 0)]
    return parquet_table(tmp_path / "facts", {"k": "int", "x": "int", "y": "int"}, rows)


@pytest.mark.parametrize(
    ("computed", "ddl"),
    [("coalesce(`v#`, 0)", "int"), ("1", "int"), ("(`v#` IS NULL)", "boolean"), ("`v#`", "int")],
)
@pytest.mark.parametrize("kind", [JoinKind.LEFT, JoinKind.RIGHT])
def test_what_a_left_join_computes_is_empty_where_nothing_matched(
    computed: str, ddl: str, kind: JoinKind, facts: Scan, tmp_path: Path
) -> None:
    dims = parquet_table(tmp_path / "dims", {"dk": "int", "v": "int"}, [(1, None), (7, 5)])

    def joined(suffix: str, least: int) -> Node:
        fact = Filter(renamed(facts, suffix), condition(f"(`x{suffix}` > {least})"))
        scan = renamed(dims, suffix)
        text = computed.replace("#", suffix)
        key = Named(f"key{suffix}", reference(scan, f"dk{suffix}"))
        beside = Project(scan, (key, Named(f"w{suffix}", Expression(text, ddl))))
        if kind is JoinKind.LEFT:
            keys = (equal(fact, f"k{suffix}", beside, f"key{suffix}"),)
            return Join(fact, beside, kind, keys)
        return Join(beside, fact, kind, (equal(beside, f"key{suffix}", fact, f"k{suffix}"),))

    rows = joined("_a", 0)
    columns = tuple(Named(f"{c.name}_out", reference(rows, c.name)) for c in rows.schema)
    grouped = counted(joined("_b", 5), "_b", "w_b")
    empty = Filter(joined("_c", 0), condition("(`w_c` IS NULL)"))
    again = counted(joined("_d", 15), "_d", "w_d")
    run = check(rows=Project(rows, columns), empty=empty, grouped=grouped, again=again)
    assert run.chains == 2  # of rows and of groups


@pytest.mark.parametrize("asked", ["IS NOT NULL", "IS NULL"])
def test_a_left_join_may_be_asked_whether_it_found_a_row(
    asked: str, facts: Scan, tmp_path: Path
) -> None:
    """The same words below it say what the join says anyway."""
    dims = parquet_table(tmp_path / "dims", {"dk": "int"}, [(1,), (None,)])

    def joined(suffix: str) -> Node:
        fact, scan = renamed(facts, suffix), renamed(dims, suffix)
        other = Filter(scan, condition(f"(`dk{suffix}` IS NOT NULL)"))
        keys = (equal(fact, f"k{suffix}", other, f"dk{suffix}"),)
        return Join(fact, other, JoinKind.LEFT, keys)

    found = Filter(joined("_1"), condition(f"(`dk_1` {asked})"))
    run = check(found=counted(found, "_1", "x_1"), all=counted(joined("_2"), "_2", "x_2"))
    assert run.chains == 1


def test_null_safe_keys_find_every_null_row_once_for_who_passes(
    facts: Scan, tmp_path: Path
) -> None:
    dims = parquet_table(tmp_path / "dims", {"dk": "int"}, [(1,), (None,), (None,)])

    def asked(suffix: str, kind: JoinKind) -> Node:
        fact, other = renamed(facts, suffix), renamed(dims, suffix)
        key = JoinKey(reference(fact, f"k{suffix}"), reference(other, f"dk{suffix}"), True)
        return counted(Join(fact, other, kind, (key,)), suffix, f"k{suffix}")

    passing = renamed(facts, "_p")
    total = AggregateCall(Column("s", "bigint"), "sum", (reference(passing, "x_p"),))
    run = check(
        semi=asked("_s", JoinKind.SEMI),
        anti=asked("_a", JoinKind.ANTI),
        inner=asked("_i", JoinKind.INNER),
        passing=Aggregate(passing, (), (total,)),
    )
    assert run.chains == 1


@pytest.mark.parametrize(
    ("ddl", "average", "values"),
    [
        ("decimal(31,4)", "decimal(35,8)", ["1.0000", "1.0000", "0.0000"]),
        ("decimal(23,2)", "decimal(27,6)", ["0.05"] + ["0.00"] * 10),
        ("decimal(15,2)", "decimal(19,6)", ["9999999999999.99"] * 2 + ["0.01"] * 4),
        ("decimal(7,2)", "decimal(11,6)", ["99999.99", "0.01", "-0.02"]),
    ],
)
def test_averages_of_decimals_are_rounded_once(
    ddl: str, average: str, values: list[str], tmp_path: Path
) -> None:
    rows = [(Decimal(value), number % 2) for number, value in enumerate(values)]
    prices = parquet_table(tmp_path / "prices", {"p": ddl, "y": "int"}, rows)

    def averaged(suffix: str, where: str | None = None) -> Node:
        node: Node = renamed(prices, suffix)
        if where is not None:
            node = Filter(node, condition(where))
        call = AggregateCall(Column(f"a{suffix}", average), "avg", (reference(node, f"p{suffix}"),))
        return Aggregate(node, (), (call,))

    check(all=averaged("_a"), odd=averaged("_o", "(`y_o` = 1)"), even=averaged("_e", "(`y_e` = 0)"))


def test_an_average_of_bigints_does_not_overflow(tmp_path: Path) -> None:
    numbers = parquet_table(
        tmp_path / "numbers", {"p": "bigint", "y": "int"}, [(9 * 10**18, 1), (9 * 10**18, 2)]
    )

    def averaged(suffix: str, where: str) -> Node:
        node = Filter(renamed(numbers, suffix), condition(where))
        argument = reference(node, f"p{suffix}")
        return Aggregate(
            node, (), (AggregateCall(Column(f"a{suffix}", "double"), "avg", (argument,)),)
        )

    check(both=averaged("_a", "(`y_a` > 0)"), one=averaged("_b", "(`y_b` = 1)"))


def test_an_average_of_bigints_is_one_of_doubles(tmp_path: Path) -> None:
    """Each of them is rounded before it is added: the exact sum is another one."""
    rows = [(2**62 + 1, 1), (-(2**62), 2)]
    numbers = parquet_table(tmp_path / "numbers", {"p": "bigint", "y": "int"}, rows)

    def averaged(suffix: str, where: str) -> Node:
        node = Filter(renamed(numbers, suffix), condition(where))
        call = AggregateCall(
            Column(f"a{suffix}", "double"), "avg", (reference(node, f"p{suffix}"),)
        )
        return Aggregate(node, (), (call,))

    check(both=averaged("_a", "(`y_a` > 0)"), again=averaged("_b", "(`y_b` > -1)"))


def test_a_wide_sum_is_not_made_of_sums_that_may_be_null() -> None:
    """Without ANSI mode a sum that overflows is null, and a sum of sums would leave it out."""
    scan = Scan(FileSource("t", "parquet", ("/t",)), ())
    for settings, members in (((), 0), ((("spark.sql.ansi.enabled", "true"),), 1)):
        argument = Expression("CAST(1BD AS DECIMAL(29,0))", "decimal(29,0)")
        calls = (AggregateCall(Column("s", "decimal(38,0)"), "sum", (argument,)),)
        found = find_members("q", QueryPlan(Aggregate(scan, (), calls), ("s",), settings))
        assert len(found.members) == members


def test_the_column_of_corrupt_records_is_known_by_its_setting() -> None:
    schema = '{"fields":[{"name":"bad"}]}'
    scan = Scan(FileSource("t", "json", ("/t",), None, (), schema), ())
    for settings, members in (((), 1), ((("spark.sql.columnNameOfCorruptRecord", "Bad"),), 0)):
        found = find_members("q", replace(plan_of(counted(scan, "")), settings=settings))
        assert len(found.members) == members


@pytest.mark.parametrize(
    ("kind", "options", "schema", "shared"),
    [
        ("csv", (), None, True),
        ("csv", (("mode", "permissive"),), None, True),
        ("csv", (("mode", "DROPMALFORMED"),), None, False),
        ("json", (("mode", "FAILFAST"),), None, False),
        ("json", (("columnNameOfCorruptRecord", "bad"),), None, False),
        ("json", (), '{"fields":[{"name":"_corrupt_record"}]}', False),
        ("parquet", (), None, True),
    ],
)
def test_rows_that_depend_on_what_is_read_are_not_shared(
    kind: str, options: tuple[tuple[str, str], ...], schema: str | None, shared: bool
) -> None:
    source = FileSource("t", kind, ("/t",), None, options, schema)
    found = find_members("q", plan_of(counted(Scan(source, ()), "")))
    assert bool(found.members) is shared
    assert shared or "depends on the columns" in found.not_shared[0].reason


def test_a_condition_that_may_fail_is_asked_after_those_before_it(facts: Scan) -> None:
    """Rows that another condition of the query excludes, or that only other queries want."""

    def divided(suffix: str, where: str) -> Node:
        node = Filter(renamed(facts, suffix), condition(where.replace("#", suffix)))
        return counted(node, suffix)

    safe = "((NOT (`y#` = 0)) AND ((100 DIV `y#`) > {}L))"
    check(
        one=divided("_1", safe.format(30)),
        two=divided("_2", safe.format(20)),
        other=divided("_3", "(`x#` > 10)"),
    )


def test_a_condition_on_two_tables_is_asked_of_wanted_rows(facts: Scan, tmp_path: Path) -> None:
    dims = parquet_table(tmp_path / "dims", {"dk": "int", "v": "int"}, [(1, 0), (2, 2)])

    def joined(suffix: str, *conditions: str) -> Node:
        fact, other = renamed(facts, suffix), renamed(dims, suffix)
        key = equal(fact, f"k{suffix}", other, f"dk{suffix}")
        node: Node = Join(fact, other, JoinKind.INNER, (key,))
        for text in conditions:
            node = Filter(node, condition(text.replace("#", suffix)))
        return counted(node, suffix)

    check(
        guarded=joined("_1", "((`y#` + `v#`) > 0)", "((10 DIV (`y#` + `v#`)) > 1L)"),
        of_one_table=joined("_2", "(`v#` > 0)", "((`x#` DIV (`y#` * `v#`)) > 1L)"),
        all=joined("_3"),
    )


def test_an_argument_that_may_fail_is_computed_for_who_asked(facts: Scan) -> None:
    """Of two queries that group alike, one divides by what it has excluded before."""
    first, second = renamed(facts, "_1"), renamed(facts, "_2")
    safe = Filter(first, condition("(NOT (`y_1` = 0))"))
    divided = Expression("(100 DIV `y_1`)", "bigint")
    total = AggregateCall(Column("s", "bigint"), "sum", (divided,))
    run = check(
        divided=Aggregate(safe, (Named("g", reference(safe, "k_1")),), (total,)),
        counted=counted(second, "_2", "k_2"),
    )
    assert run.chains == 1 and len(run.plans[0].classes) == 1


def test_a_sum_is_made_of_the_rows_of_who_asked(tmp_path: Path) -> None:
    """Over all rows it would overflow; one query wants it of some, others want other things."""
    numbers = parquet_table(
        tmp_path / "numbers", {"large": "bigint", "y": "int"}, [(2**62, 1), (2**62, 2), (2**62, 3)]
    )

    def asked(suffix: str, function: str, where: str) -> Node:
        node = Filter(renamed(numbers, suffix), condition(where.replace("#", suffix)))
        argument = reference(node, f"large{suffix}")
        return Aggregate(
            node, (), (AggregateCall(Column(f"c{suffix}", "bigint"), function, (argument,)),)
        )

    run = check(
        total=asked("_1", "sum", "(`y#` = 1)"),
        greatest=asked("_2", "max", "(`y#` > 0)"),
        counted=asked("_3", "count", "(`y#` > 1)"),
    )
    assert run.chains == 1 and len(run.plans[0].classes) == 1


@pytest.mark.parametrize("null_safe", [False, True])
@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI])
def test_a_key_that_may_fail_is_computed_for_who_joins_by_it(
    kind: JoinKind, null_safe: bool, tmp_path: Path
) -> None:
    codes = parquet_table(
        tmp_path / "codes", {"code": "string", "x": "int"},
        [("1", 1), ("2", 2), ("none", 3), (None, 4), ("9", 5), (None, 6)],
    )  # fmt: skip
    dims = parquet_table(tmp_path / "dims", {"dk": "int"}, [(1,), (1,), (None,), (None,)])

    def joined(suffix: str) -> Node:
        fact = Filter(renamed(codes, suffix), condition(f"(NOT (`x{suffix}` = 3))"))
        other = renamed(dims, suffix)
        number = Expression(f"CAST(`code{suffix}` AS INT)", "int")
        key = JoinKey(number, reference(other, f"dk{suffix}"), null_safe)
        return counted(Join(fact, other, kind, (key,)), suffix, f"x{suffix}")

    run = check(one=joined("_1"), passing=counted(renamed(codes, "_2"), "_2", "x_2"))
    assert run.chains == 1
    plan = plan_of(joined("_3"))
    alone = rows_of(run_dataflow(compile_plan(plan, estimate(plan))))
    kept = run_shared({"three": plan}, dropping=False)  # rows that nobody wants reach the join
    assert Counter(rows_of(kept.tables["three"])) == Counter(alone)


def test_sums_are_made_of_what_is_summed_alone(tmp_path: Path) -> None:
    """A class that asks for the greatest value has no sum of it, which would overflow."""
    rows = [(2**62, 1, 1), (2**62, 1, 2), (2**62, 1, 3)]
    numbers = parquet_table(
        tmp_path / "numbers", {"large": "bigint", "small": "bigint", "y": "int"}, rows
    )
    first, second = renamed(numbers, "_1"), renamed(numbers, "_2")
    greatest = AggregateCall(Column("m", "bigint"), "max", (reference(first, "large_1"),))
    total = AggregateCall(Column("s", "bigint"), "sum", (reference(second, "small_2"),))
    group = (Named("g", reference(second, "y_2")),)
    run = check(
        greatest=Aggregate(first, (), (greatest,)), total=Aggregate(second, group, (total,))
    )
    assert run.chains == 1


def test_fields_may_have_any_name(facts: Scan, tmp_path: Path) -> None:
    """Such as those that came to mind for columns of our own."""
    fields = (
        "position", "wanted_0", "queries_0", "any_0", "set_0", "class", "key_1", "value_1",
        "matched?",
    )  # fmt: skip
    types = {"dk": "int", **dict.fromkeys(fields, "int")}
    rows = [(1, *range(len(fields))), (1, *range(9, 9 + len(fields))), (2, *[3] * len(fields))]
    dims = parquet_table(tmp_path / "dims.v1", types, rows)

    def joined(suffix: str, kind: JoinKind) -> Node:
        fact, other = renamed(facts, suffix), renamed(dims, suffix)
        key = equal(fact, f"k{suffix}", other, f"dk{suffix}")
        node = Join(fact, other, kind, (key,))
        return counted(node, suffix, *(f"{name}{suffix}" for name in fields))

    run = check(
        inner=joined("_1", JoinKind.INNER),
        left=joined("_2", JoinKind.LEFT),
        passing=counted(renamed(facts, "_3"), "_3"),
    )
    assert run.chains == 1


def test_tables_whose_names_differ_in_capitals_alone(facts: Scan, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    small = parquet_table(tmp_path / "dim", {"dk": "int"}, [(1,), (1,)])
    large = parquet_table(tmp_path / "other" / "Dim", {"dk": "int"}, [(2,)])

    def joined(suffix: str, dims: Scan) -> Node:
        fact, other = renamed(facts, suffix), renamed(dims, suffix)
        key = equal(fact, f"k{suffix}", other, f"dk{suffix}")
        return counted(Join(fact, other, JoinKind.INNER, (key,)), suffix, f"dk{suffix}")

    run = check(one=joined("_1", small), two=joined("_2", large))
    assert run.chains == 1


def test_constants_of_wide_decimals_are_ranges() -> None:
    literal = "CAST(100000000000000000000BD AS DECIMAL(38,10))"
    found = condition_on(condition(f"(`x` > {literal})"), Column("x", "decimal(38,10)"))
    assert found is not None
    assert found.holds.parts[0][0][1] == Decimal(10**20)
