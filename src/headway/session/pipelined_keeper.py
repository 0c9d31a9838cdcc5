"""What the workers have done of a query that they are running: the tables of its channels that are
complete."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from headway.base.clock import Until, whenever
from headway.base.errors import StoreUnavailable
from headway.lineage.names import ChannelId
from headway.pipelined.programs import Held
from headway.pipelined.transport import Extract, Extracted
from headway.plan.graph import replace_nodes, topmost, walk, with_root
from headway.plan.nodes import Node, Scan, StateScan
from headway.plan.sources import SessionSource
from headway.plan.states import image_state, renamed_state
from headway.session.history import StoreSpeed
from headway.session.keepers import BEGIN_SECONDS, LOOK_SECONDS, HeldState, Standing, state_prefix
from headway.session.pipelined import ExecutionWatch
from headway.session.planning import PlannedQuery
from headway.session.resuming import STATES, Origin, QueryImage, states_of

if TYPE_CHECKING:
    from headway.spark.results import KeptResult

Owners = Mapping[ChannelId, tuple[str, int]]


_MEASURING_SECONDS = 2.0
"""A channel answers between two of its tasks: for how long one is waited for."""
_BUSY_SECONDS = 10.0
"""For which one that has not answered is not asked again."""


class PipelinedKeeper:
    """Keeps the states of one query."""

    def __init__(self, query: PlannedQuery, watch: ExecutionWatch, speed: StoreSpeed) -> None:
        assert query.plan is not None
        self._query = query
        self._plan = query.plan
        self._watch = watch
        self._speed = speed
        self._nodes = list(walk(query.plan.root))
        self._prefix = state_prefix(query.name)
        self._kept: dict[Node, tuple[StateScan, KeptResult]] = {}
        self._sizes: dict[Node, HeldState] = {}
        self._ask_again: dict[Node, float] = {}
        """When channels are asked again how much they have, that did not say."""
        self._asking: frozenset[str] = frozenset()
        """Pieces that workers are writing."""

    def quiet(self, stop: Callable[[], None]) -> None:
        """What its channels have would be lost with it. Those that were busy will answer now."""
        self._watch.execution.ask(lambda coordinator: coordinator.pause())
        self._ask_again.clear()

    def go_on(self) -> bool:
        self._watch.execution.ask(lambda coordinator: coordinator.go_on())
        return True

    def settle(self, until: float | None, ended: Callable[[], bool], *, to_its_end: bool) -> None:
        """Until the inputs that are being read have been read by all channels."""
        begun = self._begun_sides()
        patience = time.monotonic() + BEGIN_SECONDS
        while not ended():
            begun = begun or self._begun_sides()  # between two pipelines there may be none
            if not begun & self._open_sides() if begun else time.monotonic() > patience:
                return
            if until is not None:
                written = self._speed.seconds(self.stand().new_bytes)
                if time.monotonic() + 2 * written >= until:
                    return
            time.sleep(LOOK_SECONDS)

    def finished(self) -> int:
        return self._watch.report.sides_done

    def stand(self, without: Collection[str] = ()) -> Standing:
        known = self._kept  # another thread may put another in its place
        complete = self._complete(without)
        wanted = topmost(self._plan.root, complete)
        self._measure(wanted, complete)
        states: dict[str, HeldState] = {}
        replaced: dict[Node, Node] = {}
        made: dict[str, Origin] = {}
        for node in wanted:
            scan = self._scan(node)
            if node in known:
                kept = known[node][1]
                states[scan.state] = HeldState(kept.rows, kept.bytes, kept=True)
            else:
                states[scan.state] = self._sizes.get(node, HeldState(None, None))
            replaced[node] = renamed_state(scan, node)
            made[scan.state] = _origin(node)
        plan = with_root(self._plan, replace_nodes(self._plan.root, replaced))
        for name in states_of(plan) - states.keys():
            former = self._query.states[name]
            states[name] = HeldState(former.rows, former.bytes, kept=True, steps={})
        report = self._watch.report
        return Standing(plan, states, report.sides_done, report.sides_total, made)

    def _measure(self, nodes: Iterable[Node], complete: Mapping[Node, Held | None]) -> None:
        """Asks the channels once how much there is of a state."""
        now = time.monotonic()
        unknown = [
            n
            for n in nodes
            if complete[n] is not None
            and n not in self._kept
            and n not in self._sizes
            and now >= self._ask_again.get(n, now)
        ]
        owners = self._watch.execution.ask(lambda coordinator: coordinator.owners())
        if unknown and owners is not None:
            end = now + _MEASURING_SECONDS
            asked = self._asked(unknown, complete, owners, lambda: end, only_sizes=True)
            for node, parts in asked.items():
                if all(part.problem is None for part in parts):
                    rows, size = sum(p.rows for p in parts), sum(p.bytes for p in parts)
                    self._sizes[node] = HeldState(rows, size)
                else:
                    self._ask_again[node] = end + _BUSY_SECONDS

    def image(
        self,
        without: Collection[str] = (),
        *,
        origins: bool = False,
        until: Until = whenever,
        given_up: Callable[[], bool] = lambda: False,
    ) -> QueryImage | None:
        owners = self._watch.execution.ask(lambda coordinator: coordinator.owners())
        if owners is None:
            return None
        began = time.monotonic()
        complete = self._complete(without)
        if self._reads_session_data(topmost(self._plan.root, complete)):
            return None
        selected = time.monotonic()

        def wanted_until() -> float | None:
            return began if given_up() else until()

        while missing := [n for n in topmost(self._plan.root, complete) if n not in self._kept]:
            if given_up():
                return None
            end = until()
            in_time = end is None or time.monotonic() < end
            rows = self._extract(missing, complete, owners, wanted_until) if in_time else {}
            unmoved = self._unmoved(owners)
            for node in missing:
                held, kept = complete[node], rows.get(node)
                assert held is not None
                if kept is None or held.stage not in unmoved:
                    del complete[node]  # a channel has it no more: what it was made from is taken
                else:
                    self._kept[node] = (self._scan(node), kept)
        wanted = topmost(self._plan.root, complete)
        replaced = {node: renamed_state(self._kept[node][0], node) for node in wanted}
        plan = with_root(self._plan, replace_nodes(self._plan.root, replaced))
        if given_up() or self._reads_session_data(wanted):
            return None
        states = {self._kept[node][0].state: self._kept[node][1] for node in wanted}
        former = {name: self._query.states[name] for name in states_of(plan) - states.keys()}
        report = self._watch.report
        made = {self._kept[node][0].state: _origin(node) for node in wanted} if origins else {}
        return QueryImage(
            plan,
            states | former,
            report.sides_done,
            report.sides_total,
            made,
            select_seconds=selected - began,
            extract_seconds=time.monotonic() - selected,
            transfer_seconds=max((s.write_seconds for s in states.values()), default=0.0),
            operators={self._kept[node][0].state: node.kind for node in wanted},
        )

    def hurry(self) -> None:
        """What a channel has collected is written in one go; nobody waits for it any longer."""
        self._watch.cluster.give_up(self._asking)

    def keep_only(self, states: Collection[str]) -> None:
        self._kept = {n: kept for n, kept in self._kept.items() if kept[0].state in states}

    def _reads_session_data(self, held: Collection[Node]) -> bool:
        """Whether what is left would read data of the session that made it, which no other has."""
        replaced = {node: renamed_state(self._scan(node), node) for node in held}
        left = walk(replace_nodes(self._plan.root, replaced))
        return any(isinstance(n, Scan) and isinstance(n.source, SessionSource) for n in left)

    def _complete(self, without: Collection[str]) -> dict[Node, Held | None]:
        """The nodes whose rows are all there, or were when they were kept."""
        ended = self._ended_sides()
        complete: dict[Node, Held | None] = {}
        for held in self._watch.dataflow.held:
            node = self._nodes[held.node]
            wanted = not without or self._scan(node).state not in without
            if wanted and all((held.stage, side) in ended for side in held.sides):
                complete[node] = held
        return complete | dict.fromkeys(self._kept)

    def _ended_sides(self) -> frozenset[tuple[int, int]]:
        found = self._watch.execution.ask(lambda coordinator: coordinator.ended_sides())
        return found or frozenset()

    def _begun_sides(self) -> frozenset[tuple[int, int]]:
        found = self._watch.execution.ask(lambda coordinator: coordinator.begun_sides())
        return found or frozenset()

    def _open_sides(self) -> frozenset[tuple[int, int]]:
        found = self._watch.execution.ask(lambda coordinator: coordinator.open_sides())
        return found or frozenset()

    def _unmoved(self, owners: Owners) -> frozenset[int]:
        """Stages whose channels are all where they were, and have not begun anew: what was read of
        them is theirs."""
        now = self._watch.execution.ask(lambda coordinator: coordinator.owners()) or {}
        moved = {channel.stage for channel in owners if now.get(channel) != owners[channel]}
        return frozenset(channel.stage for channel in owners) - moved

    def _scan(self, node: Node) -> StateScan:
        if kept := self._kept.get(node):
            return kept[0]
        types = ((column.type, column.nullable) for column in node.schema)
        return image_state(f"{self._prefix}-{self._nodes.index(node)}", types)

    def _extract(
        self,
        nodes: Collection[Node],
        complete: Mapping[Node, Held | None],
        owners: Owners,
        until: Until,
    ) -> dict[Node, KeptResult]:
        """States in pieces, all at the same time; without those that a channel has no more, and
        those that take too long."""
        began = time.monotonic()
        found = {
            node: self._kept_result(node, parts)
            for node, parts in self._asked(nodes, complete, owners, until).items()
            if all(part.problem is None for part in parts)
        }
        if len(found) == len(nodes):
            self._speed.add(sum(kept.bytes for kept in found.values()), time.monotonic() - began)
        return found

    def _asked(
        self,
        nodes: Iterable[Node],
        complete: Mapping[Node, Held | None],
        owners: Owners,
        until: Until,
        *,
        only_sizes: bool = False,
    ) -> dict[Node, list[Extracted]]:
        """What the channels answer, by state."""
        asked: list[tuple[Node, str, Extract]] = []
        for node in nodes:
            held, state = complete[node], self._scan(node)
            assert held is not None
            types = (column.type for column in held.columns)
            columns = tuple(zip(state.column_names, types, strict=True))
            channels = sorted(channel for channel in owners if channel.stage == held.stage)
            for channel in channels[:1] if held.copied else channels:
                piece = f"{STATES}/{state.state}/{channel.channel:06d}-{secrets.token_hex(2)}"
                query = self._watch.query
                extract = Extract(query, channel, held.sql, columns, piece, only_sizes)
                asked.append((node, owners[channel][0], extract))
        if not only_sizes:
            self._asking = frozenset(extract.piece for _, _, extract in asked)
        told = [(owner, extract) for _, owner, extract in asked]
        answers = self._watch.cluster.extract(told, until)
        by_node: dict[Node, list[Extracted]] = {}
        for (node, _, extract), answer in zip(asked, answers, strict=True):
            if answer.not_written:
                raise StoreUnavailable(
                    f"{extract.piece} cannot be kept: {answer.problem}",
                    hint="the query goes on; ask again when the store takes what is written",
                )
            by_node.setdefault(node, []).append(answer)
        return by_node

    def _kept_result(self, node: Node, parts: list[Extracted]) -> KeptResult:
        from headway.spark.results import KeptResult
        from headway.spark.schemas import schema_of_columns

        return KeptResult(
            sum(part.rows for part in parts),
            sum(part.bytes for part in parts),
            tuple(part.piece for part in parts if part.rows),
            schema_of_columns(self._scan(node).columns),
            write_seconds=max((part.seconds for part in parts), default=0.0),
        )


def _origin(node: Node) -> Origin:
    return Origin(node, tuple(range(len(node.schema))), whole=True)
