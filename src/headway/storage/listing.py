"""All runs of a store: listed, found by what a user types, removed, swept."""

from __future__ import annotations

import difflib
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from headway.base.clock import Clock, SystemClock
from headway.base.errors import (
    FormatNotReadable,
    InvalidIdentifier,
    PieceMissing,
    RunNotFound,
    StoreConflict,
    StoreCorrupt,
)
from headway.base.ids import check_id
from headway.storage.events import EventLog, LogHead
from headway.storage.manifest import decode_manifest
from headway.storage.paths import join
from headway.storage.processes import is_gone
from headway.storage.runs import LAST, RUNS_FOLDER, Run, RunSummary, is_remains, remains, run_folder
from headway.storage.store import ReliableStore

_ID_TIME = re.compile(r"(\d{8}-\d{6})(?!\d).*")
_ABANDONED = timedelta(days=1)
_SHOWN = 5
_READERS = 8


def list_runs(store: ReliableStore, *, clock: Clock | None = None) -> list[RunSummary]:
    """Newest first. A damaged run is listed with its reason; the remains of a run that was killed
    while it was being created or removed are not."""
    ids = _folder_ids(store)
    if store.remote and len(ids) > 1:
        with ThreadPoolExecutor(_READERS) as pool:
            found = list(pool.map(lambda run_id: _summarise(store, run_id, clock), ids))
    else:
        found = [_summarise(store, run_id, clock) for run_id in ids]
    runs = [summary for summary in found if summary is not None]
    return sorted(runs, key=lambda run: (run.started_at or "", run.run_id), reverse=True)


def resolve_run(store: ReliableStore, text: str) -> str:
    """The full id for an id, the unique beginning of one, or 'last'."""
    check_id(text, "run id")
    ids = [run_id for run_id in _folder_ids(store) if not is_remains(store, run_id)]
    if not ids:
        raise RunNotFound(f"there are no runs in {store.url}", hint="check the store's URL")
    if text == LAST:
        return max(ids, key=lambda run_id: (_started_at(store, run_id) or "", run_id))
    if text in ids:
        return text
    matches = [run_id for run_id in ids if run_id.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise RunNotFound(
            f"{text} is the beginning of {len(matches)} runs: {_some(matches)}",
            hint="type more of the id",
        )
    near = difflib.get_close_matches(text, ids, n=3, cutoff=0.6)
    known = f"nearest: {_some(near)}" if near else f"existing runs: {_some(sorted(ids)[::-1])}"
    raise RunNotFound(f"there is no run {text} in {store.url}", hint=known)


def remove_run(store: ReliableStore, run_id: str, *, force: bool = False) -> None:
    """Deletes a run for good. One that still runs is refused unless forced."""
    folder = run_folder(run_id)
    if not store.sizes(folder):
        raise RunNotFound(f"there is no run {run_id} in {store.url}")
    summary = _summarise(store, run_id, None)
    if summary is not None and summary.status in ("running", "paused") and not force:
        raise StoreConflict(
            f"run {run_id} is still {summary.status}", hint="stop it first, or remove it by force"
        )
    EventLog(store, folder).mark_removed()
    _delete_run(store, folder)


def sweep_runs(store: ReliableStore, *, clock: Clock | None = None) -> list[str]:
    """Deletes the remains of runs killed while they were created or removed, and temporary files
    of killed writers. Says which runs; a run with a manifest or events is never touched."""
    now = (clock or SystemClock()).now()
    swept = []
    for run_id in _folder_ids(store):
        head = remains(store, run_id)
        if head is not None and (head.state == "removed" or _abandoned(head, now)):
            _delete_run(store, run_folder(run_id))
            swept.append(run_id)
    store.sweep()
    return swept


def _summarise(store: ReliableStore, run_id: str, clock: Clock | None) -> RunSummary | None:
    try:
        return Run.open(store, run_id, clock=clock).summary()
    except (StoreCorrupt, FormatNotReadable, RunNotFound) as error:
        if is_remains(store, run_id):
            return None
        return RunSummary(
            run_id=run_id,
            status="damaged",
            started_at=_started_at(store, run_id),
            seconds=None,
            reason=error.message,
        )


def _abandoned(head: LogHead, now: datetime) -> bool:
    # The creator may still be between its first two writes, perhaps on another machine.
    return is_gone(head.driver) or datetime.fromisoformat(head.created_at) < now - _ABANDONED


def _delete_run(store: ReliableStore, folder: str) -> None:
    """The head goes last, so that what a kill leaves behind is still known as remains."""
    depth = len(folder) + 1
    children = {name[depth:].split("/", 1)[0] for name in store.list(folder)}
    for child in sorted(children - {"head"}):
        store.delete_tree(join(folder, child))
    store.delete_tree(folder)


def _started_at(store: ReliableStore, run_id: str) -> str | None:
    """From the manifest; of a damaged run, from an id that tells the time."""
    path = join(run_folder(run_id), "manifest")
    try:
        return decode_manifest(store.read(path), name=path).created_at
    except (StoreCorrupt, FormatNotReadable, PieceMissing):
        match = _ID_TIME.fullmatch(run_id)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match.group(1), "%Y%m%d-%H%M%S")
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC).isoformat(timespec="microseconds")


def _folder_ids(store: ReliableStore) -> list[str]:
    ids = []
    for name in store.folders(RUNS_FOLDER):
        try:
            ids.append(check_id(name))
        except InvalidIdentifier:
            continue
    return ids


def _some(ids: list[str]) -> str:
    more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
    return ", ".join(ids[:_SHOWN]) + more
