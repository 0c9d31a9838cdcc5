"""A batch of plans run with shared work in one process, without Spark: for tests of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headway.pipelined.compile import Choices, compile_plan
from headway.pipelined.kernels.operators import explain_support
from headway.pipelined.programs import StoredPiece, TableInput
from headway.pipelined.units import piece_input
from headway.plan.cardinalities import Statistics, estimate
from headway.plan.nodes import Node, QueryPlan, StateScan
from headway.plan.sources import Source
from headway.plan.statistics import source_statistics
from headway.session.uniqueness import is_unique_key
from headway.sharing.cost_model import PIPELINED_RATES
from headway.sharing.estimates import expectation
from headway.sharing.finishing import finished
from headway.sharing.global_plan import Candidate, GlobalPlan
from headway.sharing.members import Member, NotShared, find_members
from headway.sharing.routing import Share
from headway.sharing.shapes import shape_of
from headway.sharing.shared_plan import IsUnique, SharedPlan, shared_plan
from headway.testing.dataflows import run_dataflow

_TOGETHER = replace(PIPELINED_RATES, steps=1e6)
"""Nothing is so dear as a second chain: all that can be shared is."""


@dataclass
class SharedRun:
    """Tables by query, and what of the batch was shared."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    members: int = 0
    chains: int = 0
    passed: int = 0
    """Tables that some members of their chain do not need."""
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
    is_unique: IsUnique = is_unique_key,
    dropping: bool = True,
    choices: Choices = Choices(),  # noqa: B008 - frozen
) -> SharedRun:
    """Chains of one member are run as well, as what they put out has to be right."""
    run = SharedRun()
    whole = GlobalPlan(_TOGETHER)
    for name, plan in plans.items():
        candidates, refused = candidates_of(name, plan)
        run.not_shared += refused
        for candidate in candidates:
            whole.add(candidate)
            run.members += 1
    run.chains = len(whole.chains)
    tables: dict[StateScan, pa.Table] = {}
    shares: dict[str, list[tuple[Member, Share, StateScan]]] = {}
    for number, planned in enumerate(whole.chains):
        made = shared_plan(planned.chain, is_unique, dropping=dropping)
        run.plans.append(made)
        everyone = len(planned.chain.seats)
        run.passed += sum(len(role.users) < everyone for role in planned.chain.roles)
        state = StateScan("run", f"shared-{number}", made.plan.root.schema)
        tables[state] = _run(made.plan, {}, choices)
        for seat in planned.chain.seats:
            member = seat.shape.member
            shares.setdefault(member.query, []).append((member, made.shares[seat.number], state))
    for name, plan in plans.items():
        run.tables[name] = _run(finished(plan, shares.get(name, [])), tables, choices)
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
