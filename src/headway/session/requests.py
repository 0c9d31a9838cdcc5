"""Requests to the process that drives a run, from any other: pieces that it looks for, and answers
to them."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal

import msgspec

from headway.base.errors import (
    FormatNotReadable,
    HeadwayError,
    PieceMissing,
    QueryFailed,
    StoreCorrupt,
    WrongUsage,
)
from headway.storage import ANSWERS, REQUESTS, ProcessRecord, Run

LOOK_SECONDS = 0.5
BEAT_SECONDS = 5.0
_LONGEST_WAIT = 600.0
"""What lies further back was asked by another clock."""


class Request(msgspec.Struct, frozen=True):
    """To suspend, as `Suspension` tells. To pause, for as long as a process is there that holds it;
    to continue. To tell where the queries stand."""

    what: Literal["suspend", "pause", "continue", "tell"]
    wait: bool = True
    within: float | None = None
    cheaper: bool = True
    holder: ProcessRecord | None = None
    token: str = ""
    """The name of the answer."""
    asked_at: float = 0.0
    """By the clock of whoever asked."""

    def left(self) -> float | None:
        """Of the seconds within which it is to be done."""
        if self.within is None:
            return None
        passed = time.time() - self.asked_at
        return max(0.0, self.within - passed) if 0.0 < passed < _LONGEST_WAIT else self.within


def ask(run: Run, request: Request) -> str:
    """The token by which the answer is found, if there is one."""
    token = request.token or secrets.token_hex(8)
    asked = msgspec.structs.replace(request, token=token, asked_at=time.time())
    run.write_piece(f"{REQUESTS}/{token}", msgspec.json.encode(asked))
    return token


def is_open(run: Run, token: str) -> bool:
    """Whether its driver has not come to that one."""
    return f"{REQUESTS}/{token}" in run.piece_sizes(REQUESTS)


def open_requests(run: Run) -> list[str]:
    """The pieces of those that its driver has not come to."""
    return [*run.piece_sizes(REQUESTS), *run.piece_sizes(ANSWERS)]


def answer(run: Run, request: Request, told: Any) -> None:
    with suppress(HeadwayError):  # who asked will see what becomes of the run
        run.write_piece(f"{ANSWERS}/{request.token}", msgspec.json.encode(told))


def answer_to(run: Run, token: str) -> Any | None:
    """None as long as there is none. It is taken away with that."""
    name = f"{ANSWERS}/{token}"
    if name not in run.piece_sizes(ANSWERS):
        return None
    told = msgspec.json.decode(run.read_piece(name))
    with suppress(HeadwayError):
        run.remove_pieces([name])
    return told


def take_requests(run: Run, act: Callable[[Request], None]) -> None:
    """Hands those that are there to `act`, one after the other. Who asked is told what went wrong.
    They are left alone where another process has taken the run over."""
    names = sorted(run.piece_sizes(REQUESTS))
    if names and run.overtaken():
        return
    for name in names:
        token = name.rpartition("/")[2]
        try:
            data = run.read_piece(name)
        except PieceMissing:
            continue  # whoever asked has given it up
        except (
            StoreCorrupt,
            FormatNotReadable,
        ) as error:  # those behind it are not to wait for ever
            run.remove_pieces([name])
            _refuse(run, token, error)
            continue
        run.remove_pieces([name])
        serve(run, token, partial(_decoded, data, act))


def _decoded(data: bytes, act: Callable[[Request], None]) -> None:
    act(msgspec.json.decode(data, type=Request))


def serve(run: Run, token: str, act: Callable[[], None]) -> None:
    """Does what was asked for; who asked is told what went wrong."""
    try:
        act()
    except HeadwayError as error:
        _refuse(run, token, error)
    except msgspec.DecodeError:
        _refuse(run, token, WrongUsage("its driver does not know what it is asked"))
    except Exception as error:  # noqa: BLE001 - such as of a Spark that is being stopped
        _refuse(run, token, QueryFailed(f"its driver could not do it: {error!r}"))


def _refuse(run: Run, token: str, error: HeadwayError) -> None:
    told = {"name": error.name, "message": error.message, "hint": error.hint}
    answer(run, Request("tell", token=token), {"error": told})


class Routines:
    """What a driver does again and again beside its queries, each in a thread of its own."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def every(self, seconds: float, act: Callable[[], None]) -> None:
        """From then on: a run that is over sooner needs none of it. What fails, such as a store
        that cannot be reached, is tried again."""

        def work() -> None:
            while not self._closed.wait(seconds):
                with suppress(Exception):
                    act()

        self._start(work)

    def until_done(self, seconds: float, act: Callable[[], None]) -> None:
        """At once, and until it does not fail."""

        def work() -> None:
            while not self._closed.is_set():
                with suppress(Exception):
                    act()
                    return
                self._closed.wait(seconds)

        self._start(work)

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True, name="headway-beside").start()

    def close(self) -> None:
        self._closed.set()
