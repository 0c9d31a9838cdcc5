"""A control store in one SQLite file: embedded in the driver, and durable by its own log."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.base.errors import ControlStoreUnavailable, FormatNotReadable
from headway.lineage.records import Change, Tables
from headway.pipelined.control.rows import FORMAT_VERSION, TABLES, Table, empty_tables

_SETTINGS = (
    "PRAGMA locking_mode = EXCLUSIVE",  # one coordinator at a time
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # every commit reaches the disk before it returns
)


class SqliteStore:
    """`folder` is made when it is not there. Safe from several threads."""

    def __init__(self, folder: str, run: str, query: str) -> None:
        self._path = Path(folder) / f"{run}.{query}.sqlite"
        self._lock = threading.Lock()
        with self._translated("opened"):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._path.exists():
                unnamed = self._path.with_name(self._path.name + ".new")
                unnamed.write_bytes(_empty_database())
                unnamed.replace(self._path)
            self._connection = _connect(self._path)
            self._check_version()

    def write(self, changes: list[Change]) -> None:
        with self._lock, self._translated("written"):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for change in changes:
                    self._apply(TABLES[change.table], change)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def load(self) -> Tables:
        found = empty_tables()
        with self._lock, self._translated("read"):
            for table in TABLES.values():
                rows = getattr(found, table.name)
                for *key, data in self._connection.execute(f"SELECT * FROM {table.name}"):
                    rows[table.key(key)] = table.decode(data)
        return found

    def delete(self) -> None:
        with self._lock, self._translated("closed"):
            self._connection.execute("PRAGMA synchronous = OFF")  # for what is going anyway
            self._connection.close()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        with self._lock, self._translated("closed"):
            self._connection.close()

    def _apply(self, table: Table, change: Change) -> None:
        key = table.key_values(change.key)
        if change.row is None:
            self._connection.execute(_DELETE[table.name], key)
        else:
            self._connection.execute(_REPLACE[table.name], (*key, table.encode(change.row)))

    def _check_version(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version != FORMAT_VERSION:
            self._connection.close()
            raise FormatNotReadable(
                f"the control store {self._path} is of version {version}",
                hint=f"this release reads version {FORMAT_VERSION}",
            )

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise ControlStoreUnavailable(
                f"the control store {self._path} could not be {done}: {error}",
                hint="its folder must be on a local disk with room, used by one driver at a time",
            ) from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    for setting in _SETTINGS:
        connection.execute(setting)
    return connection


@lru_cache(maxsize=1)
def _empty_database() -> bytes:
    """A file with all tables. Made once: a new query's store is a copy, and needs no statement."""
    with TemporaryDirectory(prefix="headway-control-") as folder:
        path = Path(folder) / "empty.sqlite"
        connection = _connect(path)
        connection.execute("BEGIN IMMEDIATE")
        for table in TABLES.values():
            columns = "".join(f"{name} {kind} NOT NULL, " for name, kind in table.key_columns)
            names = ", ".join(name for name, _ in table.key_columns)
            connection.execute(
                f"CREATE TABLE {table.name} "
                f"({columns}row BLOB NOT NULL, PRIMARY KEY ({names})) STRICT, WITHOUT ROWID"
            )
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        connection.execute("COMMIT")
        connection.close()
        return path.read_bytes()


def _replace(table: Table) -> str:
    places = ", ".join("?" for _ in range(len(table.key_columns) + 1))
    return f"INSERT OR REPLACE INTO {table.name} VALUES ({places})"


def _delete(table: Table) -> str:
    conditions = " AND ".join(f"{name} = ?" for name, _ in table.key_columns)
    return f"DELETE FROM {table.name} WHERE {conditions}"


_REPLACE = {table.name: _replace(table) for table in TABLES.values()}
_DELETE = {table.name: _delete(table) for table in TABLES.values()}
