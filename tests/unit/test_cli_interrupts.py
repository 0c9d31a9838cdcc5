"""Signals: the first is answered in order, a second ends the process, ignored ones stay ignored."""

from __future__ import annotations

import os
import signal
import time

import pytest

from headway.cli.interrupts import Interrupts
from headway.testing.faults import run_in_child


@pytest.fixture(autouse=True)
def default_handlers() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_first_raises() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.requested
    assert signal.getsignal(signal.SIGTERM) == before


def test_deferred_it_is_only_noted() -> None:
    with Interrupts() as interrupts, interrupts.deferred():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # an echo of the same key
        assert interrupts.requested


def test_held_back_it_comes_at_the_end() -> None:
    reached = False
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt), interrupts.held_back():
        os.kill(os.getpid(), signal.SIGINT)
        reached = True
    assert reached


def test_a_second_ends_the_process() -> None:
    def stubborn() -> None:
        with Interrupts() as interrupts, interrupts.deferred():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.4)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(30)

    assert run_in_child(stubborn) == 130


def test_what_was_ignored_stays_ignored() -> None:
    def in_background() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGINT)
            assert not interrupts.requested

    assert run_in_child(in_background) == 0
