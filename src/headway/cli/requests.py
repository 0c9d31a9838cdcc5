"""Asking the process that drives a run, and waiting for what becomes of it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from contextlib import suppress
from typing import Any

from headway.base.errors import HeadwayError, QueryFailed, WrongUsage
from headway.cli.interrupts import interrupts
from headway.session.requests import Request, answer_to, ask, is_open
from headway.storage import ANSWERS, REQUESTS, Run, this_process

UNDER_WAY = ("running", "paused")
"""The statuses of runs that a process drives."""
_LOOK_SECONDS = 0.1
_TAKEN_SECONDS = 30.0
"""Drivers look for requests twice a second: one that has not come to it by then does not answer."""


class RequestFailed(QueryFailed):
    """The driver could not do what it was asked."""

    name = "REQUEST_FAILED"


def ask_until(
    run: Run, request: Request, while_: Collection[str], patience: float | None = None
) -> str:
    """Asks, and waits while the run has one of these statuses: the status that it has then. Raises
    what the driver says went wrong, or that it does not answer, for `patience` seconds or at
    all."""
    token = ask(run, request)
    try:
        return _answered(run, token, while_, patience)
    finally:
        _withdraw(run, token)


def _answered(run: Run, token: str, while_: Collection[str], patience: float | None) -> str:
    began = time.monotonic()
    until = math.inf if patience is None else began + patience
    taken = False
    while True:
        status = run.summary().status
        if status not in while_:
            return status
        told = answer_to(run, token)
        if told is not None and "status" in told:
            return str(told["status"])
        if told is not None and "error" in told:
            error = told["error"]
            raise RequestFailed(
                f"run {run.run_id} is {status}: {error['name']}: {error['message']}",
                hint=error["hint"] or "look at what its driver says",
            )
        now = time.monotonic()
        if not taken and now > began + _TAKEN_SECONDS:
            taken = not is_open(run, token)
            until = until if taken else now
        if now >= until:
            raise RequestFailed(
                f"run {run.run_id} is {status}: its driver does not answer",
                hint=f"look at process {run.driver().pid} of {run.driver().host}; what it keeps "
                "while it runs can be resumed with --take-over",
            )
        time.sleep(_LOOK_SECONDS)


def _withdraw(run: Run, token: str) -> None:
    """Nobody waits for it any more, and its driver may not have come to it."""
    with suppress(HeadwayError):
        run.remove_pieces([f"{REQUESTS}/{token}", f"{ANSWERS}/{token}"])


def told_by_driver(run: Run, seconds: float) -> dict[str, Any] | None:
    """Where the queries stand, from the driver of a run; None when it does not say so in time."""
    if run.driver() == this_process():
        return None
    try:
        token = ask(run, Request("tell"))
    except HeadwayError:
        return None  # a store that can only be read
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until and not interrupts.requested:
            told = answer_to(run, token)
            if told is not None:
                found: dict[str, Any] | None = told.get("queries")
                return found
            time.sleep(_LOOK_SECONDS)
    finally:
        _withdraw(run, token)
    return None


def check_status(run: Run, wanted: Collection[str], what: str) -> str:
    """The status of a run, which has to be one of these for what is to be done."""
    status = run.summary().status
    if status not in wanted:
        raise WrongUsage(
            f"run {run.run_id} is {status}: there is nothing to {what}",
            hint="`headway runs` shows how runs stand",
        )
    return status
