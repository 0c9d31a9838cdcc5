"""What is expected of a member by itself: rows of its tables, and the share that it wants."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headway.plan.cardinalities import Estimator, Statistics
from headway.plan.expressions import conjunction
from headway.plan.nodes import JoinKind, Scan, ScanColumn
from headway.plan.selectivity import selectivity
from headway.sharing.shapes import Shape, Step

_LEAST_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class Expectation:
    """By table of a member. `share` is the part of the rows so far that survives joining it, and
    `fan_out` how many rows of it a row finds."""

    rows: dict[int, float]
    fields: dict[int, int]
    wanted: dict[int, float]
    """The part of the table's own rows that meets the member's conditions."""
    share: dict[int, float]
    fan_out: dict[int, float]
    across: float
    groups: float


def expectation(shape: Shape, statistics: Statistics) -> Expectation:
    estimator = Estimator(statistics, {}, {})
    scans: dict[int, Scan] = {}
    rows: dict[int, float] = {}
    wanted: dict[int, float] = {}
    for number, table in enumerate(shape.member.tables):
        columns = (
            ScanColumn(name, replace(column, name=f"{number}.{name}"))
            for name, column in table.fields.items()
        )
        scans[number] = Scan(table.source, tuple(columns))
        estimator.add(scans[number])
        rows[number] = max(estimator.estimates[scans[number]].rows, 1.0)
        condition = conjunction(shape.own[number])
        known = estimator.columns_of(scans[number])
        wanted[number] = 1.0 if condition is None else selectivity(condition, known)
    share = {shape.root: max(wanted[shape.root], _LEAST_SHARE)}
    fan_out = {shape.root: 1.0}
    for step in shape.steps:
        distinct = 1.0
        for key in step.keys:
            distinct *= max(estimator.distinct(key.right, scans[step.table]), 1.0)
        per_key = rows[step.table] / min(distinct, rows[step.table])
        fan_out[step.table] = per_key if step.join in (JoinKind.INNER, JoinKind.LEFT) else 1.0
        share[step.table] = max(_surviving(step, wanted[step.table]), _LEAST_SHARE)
    known = {k: v for scan in scans.values() for k, v in estimator.columns_of(scan).items()}
    across = 1.0
    for condition in shape.across:
        across *= selectivity(condition, known)
    groups = 1.0
    for output in shape.member.outputs:
        values = (known[name].distinct for name in output.expression.columns if name in known)
        groups *= max(min(max(values, default=1.0), 1e12), 1.0)
    fields = {number: len(table.fields) for number, table in enumerate(shape.member.tables)}
    return Expectation(rows, fields, wanted, share, fan_out, across, groups)


def _surviving(step: Step, wanted: float) -> float:
    if step.join is JoinKind.LEFT:
        return 1.0
    return 1 - wanted if step.join is JoinKind.ANTI else wanted
