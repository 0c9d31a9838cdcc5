"""What work costs: amounts that can be counted, times rates that are learned."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from operator import attrgetter


@dataclass(frozen=True, slots=True)
class Work:
    """Amounts of work, or, as rates, the seconds that one unit of each takes."""

    steps: float = 0.0
    """Plans that are run, whatever is in them."""
    values_read: float = 0.0
    conditions: float = 0.0
    """Levels of search trees that rows are led through."""
    rows_built: float = 0.0
    """Of tables that others are joined with."""
    rows_probed: float = 0.0
    """By joins that all members have; more of a row that looks into a large table."""
    rows_passed: float = 0.0
    """The same by joins that some members pass: no row is dropped early by those."""
    rows_routed: float = 0.0
    """A row counts once for every class it is offered to."""
    rows_grouped: float = 0.0
    rows_kept: float = 0.0
    """Of shared results."""
    rows_read: float = 0.0
    """Of shared results, by each query that is finished from them: all rows, to find its own."""
    queries: float = 0.0
    """Queries finished from a shared result."""

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(self.values(), other.values(), strict=True)))

    def __sub__(self, other: Work) -> Work:
        return Work(*(a - b for a, b in zip(self.values(), other.values(), strict=True)))

    def values(self) -> tuple[float, ...]:
        found: tuple[float, ...] = _values(self)
        return found

    def times(self, rates: Work) -> float:
        """Seconds at these rates."""
        return sum(a * b for a, b in zip(self.values(), rates.values(), strict=True))

    def to_builtins(self) -> dict[str, float]:
        return asdict(self)


_values = attrgetter(*(each.name for each in fields(Work)))
