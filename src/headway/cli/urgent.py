"""Other runs of this machine are paused while urgent queries run."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from headway.base.errors import HeadwayError
from headway.cli.requests import UNDER_WAY, ask_until
from headway.cli.steps import spinner
from headway.cli.stores import open_existing_store
from headway.session.requests import Request, ask
from headway.storage import ReliableStore, Run, list_runs, this_process

_PATIENCE = 60.0


@contextmanager
def others_paused(store_url: str, *, quiet: bool) -> Iterator[tuple[str, ...]]:
    """The runs of the store that other processes of this machine drive are paused inside, those too
    that somebody else has paused. Should this process be killed, they go on by themselves."""
    store = open_existing_store(store_url)
    runs = [] if store is None else running_here(store)
    paused: list[Run] = []

    def pause(run: Run) -> None:
        request = Request("pause", holder=this_process())
        with suppress(HeadwayError):  # one that cannot be paused goes on beside
            if ask_until(run, request, UNDER_WAY, _PATIENCE) == "paused":
                paused.append(run)

    try:
        with (
            spinner("pausing other runs", quiet=quiet),
            ThreadPoolExecutor(max(1, len(runs)), "headway-pause") as pool,
        ):
            list(pool.map(pause, runs))
        yield tuple(run.run_id for run in paused)
    finally:
        for run in paused:
            with suppress(HeadwayError):  # it goes on when this process is gone
                ask(run, Request("continue", holder=this_process()))


def running_here(store: ReliableStore) -> list[Run]:
    """The runs under way whose drivers are other processes of this machine."""
    here = this_process()
    found = []
    for summary in list_runs(store):
        if summary.status in UNDER_WAY:
            run = Run.open(store, summary.run_id)
            driver = run.driver()
            if driver.host == here.host and driver.pid != here.pid:
                found.append(run)
    return found
