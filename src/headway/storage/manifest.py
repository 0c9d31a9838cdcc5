"""What a run is about, written once when it begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from headway.base.clock import Clock, SystemClock
from headway.base.errors import FormatNotReadable
from headway.base.ids import new_run_id
from headway.storage.blocks import corrupt
from headway.storage.fingerprints import FileFingerprint
from headway.storage.processes import ProcessRecord, this_process

RUN_FORMAT_VERSION = 1
OLDEST_RUN_FORMAT_VERSION = 1


class QueryRecord(msgspec.Struct, frozen=True):
    """`plan` is the plan's JSON as plain values; without one, `not_imported` says why, and
    `settings` are those that its text is to be read with."""

    name: str
    sql: str
    plan: dict[str, Any] | None = None
    not_imported: str | None = None
    settings: dict[str, str] | None = None


class TableRecord(msgspec.Struct, frozen=True):
    """`root` is the folder whose `column=value` folders are partitions; None where there are
    none."""

    name: str
    format: str
    files: tuple[FileFingerprint, ...]
    root: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int = RUN_FORMAT_VERSION
    run_id: str
    created_at: str
    headway_version: str
    queries: tuple[QueryRecord, ...]
    tables: tuple[TableRecord, ...]
    settings: dict[str, str]
    driver: ProcessRecord


class _Version(msgspec.Struct):
    format_version: int


def new_manifest(
    queries: Iterable[QueryRecord],
    tables: Iterable[TableRecord] = (),
    settings: Mapping[str, str] | None = None,
    *,
    run_id: str | None = None,
    clock: Clock | None = None,
) -> Manifest:
    """A manifest for a run that this process is about to drive."""
    now = (clock or SystemClock()).now()
    return Manifest(
        run_id=run_id or new_run_id(now),
        created_at=now.isoformat(timespec="microseconds"),
        headway_version=_own_version(),
        queries=tuple(queries),
        tables=tuple(tables),
        settings=dict(settings or {}),
        driver=this_process(),
    )


def _own_version() -> str:
    try:
        return version("headway")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest)


def decode_manifest(data: bytes, *, name: str) -> Manifest:
    """The manifest, of this or an older version; FormatNotReadable or StoreCorrupt otherwise."""
    try:
        found = msgspec.json.decode(data, type=_Version).format_version
        if not OLDEST_RUN_FORMAT_VERSION <= found <= RUN_FORMAT_VERSION:
            raise FormatNotReadable(
                f"{name} is in run format {found}; this release reads formats "
                f"{OLDEST_RUN_FORMAT_VERSION} to {RUN_FORMAT_VERSION}",
                hint="use the Headway release that wrote the run",
            )
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise corrupt(name, f"is not a manifest: {error}") from error
