"""Sets of queries beside the rows: one bit for every query, as many words as they need.

A word is a bigint column with 62 bits in use, so that no sign gets in the way and both engines
compute with it by themselves. In Python a whole set is one integer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headway.plan.expressions import Column, Expression, quote

WORD_BITS = 62
_FULL = (1 << WORD_BITS) - 1


def word_count(queries: int) -> int:
    """How many words hold a set of so many queries."""
    return max(1, -(-queries // WORD_BITS))


def words(queries: int, count: int) -> tuple[int, ...]:
    """The set `queries` cut into `count` words."""
    return tuple((queries >> (WORD_BITS * number)) & _FULL for number in range(count))


def members_of(queries: int) -> Iterator[int]:
    """The numbers of the queries in the set."""
    while queries:
        lowest = queries & -queries
        yield lowest.bit_length() - 1
        queries ^= lowest


def set_of(numbers: Iterable[int]) -> int:
    found = 0
    for number in numbers:
        found |= 1 << number
    return found


def word_columns(prefix: str, count: int) -> tuple[Column, ...]:
    """The columns that hold a set of queries."""
    return tuple(Column(f"{prefix}_{number}", "bigint", False) for number in range(count))


def constant(word: int) -> Expression:
    return Expression(f"{word}L", "bigint", False)


def both(*parts: Expression) -> Expression:
    """The queries that are in every one of these words."""
    text = " & ".join(part.text for part in parts)
    return parts[0] if len(parts) == 1 else Expression(f"({text})", "bigint", False)


def either(*parts: Expression) -> Expression:
    """The queries that are in one of these words or more."""
    text = " | ".join(part.text for part in parts)
    return parts[0] if len(parts) == 1 else Expression(f"({text})", "bigint", False)


def is_any(columns: Iterable[Column], within: Iterable[int] | None = None) -> Expression:
    """Whether a row is of interest to any query, or to any of those in the words `within`."""
    tests = []
    masks = [_FULL for _ in columns] if within is None else list(within)
    for column, mask in zip(columns, masks, strict=True):
        if mask == _FULL:
            tests.append(f"({quote(column.name)} > 0L)")
        elif mask:
            tests.append(f"(({quote(column.name)} & {mask}L) > 0L)")
    text = " OR ".join(tests) or "false"
    return Expression(f"({text})" if len(tests) > 1 else text, "boolean", False)
