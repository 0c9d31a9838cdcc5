"""Where a query stands, told: the plan with what is done, what is held, and what is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.plan.graph import walk
from headway.plan.nodes import Node, QueryPlan, StateScan
from headway.plan.printer import print_plan
from headway.session.history import StoreSpeed
from headway.session.keepers import HeldState, Standing
from headway.session.resuming import Origin, Resumed, with_origins
from headway.session.snapshots import Prospect, prospect

if TYPE_CHECKING:
    from headway.session.keeping import Stand

DONE, HELD, LEFT = "done", "held", "left"


def stand_to_builtins(stand: Stand) -> dict[str, Any]:
    """For `headway show`."""
    return _told(stand.standing, stand.share_done, stand.prospect)


def image_to_builtins(resumed: Resumed, speed: StoreSpeed) -> dict[str, Any]:
    """The same of an image, for queries that nobody runs at the moment."""
    found: dict[str, Any] = {}
    for name, image in resumed.images().items():
        held = {
            state: HeldState(float(kept.rows), float(kept.bytes), kept=True)
            for state, kept in image.states.items()
        }
        standing = Standing(image.plan, held, image.finished, image.total, image.origins)
        found[name] = _told(standing, None, prospect(standing, image.seconds, 0.0, speed))
    return found


def _told(standing: Standing, share_done: float | None, costs: Prospect) -> dict[str, Any]:
    sizes = {name: (state.rows, state.bytes) for name, state in standing.states.items()}
    return {
        "pipelines_done": standing.finished,
        "pipelines_total": standing.total,
        "share_done": None if share_done is None else round(share_done, 4),
        "states": {
            name: {"rows": state.rows, "bytes": state.bytes, "kept": state.kept}
            for name, state in standing.states.items()
        },
        "seconds_done": round(costs.done, 3),
        "seconds_left": None if costs.left is None else round(costs.left, 3),
        "seconds_to_move": round(costs.moving, 3),
        "seconds_to_restart": round(costs.done, 3),
        "moving_pays": costs.pays,
        "plan": standing_text(standing.plan, sizes, standing.origins),
    }


def standing_text(
    plan: QueryPlan,
    sizes: Mapping[str, tuple[float | None, float | None]],
    origins: Mapping[str, Origin],
) -> str:
    """A plan with its states: every node done, held or left. What a held state was made by stands
    below it, where that is known."""
    whole, places = with_origins(plan, origins)
    notes: dict[Node, str] = {}
    for name, place in places.items():
        for below in walk(origins[name].node):
            notes.setdefault(below, DONE)
        notes[place] = f"{HELD}{_size(*sizes.get(name, (None, None)))}"
    for node in walk(whole.root):
        if isinstance(node, StateScan):
            notes[node] = f"{HELD}{_size(*sizes.get(node.state, (None, None)))}"
        notes.setdefault(node, LEFT)
    return print_plan(whole, notes)


def _size(rows: float | None, size: float | None) -> str:
    told = [] if rows is None or rows < 0 else [f"{rows:,.0f} rows"]
    told += [] if size is None or size < 0 else [f"{size:,.0f} bytes"]
    return f": {', '.join(told)}" if told else ""
