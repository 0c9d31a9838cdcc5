"""The collector of cycles stands still while it is asked to, and is left as it was."""

from __future__ import annotations

import gc

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
