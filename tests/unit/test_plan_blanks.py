"""Blanks in plans: filled everywhere, and nothing else is touched."""

from __future__ import annotations

from headway.plan.blanks import blank, filled
from headway.plan.expressions import Column, Expression, Subquery
from headway.plan.graph import walk
from headway.plan.nodes import Filter, Join, JoinKey, JoinKind, Named, Project, Scan, ScanColumn
from headway.plan.sources import RangeSource


def _scan(name: str) -> Scan:
    return Scan(RangeSource(0, 9, 1), (ScanColumn("id", Column(name, "bigint", False)),))


def _condition(text: str, *subqueries: Subquery) -> Expression:
    return Expression(text, "boolean", False, subqueries)


def test_every_blank_gets_its_constant() -> None:
    inner = Filter(_scan("c"), _condition(f"(`c` < {blank(1)})"))
    subquery = Subquery("subquery_1", inner)
    left = Filter(_scan("a"), _condition(f"(`a` > {blank(0)}) AND (`a` = :subquery_1)", subquery))
    key = JoinKey(Expression("`a`", "bigint", False), Expression("`b`", "bigint", False))
    join = Join(left, _scan("b"), JoinKind.INNER, (key,), _condition(f"(`a` <> {blank(0)})"))
    outputs = (Named("x", Expression(f"(`a` + {blank(1)})", "bigint", False)),)
    made = filled(Project(join, outputs), ["5L", "'it\\'s'"])
    texts = [e.text for node in walk(made) for e in node.expressions()]
    assert texts == [
        "(`c` < 'it\\'s')",
        "(`a` > 5L) AND (`a` = :subquery_1)",
        "`a`",
        "`b`",
        "(`a` <> 5L)",
        "(`a` + 'it\\'s')",
    ]


def test_what_has_no_blank_stays_as_it_is() -> None:
    plan = Filter(_scan("a"), _condition("(`a` > 3L) AND ('\\x02 0' <> '')"))
    assert filled(plan, ["5L"]) is plan
