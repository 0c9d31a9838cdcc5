"""A workload: tables that can be generated at any scale, and the queries over them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headway.base.errors import WrongUsage
from headway.workloads.data import (
    GeneratedData,
    Staging,
    check_room,
    complete,
    finished_data,
    publish,
    staged_beside,
    storage_errors,
)
from headway.workloads.queries import benchmark_queries

Progress = Callable[[str, int, int], None]
"""Called as progress(step, steps_done, steps_in_all): before every step, and once at the end."""

_ROWS_PER_FILE = 10_000_000
_FEWEST_ROWS_PER_FILE = 1_000
_MOST_PARTS = 10_000


class WriteTables(Protocol):
    def __call__(
        self, staging: Staging, scale: float, parts: int | None, progress: Progress
    ) -> None:
        """Write staging.data/<table>/part-NNNNN.parquet for every table."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`smallest` and `largest` bound the scale; `bytes_per_scale` is the disk that 1 takes."""

    name: str
    tables: tuple[str, ...]
    write_tables: WriteTables
    smallest: float
    largest: float
    bytes_per_scale: int

    def queries(self) -> dict[str, str]:
        """The query texts in Spark's dialect, by name (q01, q02, ...), in order."""
        return benchmark_queries(self.name)

    def generate(
        self,
        scale: float,
        out: Path | str,
        *,
        parts: int | None = None,
        progress: Progress | None = None,
    ) -> GeneratedData:
        """Write every table as out/<table>/part-NNNNN.parquet, or find them there already.

        `parts` is how many files a table is split into; one too small for that is one file.
        """
        scale = self._checked_scale(scale)
        if parts is not None and not 1 <= parts <= _MOST_PARTS:
            raise WrongUsage(
                f"{parts} is not a number of parts", hint=f"give a number from 1 to {_MOST_PARTS}"
            )
        folder = Path(out).expanduser().resolve()
        with storage_errors(folder):
            found = finished_data(folder, workload=self.name, scale=scale, parts=parts)
            if found is not None:
                return found
            check_room(folder, round(self.bytes_per_scale * scale))
            with staged_beside(folder) as staging:
                self.write_tables(staging, scale, parts, progress or _say_nothing)
                complete(staging, self.tables, workload=self.name, scale=scale, parts=parts)
                return publish(staging, folder)

    def _checked_scale(self, scale: float) -> float:
        if not math.isfinite(scale) or not self.smallest <= scale <= self.largest:
            raise WrongUsage(
                f"{scale:g} is not a scale at which {self.name} can be generated",
                hint=f"give a number from {self.smallest:g} to {self.largest:g}; "
                "1 is about 1 GB of raw data",
            )
        return float(scale)


def file_count(rows: int, parts: int | None) -> int:
    """Into how many files a table of about `rows` rows goes when the caller asked for `parts`."""
    if parts is None:
        return max(1, math.ceil(rows / _ROWS_PER_FILE))
    return parts if rows >= parts * _FEWEST_ROWS_PER_FILE else 1


def part_name(index: int) -> str:
    return f"part-{index:05d}.parquet"


def _say_nothing(step: str, steps_done: int, steps_in_all: int) -> None:
    return
