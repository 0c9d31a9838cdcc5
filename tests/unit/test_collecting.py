"""The collector of cycles stands still while it is asked to, and is left as it was."""

from __future__ import annotations

import gc

import pytest

from headway.base import collecting
from headway.base.collecting import cycles_left_alone


def test_it_goes_on_after_the_last_who_asked() -> None:
    assert gc.isenabled()
    with cycles_left_alone():
        with cycles_left_alone():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_where_it_was_off_it_stays_off() -> None:
    gc.disable()
    try:
        with cycles_left_alone():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_all_is_looked_at_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now, collected = [1.0], 0

    def collect() -> None:
        nonlocal collected
        collected += 1
        now[0] += 0.1

    monkeypatch.setattr(collecting, "_next", 0.0)
    monkeypatch.setattr(collecting.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(collecting.gc, "collect", collect)
    with collecting.cycles_left_alone():
        collecting.collect_now_and_then()
    assert not collected
    for _ in range(1000):
        collecting.collect_now_and_then()
        now[0] += 0.03
    assert collected == 3, "it took more than a hundredth"
