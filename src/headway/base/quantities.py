"""Sizes and durations as people write them: 64MiB, 1g, 250ms, 5m.

Sizes follow Spark: k, kb and kib are all 1024 bytes, in either case.
"""

from __future__ import annotations

import re
from decimal import Decimal

LARGEST_SIZE = 2**63 - 1
LONGEST_DURATION = 10_000 * 86_400.0

_SIZE_UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
_SIZE = re.compile(r"([0-9]{1,19})\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE | re.ASCII)
_SIZE_LETTERS = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}

_DURATION_UNITS = {
    "d": Decimal(86_400),
    "h": Decimal(3_600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("0.001"),
}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(d|h|m|s|ms)", re.IGNORECASE | re.ASCII)


def parse_size(text: str) -> int:
    """Bytes; ValueError when `text` is no size. A bare number counts bytes."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size")
    size = int(match[1]) * _SIZE_LETTERS.get((match[2] or "").lower(), 1)
    if size > LARGEST_SIZE:
        raise ValueError(f"{text!r} is more than can be addressed")
    return size


def render_size(size: int) -> str:
    """The text with the largest unit that `parse_size` reads back exactly: 64MiB, 1000B."""
    whole = (unit for unit, scale in _SIZE_UNITS.items() if size >= scale and size % scale == 0)
    unit = next(whole, "B")
    return f"{size // _SIZE_UNITS[unit]}{unit}"


def parse_duration(text: str) -> float:
    """Seconds; ValueError when `text` is no duration. The unit is required, since Spark's settings
    disagree on what a bare number means."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration")
    seconds = float(Decimal(match[1]) * _DURATION_UNITS[match[2].lower()])
    if seconds > LONGEST_DURATION:
        raise ValueError(f"{text!r} is longer than {render_duration(LONGEST_DURATION)}")
    return seconds


def render_duration(seconds: float) -> str:
    """The text with the largest unit that `parse_duration` reads back exactly: 250ms, 5m."""
    exact = Decimal(repr(float(seconds)))
    units = _DURATION_UNITS.items()
    whole = (unit for unit, scale in units if exact >= scale and exact % scale == 0)
    unit = next(whole, "s")
    return f"{(exact / _DURATION_UNITS[unit]).normalize():f}{unit}"
