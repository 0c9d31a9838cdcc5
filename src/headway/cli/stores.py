"""Stores that are only looked at: nothing is made where there is none."""

from __future__ import annotations

from headway.base.errors import RunNotFound
from headway.storage import ReliableStore, open_store, resolve_run
from headway.storage.paths import local_path


def open_existing_store(url: str) -> ReliableStore | None:
    """None where a local folder does not exist yet: a store without runs."""
    path = local_path(url)
    if path is not None and not path.exists():
        return None
    return open_store(url, create=False)


def find_run(url: str, text: str) -> tuple[ReliableStore, str]:
    """The store, and the id of the run that `text` names: an id, its beginning, or `last`."""
    store = open_existing_store(url)
    if store is None:
        raise RunNotFound(
            f"there are no runs in {url}", hint="name the store with --store, or set store.url"
        )
    return store, resolve_run(store, text)
