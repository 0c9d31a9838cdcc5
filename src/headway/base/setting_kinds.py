"""What a setting's value can be. A kind reads the text a user wrote and says what it accepts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from headway.base.quantities import (
    LARGEST_SIZE,
    LONGEST_DURATION,
    parse_duration,
    parse_size,
    render_duration,
    render_size,
)

T = TypeVar("T")


class Kind(Protocol[T]):
    @property
    def accepts(self) -> str:
        """What may be written, for the documentation and for errors."""
        ...

    def parse(self, text: str) -> T:
        """The value; ValueError when `text` is not one that this kind accepts."""
        ...

    def render(self, value: T) -> str:
        """Text that `parse` reads back as `value`."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    accepts: str = "text"

    def parse(self, text: str) -> str:
        if not text.strip():
            raise ValueError("empty")
        return text.strip()

    def render(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Location:
    """A folder or an address. A leading ~ is the home folder: in a file no shell expands it."""

    accepts: str = "a folder or an address such as `s3://bucket/folder`"

    def parse(self, text: str) -> str:
        location = Text().parse(text)
        if not location.startswith("~"):
            return location
        try:
            return str(Path(location).expanduser())
        except RuntimeError as error:
            raise ValueError("no such home folder") from error

    def render(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[str, ...]

    @property
    def accepts(self) -> str:
        return " or ".join(f"`{option}`" for option in self.options)

    def parse(self, text: str) -> str:
        choice = text.strip().lower()
        if choice not in self.options:
            raise ValueError("not an option")
        return choice

    def render(self, value: str) -> str:
        return value


@dataclass(frozen=True, slots=True)
class YesNo:
    accepts: str = "`true` or `false`"

    def parse(self, text: str) -> bool:
        return {"true": True, "false": False}[Choice(("true", "false")).parse(text)]

    def render(self, value: bool) -> str:
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class WholeNumber:
    minimum: int
    maximum: int

    @property
    def accepts(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def parse(self, text: str) -> int:
        number = int(text)
        _check_range(number, self.minimum, self.maximum)
        return number

    def render(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Number:
    minimum: float = -math.inf
    maximum: float = math.inf

    @property
    def accepts(self) -> str:
        return "a number" + _range_text(
            "" if self.minimum == -math.inf else f"{self.minimum:g}",
            "" if self.maximum == math.inf else f"{self.maximum:g}",
        )

    def parse(self, text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise ValueError("not finite")
        _check_range(number, self.minimum, self.maximum)
        return number

    def render(self, value: float) -> str:
        return repr(float(value))


@dataclass(frozen=True, slots=True)
class Size:
    """A number of bytes."""

    minimum: int = 0
    maximum: int = LARGEST_SIZE

    @property
    def accepts(self) -> str:
        return "a size such as `64MiB` or `1g`" + _range_text(
            render_size(self.minimum) if self.minimum else "",
            render_size(self.maximum) if self.maximum < LARGEST_SIZE else "",
        )

    def parse(self, text: str) -> int:
        size = parse_size(text)
        _check_range(size, self.minimum, self.maximum)
        return size

    def render(self, value: int) -> str:
        return render_size(value)


@dataclass(frozen=True, slots=True)
class JavaMemory:
    """A heap size, kept as the text that Java takes: Java knows 4g but not 4GiB."""

    minimum: int

    @property
    def accepts(self) -> str:
        return f"a size such as `512m` or `4g`{_range_text(self._text(self.minimum), '')}"

    def parse(self, text: str) -> str:
        size = parse_size(text)
        _check_range(size, self.minimum, LARGEST_SIZE)
        return self._text(size)

    def render(self, value: str) -> str:
        return value

    @staticmethod
    def _text(size: int) -> str:
        mebibytes = size // 2**20
        return f"{mebibytes // 1024}g" if mebibytes % 1024 == 0 else f"{mebibytes}m"


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time, as seconds."""

    minimum: float = 0.0
    maximum: float = LONGEST_DURATION

    @property
    def accepts(self) -> str:
        return "a duration such as `250ms`, `30s` or `5m`" + _range_text(
            render_duration(self.minimum) if self.minimum else "",
            render_duration(self.maximum) if self.maximum < LONGEST_DURATION else "",
        )

    def parse(self, text: str) -> float:
        seconds = parse_duration(text)
        _check_range(seconds, self.minimum, self.maximum)
        return seconds

    def render(self, value: float) -> str:
        return render_duration(value)


@dataclass(frozen=True, slots=True)
class Interval:
    """A length of time between two of something, as seconds; `auto`; or `never`, as None."""

    minimum: float = 0.0

    @property
    def accepts(self) -> str:
        return f"`never`, `auto`, or {Duration(self.minimum).accepts}"

    def parse(self, text: str) -> float | Literal["auto"] | None:
        told = text.strip().lower()
        if told == "never":
            return None
        return "auto" if told == "auto" else Duration(self.minimum).parse(text)

    def render(self, value: float | Literal["auto"] | None) -> str:
        if value is None:
            return "never"
        return value if isinstance(value, str) else render_duration(value)


def _check_range(value: float, minimum: float, maximum: float) -> None:
    if not minimum <= value <= maximum:
        raise ValueError("out of range")


def _range_text(minimum: str, maximum: str) -> str:
    if minimum and maximum:
        return f", from {minimum} to {maximum}"
    if minimum:
        return f", at least {minimum}"
    return f", at most {maximum}" if maximum else ""
