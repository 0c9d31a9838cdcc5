"""A batch of plans run with shared work in one process, without Spark: for tests of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.kernels.operators import explain_support
from headway.pipelined.programs import StoredPiece, TableInput
from headway.pipelined.units import piece_input
from headway.plan.cardinalities import Statistics, estimate
from headway.plan.nodes import Node, QueryPlan, StateScan
from headway.plan.sources import Source
from headway.plan.statistics import source_statistics
from headway.sharing.cost_model import PIPELINED_RATES
from headway.sharing.estimates import expectation
from headway.sharing.finishing import finished
from headway.sharing.global_plan import Candidate, GlobalPlan, PlannedChain
from headway.sharing.members import Member, NotShared, find_members
from headway.sharing.shapes import shape_of
from headway.sharing.shared_plan import SharedPlan, shared_plan
from headway.testing.dataflows import run_dataflow


@dataclass
class SharedRun:
    """Tables by query, and what of the batch was shared."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    members: int = 0
    chains: int = 0
    not_shared: list[NotShared] = field(default_factory=list)
    plans: list[SharedPlan] = field(default_factory=list)


def candidates_of(
    name: str, plan: QueryPlan, statistics: Statistics = source_statistics
) -> tuple[list[Candidate], list[NotShared]]:
    """The members of a query that can be planned, and what is none."""

    def rows(source: Source) -> float:
        known = statistics(source)
        return float(known.rows) if known is not None else 0.0

    found = find_members(name, plan)
    refused = list(found.not_shared)
    candidates = []
    for member in found.members:
        shape = shape_of(member, rows)
        if isinstance(shape, NotShared):
            refused.append(shape)
        else:
            candidates.append(Candidate(shape, expectation(shape, statistics)))
    return candidates, refused


def run_shared(
    plans: Mapping[str, QueryPlan],
    *,
    unique: bool = False,
    choices: Choices = Choices(),  # noqa: B008 - frozen
) -> SharedRun:
    """`unique`: keys are taken for unique without looking."""
    run = SharedRun()
    whole = GlobalPlan(PIPELINED_RATES)
    seats: dict[str, list[tuple[Member, PlannedChain, int]]] = {}
    for name, plan in plans.items():
        candidates, refused = candidates_of(name, plan)
        run.not_shared += refused
        for candidate in candidates:
            chain, seat = whole.add(candidate)
            member = candidate.shape.member
            seats.setdefault(name, []).append((member, chain, seat.number))
            run.members += 1
    run.chains = len(whole.chains)
    states: dict[int, tuple[SharedPlan, StateScan, pa.Table]] = {}
    for number, planned in enumerate(whole.chains):
        made = shared_plan(planned.chain, lambda source, fields: unique)
        run.plans.append(made)
        table = _run(made.plan, {}, choices)
        state = StateScan("run", f"shared-{number}", made.plan.root.schema)
        states[id(planned)] = (made, state, table)
    tables = {state: table for _, state, table in states.values()}
    for name, plan in plans.items():
        shares = [
            (member, states[id(chain)][0].shares[number], states[id(chain)][1])
            for member, chain, number in seats.get(name, [])
        ]
        run.tables[name] = _run(finished(plan, shares), tables, choices)
    return run


def _run(plan: QueryPlan, states: Mapping[StateScan, pa.Table], choices: Choices) -> pa.Table:
    refusals = explain_support(plan)
    if refusals:
        raise refusals[0]
    pieces = {state.state: table for state, table in states.items()}
    inputs: dict[Node, TableInput] = {}
    for state, table in states.items():
        stored = (StoredPiece(state.run, state.state),) if table.num_rows else ()
        inputs[state] = piece_input(state.columns, stored, table.nbytes, state.state)
    dataflow = compile_plan(plan, estimate(plan), choices, inputs)
    return run_dataflow(dataflow, read_piece=lambda piece: pieces[piece.name])
