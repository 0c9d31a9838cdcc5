"""The reliable store and the runs in it.

A store (`open_store`) is a local folder, a bucket or any fsspec URL that holds sealed pieces:
durable when a write returns, verified when they are read, so that a torn, truncated, flipped or
missing piece is found and named. A run (`Run`) is a folder in it with a manifest, an append-only
log of events and whatever pieces the engines add; `list_runs`, `resolve_run` and `remove_run` work
on all of them. `fingerprint_files` tells later whether the tables are still the same.
"""

from headway.storage.blocks import SealWriter, seal, unseal
from headway.storage.events import Event, EventLog
from headway.storage.fingerprints import (
    FileFingerprint,
    fingerprint_file,
    fingerprint_files,
    same_data,
    written_again,
)
from headway.storage.listing import list_runs, remove_run, resolve_run, sweep_runs
from headway.storage.manifest import Manifest, QueryRecord, TableRecord, new_manifest
from headway.storage.processes import ProcessRecord, is_gone, this_process
from headway.storage.runs import (
    ANSWERS,
    LOST_SECONDS,
    QUERY_DONE,
    QUERY_FAILED,
    REQUESTS,
    RESULTS,
    TAKEN_OVER,
    EndStatus,
    Run,
    RunStatus,
    RunSummary,
    run_folder,
)
from headway.storage.store import ReliableStore, open_store

__all__ = [
    "ANSWERS",
    "LOST_SECONDS",
    "QUERY_DONE",
    "QUERY_FAILED",
    "REQUESTS",
    "RESULTS",
    "TAKEN_OVER",
    "EndStatus",
    "Event",
    "EventLog",
    "FileFingerprint",
    "Manifest",
    "ProcessRecord",
    "QueryRecord",
    "ReliableStore",
    "Run",
    "RunStatus",
    "RunSummary",
    "SealWriter",
    "TableRecord",
    "fingerprint_file",
    "fingerprint_files",
    "is_gone",
    "list_runs",
    "new_manifest",
    "open_store",
    "remove_run",
    "resolve_run",
    "run_folder",
    "same_data",
    "seal",
    "sweep_runs",
    "this_process",
    "unseal",
    "written_again",
]
