"""The Spark SQL text of any plan is SQL, and names the columns as the user did."""

from __future__ import annotations

import sqlglot
from hypothesis import given, settings
from sqlglot import expressions as exp

from headway.plan.graph import walk
from headway.plan.nodes import QueryPlan, Scan, StateScan
from headway.plan.spark_sql import to_spark_sql
from headway.testing.plans import query_plans


@settings(max_examples=120)
@given(query_plans())
def test_the_text_parses(plan: QueryPlan) -> None:
    read: list[Scan | StateScan] = []

    def relation(scan: Scan | StateScan) -> str:
        read.append(scan)
        return f"relation_{len(read)}"

    text = to_spark_sql(plan, relation)
    parsed = sqlglot.parse_one(text, read="spark")
    assert isinstance(parsed, exp.Select)
    if plan.names:
        assert tuple(parsed.named_selects) == plan.names
    leaves = [node for node in walk(plan.root) if isinstance(node, Scan | StateScan)]
    assert read == leaves  # each once
    assert ":subquery" not in {p.sql("spark") for p in parsed.find_all(exp.Placeholder)}
    assert not list(parsed.find_all(exp.Placeholder))
