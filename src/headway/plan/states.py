"""Kept rows in the plan of an image: scans whose columns have names that no other plan has."""

from __future__ import annotations

import re
from collections.abc import Iterable

from headway.plan.expressions import Column, column_reference
from headway.plan.nodes import Named, Node, Project, StateScan

IMAGE = "image"
"""The run that the plan of an image says its states are of: the one that the image is of."""
_LONGEST = 32


def image_state(name: str, types: Iterable[tuple[str, bool]]) -> StateScan:
    """The scan of a state with columns of these types, each with whether it may be null. The names
    of its columns are made from its own, which is unique."""
    base = re.sub(r"\W+", "_", name)[-_LONGEST:]
    columns = (Column(f"{base}_{place}", *kind) for place, kind in enumerate(types))
    return StateScan(IMAGE, name, tuple(columns))


def renamed_state(state: StateScan, node: Node, places: Iterable[int] | None = None) -> Node:
    """The columns of a state under the names that the plan has for them, where the state stands for
    `node`. Its columns are at these places of the state, or all in order."""
    columns = [
        state.columns[place] for place in (range(len(node.schema)) if places is None else places)
    ]
    pairs = zip(node.schema, columns, strict=True)
    return Project(state, tuple(Named(c.name, column_reference(kept)) for c, kept in pairs))
