"""What a setting is, apart from which settings there are (`headway.base.config`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from headway.base.errors import InvalidSetting
from headway.base.setting_kinds import Kind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting(Generic[T]):
    """One setting and its spellings. `default` is given the environment variables."""

    name: str
    kind: Kind[T]
    default: Callable[[Mapping[str, str]], T]
    default_text: str
    doc: str

    @property
    def area(self) -> str:
        return self.name.partition(".")[0]

    @property
    def key(self) -> str:
        return self.name.partition(".")[2]

    @property
    def spark_name(self) -> str:
        return f"spark.headway.{self.name}"

    @property
    def variable(self) -> str:
        return f"HEADWAY_{self.area}_{self.key}".upper()

    def read(self, text: str, origin: str) -> T:
        """The value that `text` stands for, or InvalidSetting that tells where it came from."""
        try:
            return self.kind.parse(text)
        except ValueError:
            raise InvalidSetting(
                f"{self.name} cannot be {text!r} (from {origin})",
                hint=f"{self.name} accepts {self.kind.accepts.replace('`', '')}",
            ) from None


def setting(kind: Kind[T], default: T, doc: str) -> T:
    """Declares a field of an area as a setting."""
    return computed_setting(kind, lambda environ: default, f"`{kind.render(default)}`", doc)


def computed_setting(
    kind: Kind[T], default: Callable[[Mapping[str, str]], T], default_text: str, doc: str
) -> T:
    """A setting whose default depends on the machine; `default_text` says how, for any machine."""
    # Typed as the value, as dataclasses.field is, so that the field's own annotation is checked.
    declared: Any = field(
        default_factory=lambda: default(os.environ),
        metadata={"kind": kind, "default": default, "default_text": default_text, "doc": doc},
    )
    value: T = declared
    return value
