"""What a long benchmark has found so far: noted in a file part by part, to go on from when it was
interrupted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from headway.base.errors import WrongUsage


class _File(msgspec.Struct):
    measured: dict[str, Any]
    """What is measured: the same for all parts."""
    sittings: list[str]
    """Of each process that it took, the state of the code."""
    parts: dict[str, Any]


class Notes:
    """Parts of a benchmark by their names, as plain values. `measured` tells what it is about; one
    that is to `go_on` has to find the same in the file."""

    def __init__(self, path: Path, measured: dict[str, Any], *, go_on: bool) -> None:
        self._path = path
        self._file = _found(path, measured) if go_on else _File(measured, [], {})
        self._file.sittings.append(_code())

    def sittings(self) -> dict[str, int]:
        """How many processes it took so far, and how many states of the code they had."""
        found = self._file.sittings
        return {"sittings": len(found), "states_of_the_code": len(set(found))}

    def known(self, part: str) -> Any:
        """None where it was not measured yet."""
        return self._file.parts.get(part)

    def note(self, part: str, value: Any) -> None:
        self._file.parts[part] = msgspec.to_builtins(value)
        written = self._path.with_suffix(".new")
        written.write_bytes(msgspec.json.encode(self._file))
        written.replace(self._path)

    def once(self, part: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What is measured now, or was before."""
        if self.known(part) is None:
            self.note(part, measure())
        found: dict[str, Any] = self.known(part)
        return found


def _found(path: Path, asked: dict[str, Any]) -> _File:
    hint = "begin anew, without --go-on"
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_File)
    except FileNotFoundError:
        raise WrongUsage("there is nothing to go on from", hint=hint) from None
    except msgspec.DecodeError as error:
        raise WrongUsage(f"{path.name} cannot be read: {error}", hint=hint) from error
    other = [key for key, value in asked.items() if found.measured.get(key) != value]
    if other:
        raise WrongUsage(f"what was measured before is of other {', '.join(other)}", hint=hint)
    return found


def _code() -> str:
    """Tells one state of this package from another."""
    whole = hashlib.sha256()
    folders = [files("headway")]
    while folders:
        for each in sorted(folders.pop().iterdir(), key=lambda each: each.name):
            if each.is_dir():
                folders.append(each)
            elif each.name.endswith((".py", ".java")):
                whole.update(each.name.encode() + b"\0" + each.read_bytes())
    return whole.hexdigest()[:16]
