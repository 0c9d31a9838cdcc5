"""A mini-batch as it is kept with its run: what its shared steps compute, and what each of its
queries is to do with their rows.

Whoever goes on with the run does just that. Planning it anew would need the same costs, tables at
the same places, and queries that are done by now: with other steps, what was kept is of no use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from headway.plan.graph import walk
from headway.plan.nodes import Node, QueryPlan, StateScan
from headway.plan.serialize import plan_from_builtins, plan_to_builtins
from headway.sharing.failures import Stage


@dataclass(frozen=True, slots=True)
class StepPlan:
    """A shared step to be run. It can be cut after each of the joins in `joined`, which are by
    their order: what they compute is in `keys`, and the rows that are expected of them in
    `rows`."""

    name: str
    queries: tuple[str, ...]
    key: str
    state: str
    plan: QueryPlan
    joined: tuple[Node, ...] = ()
    keys: tuple[str, ...] = ()
    rows: tuple[float, ...] = ()
    stages: tuple[Stage, ...] = ()
    """What was expected of it from one of these joins to the next."""


@dataclass(frozen=True, slots=True)
class Formed:
    """`rests` are by query what is left of it when its shared steps are done."""

    queries: tuple[str, ...] = ()
    steps: tuple[StepPlan, ...] = ()
    rests: Mapping[str, QueryPlan] = field(default_factory=dict)

    def needs(self, query: str) -> set[str]:
        """The states that are to be there before a query can be finished."""
        root = self.rests[query].root
        return {node.state for node in walk(root) if isinstance(node, StateScan)}

    def ready(self, states: Collection[str]) -> dict[str, QueryPlan]:
        """What is left of the queries that can be finished when there are these states."""
        return {name: rest for name, rest in self.rests.items() if self.needs(name) <= {*states}}

    def moved(self, here: Callable[[QueryPlan], QueryPlan]) -> Formed:
        """With tables that are elsewhere by now."""
        return replace(
            self,
            steps=tuple(_moved(step, here) for step in self.steps),
            rests={name: here(rest) for name, rest in self.rests.items()},
        )


def _moved(step: StepPlan, here: Callable[[QueryPlan], QueryPlan]) -> StepPlan:
    settings = step.plan.settings
    joined = (here(QueryPlan(node, node.column_names, settings)).root for node in step.joined)
    return replace(step, plan=here(step.plan), joined=tuple(joined))


class _StepRecord(msgspec.Struct):
    name: str
    queries: tuple[str, ...]
    key: str
    state: str
    plan: dict[str, Any]
    joined: tuple[int, ...]
    """Positions among the nodes of the plan, inputs before their users."""
    keys: tuple[str, ...]
    rows: tuple[float, ...]
    stages: tuple[Stage, ...] = ()


class _FormedRecord(msgspec.Struct):
    queries: tuple[str, ...]
    steps: tuple[_StepRecord, ...]
    rests: dict[str, dict[str, Any]]


def formed_to_json(formed: Formed) -> bytes:
    steps = []
    for step in formed.steps:
        positions = {node: number for number, node in enumerate(walk(step.plan.root))}
        steps.append(
            _StepRecord(
                step.name,
                step.queries,
                step.key,
                step.state,
                plan_to_builtins(step.plan),
                tuple(positions[node] for node in step.joined),
                step.keys,
                step.rows,
                step.stages,
            )
        )
    rests = {name: plan_to_builtins(rest) for name, rest in formed.rests.items()}
    return msgspec.json.encode(_FormedRecord(formed.queries, tuple(steps), rests))


def formed_from_json(data: bytes) -> Formed:
    record = msgspec.json.decode(data, type=_FormedRecord)
    steps = []
    for step in record.steps:
        plan = plan_from_builtins(step.plan)
        nodes = list(walk(plan.root))
        joined = tuple(nodes[number] for number in step.joined)
        steps.append(
            StepPlan(
                step.name,
                step.queries,
                step.key,
                step.state,
                plan,
                joined,
                step.keys,
                step.rows,
                step.stages,
            )
        )
    rests = {name: plan_from_builtins(rest) for name, rest in record.rests.items()}
    return Formed(record.queries, tuple(steps), rests)
