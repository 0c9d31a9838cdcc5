"""Where a scan reads from. A source is data about data: it opens nothing."""

from __future__ import annotations

from dataclasses import dataclass

from headway.base.errors import InvalidPlan


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files in a format that Spark reads by itself, on any machine that sees the paths."""

    table: str
    format: str
    files: tuple[str, ...]
    root: str | None = None
    """The folder whose `column=value` sub-folders are partitions; None when there are none."""
    options: tuple[tuple[str, str], ...] = ()
    schema: str | None = None
    """The schema as Spark's JSON: formats may not carry it, and reading it again takes a job."""


@dataclass(frozen=True, slots=True)
class RangeSource:
    """The numbers from start (inclusive) to end (exclusive)."""

    start: int
    end: int
    step: int

    def __post_init__(self) -> None:
        if self.step == 0:
            raise InvalidPlan("a range with step 0 never ends")

    @property
    def table(self) -> str:
        return "range"


@dataclass(frozen=True, slots=True)
class SessionSource:
    """Data that only the session which made the plan can reach: in-memory data, JDBC, a cache."""

    id: str
    table: str


Source = FileSource | RangeSource | SessionSource
