"""A query that Spark runs is stopped, and goes on from what was done of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headway.base.errors import HeadwayError, RunSuspended, TableChanged, WrongUsage
from headway.bench.peers import same_rows
from headway.session import RunHandle, Session
from headway.session import session as headway_session
from headway.session.executing import QUERY_STARTED
from headway.session.history import FailureHistory
from headway.session.requests import Request, ask
from headway.session.resuming import IMAGE
from headway.session.spark_keeper import SparkKeeper
from headway.session.suspending import Suspension
from headway.session.workers import Workers
from headway.spark.adaptive import QueryWatch
from headway.spark.running import stages_of
from headway.storage import Run, list_runs, open_store
from headway.testing.suspensions import (
    ATTEMPTS,
    NOW,
    QUERY,
    await_sides,
    await_stages,
    goes_on,
    images_of,
    resumed_with,
    running_of,
    suspend_after,
    suspended,
)
from headway.workloads import WORKLOADS

HEADWAY = Path(sys.executable).parent / "headway"
PATIENCE = 240.0
"""For a Spark that starts on a machine with much else to do."""


@pytest.fixture
def session(
    spark: SparkSession, workload_data: Callable[[str], Path], tmp_path: Path
) -> Iterator[Session]:
    apart = spark.newSession()
    with headway_session(apart, store_url=str(tmp_path / "store"), engine_name="spark") as made:
        made.tables(workload_data("tpch"))
        yield made


@pytest.mark.parametrize("stages", [1, pytest.param(2, marks=pytest.mark.nightly), 3])
def test_goes_on_from_what_is_done(session: Session, stages: int) -> None:
    handle = suspended(session, QUERY, stages)
    (image,) = images_of(session, handle.id)
    assert image["states"], "nothing was kept"
    assert handle.progress()[0].status == "suspended"
    with pytest.raises(RunSuspended, match="suspended"):
        handle.arrow()
    assert same_rows(goes_on(session, handle.id), session.spark.sql(QUERY).toArrow())
    assert resumed_with(session.store, handle.id) == sorted(image["states"]), "it began anew"
    assert Run.open(session.store, handle.id).summary().status == "done"


@pytest.mark.parametrize(
    "name",
    [
        "q15",
        pytest.param("q02", marks=pytest.mark.nightly),
        pytest.param("q22", marks=pytest.mark.nightly),
    ],
)
def test_plans_of_all_kinds(session: Session, name: str) -> None:
    text = WORKLOADS["tpch"].queries()[name]
    handle = suspended(session, text, 2)
    assert same_rows(goes_on(session, handle.id), session.spark.sql(text).toArrow())
    assert resumed_with(session.store, handle.id), "it began anew"


def test_the_running_pipelines_are_finished_first(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no longer than that is waited for here, as the query is short."""
    monkeypatch.setattr(sys.modules[Suspension.__module__], "_await_cheaper", lambda *_: None)
    monkeypatch.setattr(sys.modules[SparkKeeper.__module__], "LOOK_SECONDS", 0.005)
    handle = suspended(session, QUERY, 1, Suspension(wait=True))
    (image,) = images_of(session, handle.id)
    ((finished, total, seconds),) = image["progress"].values()
    assert 2 <= finished <= total and seconds > 0
    assert same_rows(goes_on(session, handle.id), session.spark.sql(QUERY).toArrow())


LONG_TASKS = {
    "a task for each core": """
select g % 10 as k, max(s) as s
from (select id % 1000 as g, sum(crc32(cast(id as string))) as s
      from range(0, 20000000, 1, 2) group by 1)
group by 1
""",
    "one task": """
select /*+ broadcast(sums) */ g % 10 as k, max(s + crc32(cast(id as string))) as s
from range(0, 5000000, 1, 2)
join (select id % 1000 as g, sum(crc32(cast(id as string))) as s
      from range(0, 10000000, 1, 1) group by 1) as sums on id % 1000 = g
group by 1
""",
}


@pytest.mark.parametrize("tasks", LONG_TASKS)
def test_a_pipeline_is_running_though_none_of_its_tasks_has_ended(
    session: Session, monkeypatch: pytest.MonkeyPatch, tasks: str
) -> None:
    """Spark tells of a stage when one of its tasks ends, and all of these end at the same time. Its
    scheduler forgets stages that have no more tasks to begin, once a core is free."""
    text = LONG_TASKS[tasks]
    monkeypatch.setattr(sys.modules[SparkKeeper.__module__], "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(sys.modules[SparkKeeper.__module__], "BEGIN_SECONDS", 1.0)
    for _ in range(ATTEMPTS):
        handle = session.run(text)
        while not (under_way := running_of(handle)) and not handle.finished:
            time.sleep(0.01)
        if not under_way:
            continue
        watch = under_way[0].watch
        assert isinstance(watch, QueryWatch)
        while not stages_of(watch.frame).running and not handle.finished:
            time.sleep(0.01)
        if tasks == "one task":
            session.spark.range(1).count()  # on the other core, which is offered to all stages
        with suppress(WrongUsage):  # it was quicker
            handle.suspend(Suspension(cheaper=False))
        if Run.open(session.store, handle.id).summary().status == "suspended":
            break
    else:
        raise AssertionError("the query was always quicker")
    (image,) = images_of(session, handle.id)
    ((finished, _, _),) = image["progress"].values()
    assert finished >= 1 and image["states"], "it was not waited for"
    assert same_rows(goes_on(session, handle.id), session.spark.sql(text).toArrow())
    assert resumed_with(session.store, handle.id), "it began anew"


def test_a_query_that_is_about_to_end_is_let_to_its_end(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going on elsewhere would take longer."""
    monkeypatch.setattr(sys.modules[Suspension.__module__], "_RESUMING_SECONDS", 60.0)
    handle = session.run(QUERY)
    assert await_stages(handle, 1)
    assert not handle.suspend(Suspension(wait=True))
    assert Run.open(session.store, handle.id).summary().status == "done"
    assert same_rows(handle.arrow(), session.spark.sql(QUERY).toArrow())


def test_what_cannot_be_written_in_time_is_left(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that hangs costs what it could not take, and not the machine's last seconds."""
    over = threading.Event()

    def hang(keeper: SparkKeeper, *arguments: object, **named: object) -> None:
        over.wait(60)
        raise OSError("too late")

    with monkeypatch.context() as patched:
        patched.setattr(SparkKeeper, "_extract", hang)
        try:
            began = time.monotonic()
            handle = suspended(session, QUERY, 1, Suspension(wait=False, within=1.0))
            assert time.monotonic() - began < 20
        finally:
            over.set()
    assert not images_of(session, handle.id)[-1]["states"]
    assert same_rows(goes_on(session, handle.id), session.spark.sql(QUERY).toArrow())


def test_again_and_again(session: Session) -> None:
    """The second time what was kept the first time and not yet read stays where it is."""
    for _ in range(ATTEMPTS):
        first = suspended(session, QUERY, 2)
        second = session.resume(first.id)
        if suspend_after(second, 1):
            break
    else:
        raise AssertionError("the query was always quicker")
    images = images_of(session, first.id)
    assert len(images) == 2 and images[1]["states"]
    run = Run.open(session.store, first.id)
    assert set(run.pieces("states")) == set(_pieces(images[1])), "or what the first had is left"
    assert same_rows(goes_on(session, first.id), session.spark.sql(QUERY).toArrow())


def _pieces(image: dict[str, Any]) -> list[str]:
    return [piece for kept in image["states"].values() for piece in kept["pieces"]]


def test_the_other_engine_goes_on(session: Session, workers: Workers) -> None:
    handle = suspended(session, QUERY, 2)
    url = session.store.url
    with headway_session(session.spark, workers=workers, store_url=url) as other:
        resumed = other.resume(handle.id)
        resumed.wait()
        assert resumed.progress()[0].engine == "pipelined"
        assert same_rows(resumed.arrow(), session.spark.sql(QUERY).toArrow())


@pytest.mark.parametrize("engine", ["pipelined", "spark"])
def test_the_pipelined_engine_keeps_its_tables(
    session: Session, workers: Workers, engine: str
) -> None:
    """What its channels have collected is enough to go on, on either engine."""
    text = WORKLOADS["tpch"].queries()["q21"]
    expected = session.spark.sql(text).toArrow()
    url = session.store.url
    with headway_session(session.spark, workers=workers, store_url=url) as other:
        for sides in (5, 4, 3, 2):
            handle = other.run(text)
            if _suspend_channels_after(handle, sides):
                break
        else:
            raise AssertionError("the query was always quicker")
        (image,) = images_of(session, handle.id)
        assert image["states"], "nothing was kept"
        resumed = (other if engine == "pipelined" else session).resume(handle.id)
        resumed.wait()
        assert resumed.progress()[0].engine == engine
        assert same_rows(resumed.arrow(), expected)


def _suspend_channels_after(handle: RunHandle, sides: int, how: Suspension = NOW) -> bool:
    """With states, once so many inputs of channels are being ended; False when the query was
    quicker."""
    if not await_sides(handle, sides):
        return False
    try:
        return any(image.states for image in handle.suspend(how).values())
    except WrongUsage:
        return False


def _suspended_channels(session: Session, how: Suspension = NOW) -> RunHandle:
    for sides in (4, 3, 2, 2):
        handle = session.run(WORKLOADS["tpch"].queries()["q21"])
        if _suspend_channels_after(handle, sides, how):
            return handle
    raise AssertionError("the query was always quicker")


@pytest.fixture
def of_workers(session: Session, workers: Workers) -> Iterator[Session]:
    """A session on the pipelined engine."""
    with headway_session(session.spark, workers=workers, store_url=session.store.url) as other:
        yield other


@pytest.mark.nightly
def test_the_pipelined_engine_is_suspended_again_and_again(of_workers: Session) -> None:
    """What was kept the first time serves the third driver."""
    expected = of_workers.spark.sql(WORKLOADS["tpch"].queries()["q21"]).toArrow()
    for _ in range(ATTEMPTS):
        first = _suspended_channels(of_workers)
        second = of_workers.resume(first.id)
        if _suspend_channels_after(second, 1):
            break
    else:
        raise AssertionError("the query was always quicker")
    assert same_rows(goes_on(of_workers, first.id), expected)
    assert resumed_with(of_workers.store, first.id), "it began anew"


@pytest.mark.nightly
def test_the_pipelined_engine_keeps_what_fits_into_the_time(of_workers: Session) -> None:
    expected = of_workers.spark.sql(WORKLOADS["tpch"].queries()["q21"]).toArrow()
    handle = _suspended_channels(of_workers, Suspension(wait=False, within=30.0))
    assert same_rows(goes_on(of_workers, handle.id), expected)
    assert resumed_with(of_workers.store, handle.id), "it began anew"
    for _ in range(ATTEMPTS):
        late = of_workers.run(WORKLOADS["tpch"].queries()["q21"])
        assert not _suspend_channels_after(late, 2, Suspension(wait=False, within=0.0))
        if Run.open(of_workers.store, late.id).summary().status == "suspended":
            break
    else:
        raise AssertionError("the query was always quicker")
    assert same_rows(goes_on(of_workers, late.id), expected)


@pytest.mark.nightly
def test_the_pipelined_engine_pauses(of_workers: Session) -> None:
    text = WORKLOADS["tpch"].queries()["q21"]
    expected = of_workers.spark.sql(text).toArrow()
    for _ in range(ATTEMPTS):
        handle = of_workers.run(text)
        if await_sides(handle, 2):
            with suppress(WrongUsage):
                handle.pause()
        if handle.paused and handle._keeping.image_of("query") is not None:
            break
        handle.go_on()
        handle.wait()
    else:
        raise AssertionError("the query was always quicker")
    handle.go_on()
    handle.wait()
    assert handle._queries["query"].states, "it began anew"
    assert same_rows(handle.arrow(), expected)


def test_queries_that_had_not_begun_begin(session: Session) -> None:
    texts = {"first": QUERY, "second": "select count(*) as n from nation"}
    queries = [session.sql(text, name=name) for name, text in texts.items()]
    for _ in range(ATTEMPTS):
        handle = session.run(queries)
        if suspend_after(handle, 1):
            break
    else:
        raise AssertionError("the query was always quicker")
    resumed = session.resume(handle.id)
    resumed.wait()
    for name, text in texts.items():
        assert same_rows(resumed.arrow(name), session.spark.sql(text).toArrow())


def test_exactly_one_resumes(session: Session) -> None:
    handle = suspended(session, QUERY, 1)
    winner = session.resume(handle.id)
    with pytest.raises(WrongUsage, match=r"is running|is done"):
        session.resume(handle.id)
    winner.wait()
    with pytest.raises(WrongUsage, match="is done"):
        session.resume(handle.id)


def test_of_two_that_resume_at_the_same_time_one_does(session: Session) -> None:
    handle = suspended(session, QUERY, 1)
    others = [
        headway_session(session.spark, store_url=session.store.url, engine_name="spark")
        for _ in range(2)
    ]
    both = threading.Barrier(2)

    def resume(other: Session) -> RunHandle | HeadwayError:
        try:
            both.wait()
            return other.resume(handle.id)
        except HeadwayError as error:
            return error

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(resume, others))
    winners = [each for each in found if isinstance(each, RunHandle)]
    (loser,) = (each for each in found if isinstance(each, HeadwayError))
    assert loser.name in ("STORE_CONFLICT", "WRONG_USAGE"), loser
    (winner,) = winners
    winner.wait()
    assert same_rows(winner.arrow(), session.spark.sql(QUERY).toArrow())
    for other in others:
        other.close()


def test_a_driver_that_is_only_thought_lost_cannot_go_on(session: Session) -> None:
    handle = session.run(QUERY)
    other = headway_session(session.spark, store_url=session.store.url, engine_name="spark")
    with pytest.raises(WrongUsage, match="is running"):
        other.resume(handle.id)
    taken = other.resume(handle.id, take_over=True)
    taken.wait()
    assert same_rows(taken.arrow(), session.spark.sql(QUERY).toArrow())
    with suppress(HeadwayError):
        handle.wait()
    assert Run.open(session.store, handle.id).summary().status == "done"
    other.close()


def test_long_names_of_queries(session: Session) -> None:
    handle = suspended(session, session.sql(QUERY, name="q" * 56), 1)
    assert images_of(session, handle.id)[-1]["states"]
    assert same_rows(goes_on(session, handle.id), session.spark.sql(QUERY).toArrow())


def test_commands_are_not_run_again(session: Session) -> None:
    session.spark.sql("create table written (n int) using parquet")
    try:
        # One before the query, and one behind it, which has not been come to.
        texts = ["insert into written values (1)", QUERY, "insert into written values (2)"]
        for _ in range(ATTEMPTS):
            handle = session.run(texts)
            if suspend_after(handle, 2):
                break
            session.spark.sql("truncate table written")
        else:
            raise AssertionError("the query was always quicker")
        session.check_tables(handle.id)
        session.resume(handle.id).wait()
        assert session.spark.table("written").count() == 2
    finally:
        session.spark.sql("drop table written")


def test_requests_to_an_earlier_driver_are_forgotten(session: Session) -> None:
    handle = suspended(session, QUERY, 1)
    ask(Run.open(session.store, handle.id), Request("suspend"))
    assert same_rows(goes_on(session, handle.id), session.spark.sql(QUERY).toArrow())
    assert Run.open(session.store, handle.id).summary().status == "done"


def test_other_data_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    numbers = pa.table({"k": list(range(50_000)), "v": [n % 97 for n in range(50_000)]})
    pq.write_table(numbers, folder / "numbers.parquet")
    text = """select a.v, count(*) as n, sum(b.k) as s from numbers a
              join numbers b on a.v = b.v and b.k < 2000 group by a.v order by a.v"""
    store = str(tmp_path / "store")
    with headway_session(spark.newSession(), store_url=store, engine_name="spark") as session:
        session.tables(folder)
        handle = suspended(session, text, 1)
        pq.write_table(numbers.slice(1), folder / "numbers.parquet")
        session.tables(folder)
        with pytest.raises(TableChanged, match="numbers"):
            session.resume(handle.id)


def test_a_batch_goes_on(session: Session) -> None:
    texts = {f"q{n}": QUERY.replace("where", f"where l_quantity > {n} and") for n in range(4)}
    queries = [session.sql(text, name=name) for name, text in texts.items()]
    for _ in range(ATTEMPTS):
        handle = session.batch(queries)
        while not handle._running and not handle.finished:
            time.sleep(0.005)
        with suppress(WrongUsage):
            handle.suspend(NOW)
        if Run.open(session.store, handle.id).summary().status == "suspended":
            break
    else:
        raise AssertionError("the batch was always quicker")
    assert {str(progress.status) for progress in handle.progress()} <= {"suspended", "done"}
    resumed = session.resume(handle.id)
    resumed.wait()
    for name, text in texts.items():
        assert same_rows(resumed.arrow(name), session.spark.sql(text).toArrow())


def test_what_is_not_running_cannot_be_suspended(session: Session) -> None:
    handle = session.run("select 1 as one")
    handle.wait()
    with pytest.raises(WrongUsage, match="not running"):
        handle.suspend()


class Processes:
    """Commands of Headway as processes of their own, with one store."""

    def __init__(self, folder: Path, slow: str) -> None:
        (folder / "slow.sql").write_text(slow)
        self.store = folder / "store"
        self._query = str(folder / "slow.sql")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(HEADWAY), *arguments, "--json", "--store", str(self.store)],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "HEADWAY_ENGINE_NAME": "spark"},
        )

    def started(self, *options: str) -> subprocess.Popen[str]:
        """One that runs the slow query, and has begun with it."""
        running = self.start("run", self._query, "--master", "local[2]", *options)
        _await_query(self.store, running)
        return running

    def call(self, *arguments: str, code: int = 0) -> Any:
        called = self.start(*arguments)
        out, err = called.communicate(timeout=PATIENCE)
        assert called.returncode == code, (arguments, out, err)
        return json.loads(out.splitlines()[-1])

    def await_states(self) -> Any:
        """Until the slow query of the newest run has something that can be kept: where it stands
        then."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            stand = self.call("show", "last")["standings"].get("slow")
            if stand is not None and stand["states"]:
                return stand
        raise AssertionError("there was never a state")

    def ended(self, running: subprocess.Popen[str], code: int) -> Any:
        out, err = running.communicate(timeout=PATIENCE)
        assert running.returncode == code, (out, err)
        return json.loads(out.splitlines()[-1])

    def check_rows(self, slow_rows: pa.Table) -> None:
        """Those of the slow query in the newest run are Spark's."""
        found: list[list[str]] = self.call("show", "last", "--rows", "slow")["first_rows"]
        expected = [[str(v) for v in row.values()] for row in slow_rows.to_pylist()]
        assert [[str(value) for value in row] for row in found] == expected

    def check_kept(self) -> None:
        """The last driver of the newest run went on from states that an earlier one had kept."""
        store = open_store(str(self.store))
        (newest, *_) = list_runs(store)
        assert resumed_with(store, newest.run_id, "slow"), "it began anew"


def test_from_one_process_to_another(tmp_path: Path, slow: str, slow_rows: pa.Table) -> None:
    """A driver is paused, goes on, is told that its machine goes away, and another one takes the
    run over with another master."""
    processes = Processes(tmp_path, slow)
    running = processes.started("--on-preemption", "suspend")
    try:
        processes.await_states()
        assert processes.call("pause", "last")["status"] == "paused"
        assert processes.call("show", "last")["status"] == "paused"
        assert processes.call("continue", "last")["status"] == "running"
        running.terminate()
        assert processes.ended(running, 4)["status"] == "suspended"
    finally:
        running.kill()
    moved = processes.call("migrate", "last", "--to", "local[1]")
    assert moved["status"] == "done"
    processes.check_kept()
    processes.check_rows(slow_rows)


@pytest.mark.nightly
def test_a_driver_asked_to_suspend(tmp_path: Path, slow: str, slow_rows: pa.Table) -> None:
    processes = Processes(tmp_path, slow)
    running = processes.started()
    try:
        assert "[left]" in processes.await_states()["plan"]
        told = processes.call("suspend", "last", "--now", "--within", "60s")
        assert told["status"] == "suspended" and told["states"], told
        assert processes.ended(running, 4)["status"] == "suspended"
    finally:
        running.kill()
    assert processes.call("resume", "last", "--master", "local[1]")["status"] == "done"
    processes.check_kept()
    processes.check_rows(slow_rows)


@pytest.mark.nightly
def test_of_two_processes_one_resumes(tmp_path: Path, slow: str, slow_rows: pa.Table) -> None:
    processes = Processes(tmp_path, slow)
    running = processes.started()
    try:
        processes.await_states()
        assert processes.call("suspend", "last", "--now")["status"] == "suspended"
        processes.ended(running, 4)
    finally:
        running.kill()
    both = [processes.start("resume", "last", "--master", "local[1]") for _ in range(2)]
    told = [each.communicate(timeout=PATIENCE) for each in both]
    codes = [each.returncode for each in both]
    assert codes.count(0) == 1, (codes, told)
    (refused,) = (err for (_, err), code in zip(told, codes, strict=True) if code)
    assert "another process has taken over" in refused or "can be resumed" in refused
    processes.check_kept()
    processes.check_rows(slow_rows)


@pytest.mark.nightly
def test_a_program_that_is_told_to_end(tmp_path: Path, slow: str, slow_rows: pa.Table) -> None:
    """One that uses sessions, and has no handler of its own for the signal."""
    program = f"""
from pyspark.sql import SparkSession
import headway
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
settings = dict(engine_name="spark", suspension_on_preemption="suspend")
with headway.session(spark, store_url={str(tmp_path / "store")!r}, **settings) as session:
    handle = session.run(session.sql({slow!r}, name="slow"))
    handle.wait()
"""
    processes = Processes(tmp_path, slow)
    running = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    try:
        _await_query(processes.store, running)
        processes.await_states()
        running.terminate()
        assert running.wait(60) == -signal.SIGTERM
    finally:
        running.kill()
    (summary,) = list_runs(open_store(str(processes.store)))
    assert summary.status == "suspended"
    assert processes.call("resume", "last", "--master", "local[1]")["status"] == "done"
    processes.check_kept()
    processes.check_rows(slow_rows)


@pytest.mark.nightly
def test_a_machine_is_vacated_for_an_urgent_query(tmp_path: Path, slow: str) -> None:
    processes = Processes(tmp_path, slow)
    running = processes.started()
    try:
        urgent = processes.call("run", "--sql", "select 1 as one", "--urgent", "--name", "one")
        assert urgent["status"] == "done"
        told = processes.call("vacate")
        assert [each["status"] for each in told["runs"]] == ["suspended"]
        assert not told["drivers_left"]
        processes.ended(running, 4)
    finally:
        running.kill()
    run_id = told["runs"][0]["run"]
    events = [event["kind"] for event in processes.call("show", run_id)["events"]]
    assert "paused" in events and "continued" in events
    assert processes.call("resume", run_id)["status"] == "done"


@pytest.mark.nightly
@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0])
def test_a_killed_driver_with_snapshots(
    tmp_path: Path, seconds: float, slow: str, slow_rows: pa.Table
) -> None:
    """SIGKILL, so long after the first snapshot: the run goes on from the last one, and ends with
    the rows."""
    processes = Processes(tmp_path, slow)
    running = processes.started("--snapshot-every", "500ms")
    _await_event(IMAGE, processes.store, running)
    time.sleep(seconds)
    running.kill()
    running.communicate()
    store = open_store(str(processes.store))
    (summary,) = list_runs(store)
    assert summary.status == "lost"
    assert processes.call("resume", "last")["status"] == "done"
    assert FailureHistory(store, "lost-drivers").per_hour() == 1.0
    processes.check_kept()
    processes.check_rows(slow_rows)


def _await_query(store: Path, running: subprocess.Popen[str]) -> None:
    """Until it has begun."""
    _await_event(QUERY_STARTED, store, running)


def _await_event(kind: str, store: Path, running: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and running.poll() is None:
        time.sleep(0.1)
        runs = list_runs(open_store(str(store))) if store.exists() else ()
        for summary in runs:
            events = Run.open(open_store(str(store)), summary.run_id).events()
            if any(event.kind == kind for event in events):
                return
    raise AssertionError(f"there was never {kind}: {running.communicate()}")
