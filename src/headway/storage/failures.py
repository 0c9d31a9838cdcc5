"""What the operating system or a remote service says, as errors with a name and a hint."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from headway.base.errors import (
    HeadwayError,
    PieceMissing,
    StoreConflict,
    StoreFull,
    StoreUnavailable,
)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_DENIED = frozenset({errno.EACCES, errno.EPERM})
_WRONG_SHAPE = frozenset({errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY})
_FULL_CODES = frozenset({"XMinioStorageFull", "QuotaExceeded", "InsufficientStorage", "507"})


def missing(name: str) -> PieceMissing:
    return PieceMissing(
        f"{name} is missing from the store",
        hint="it was deleted or never written: restore it from a copy, or start the run again",
    )


def conflict(name: str) -> StoreConflict:
    return StoreConflict(
        f"{name} was written by somebody else first",
        hint="another process works on the same run: leave it to that one, or start a new run",
    )


@contextmanager
def translated(doing: str, store: str) -> Iterator[None]:
    """Gives the errors of the disk or the service under it a name; `doing` says what failed."""
    try:
        yield
    except HeadwayError:
        raise
    except Exception as error:
        named = name_failure(error, doing, store)
        if named is None:
            raise
        raise named from error


def name_failure(error: Exception, doing: str, store: str) -> HeadwayError | None:
    """The named error for `error`; None for a bug of ours, which is not the store's trouble."""
    if not isinstance(error, OSError) and _defined_by(error) in ("builtins", "headway"):
        return None
    number = getattr(error, "errno", None)
    if number in _FULL or service_code(error) in _FULL_CODES:
        return StoreFull(
            f"no space is left in {store}, while {doing}",
            hint="free space or raise the quota, then resume; nothing half written was kept",
        )
    if number in _WRONG_SHAPE or isinstance(error, IsADirectoryError | NotADirectoryError):
        return StoreConflict(
            f"a file stands where a folder should, or the reverse, in {store}, while {doing}",
            hint="a piece cannot have the name of a folder of pieces",
        )
    return _unavailable(error, number, doing, store)


def _unavailable(error: Exception, number: int | None, doing: str, store: str) -> StoreUnavailable:
    if number == errno.EROFS:
        reason, hint = "it is read-only", "mount it writable, or choose another store"
    elif number in _DENIED or isinstance(error, PermissionError):
        reason, hint = "access is denied", "check the permissions or the credentials"
    elif isinstance(error, FileNotFoundError):
        reason, hint = f"it is gone ({words(error)})", "check that it exists and is mounted"
    else:
        reason, hint = words(error), "check the disk or the connection, then try again"
    return StoreUnavailable(f"{store} cannot be used, while {doing}: {reason}", hint=hint)


def words(error: Exception) -> str:
    """What an error says, without its number and path; never empty."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text or type(error).__name__


def _defined_by(error: Exception) -> str:
    return type(error).__module__.split(".")[0]


def service_code(error: Exception) -> str | None:
    """The error code of an S3-like answer, which s3fs keeps as the cause."""
    response = getattr(error.__cause__ or error, "response", None)
    details = response.get("Error") if isinstance(response, dict) else None
    return str(details.get("Code")) if isinstance(details, dict) else None
