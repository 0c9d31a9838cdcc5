"""A control store in a Redis server that forces every transaction to its disk.

A table is a hash, a transaction MULTI and EXEC. When an answer gets lost the transaction is written
again: its changes are rows under keys, so that twice is as good as once. A counter of transactions
shows whether a server that was started again has lost any, or another driver writes too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headway.base.errors import ControlStoreNotDurable, ControlStoreUnavailable, WrongUsage
from headway.lineage.records import Change, Tables
from headway.pipelined.control.rows import TABLES, Table, empty_tables

_HINT = "start the server with --appendonly yes --appendfsync always"
_ANSWER_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_LOST = (redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError)


class RedisStore:
    """Safe from several threads. Waits up to `patience` seconds for a server that went away."""

    def __init__(self, url: str, run: str, query: str, *, patience: float = 30.0) -> None:
        self._where = urlsplit(url).hostname or urlsplit(url).path  # no password
        self._prefix = f"headway:{run}:{query}:"
        self._patience = patience
        self._lock = threading.Lock()
        self._client = _connect(url)
        self._written: int | None = None
        """How many transactions the server has acknowledged; None before we have asked."""
        with self._lock:
            self._written = self._transact(lambda pipeline: None)[0]

    def write(self, changes: list[Change]) -> None:
        with self._lock:
            assert self._written is not None
            number = self._written + 1

            def add(pipeline: Any) -> None:
                for change in changes:
                    self._add(pipeline, change)
                pipeline.set(self._prefix + "written", number)

            self._transact(add)
            self._written = number

    def load(self) -> Tables:
        def add(pipeline: Any) -> None:
            for name in TABLES:
                pipeline.hgetall(self._prefix + name)

        with self._lock:
            _, answers = self._transact(add)
        found = empty_tables()
        for table, rows in zip(TABLES.values(), answers, strict=True):
            target = getattr(found, table.name)
            for field, data in rows.items():
                target[_key(table, field)] = table.decode(data)
        return found

    def delete(self) -> None:
        names = [self._prefix + name for name in (*TABLES, "written")]
        with self._lock:
            self._transact(lambda pipeline: pipeline.delete(*names))
        self.close()

    def close(self) -> None:
        self._client.close()

    def _add(self, pipeline: Any, change: Change) -> None:
        table = TABLES[change.table]
        name, field = self._prefix + table.name, _field(table, change.key)
        if change.row is None:
            pipeline.hdel(name, field)
        else:
            pipeline.hset(name, field, table.encode(change.row))

    def _transact(self, add: Callable[[Any], object]) -> tuple[int, list[Any]]:
        """Number of transactions before this one, and the answers to what `add` has added. Tried
        again and again while the server is away."""
        deadline = time.monotonic() + self._patience
        repeated = False
        while True:
            try:
                # The client connects anew in silence, so every transaction looks where it is.
                pipeline = self._client.pipeline(transaction=True)
                pipeline.config_get("append*")
                pipeline.get(self._prefix + "written")
                add(pipeline)
                settings, written, *answers = pipeline.execute()
                break
            except _LOST as error:
                if time.monotonic() > deadline:
                    raise self._unavailable(error) from error
            except redis.RedisError as error:  # it answers, and refuses
                raise self._unavailable(error) from error
            repeated = True
            time.sleep(_PAUSE_SECONDS)
        there = int(written) if written is not None else 0
        self._check(settings, there, repeated)
        return there, answers

    def _check(self, settings: dict[str, str], there: int, repeated: bool) -> None:
        for name, wanted in (("appendonly", "yes"), ("appendfsync", "always")):
            if settings.get(name) != wanted:
                raise ControlStoreNotDurable(
                    f"the Redis server at {self._where} has {name} {settings.get(name)!r}, "
                    "so that it may forget what it has acknowledged",
                    hint=_HINT,
                )
        if self._written is None or there == self._written:
            return
        if repeated and there == self._written + 1:
            return  # the first attempt was durable, and only its answer was lost
        raise ControlStoreNotDurable(
            f"the Redis server at {self._where} has {there} transactions where it had "
            f"acknowledged {self._written}",
            hint=f"{_HINT}, and let no other driver use the same run",
        )

    def _unavailable(self, error: Exception) -> ControlStoreUnavailable:
        return ControlStoreUnavailable(
            f"the control store at {self._where} does not take what is written: {error}",
            hint=f"a server that is started again within {self._patience:g} s is waited for",
        )


def _connect(url: str) -> redis.Redis:
    try:
        client: redis.Redis = redis.Redis.from_url(
            url,
            socket_timeout=_ANSWER_SECONDS,
            socket_connect_timeout=_ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise WrongUsage(f"the address of the control store is wrong: {error}") from error
    return client


def _field(table: Table, key: Any) -> str:
    return ".".join(map(str, table.key_values(key)))


def _key(table: Table, field: bytes) -> Any:
    text = field.decode()
    return text if table.key_type is str else table.key(map(int, text.split(".")))
