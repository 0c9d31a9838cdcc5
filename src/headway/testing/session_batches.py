"""Batches in a session, run to their end and compared with Spark: for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from headway.session import BatchHandle, Session
from headway.session import session as headway_session
from headway.session.workers import Workers
from headway.spark.compare import same_result

Sessions = Callable[[str], SparkSession]


def run_batch(session: Session, texts: dict[str, str], **options: object) -> BatchHandle:
    queries = [session.sql(text, name=name) for name, text in texts.items()]
    handle = session.batch(queries, **options)  # type: ignore[arg-type]
    handle.wait()
    return handle


def check_rows(session: Session, handle: BatchHandle, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        verdict = same_result(session.spark.sql(text), handle.result(name))
        assert verdict.equal, (name, verdict.difference, text)


def opened(spark: SparkSession, workers: Workers, folder: Path, engine: str = "auto") -> Session:
    return headway_session(spark, workers=workers, store_url=str(folder), engine_name=engine)
