"""What a driver of a run leaves to the next one: results, kept rows, and plans of what is left.

An image is what is done of queries that were stopped: the rows that are still needed, in pieces,
and by query the plan of what is left, in which these rows stand in place of the work that made
them. One event makes it valid; what earlier images alone had is removed after that. Images are made
of queries that are stopped, and of queries that go on: those are snapshots.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from headway.base.errors import FormatNotReadable, StoreCorrupt
from headway.plan.canonical import row_keys
from headway.plan.expressions import column_reference
from headway.plan.graph import replace_nodes, walk, with_root
from headway.plan.nodes import Named, Node, Project, QueryPlan, StateScan
from headway.plan.serialize import plan_from_builtins, plan_to_builtins
from headway.session.formed import Formed, formed_from_json
from headway.session.planning import PlannedQuery, statistics_of, with_engine
from headway.storage import QUERY_DONE, Event, Run, TableRecord

if TYPE_CHECKING:
    from headway.spark.results import KeptResult

BATCH = "batch"
SHARED_DONE = "shared_done"
TO_FINISH = "to_finish"
MINI_BATCH = "mini_batch"
MINI_BATCH_ENDED = "mini_batch_ended"
IMAGE = "image"
FALLBACK = "fallback"
STATES, IMAGES = "states", "images"
"""Folders of a run."""
IMAGE_VERSION = 1
_RUN_AGAIN = "bring the run back from a copy of the store, or run its queries again"


@dataclass(frozen=True, slots=True)
class Origin:
    """What a state stands for: the plan that made it, where the columns of that are in the state,
    and whether the state has all of its rows."""

    node: Node
    places: tuple[int, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class QueryImage:
    """What is left of a query, and the rows that it needs. Pipelines are those of its engine."""

    plan: QueryPlan
    states: Mapping[str, KeptResult] = field(default_factory=dict)
    finished: int = 0
    total: int = 1
    origins: Mapping[str, Origin] = field(default_factory=dict)
    key: str | None = None
    """Of a shared step of a batch: what it computes."""
    tables: tuple[TableRecord, ...] = ()
    """What is left to read, of a query whose tables the run does not know."""
    seconds: float = 0.0
    """What the query had been running for."""
    select_seconds: float = 0.0
    extract_seconds: float = 0.0
    """What it took to find the states, and to write those that were not yet kept."""
    transfer_seconds: float = 0.0
    """The part of the writing that the store took."""
    operators: Mapping[str, str] = field(default_factory=dict)
    """By state made here, the operator that it stands for."""

    @property
    def bytes(self) -> int:
        return sum(state.bytes for state in self.states.values())


@dataclass(frozen=True, slots=True)
class Resumed:
    """What an earlier driver of the run has left: results, kept rows, plans of what is left."""

    results: Mapping[str, KeptResult] = field(default_factory=dict)
    states: Mapping[str, KeptResult] = field(default_factory=dict)
    plans: Mapping[str, QueryPlan] = field(default_factory=dict)
    by_key: Mapping[str, KeptResult] = field(default_factory=dict)
    """Shared rows of a batch by what they are, apart from their names."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """What a batch was started with; nothing for other runs."""
    events: int = 0
    """How many of the run's events this is taken from."""
    begun: Mapping[str, QueryPlan] = field(default_factory=dict)
    """By what they are: what is left of shared rows that were being made."""
    origins: Mapping[str, Origin] = field(default_factory=dict)
    progress: Mapping[str, tuple[int, int, float]] = field(default_factory=dict)
    """By query of the image: pipelines done and in all, and the seconds behind it."""
    offered: frozenset[str] = frozenset()
    """States that other runs may read."""
    tables: tuple[TableRecord, ...] = ()
    """Of queries whose tables the run did not know when it began."""
    forming: Formed = field(default_factory=Formed)
    """The mini-batch that was under way."""
    done_at: Mapping[str, float] = field(default_factory=dict)
    """By query that is done: when, in seconds from when the run was asked for."""

    def image_of(self, name: str) -> QueryImage | None:
        """What is known of a query that was not done."""
        plan = self.plans.get(name)
        if plan is None or name in self.results:
            return None
        return self._image(plan, *self.progress.get(name, (0, 1, 0.0)))

    def images(self) -> dict[str, QueryImage]:
        """What is known of all queries and shared steps that were not done."""
        found = {name: self.image_of(name) for name in self.plans}
        steps = {_step_name(key): self._image(plan, key=key) for key, plan in self.begun.items()}
        return {name: image for name, image in found.items() if image is not None} | steps

    def _image(
        self,
        plan: QueryPlan,
        finished: int = 0,
        total: int = 1,
        seconds: float = 0.0,
        key: str | None = None,
    ) -> QueryImage:
        names = states_of(plan)
        states = {name: self.states[name] for name in names}
        origins = {name: self.origins[name] for name in names if name in self.origins}
        tables = self.tables if key is None else ()
        return QueryImage(plan, states, finished, total, origins, key, tables, seconds)


def _step_name(key: str) -> str:
    """Keys of different steps begin alike, with the settings that they are for."""
    return f"step-{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}"


def states_of(plan: QueryPlan) -> set[str]:
    return {node.state for node in walk(plan.root) if isinstance(node, StateScan)}


def with_origins(
    plan: QueryPlan, origins: Mapping[str, Origin]
) -> tuple[QueryPlan, dict[str, Node]]:
    """The plan as it was before its states were there, as far as that is known, and what stands in
    the place of each of them."""
    replaced: dict[Node, Node] = {}
    places: dict[str, Node] = {}
    for node in walk(plan.root):
        if isinstance(node, StateScan) and node.state in origins:
            replaced[node] = places[node.state] = _in_place_of(node, origins[node.state])
    return with_root(plan, replace_nodes(plan.root, replaced)), places


def _in_place_of(state: StateScan, origin: Origin) -> Node:
    """What made a state, with the names that the state's columns have."""
    pairs = zip(origin.node.schema, origin.places, strict=True)
    named = {state.columns[place].name: column_reference(column) for column, place in pairs}
    return Project(origin.node, tuple(Named(name, value) for name, value in named.items()))


def left_of(
    planned: PlannedQuery,
    plan: QueryPlan,
    states: Mapping[str, KeptResult],
    observed: Mapping[str, float],
    wanted: str,
) -> PlannedQuery:
    """The query with a plan that reads kept rows."""
    query = replace(planned, states={name: states[name] for name in states_of(plan)})
    return with_engine(query, plan, statistics_of(planned.imported), observed, wanted)


def known_rows(plan: QueryPlan, rows: Mapping[str, float | None]) -> dict[str, float]:
    """The rows of the states that a plan reads, as counts that were observed."""
    keys = row_keys(plan.root)
    found: dict[str, float] = {}
    for node in walk(plan.root):
        if isinstance(node, StateScan):
            count = rows.get(node.state)
            if count is not None and count >= 0:
                found[keys[node]] = float(count)
    return found


class _OriginRecord(msgspec.Struct):
    plan: dict[str, Any]
    places: tuple[int, ...]
    whole: bool


class _ImageRecord(msgspec.Struct):
    """The piece of an image. `run` is the one that it is of, and `texts` tells its queries apart
    from others of the same names."""

    run: str
    plans: dict[str, dict[str, Any]]
    origins: dict[str, _OriginRecord]
    tables: tuple[TableRecord, ...] = ()
    texts: dict[str, str] = {}
    version: int = IMAGE_VERSION


class _Version(msgspec.Struct):
    version: int


def write_image(
    run: Run,
    images: Mapping[str, QueryImage],
    offered: Collection[str] = (),
    needed: Collection[str] = (),
    not_kept: Collection[str] = (),
) -> None:
    """Makes it the run's image, by query or shared step. The former one goes, but for the states
    that are `offered` to other runs, and those that are `needed` by what is running. Nothing could
    be kept of the queries that are `not_kept`."""
    piece = f"{IMAGES}/{secrets.token_hex(6)}"
    origins = {
        state: _OriginRecord(
            plan_to_builtins(QueryPlan(origin.node, origin.node.column_names, image.plan.settings)),
            origin.places,
            origin.whole,
        )
        for image in images.values()
        for state, origin in image.origins.items()
    }
    plans = {name: plan_to_builtins(image.plan) for name, image in images.items()}
    tables = tuple({table: None for image in images.values() for table in image.tables})
    texts = {name: text for name, text in _texts(run).items() if name in plans}
    record = _ImageRecord(run.run_id, plans, origins, tables, texts)
    run.write_piece(piece, msgspec.json.encode(record))
    states = {
        state: kept_data(kept) for image in images.values() for state, kept in image.states.items()
    }
    progress = {
        name: [image.finished, image.total, round(image.seconds, 3)]
        for name, image in images.items()
    }
    keys = {name: image.key for name, image in images.items() if image.key is not None}
    told = {"states": states, "progress": progress, "keys": keys, "offered": sorted(offered)}
    stored = _stored(run)
    run.append(IMAGE, None, piece=piece, not_kept=sorted(not_kept), **told)
    pieces = {piece, *(p for kept in states.values() for p in kept["pieces"])}
    _remove(run, stored - pieces, {*offered, *needed})


def has_images(run: Run) -> bool:
    """Whether there is anything of images in the run, such as states of one that never came to
    be."""
    return bool(run.piece_sizes(STATES) or run.piece_sizes(IMAGES))


def drop_images(run: Run, offered: Collection[str] = ()) -> None:
    """Of a run that is at its end, but for states that are `offered` to other runs."""
    told = {"states": {}, "progress": {}, "keys": {}, "offered": sorted(offered)}
    stored = _stored(run)
    run.append(IMAGE, None, piece=None, **told)
    _remove(run, stored, offered)


def _stored(run: Run) -> set[str]:
    """Asked for before an event is appended: once that has succeeded, another driver may have taken
    the run over at any time, and what is stored since is its own."""
    return {*run.pieces(IMAGES), *run.pieces(STATES)}


def _remove(run: Run, pieces: set[str], wanted: Collection[str]) -> None:
    """All but the states that are `wanted`."""
    folders = tuple(f"{STATES}/{name}/" for name in wanted)
    run.remove_pieces(name for name in pieces if not name.startswith(folders))


def _read_image(run: Run, piece: str) -> _ImageRecord:
    data = run.read_piece(piece)
    try:
        version = msgspec.json.decode(data, type=_Version).version
        if version != IMAGE_VERSION:
            raise FormatNotReadable(
                f"the image of run {run.run_id} is in format {version}; this release reads "
                f"format {IMAGE_VERSION}",
                hint="use the Headway release that wrote the image",
            )
        image = msgspec.json.decode(data, type=_ImageRecord)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(
            f"{piece} of run {run.run_id} is no image: {error}", hint=_RUN_AGAIN
        ) from error
    if image.run != run.run_id:
        raise StoreCorrupt(
            f"{piece} of run {run.run_id} is an image of run {image.run}", hint=_RUN_AGAIN
        )
    present = _texts(run)
    for name, text in image.texts.items():
        if present.get(name) != text:
            raise StoreCorrupt(
                f"{piece} of run {run.run_id}: {name} is of another query", hint=_RUN_AGAIN
            )
    return image


def _texts(run: Run) -> dict[str, str]:
    """Digests of the texts of a run's queries."""
    return {
        query.name: hashlib.blake2b(query.sql.encode(), digest_size=16).hexdigest()
        for query in run.manifest.queries
    }


def resumed_from(run: Run, events: Sequence[Event]) -> Resumed:
    """What is left of the driver that is gone, by the events of its run."""
    options: Mapping[str, Any] = {}
    results: dict[str, KeptResult] = {}
    states: dict[str, KeptResult] = {}
    plans: dict[str, QueryPlan] = {}
    by_key: dict[str, KeptResult] = {}
    begun: dict[str, QueryPlan] = {}
    origins: dict[str, Origin] = {}
    tables: tuple[TableRecord, ...] = ()
    image: Mapping[str, Any] = {"piece": None, "progress": {}, "keys": {}, "offered": ()}
    pieces: list[str] = []
    forming: str | None = None
    failed: set[str] = set()
    done_at: dict[str, float] = {}
    for event in events:
        data = event.data
        if event.kind == BATCH:
            options = data
        elif event.kind == QUERY_DONE and event.query is not None:
            results[event.query] = kept_of(data)
            done_at[event.query] = run.seconds_until(event) + options.get("planned_for", 0.0)
        elif event.kind == MINI_BATCH:
            forming = data.get("piece")
            failed.clear()
        elif event.kind == FALLBACK and "step" in data:
            failed.add(data["step"])
        elif event.kind == MINI_BATCH_ENDED:
            forming = None
        elif event.kind == SHARED_DONE:
            states[data["name"]] = by_key[data["key"]] = kept_of(data)
        elif event.kind == TO_FINISH:
            pieces.append(data["piece"])
        elif event.kind == IMAGE:  # it has all that is left of earlier ones
            image = data
            states |= {name: kept_of(kept) for name, kept in data["states"].items()}
    formed = Formed() if forming is None else formed_from_json(run.read_piece(forming))
    formed = replace(formed, steps=tuple(s for s in formed.steps if s.name not in failed))
    plans |= formed.ready(states)
    for piece in pieces:
        told = msgspec.json.decode(run.read_piece(piece))
        plans |= {name: plan_from_builtins(plan) for name, plan in told.items()}
    if image["piece"] is not None:
        record = _read_image(run, image["piece"])
        tables = record.tables
        for name, plan in record.plans.items():
            key = image["keys"].get(name)
            if key is None:
                plans[name] = plan_from_builtins(plan)
            elif key not in by_key:
                begun[key] = plan_from_builtins(plan)
        origins = {
            state: Origin(plan_from_builtins(each.plan).root, each.places, each.whole)
            for state, each in record.origins.items()
        }
    progress = {name: (told[0], told[1], told[2]) for name, told in image["progress"].items()}
    return Resumed(
        results,
        states,
        plans,
        by_key,
        options,
        len(events),
        begun,
        origins,
        progress,
        frozenset(image["offered"]),
        tables,
        formed,
        done_at,
    )


def kept_data(kept: KeptResult) -> dict[str, Any]:
    """For an event."""
    return {
        "rows": kept.rows,
        "bytes": kept.bytes,
        "kept": kept.kept,
        "pieces": list(kept.pieces),
        "schema": kept.schema,
        "run": kept.run,
        "broadcast": kept.broadcast,
    }


def kept_of(data: Mapping[str, Any]) -> KeptResult:
    from headway.spark.results import KeptResult

    return KeptResult(
        data["rows"],
        data["bytes"],
        tuple(data["pieces"]),
        data["schema"],
        data["kept"],
        run=data.get("run"),
        broadcast=data.get("broadcast", False),
    )
