"""Every error a user can meet, in one place.

An error has a name, a message and a hint. `HeadwayError` is the user's to mend (wrong SQL, a full
disk, an unknown run); `InternalError` is ours, and carries the story of what led to it.
"""

from __future__ import annotations

from typing import ClassVar


class HeadwayError(Exception):
    """Something the user can mend. Subclasses set `name`; `str()` is the message alone."""

    name: ClassVar[str] = "HEADWAY_ERROR"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def describe(self) -> str:
        """Name, message and hint, as the command line prints them."""
        text = f"{self.name}: {self.message}"
        return f"{text}\nHint: {self.hint}" if self.hint else text


class InternalError(Exception):
    """Our own bug: an invariant did not hold. `story` says what led to it."""

    def __init__(self, message: str, *, story: tuple[str, ...] = ()) -> None:
        super().__init__("\n  ".join((message, *story)))
        self.story = story


class WrongUsage(HeadwayError):
    """The command or call itself is wrong, before any work began."""

    name = "WRONG_USAGE"
    exit_code = 2


class InvalidSetting(WrongUsage):
    name = "INVALID_SETTING"


class InvalidIdentifier(WrongUsage):
    name = "INVALID_IDENTIFIER"


class InvalidPath(WrongUsage):
    name = "INVALID_PATH"


class InvalidPlan(HeadwayError):
    """A plan node whose parts do not fit together."""

    name = "INVALID_PLAN"


class PlanNotReadable(HeadwayError):
    """A plan file that is not one, or is of a version this release does not read."""

    name = "PLAN_NOT_READABLE"


class PlanNotImportable(HeadwayError):
    """Spark's plan holds something that has no place in ours; Spark still runs it unchanged."""

    name = "PLAN_NOT_IMPORTABLE"


class PlanNotRunnable(HeadwayError):
    """A plan that this session cannot run: a source or a setting it needs is missing."""

    name = "PLAN_NOT_RUNNABLE"


class PlanNotResumable(HeadwayError):
    """What is left of a query cannot be told to another session."""

    name = "PLAN_NOT_RESUMABLE"


class NotSupported(HeadwayError):
    """Something that the pipelined engine's kernels cannot do exactly as Spark does it."""

    name = "KERNEL_NOT_SUPPORTED"

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what}: {reason}", hint="the spark engine runs the query")
        self.what = what
        self.reason = reason


class WrongSql(HeadwayError):
    name = "WRONG_SQL"


class TableNotFound(HeadwayError):
    name = "TABLE_NOT_FOUND"


class QueryFailed(HeadwayError):
    name = "QUERY_FAILED"


class FileNotReadable(HeadwayError):
    name = "FILE_NOT_READABLE"
    exit_code = 2


class RunNotFound(HeadwayError):
    name = "RUN_NOT_FOUND"
    exit_code = 2


class TableChanged(HeadwayError):
    """A table does not hold what it held when the run began."""

    name = "TABLE_CHANGED"


class RunInterrupted(HeadwayError):
    name = "RUN_INTERRUPTED"
    exit_code = 130


class RunSuspended(HeadwayError):
    """A query that was stopped, with what is done of it kept."""

    name = "RUN_SUSPENDED"


class StoreCorrupt(HeadwayError):
    """A piece in the store is torn, truncated, flipped or missing."""

    name = "STORE_CORRUPT"


class PieceMissing(StoreCorrupt):
    """A piece that should be in the store is not there."""

    name = "PIECE_MISSING"


class FormatNotReadable(HeadwayError):
    """Written whole, but in a format version that this release does not read."""

    name = "FORMAT_NOT_READABLE"


class StoreUnavailable(HeadwayError):
    """The store cannot be reached, is read-only, or vanished."""

    name = "STORE_UNAVAILABLE"


class StoreFull(HeadwayError):
    name = "STORE_FULL"


class StoreConflict(HeadwayError):
    """Somebody else wrote the same name first."""

    name = "STORE_CONFLICT"


class JavaNotFound(HeadwayError):
    name = "JAVA_NOT_FOUND"


class SparkNotStarted(HeadwayError):
    """Spark was asked to start and did not: its master, memory or own defaults are wrong."""

    name = "SPARK_NOT_STARTED"


class WorkerNotStarted(HeadwayError):
    """No executor could be given a worker process."""

    name = "WORKER_NOT_STARTED"


class WorkersLost(HeadwayError):
    """All workers of a query are gone, and Spark gave no others."""

    name = "WORKERS_LOST"


class DriverUnreachable(HeadwayError):
    """A worker started and found no driver at the address that it was given."""

    name = "DRIVER_UNREACHABLE"


class ControlStoreUnavailable(HeadwayError):
    """The control store does not answer, or does not take what is written."""

    name = "CONTROL_STORE_UNAVAILABLE"


class ControlStoreNotDurable(HeadwayError):
    """The control store would lose transactions that it has acknowledged."""

    name = "CONTROL_STORE_NOT_DURABLE"
