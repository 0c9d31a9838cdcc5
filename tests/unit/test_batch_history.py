"""What batches leave for later ones, and what is not believed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headway.session.batch_reports import Lost
from headway.session.history import CostHistory, FailureHistory
from headway.session.losses import LossWatch
from headway.session.planning import changed_tables
from headway.sharing.cost_model import PIPELINED_RATES, CostModel
from headway.sharing.costs import Work
from headway.sharing.failures import Failures
from headway.spark.executors import task_seconds
from headway.storage import FileFingerprint, ReliableStore, TableRecord

Stores = Callable[[str], ReliableStore]


def seen(store: ReliableStore, engine: str = "auto", cores: int = 2) -> CostModel:
    model = CostModel(PIPELINED_RATES)
    CostHistory(store, engine, cores).recall(model)
    return model


def test_failures_are_counted_per_hour(make_store: Stores) -> None:
    store = make_store("local")
    history = FailureHistory(store)
    assert history.per_hour() == 0.0
    history.add(2, 7200.0)
    assert FailureHistory(store).per_hour() == 1.0


def test_an_executor_that_is_lost_is_counted_once(
    make_store: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the mini-batch that it was noticed in; with what it had done of that."""
    history = FailureHistory(make_store("local"))
    settings = SimpleNamespace(engine=SimpleNamespace(name="spark"))
    spark = SimpleNamespace(spark=None)
    around: Any = SimpleNamespace(failures=history, engine=spark, settings=settings)
    now = {"a": (True, 5.0), "b": (True, 7.0)}
    monkeypatch.setattr("headway.spark.executors.task_seconds", lambda spark: dict(now))
    watch = LossWatch(around, Failures(2.0, 2))
    watch.begin()
    assert not watch.look() and watch.expected() == Failures(2.0, 2)
    now |= {"b": (False, 9.5), "c": (True, 0.0)}
    assert watch.look() and not watch.look()
    watch.repeated(3)
    assert watch.end() == Lost(1, 2.5, 3)
    assert watch.expected().per_hour > 4 and watch.expected().workers == 2
    now |= {"a": (False, 6.0)}
    watch.begin()
    assert watch.end() == Lost(1, 1.0, 0)
    watch.begin()
    assert watch.end() == Lost() and watch.expected().workers == 1
    assert history.per_hour() == 2.0
    now |= {"d": (True, 0.0), "e": (True, 0.0)}
    assert not watch.look() and watch.expected().workers == 3
    del now["e"]
    assert not watch.look() and watch.expected().workers == 2
    assert watch.end() == Lost()


def test_an_executor_that_spark_lets_go_of_is_no_loss() -> None:
    def executor(name: str, reason: str | None, cores: int = 2) -> Any:
        told = SimpleNamespace(isDefined=lambda: reason is not None, get=lambda: reason)
        return SimpleNamespace(
            id=lambda: name,
            isActive=lambda: reason is None,
            totalDuration=lambda: 1500,
            totalCores=lambda: cores,
            removeReason=lambda: told,
        )

    known = [
        executor("driver", None, 0),
        executor("1", None),
        executor("2", "Executor killed by driver."),
        executor("3", "Executor decommission: spark scale down"),
        executor("4", "Executor heartbeat timed out after 120000 ms"),
    ]
    listed = SimpleNamespace(apply=known.__getitem__, length=lambda: len(known))
    store = SimpleNamespace(executorList=lambda active: listed)
    context = SimpleNamespace(sc=lambda: SimpleNamespace(statusStore=lambda: store))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=context))
    assert task_seconds(spark) == {"1": (True, 1.5), "4": (False, 1.5)}


def test_a_later_model_knows_how_long_work_took(make_store: Stores) -> None:
    store = make_store("local")
    work = Work(steps=1, values_read=1e8, queries=4)
    model = CostModel(PIPELINED_RATES)
    for _ in range(5):
        model.observe(work, 7.0)
    CostHistory(store, "auto", 2).keep(model.observations)
    assert seen(store).predict(work) == model.predict(work)
    assert seen(store).margin == model.margin
    before, after = CostModel(PIPELINED_RATES).predict(work), seen(store).predict(work)
    assert abs(after - 7.0) < abs(before - 7.0)
    assert seen(store, cores=8).rates == PIPELINED_RATES
    assert seen(store, engine="spark").rates == PIPELINED_RATES


def test_damaged_history_is_no_history(make_store: Stores) -> None:
    store = make_store("local")
    for name in ("failures", "costs-auto-2"):
        store.write(f"observations/{name}", b'{"hours": "many", "work": [{"unknown": 1}]')
    assert FailureHistory(store).per_hour() == 0.0
    assert seen(store).rates == PIPELINED_RATES
    store.write("observations/costs-auto-2", b'{"work": [{"unknown": 1}], "seconds": [1]}')
    assert seen(store).rates == PIPELINED_RATES


def test_tables_are_the_same_wherever_they_are() -> None:
    def record(name: str, *files: tuple[str, int, str]) -> TableRecord:
        return TableRecord(name, "parquet", tuple(FileFingerprint(*file) for file in files))

    before = [record("t", ("a/1", 5, "x"), ("a/2", 6, "y")), record("u", ("b", 1, "z"))]
    assert changed_tables(before, before) == ()
    moved = [record("t", ("c/9", 6, "y"), ("c/8", 5, "x"))]
    assert changed_tables(before, moved) == ()
    assert changed_tables(before, [record("t", ("a/1", 5, "x"))]) == ("t",)
    assert changed_tables(before, [record("u", ("b", 1, "other"))]) == ("u",)
    assert changed_tables(before, [record("new", ("n", 1, "n"))]) == ("new",)
    assert changed_tables(before, [record("other_name", ("b", 1, "z"))]) == ()
    assert changed_tables(before, [record("t", ("a/1", -1, ""))]) == (), "only Spark can read it"


def test_partitions_are_data() -> None:
    def record(root: str | None, *paths: str) -> TableRecord:
        files = tuple(FileFingerprint(path, 5, "same") for path in paths)
        return TableRecord("t", "parquet", files, root)

    before = [record("a", "a/day=1/x", "a/day=2/y")]
    assert changed_tables(before, [record("b/c=1", "b/c=1/day=2/1", "b/c=1/day=1/2")]) == ()
    assert changed_tables(before, [record("a", "a/day=1/x", "a/day=3/y")]) == ("t",)
    assert changed_tables(before, [record(None, "a/day=1/x", "a/day=2/y")]) == ("t",)
