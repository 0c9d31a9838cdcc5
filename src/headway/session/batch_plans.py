"""The plan of a batch for people: overlap, order, mini-batches, and what is shared in each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from math import inf
from typing import Any

from headway.base.errors import HeadwayError
from headway.session.batch_planning import BatchPlanner
from headway.session.sharing import Shareable, SharedStep, shared_step
from headway.sharing.chains import Chain
from headway.sharing.cost_model import CostModel
from headway.sharing.mini_batches import MiniBatch
from headway.sharing.overlap import OverlapGraph
from headway.sharing.query_sets import members_of

_MOST_EDGES = 20
_MOST_NAMES = 8


@dataclass(frozen=True)
class BatchPlan:
    """Mini-batches as they would be run if every one took as long as it is expected to."""

    queries: list[Shareable]
    graph: OverlapGraph
    order: list[int]
    batches: list[MiniBatch]
    steps: list[list[SharedStep]]
    """By mini-batch, what it shares."""
    begins: list[float]
    """By mini-batch, when it is expected to begin, in seconds from the request."""
    deadlines: Mapping[str, float]
    """By query that has one."""
    unplanned: Mapping[str, str]
    """By the name of a shared step that cannot be made: why. Its queries are run by themselves, or
    in smaller groups."""

    def ends(self, number: int) -> float:
        """When a mini-batch is expected to be done."""
        return self.begins[number] + self.batches[number].seconds

    @property
    def late(self) -> list[str]:
        """The queries that are not expected to be done in time."""
        return [
            query.name
            for number, batch in enumerate(self.batches)
            for query in batch.queries
            if self.ends(number) > self.deadlines.get(query.name, inf)
        ]

    @property
    def errors(self) -> dict[str, HeadwayError]:
        """Of queries that cannot be run, by their names."""
        planned = (each.planned for each in self.queries)
        return {query.name: query.error for query in planned if query.error is not None}

    def explain(self) -> str:
        parts = (self.clock(), self._overlap(), self._ordered(), self._mini_batches())
        return "\n\n".join("\n".join(lines) for lines in parts if lines)

    def clock(self) -> list[str]:
        """What is expected to be done by the deadline."""
        if not self.deadlines:
            return []
        last = max(self.deadlines.values())
        broken = list(self.errors)
        late = [name for name in self.late if name not in broken]
        in_time = len(self.queries) - len(late) - len(broken)
        told = f"{in_time} of {len(self.queries)} queries are expected in time"
        lines = [f"Deadline: {last:g} s; {told}, the last after {self.ends(-1):.1f} s"]
        lines += [f"  too late: {_listed(late)}"] if late else []
        return [*lines, f"  cannot be run: {_listed(broken)}"] if broken else lines

    def _names(self) -> list[str]:
        return [each.planned.name for each in self.queries]

    def _overlap(self) -> list[str]:
        names = self._names()
        edges = [
            (self.graph.weight(i, j), names[i], names[j])
            for i in range(self.graph.size)
            for j in self.graph.truncated[i]
        ]
        edges.sort(key=lambda edge: (-edge[0], edge[1], edge[2]))
        lines = [f"Overlap: {len(edges)} pairs of {len(names)} queries have joins in common"]
        lines += [f"  {a} → {b}  {weight:.2f}" for weight, a, b in edges[:_MOST_EDGES]]
        if len(edges) > _MOST_EDGES:
            lines.append(f"  and {len(edges) - _MOST_EDGES} more")
        return lines

    def _ordered(self) -> list[str]:
        names = self._names()
        return ["Order:", "  " + ", ".join(names[number] for number in self.order)]

    def _mini_batches(self) -> list[str]:
        lines: list[str] = []
        for number, (batch, steps) in enumerate(zip(self.batches, self.steps, strict=True), 1):
            count = len(batch.queries)
            when = f"from {self.begins[number - 1]:.1f} s to {self.ends(number - 1):.1f} s"
            lines.append(
                f"Mini-batch {number}: {count} quer{'y' if count == 1 else 'ies'}, "
                f"{when}; closed because {batch.closed_by}"
            )
            for step in steps:
                lines += _chain_lines(step)
            prefix = _step_prefix(number)
            for name, reason in self.unplanned.items():
                lines += [f"  {name} cannot be made: {reason}"] if name.startswith(prefix) else []
            shared = {name for step in steps for name in step.queries}
            alone = [q.name for q in batch.queries if q.name not in shared]
            if alone:
                lines.append(f"  by themselves: {_listed(alone)}")
            lines.append("")
        for each in self.queries:
            for part in each.not_shared:
                lines.append(f"Not shared: {part.query}, {part.operator}: {part.reason}")
        return lines

    def to_builtins(self) -> dict[str, Any]:
        names = self._names()
        return {
            "overlap": [
                {"from": names[i], "to": names[j], "weight": round(self.graph.weight(i, j), 4)}
                for i in range(self.graph.size)
                for j in range(self.graph.size)
                if self.graph.weight(i, j) > 0
            ],
            "order": [names[number] for number in self.order],
            "deadlines": dict(self.deadlines),
            "late": self.late,
            "mini_batches": [
                {
                    "queries": [query.name for query in batch.queries],
                    "begins": round(self.begins[number], 3),
                    "seconds": round(batch.seconds, 3),
                    "closed_by": batch.closed_by,
                    "shared": [_step_to_builtins(step) for step in steps],
                }
                for number, (batch, steps) in enumerate(zip(self.batches, self.steps, strict=True))
            ],
            "unplanned": dict(self.unplanned),
            "errors": {name: error.describe() for name, error in self.errors.items()},
            "not_shared": [
                {"query": part.query, "operator": part.operator, "reason": part.reason}
                for each in self.queries
                for part in each.not_shared
            ],
        }

    def picture(self) -> str:
        """The overlap of all pairs in their order, the mini-batches, and their chains, as SVG."""
        return _Picture(self).draw()


def _chain_lines(step: SharedStep) -> list[str]:
    chain = step.chain.chain
    lines = [f"  {step.name}: {chain.root} for {_listed(_members(chain, chain.everyone))}"]
    for role in chain.roles:
        for kind, queries in role.kinds().items():
            keys = ", ".join(f"{key.left.text} = {key.right.text}" for key in role.keys)
            who = _listed(_members(chain, queries))
            lines.append(f"    {kind} join {role.label} on {keys.replace('`', '')} for {who}")
    for number, each in enumerate(step.plan.classes):
        groups = ", ".join(key.text.replace("`", "") for key in each.keys) or "all rows"
        what = "grouped by" if chain.grouped else "rows of"
        who = _listed(_members(chain, each.members))
        lines.append(f"    class {number}: {what} {groups[:100]} for {who}")
    return lines


def _step_to_builtins(step: SharedStep) -> dict[str, Any]:
    chain = step.chain.chain
    return {
        "name": step.name,
        "table": chain.root,
        "queries": _members(chain, chain.everyone),
        "joins": [
            {
                "table": role.source.table,
                "label": role.label,
                "keys": [[key.left.text, key.right.text] for key in role.keys],
                "queries": {
                    str(k): _members(chain, queries) for k, queries in role.kinds().items()
                },
            }
            for role in chain.roles
        ],
        "classes": [
            {
                "groups": [key.text for key in each.keys],
                "queries": _members(chain, each.members),
            }
            for each in step.plan.classes
        ],
    }


def _members(chain: Chain, queries: int) -> list[str]:
    return [chain.seats[number].shape.member.query for number in members_of(queries)]


def _listed(names: list[str]) -> str:
    unique = list(dict.fromkeys(names))
    shown = ", ".join(unique[:_MOST_NAMES])
    more = len(unique) - _MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


class _Picture:
    """Squares for the overlap of each pair; beside them, a box per chain with its joins."""

    _CELL = 9
    _LEFT = 90
    _TOP = 50
    _LINE = 16

    def __init__(self, plan: BatchPlan) -> None:
        self._plan = plan
        self._parts: list[str] = []

    def draw(self) -> str:
        size = self._plan.graph.size
        matrix = self._CELL * size
        self._overlap(size)
        width, height = self._chains(self._LEFT + matrix + 40)
        height = max(height, self._TOP + matrix + 20)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="11">'
        )
        return "\n".join(
            [head, '<rect width="100%" height="100%" fill="white"/>', *self._parts, "</svg>\n"]
        )

    def _text(self, x: float, y: float, text: str, more: str = "") -> None:
        self._parts.append(f'<text x="{x}" y="{y}" {more}>{escape(text)}</text>')

    def _overlap(self, size: int) -> None:
        self._text(self._LEFT, 20, "Overlap of queries, in their order", 'font-weight="bold"')
        for line in self._plan.clock()[:1]:
            self._text(self._LEFT, 36, line)
        order, cell = self._plan.order, self._CELL
        for row, i in enumerate(order):
            y = self._TOP + row * cell
            if size <= 40 or row % 5 == 0:
                name = self._plan.queries[i].planned.name[:14]
                self._text(self._LEFT - 6, y + cell - 1, name, 'text-anchor="end" font-size="8"')
            for column, j in enumerate(order):
                weight = 1.0 if i == j else self._plan.graph.weight(i, j)
                if weight:
                    shade = round(255 * (1 - weight))
                    self._parts.append(
                        f'<rect x="{self._LEFT + column * cell}" y="{y}" width="{cell - 1}" '
                        f'height="{cell - 1}" fill="rgb({shade},{shade},255)"/>'
                    )
        taken = 0
        for batch in self._plan.batches:
            start, end = taken, taken + len(batch.queries)
            taken = end
            self._parts.append(
                f'<rect x="{self._LEFT + start * cell - 1}" y="{self._TOP + start * cell - 1}" '
                f'width="{(end - start) * cell + 1}" height="{(end - start) * cell + 1}" '
                'fill="none" stroke="crimson"/>'
            )

    def _chains(self, left: float) -> tuple[float, float]:
        y = float(self._TOP)
        self._text(left, 20, "Mini-batches and what they share", 'font-weight="bold"')
        for number, steps in enumerate(self._plan.steps, 1):
            batch = self._plan.batches[number - 1]
            when = f"{self._plan.begins[number - 1]:.1f} s to {self._plan.ends(number - 1):.1f} s"
            told = f"mini-batch {number}: {len(batch.queries)} queries, {when}"
            self._text(left, y, told, 'fill="crimson"')
            y += self._LINE
            for step in steps:
                lines = [line.strip()[:110] for line in _chain_lines(step)]
                box = self._LINE * len(lines) + 8
                self._parts.append(
                    f'<rect x="{left}" y="{y - 10}" width="700" height="{box}" rx="6" '
                    'fill="aliceblue" stroke="steelblue"/>'
                )
                for line in lines:
                    self._text(left + 8, y + 4, line)
                    y += self._LINE
                y += 18
        return left + 720, y + 20


def plan_of_batch(
    planner: BatchPlanner,
    described: list[Shareable],
    deadlines: Mapping[str, float],
    model: CostModel,
    elapsed: float = 0.0,
) -> BatchPlan:
    """All mini-batches, each expected to take as long as predicted. `deadlines` are in seconds, by
    query that has one; of these, `elapsed` have been spent on plans."""
    waiting = [each.planned.name for each in described]
    batches: list[MiniBatch] = []
    steps: list[list[SharedStep]] = []
    begins: list[float] = []
    unplanned: dict[str, str] = {}
    while waiting:
        left = {name: deadlines.get(name, float("inf")) - elapsed for name in waiting}
        batch = planner.next(waiting, left, model)
        batches.append(batch)
        made: list[SharedStep] = []
        for number, planned in enumerate(batch.chains(), 1):
            name = f"{_step_prefix(len(batches))}{number}"
            try:
                made.append(shared_step(name, planned))
            except Exception as error:  # noqa: BLE001 - as a run finds out, which then does without
                unplanned[name] = str(error)
        steps.append(made)
        begins.append(elapsed)
        elapsed += batch.seconds
        taken = {query.name for query in batch.queries}
        waiting = [name for name in waiting if name not in taken]
    order = [planner.numbers[q.name] for batch in batches for q in batch.queries]
    return BatchPlan(described, planner.graph, order, batches, steps, begins, deadlines, unplanned)


def _step_prefix(mini_batch: int) -> str:
    return f"shared-{mini_batch}-"
