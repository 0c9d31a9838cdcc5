"""Notes of a long benchmark: what was measured is not measured again, never mixed with other data,
and not with other code without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.base.errors import WrongUsage
from headway.bench import notes as noted
from headway.bench.notes import Notes


def measured_once(notes: Notes, part: str, value: int) -> tuple[dict[str, Any], bool]:
    asked: list[str] = []

    def measure() -> dict[str, Any]:
        asked.append(part)
        return {part: value}

    return notes.once(part, measure), bool(asked)


def test_what_was_found_before_is_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    first = Notes(path, {"scale": 1.0}, go_on=False)
    assert measured_once(first, "one", 1) == ({"one": 1}, True)
    again = Notes(path, {"scale": 1.0}, go_on=True)
    assert measured_once(again, "one", 2) == ({"one": 1}, False)
    assert measured_once(again, "two", 2) == ({"two": 2}, True)
    assert again.sittings() == {"sittings": 2, "states_of_the_code": 1}
    anew = Notes(path, {"scale": 1.0}, go_on=False)
    assert measured_once(anew, "one", 3) == ({"one": 3}, True)


def test_other_code_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notes.json"
    Notes(path, {"scale": 1.0}, go_on=False).note("one", {"one": 1})
    monkeypatch.setattr(noted, "_code", lambda: "changed")
    found = Notes(path, {"scale": 1.0}, go_on=True).sittings()
    assert found == {"sittings": 2, "states_of_the_code": 2}


def test_other_data_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    with pytest.raises(WrongUsage, match="nothing to go on from"):
        Notes(path, {"scale": 1.0}, go_on=True)
    Notes(path, {"scale": 1.0}, go_on=False).note("one", {"one": 1})
    with pytest.raises(WrongUsage, match="other scale"):
        Notes(path, {"scale": 2.0}, go_on=True)
    path.write_text("[]")
    with pytest.raises(WrongUsage, match="cannot be read"):
        Notes(path, {"scale": 1.0}, go_on=True)
