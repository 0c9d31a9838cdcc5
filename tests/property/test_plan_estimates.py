"""Estimates of any plan are numbers that make sense, whatever the tables are like."""

from __future__ import annotations

from math import isfinite

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.plan.canonical import row_keys
from headway.plan.cardinalities import estimate
from headway.plan.expressions import Column, Expression
from headway.plan.graph import walk
from headway.plan.nodes import Limit, QueryPlan
from headway.plan.selectivity import ColumnEstimate, selectivity
from headway.plan.sources import Source
from headway.plan.statistics import ColumnStatistics, TableStatistics, source_statistics
from headway.testing.plans import ODD_NAMES, TYPES, conditions, query_plans

NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from((0.0, 1.0, -1e300, 1e300))
COLUMN_STATISTICS = st.builds(
    ColumnStatistics,
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.integers(0, 10**12),
    st.integers(0, 10**15),
)
TABLES = st.none() | st.builds(
    TableStatistics,
    st.sampled_from((0, 1, 10**18)) | st.integers(0, 10**9),
    st.integers(0, 10**15),
    st.dictionaries(st.sampled_from((*ODD_NAMES, "id")), COLUMN_STATISTICS, max_size=4),
)


def check(plan: QueryPlan, found: TableStatistics | None) -> None:
    def statistics(source: Source) -> TableStatistics | None:
        return found

    estimates = estimate(plan, statistics)
    assert set(estimates) == set(walk(plan.root))
    for node, made in estimates.items():
        assert isfinite(made.rows) and made.rows >= 0
        assert isfinite(made.bytes) and made.bytes >= 0
        assert not made.observed
        inputs = [estimates[child].rows for child in node.children]
        if isinstance(node, Limit) and node.count is not None:
            assert made.rows <= node.count
        if inputs and all(inputs) and not (isinstance(node, Limit) and node.count == 0):
            assert made.rows >= 1


@settings(max_examples=150)
@given(query_plans(), TABLES)
def test_estimates_are_sane(plan: QueryPlan, found: TableStatistics | None) -> None:
    check(plan, found)


@settings(max_examples=50)
@given(query_plans())
def test_estimates_from_what_the_sources_tell(plan: QueryPlan) -> None:
    estimates = estimate(plan, source_statistics)
    assert all(isfinite(made.rows) and made.rows >= 0 for made in estimates.values())


@settings(max_examples=60)
@given(query_plans(), st.data())
def test_observed_counts_replace_estimates(plan: QueryPlan, data: st.DataObject) -> None:
    keys = row_keys(plan.root)
    chosen = data.draw(st.sets(st.sampled_from(sorted(set(keys.values())))))
    observed = {key: data.draw(st.integers(0, 10**15)) for key in sorted(chosen)}
    for node, made in estimate(plan, lambda source: None, observed).items():
        assert made.observed == (keys[node] in observed)
        if made.observed:
            assert made.rows == observed[keys[node]]
        assert isfinite(made.bytes) and made.bytes >= 0


COLUMNS = tuple(Column(f"c {ddl}", ddl) for ddl in TYPES)
KNOWN = st.builds(
    ColumnEstimate,
    st.sampled_from((1.0, 2.5, float("inf"))) | st.floats(1, 1e18),
    st.none() | NUMBERS,
    st.none() | NUMBERS,
    st.floats(0, 1),
    st.just(4.0),
)


@settings(max_examples=150)
@given(conditions(COLUMNS), st.lists(KNOWN, min_size=len(COLUMNS), max_size=len(COLUMNS)))
def test_a_share_is_between_none_and_all(
    condition: Expression, known: list[ColumnEstimate]
) -> None:
    columns = dict(zip((c.name for c in COLUMNS), known, strict=True))
    assert 0 <= selectivity(condition, columns) <= 1
    assert 0 <= selectivity(condition, {}) <= 1
