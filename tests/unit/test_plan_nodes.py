"""Nodes refuse nonsense when they are made, and say what they put out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace

import pytest

from headway.base.errors import InvalidPlan
from headway.plan.expressions import Column, Expression, Subquery
from headway.plan.graph import (
    parents,
    replace_nodes,
    rewrite,
    use_counts,
    walk,
    with_inputs,
    with_root,
)
from headway.plan.nodes import (
    NODE_KINDS,
    Aggregate,
    AggregateCall,
    Expand,
    Filter,
    Generate,
    Join,
    JoinKey,
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
    StateScan,
    Union,
    Values,
    Window,
    WindowCall,
    column_list,
)
from headway.plan.sources import RangeSource, SessionSource
from headway.testing.example_plans import (
    call,
    condition,
    equal,
    passed,
    reference,
    running_example,
    table,
)

LEFT = table("l", a="int", b="string")
RIGHT = table("r", c="int", d="string")
MISSING = Expression("`nope`", "int")
MISSING_CONDITION = condition("(`nope` > 1)")
NUMBER = Expression("1", "int", False)
HINT = "existing columns: a, b"


def one_value(name: str = "v", ddl: str = "int") -> Values:
    return Values((Column(name, ddl),), (("1",),))


READS_WHAT_IS_NOT_THERE: dict[str, Callable[[], Node]] = {
    "filter": lambda: Filter(LEFT, MISSING_CONDITION),
    "project": lambda: Project(LEFT, (Named("x", MISSING),)),
    "left key": lambda: Join(
        LEFT, RIGHT, JoinKind.INNER, (JoinKey(MISSING, reference(RIGHT, "c")),)
    ),
    "group key": lambda: Aggregate(LEFT, (Named("x", MISSING),), ()),
    "aggregate": lambda: Aggregate(LEFT, (), (call("sum", MISSING, "x"),)),
    "aggregate filter": lambda: Aggregate(
        LEFT, (), (replace(call("sum", NUMBER, "x"), filter=MISSING_CONDITION),)
    ),
    "partition": lambda: Window(LEFT, (MISSING,), (), ()),
    "window order": lambda: Window(LEFT, (), (SortKey(MISSING),), ()),
    "window call": lambda: Window(
        LEFT, (), (), (WindowCall(Column("x", "int"), "sum", (MISSING,)),)
    ),
    "window filter": lambda: Window(
        LEFT, (), (),
        (WindowCall(Column("x", "int"), "sum", (NUMBER,), filter=MISSING_CONDITION),),
    ),
    "sort": lambda: Sort(LEFT, (SortKey(MISSING),)),
    "expand": lambda: Expand(LEFT, ((MISSING,),), (Column("x", "int"),)),
    "generate": lambda: Generate(LEFT, MISSING, False, (Column("x", "int"),)),
}  # fmt: skip


@pytest.mark.parametrize("make", READS_WHAT_IS_NOT_THERE.values(), ids=READS_WHAT_IS_NOT_THERE)
def test_a_node_cannot_read_what_its_input_does_not_have(make: Callable[[], Node]) -> None:
    with pytest.raises(InvalidPlan, match=r"reads nope in .*its input does not have") as caught:
        make()
    assert caught.value.hint == HINT


def test_a_join_reads_each_key_from_its_own_side() -> None:
    with pytest.raises(InvalidPlan, match="reads a") as caught:
        Join(LEFT, RIGHT, JoinKind.INNER, (JoinKey(reference(LEFT, "a"), reference(LEFT, "a")),))
    assert caught.value.hint == "existing columns: c, d"
    with pytest.raises(InvalidPlan, match="reads nope") as caught:
        Join(LEFT, RIGHT, JoinKind.INNER, residual=MISSING_CONDITION)
    assert caught.value.hint == "existing columns: a, b, c, d"


def test_the_hint_says_when_there_is_no_column_at_all() -> None:
    with pytest.raises(InvalidPlan) as caught:
        Filter(Values((), ((),)), MISSING_CONDITION)
    assert caught.value.hint == "existing columns: none"


def test_columns_are_read_in_the_case_they_are_written() -> None:
    with pytest.raises(InvalidPlan, match="reads A"):
        Filter(LEFT, condition("(`A` > 1)"))


REFUSED: dict[str, tuple[str, Callable[[], object]]] = {
    "scan, same name twice": (
        "Scan puts out two columns named a",
        lambda: Scan(SessionSource("s", "t"), (ScanColumn("f", Column("a", "int")),) * 2),
    ),
    "names that differ in case only": (
        "Project puts out two columns named A",
        lambda: Project(LEFT, (*passed(LEFT, "a"), Named("A", NUMBER))),
    ),
    "state, same name twice": (
        "StateScan puts out two",
        lambda: StateScan("run", "state", (Column("a", "int"), Column("a", "int"))),
    ),
    "values, a short row": (
        "a row of 1 values stands under 2 columns",
        lambda: Values(LEFT.schema, (("1",),)),
    ),
    "filter by a number": (
        "the condition 1 is int",
        lambda: Filter(LEFT, NUMBER),
    ),
    "join on a number": (
        "the condition 1 is int",
        lambda: Join(LEFT, RIGHT, JoinKind.INNER, residual=NUMBER),
    ),
    "aggregate filtered by a number": (
        "the condition 1 is int",
        lambda: Aggregate(LEFT, (), (replace(call("sum", NUMBER, "x"), filter=NUMBER),)),
    ),
    "window filtered by a number": (
        "the condition 1 is int",
        lambda: Window(
            LEFT, (), (), (WindowCall(Column("x", "int"), "sum", (NUMBER,), filter=NUMBER),)
        ),
    ),
    "existence without a name": (
        "an existence join, and only it",
        lambda: Join(LEFT, RIGHT, JoinKind.EXISTENCE),
    ),
    "a name without existence": (
        "an existence join, and only it",
        lambda: Join(LEFT, RIGHT, JoinKind.SEMI, exists="e"),
    ),
    "existence under a name that is taken": (
        "Join puts out two columns named B",
        lambda: Join(LEFT, RIGHT, JoinKind.EXISTENCE, exists="B"),
    ),
    "cross join with a key": (
        "a cross join has no condition",
        lambda: Join(LEFT, RIGHT, JoinKind.CROSS, (equal(LEFT, "a", RIGHT, "c"),)),
    ),
    "cross join with a condition": (
        "a cross join has no condition",
        lambda: Join(LEFT, RIGHT, JoinKind.CROSS, residual=condition("true")),
    ),
    "join of a node with itself": (
        "both sides of a join have a, b",
        lambda: Join(LEFT, LEFT, JoinKind.SEMI),
    ),
    "join of names that differ in case only": (
        "both sides of a join have a",
        lambda: Join(LEFT, table("t", A="int"), JoinKind.ANTI),
    ),
    "aggregate, a key named like a call": (
        "Aggregate puts out two columns named a",
        lambda: Aggregate(LEFT, passed(LEFT, "a"), (call("sum", reference(LEFT, "a"), "a"),)),
    ),
    "window, a call named like a column": (
        "Window puts out two columns named b",
        lambda: Window(LEFT, (), (), (WindowCall(Column("b", "int"), "row_number", ()),)),
    ),
    "sort by nothing": ("a sort needs a key", lambda: Sort(LEFT, ())),
    "negative limit": ("a limit of -1 rows after 0 is negative", lambda: Limit(LEFT, -1)),
    "negative offset": ("a limit of None rows after -2 is negative", lambda: Limit(LEFT, None, -2)),
    "union of one": ("a union needs two inputs", lambda: Union((LEFT,), LEFT.schema)),
    "union of different types": (
        "an input of a union has the types int, its output int, string",
        lambda: Union((LEFT, one_value()), LEFT.schema),
    ),
    "union, two columns of a name": (
        "Union puts out two",
        lambda: Union((LEFT, RIGHT), (Column("x", "int"), Column("x", "string"))),
    ),
    "expand without projections": (
        "an expand without projections",
        lambda: Expand(LEFT, (), (Column("x", "int"),)),
    ),
    "expand, a short projection": (
        "each projection of an expand has 2 columns",
        lambda: Expand(LEFT, ((NUMBER,),), (Column("x", "int"), Column("y", "int"))),
    ),
    "generate, a name that is taken": (
        "Generate puts out two columns named a",
        lambda: Generate(LEFT, NUMBER, False, (Column("a", "int"),)),
    ),
    "range that stands still": ("a range with step 0", lambda: RangeSource(0, 9, 0)),
    "plan with too few names": (
        "1 names for 2 columns of the result",
        lambda: QueryPlan(LEFT, ("a",)),
    ),
    "plan with two values for a setting": (
        "a setting of the plan has two values",
        lambda: QueryPlan(LEFT, ("a", "b"), (("zone", "UTC"), ("zone", "CET"))),
    ),
    "subquery of two columns": (
        "the subquery s has 2 columns and needs one",
        lambda: Subquery("s", LEFT),
    ),
    "expression without text": ("an expression has no text", lambda: Expression(" ", "int")),
    "expression without its subquery": (
        r"names the subqueries \['s'\] but carries \[\]",
        lambda: Expression(":s", "int"),
    ),
    "expression with an unused subquery": (
        r"names the subqueries \[\] but carries \['s'\]",
        lambda: Expression("1", "int", True, (Subquery("s", one_value()),)),
    ),
    "two subqueries of one name": (
        "Project uses one name for two subqueries: s, s",
        lambda: Project(
            LEFT,
            (
                Named("x", Expression(":s", "int", True, (Subquery("s", one_value("v")),))),
                Named("y", Expression(":s", "int", True, (Subquery("s", one_value("w")),))),
            ),
        ),
    ),
}


@pytest.mark.parametrize(("message", "make"), REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_together_is_refused(message: str, make: Callable[[], object]) -> None:
    with pytest.raises(InvalidPlan, match=message):
        make()


def shown(node: Node) -> str:
    """The schema with a question mark after what may be null."""
    return ", ".join(f"{c.name} {c.type}{'?' if c.nullable else ''}" for c in node.schema)


SURE = Scan(
    SessionSource("s", "sure"),
    (ScanColumn("f", Column("a", "int", False)), ScanColumn("g", Column("b", "string"))),
)
OTHER = Scan(SessionSource("s", "other"), (ScanColumn("f", Column("c", "int", False)),))


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (JoinKind.INNER, "a int, b string?, c int"),
        (JoinKind.CROSS, "a int, b string?, c int"),
        (JoinKind.LEFT, "a int, b string?, c int?"),
        (JoinKind.RIGHT, "a int?, b string?, c int"),
        (JoinKind.FULL, "a int?, b string?, c int?"),
        (JoinKind.SEMI, "a int, b string?"),
        (JoinKind.ANTI, "a int, b string?"),
        (JoinKind.NULL_AWARE_ANTI, "a int, b string?"),
        (JoinKind.EXISTENCE, "a int, b string?, e boolean"),
    ],
)
@pytest.mark.parametrize("build", Side)
def test_a_join_puts_out(kind: JoinKind, schema: str, build: Side) -> None:
    join = Join(SURE, OTHER, kind, exists="e" if kind is JoinKind.EXISTENCE else None, build=build)
    assert shown(join) == schema
    left_first = build is Side.LEFT
    assert join.build_input is (SURE if left_first else OTHER)
    assert join.probe_input is (OTHER if left_first else SURE)


@pytest.mark.parametrize(
    ("node", "schema"),
    [
        (SURE, "a int, b string?"),
        (StateScan("run", "state", SURE.schema), "a int, b string?"),
        (Values(SURE.schema, (("1", "'x'"),)), "a int, b string?"),
        (Filter(SURE, condition("(`b` = 'x')")), "a int, b string?"),
        (Sort(SURE, (SortKey(reference(SURE, "b")),)), "a int, b string?"),
        (Limit(SURE, None, 3), "a int, b string?"),
        (
            Project(SURE, (Named("x", Expression("(`a` + 1)", "bigint", False)),)),
            "x bigint",
        ),
        (Project(SURE, ()), ""),
        (
            Aggregate(
                SURE,
                passed(SURE, "b"),
                (AggregateCall(Column("n", "bigint", False), "count", (NUMBER,)),),
            ),
            "b string?, n bigint",
        ),
        (
            Window(SURE, (), (), (WindowCall(Column("n", "int", False), "row_number", ()),)),
            "a int, b string?, n int",
        ),
        (
            Union((SURE, SURE), (Column("x", "int"), Column("y", "string"))),
            "x int?, y string?",
        ),
        (
            Expand(SURE, ((NUMBER,), (Expression("NULL", "int"),)), (Column("x", "int"),)),
            "x int?",
        ),
        (
            Generate(SURE, Expression("explode(array(1))", "int"), True, (Column("x", "int"),)),
            "a int, b string?, x int?",
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, Node) else "",
)  # fmt: skip
def test_each_kind_puts_out(node: Node, schema: str) -> None:
    assert shown(node) == schema
    assert node.column_names == tuple(column.name for column in node.schema)
    assert type(node) in NODE_KINDS


def test_equal_nodes_are_one_node() -> None:
    first, second = running_example().root, running_example().root
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)
    assert len({first, second}) == 1
    assert isinstance(first, Join)
    assert first != replace(first, build=Side.RIGHT)
    assert first != "a plan"
    assert Limit(LEFT, 1) != Limit(LEFT, 2)
    assert Limit(LEFT, 1) != Limit(RIGHT, 1)
    assert Filter(LEFT, condition("true")) != Filter(LEFT, Expression("true", "boolean", False))


def test_nodes_with_equal_hashes_are_still_compared() -> None:
    one, other = Limit(LEFT, 1), Limit(LEFT, 2)
    object.__setattr__(other, "_hash", hash(one))
    assert one != other
    deep, deeper = Limit(one, 5), Limit(other, 5)
    assert hash(deep) == hash(deeper)
    assert deep != deeper
    sorted_ = Sort(LEFT, (SortKey(NUMBER),))
    object.__setattr__(sorted_, "_hash", hash(one))
    assert one != sorted_


def test_subqueries_take_part_in_comparison() -> None:
    def with_subquery(value: Node) -> Node:
        inner = Expression("(`a` > :s)", "boolean", True, (Subquery("s", value),))
        return Filter(LEFT, inner)

    assert with_subquery(one_value()) == with_subquery(one_value())
    assert with_subquery(one_value()) != with_subquery(one_value("w"))


def test_nodes_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        LEFT.columns = ()  # type: ignore[misc]


def test_the_text_of_a_node_is_one_line() -> None:
    assert repr(Filter(LEFT, condition("(`a` > 1)"))) == "<Filter a > 1>"


def test_column_list_is_ddl() -> None:
    columns = (Column("a`b", "int"), Column("c", "decimal(15,2)"))
    assert column_list(columns) == "`a``b` int, `c` decimal(15,2)"


def test_conditions_of_a_join_are_its_keys_and_the_rest() -> None:
    subquery = Subquery("s", one_value())
    key = JoinKey(Expression("(`a` + :s)", "int", True, (subquery,)), reference(RIGHT, "c"), True)
    join = Join(LEFT, RIGHT, JoinKind.INNER, (key,), condition("(`b` < `d`)"))
    texts = [part.text for part in join.conditions()]
    assert texts == ["((`a` + :s) <=> `c`)", "(`b` < `d`)"]
    assert not key.condition.nullable
    assert join.subqueries == key.condition.subqueries == (subquery,)


# Walking and rewriting


def test_walk_visits_inputs_before_users_and_each_node_once() -> None:
    root = running_example().root
    order = list(walk(root))
    assert len(order) == len(set(order)) == 8
    assert order[-1] is root
    for position, node in enumerate(order):
        assert all(order.index(child) < position for child in node.children)


def subquery_plan() -> tuple[Node, Node]:
    inner = Limit(one_value(), 1)
    test = Expression("(`a` > :s)", "boolean", True, (Subquery("s", inner),))
    return Filter(LEFT, test), inner


def test_walk_enters_subqueries_unless_told_not_to() -> None:
    root, inner = subquery_plan()
    assert inner in list(walk(root))
    assert inner not in list(walk(root, subqueries=False))


def test_parents_count_every_use() -> None:
    twice = Limit(LEFT, 3)
    root = Union((twice, twice), LEFT.schema)
    assert parents(root)[twice] == [root, root]
    assert use_counts(root) == {root: 1, twice: 2, LEFT: 1}


def test_rewrite_keeps_what_the_rule_leaves() -> None:
    root = running_example().root
    assert rewrite(root, lambda node: node) is root
    limited = rewrite(root, lambda n: Limit(n, 9) if isinstance(n, Aggregate) else n)
    kinds = [node.kind for node in walk(limited)]
    assert kinds.count("Limit") == 2  # the shared aggregate is still one node


def test_replaced_nodes_are_replaced_at_every_use_and_the_topmost_wins() -> None:
    root = running_example().root
    revenue = next(n for n in walk(root) if isinstance(n, Aggregate) and n.keys)
    highest = next(n for n in walk(root) if isinstance(n, Aggregate) and not n.keys)
    saved: dict[Node, Node]
    saved = {node: StateScan("run", node.kind, node.schema) for node in (revenue, highest)}
    kept = [node for node in walk(replace_nodes(root, saved)) if isinstance(node, StateScan)]
    assert set(kept) == set(saved.values())
    once = replace_nodes(root, {revenue: saved[revenue]})
    assert use_counts(once)[saved[revenue]] == 2
    assert replace_nodes(root, {}) is root
    assert replace_nodes(root, {root: LEFT}) is LEFT


def test_replacing_reaches_subqueries() -> None:
    root, inner = subquery_plan()
    saved = StateScan("run", "value", inner.schema)
    assert replace_nodes(root, {inner: saved}).subqueries[0].plan is saved
    assert with_inputs(root, lambda child: child) is root
    plan = QueryPlan(root, ("x", "y"))
    assert with_root(plan, LEFT) == QueryPlan(LEFT, ("x", "y"))
