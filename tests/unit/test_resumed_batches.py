"""What a driver finds of a batch that another one has left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.plan.nodes import QueryPlan
from headway.plan.sources import FileSource
from headway.session.formed import Formed, StepPlan, formed_to_json
from headway.session.resuming import FALLBACK, MINI_BATCH, Resumed, resumed_from
from headway.session.uniqueness import is_unique_key
from headway.storage import QueryRecord, ReliableStore, Run, new_manifest
from headway.testing.example_plans import table

SCAN = table("t", a="int")
PLAN = QueryPlan(SCAN, SCAN.column_names)


def step(name: str) -> StepPlan:
    return StepPlan(name, ("q",), f"key of {name}", f"state-{name}", PLAN)


def test_a_step_that_failed_is_not_gone_on_with(
    make_store: Callable[[str], ReliableStore],
) -> None:
    run = Run.create(make_store("local"), new_manifest([QueryRecord("q", "SELECT 1")]))
    for number in (1, 2):
        # Steps of other mini-batches, and of other drivers, may have the same names.
        run.append(FALLBACK, None, error="", step=f"shared-{number}")
        formed = Formed(("q",), (step("shared-1"), step("shared-2")))
        run.write_piece(f"batch/{number}", formed_to_json(formed))
        run.append(MINI_BATCH, None, number=number, queries=["q"], piece=f"batch/{number}")
        left = resumed_from(run, run.events()).forming.steps
        assert [each.name for each in left] == ["shared-1", "shared-2"]
    run.append(FALLBACK, None, error="", step="shared-1", queries=["q"])
    run.append(FALLBACK, "q", error="of a query, not of a step")
    assert [s.name for s in resumed_from(run, run.events()).forming.steps] == ["shared-2"]


def test_steps_under_the_same_settings_are_told_apart() -> None:
    keys = [f"0123456789abcdef {what}" for what in ("one", "another")]
    images = Resumed(begun=dict.fromkeys(keys, PLAN)).images()
    assert {image.key for image in images.values()} == set(keys)


@pytest.mark.parametrize("place", ["dim", "dim[1]", "dim*"])
def test_keys_are_looked_up_where_they_are(tmp_path: Path, place: str) -> None:
    """Not in files whose names fit a pattern, nor in a column whose name is nearly the same."""
    for folder, keys in (("dim1", [1, 2, 3]), (place, [1, 1, 2])):
        (tmp_path / folder).mkdir()
        columns = {"k": [1, 2, 3], "K": keys, "u": [4, 5, 6]}
        pq.write_table(pa.table(columns), tmp_path / folder / "part.parquet")
    source = FileSource("dim", "parquet", (f"file://{tmp_path}/{place}/part.parquet",))
    assert not is_unique_key(source, ("K",))
    assert is_unique_key(source, ("u",)) is (place == "dim")
