"""Learns how long the kinds of shared work take here, for the plans of batches with a deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headway.session.batch_planning import Policy
from headway.sharing.cost_model import CostModel, Observation
from headway.storage import remove_run
from headway.workloads.calibration import batches, write_tables

if TYPE_CHECKING:
    from headway.session.api import Session

ROWS = 1_000_000
_PASSES = 2  # the first also warms up


@dataclass(frozen=True, slots=True)
class Calibration:
    """Errors are parts of what was predicted: 0.5 where something took half as long again."""

    batches: int
    error_before: float
    error_after: float
    rates: dict[str, float]
    """Seconds per unit of each kind of work."""

    def to_builtins(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "error_before": self.error_before,
            "error_after": self.error_after,
            "rates": self.rates,
        }


def calibrate(
    session: Session,
    model: Callable[[], CostModel],
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    rows: int = ROWS,
) -> Calibration:
    """Runs batches over tables of its own. What they took is kept with the session's history."""
    spark = session.spark
    prior = model()
    steps = [texts for _ in range(_PASSES) for texts in batches()]
    with TemporaryDirectory(prefix="headway-calibration-") as folder:
        files = write_tables(Path(folder), rows)
        try:
            for name, file in files.items():
                spark.read.parquet(str(file)).createOrReplaceTempView(name)
            for number, texts in enumerate(steps):
                progress(next(iter(texts)).split("-")[0], number, len(steps))
                queries = [session.sql(text, name=name) for name, text in texts.items()]
                handle = session.batch(queries, policy=Policy(fixed_size=len(queries)))
                handle.wait()
                remove_run(session.store, handle.id)
        finally:
            for name in files:
                spark.catalog.dropTempView(name)
    progress("done", len(steps), len(steps))
    learned = model()
    seen = learned.observations[-len(steps) :]
    return Calibration(
        len(steps),
        _error(prior, seen),
        _error(learned, seen),
        learned.rates.to_builtins(),
    )


def _error(model: CostModel, seen: tuple[Observation, ...]) -> float:
    errors = [abs(each.seconds / model.predict(each.work) - 1) for each in seen]
    return sum(errors) / max(1, len(errors))
