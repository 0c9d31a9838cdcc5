"""Plans as JSON: what the format looks like, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headway.base.errors import PlanNotReadable
from headway.plan.expressions import Column
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import Limit, QueryPlan, Scan, ScanColumn, Union
from headway.plan.serialize import (
    plan_from_builtins,
    plan_from_json,
    plan_to_builtins,
    plan_to_json,
)
from headway.plan.sources import FileSource
from headway.testing.example_plans import running_example, table


def small_plan() -> QueryPlan:
    source = FileSource("t", "csv", ("/t.csv",), options=(("sep", ";"),), schema="a INT")
    scan = Scan(source, (ScanColumn("a", Column("x", "int", False)),))
    return QueryPlan(Limit(scan, 5), ("a",), (("spark.sql.ansi.enabled", "false"),))


def test_the_format() -> None:
    assert plan_to_builtins(small_plan()) == {
        "format": "headway-plan",
        "version": 1,
        "nodes": [
            {
                "kind": "Scan",
                "source": {
                    "source": "files",
                    "table": "t",
                    "format": "csv",
                    "files": ["/t.csv"],
                    "options": [["sep", ";"]],
                    "schema": "a INT",
                },
                "columns": [
                    {"field": "a", "column": {"name": "x", "type": "int", "nullable": False}}
                ],
            },
            {"kind": "Limit", "input": 0, "count": 5},
        ],
        "root": 1,
        "names": ["a"],
        "settings": {"spark.sql.ansi.enabled": "false"},
    }


def test_settings_come_back_in_order() -> None:
    settings = (("z", "1"), ("a", "2"), ("m", ""))
    plan = QueryPlan(table("t", a="int"), ("a",), settings)
    assert plan_from_json(plan_to_json(plan)).settings == settings


def test_text_and_bytes_are_read_alike() -> None:
    written = plan_to_json(small_plan())
    assert plan_from_json(written) == plan_from_json(written.decode()) == small_plan()


def test_a_node_used_twice_is_one_node_again() -> None:
    again = plan_from_json(plan_to_json(running_example()))
    shared = [node for node, uses in use_counts(again.root).items() if uses > 1]
    assert len(shared) == 1
    users = [child for node in walk(again.root) for child in node.children if child == shared[0]]
    assert len(users) == 2
    assert users[0] is users[1]


def test_equal_nodes_are_written_once() -> None:
    first, second = Limit(table("t", a="int"), 1), Limit(table("t", a="int"), 1)
    plan = QueryPlan(Union((first, second), first.schema), ("a",))
    assert len(plan_to_builtins(plan)["nodes"]) == 3


@pytest.mark.parametrize("version", [0, 2, 99, "1", None, 1.0, True])
def test_another_version_is_refused_by_name(version: object) -> None:
    written = plan_to_builtins(small_plan()) | {"version": version}
    with pytest.raises(PlanNotReadable) as caught:
        plan_from_builtins(written)
    assert caught.value.name == "PLAN_NOT_READABLE"
    assert f"format version {version}, this release reads 1" in caught.value.message
    assert caught.value.hint is not None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '"plan"', "{}", '{"format": "other"}', b"\xff\xfe", "\ud800",
     "[" * 100_000],
    ids=repr,
)  # fmt: skip
def test_what_is_no_plan_is_refused(text: str | bytes) -> None:
    with pytest.raises(PlanNotReadable):
        plan_from_json(text)


def change(**changes: Any) -> dict[str, Any]:
    written = msgspec.json.decode(plan_to_json(small_plan()))
    limit, scan = written["nodes"][1], written["nodes"][0]
    for key, value in changes.items():
        target = limit if key in limit else scan["source"] if key in scan["source"] else written
        target[key] = value
    return dict(written)


@pytest.mark.parametrize(
    "changes",
    [
        {"root": -1},
        {"root": 2},
        {"root": True},
        {"root": 10**30},
        {"root": "1"},
        {"input": 1},  # itself: a cycle
        {"input": 2},
        {"input": -1},
        {"input": False},
        {"input": None},
        {"count": "5"},
        {"count": -5},
        {"count": 1.5},
        {"kind": "Magic"},
        {"kind": []},
        {"kind": "Scan"},
        {"source": "nowhere"},
        {"files": "abc"},
        {"files": [1]},
        {"options": [["sep"]]},
        {"options": [["a", "b", "c"]]},
        {"names": "a"},
        {"names": [1]},
        {"names": ["a", "b"]},
        {"settings": []},
        {"settings": {"a": 1}},
        {"nodes": []},
        {"nodes": {}},
        {"nodes": None},
        {"nodes": [None]},
    ],
    ids=str,
)
def test_what_is_damaged_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PlanNotReadable):
        plan_from_builtins(change(**changes))


def test_each_missing_key_is_noticed() -> None:
    whole = plan_to_builtins(small_plan())
    for key in whole:
        with pytest.raises(PlanNotReadable):
            plan_from_builtins({name: value for name, value in whole.items() if name != key})
