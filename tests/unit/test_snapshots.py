"""When a snapshot is taken, and of which states; requests to a driver; states found again."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from headway.base.clock import Until, whenever
from headway.base.errors import StoreFull
from headway.plan.nodes import Limit, Node, QueryPlan, Scan, StateScan
from headway.plan.sources import FileSource
from headway.plan.states import image_state
from headway.session.history import StoreSpeed
from headway.session.keepers import HeldState, Standing
from headway.session.planning import tables_in
from headway.session.requests import Request, answer, answer_to, ask, take_requests
from headway.session.resuming import Origin, QueryImage, known_rows
from headway.session.reusing import ReusableStates
from headway.session.snapshots import SnapshotPolicy, prospect
from headway.session.suspending import Haste, Suspension, Work, cheapest, moving_cost, suspend
from headway.spark.results import KeptResult
from headway.storage import QueryRecord, ReliableStore, Run, new_manifest
from headway.testing.example_plans import parquet_table, table

Stores = Callable[[str], ReliableStore]
MIB = 1 << 20
PLAN = QueryPlan(table("t", a="int"), ("a",))


class Keeper:
    """Holds a large new state, or the two smaller ones that it was made from."""

    def __init__(self, new: float = 400 * MIB, old: float = MIB + 1) -> None:
        self.new, self.old, self.done = new, old, 4
        self.asked: list[Collection[str]] = []
        self.calls: list[str] = []
        self.asked_until: float | None = None
        self.survives = False

    def stand(self, without: Collection[str] = ()) -> Standing | None:
        self.asked.append(without)
        if "new" not in without:
            return Standing(PLAN, {"new": HeldState(1000, self.new)}, 4, 5)
        states = {n: HeldState(10, self.old) for n in ("left", "right") if n not in without}
        return Standing(PLAN, states, len(states), 5)

    def finished(self) -> int:
        return self.done

    def settle(self, until: float | None, ended: Callable[[], bool], *, to_its_end: bool) -> None:
        self.calls.append("settle to its end" if to_its_end else "settle")

    def quiet(self, stop: Callable[[], None]) -> None:
        self.calls.append("quiet")

    def go_on(self) -> bool:
        self.calls.append("go on")
        return self.survives

    def hurry(self) -> None:
        self.calls.append("hurry")

    def keep_only(self, states: Collection[str]) -> None:
        self.calls.append("keep_only")

    def image(
        self,
        without: Collection[str] = (),
        *,
        origins: bool = False,
        until: Until = whenever,
        given_up: Callable[[], bool] = lambda: False,
    ) -> QueryImage | None:
        self.calls.append(f"image {sorted(without)}")
        self.asked_until = until()
        return QueryImage(PLAN)


@pytest.fixture
def speed(make_store: Stores) -> StoreSpeed:
    found = StoreSpeed(make_store("local"))
    for _ in range(3):
        found.add(1000, 0.1)
        found.add(100 * MIB, 1.1)  # a tenth of a second, and 100 MiB in a second
    return found


def work(seconds: float = 0.0) -> Work:
    """All of it is done with the new state, half with both of the older ones."""
    return Work(time.monotonic() - seconds, lambda standing: standing.finished / 4)


def test_the_speed_of_a_store_is_learned(make_store: Stores) -> None:
    store = make_store("local")
    speed = StoreSpeed(store)
    before = speed.seconds(100 * MIB)
    for _ in range(3):
        speed.add(1000, 0.1)
        speed.add(100 * MIB, 1.1)
    assert speed.seconds(0) == pytest.approx(0.1)
    assert speed.seconds(200 * MIB) == pytest.approx(2.1)
    assert StoreSpeed(store).seconds(200 * MIB) == pytest.approx(2.1)
    assert before != speed.seconds(100 * MIB)
    store.write("observations/store-speed", b'{"bytes": [1')
    assert StoreSpeed(store).seconds(100 * MIB) == before


def test_after_so_many_seconds_if_there_is_news(speed: StoreSpeed) -> None:
    policy = SnapshotPolicy(30.0, speed, 0.0, 100.0)
    keeper = Keeper(new=MIB)
    assert policy.passed_over(keeper, work(), 129.0) is None
    assert not keeper.asked, "looked at a query whose time has not come"
    assert policy.passed_over(keeper, work(), 131.0) == frozenset()
    policy.taken({"new": None}, 131.0)
    assert policy.passed_over(keeper, work(), 200.0) is None, "nothing is new"


def test_a_query_without_news_is_not_looked_at_again(speed: StoreSpeed) -> None:
    """Reading its plan takes the driver's time: only once more is finished, or it is worth it."""
    keeper = Keeper(new=MIB)
    policy = SnapshotPolicy(30.0, speed, 0.0, 0.0)
    assert policy.passed_over(keeper, work(), 31.0) == frozenset()
    policy.taken({"new": None}, 31.0)
    looks = []
    for now in (62.0, 63.0, 64.0):
        assert policy.passed_over(keeper, work(), now) is None
        looks.append(len(keeper.asked))
    assert len(set(looks)) == 1
    keeper.done += 1
    policy.passed_over(keeper, work(), 65.0)
    assert len(keeper.asked) > looks[-1]
    often = SnapshotPolicy("auto", speed, 360.0, 0.0)
    large = Keeper(new=10 * MIB)
    assert often.passed_over(large, work(9e4), 1.9) is None
    before = len(large.asked)
    assert often.passed_over(large, work(9e4), 1.95) is None and len(large.asked) == before
    assert often.passed_over(large, work(9e4), 2.1) == frozenset()


def test_those_who_write_together_share_the_speed(speed: StoreSpeed) -> None:
    alone = speed.seconds(100 * MIB)
    with speed.writing(3), speed.writing(1):
        assert speed.seconds(100 * MIB) == pytest.approx(0.1 + 4 * (alone - 0.1))
        keeper = Keeper(new=100 * MIB)
        assert choice(keeper, speed, 60.0, 2.0) == {"new"}, "there is no time for it"
        for _ in range(9):
            speed.add(100 * MIB, 4.1)  # the same speed, seen by one of four
    assert choice(keeper, speed, 60.0, 2.0) == set()
    assert speed.seconds(100 * MIB) == pytest.approx(alone, rel=0.1)


def test_as_often_as_it_pays(speed: StoreSpeed) -> None:
    """Young: every sqrt(2 c / r) seconds."""
    keeper = Keeper(new=10 * MIB)  # 0.2 s
    often = SnapshotPolicy("auto", speed, 360.0, 0.0)  # one in ten seconds: every two seconds
    assert often.passed_over(keeper, work(9e4), 1.9) is None
    assert often.passed_over(keeper, work(9e4), 2.1) == frozenset()
    rarely = SnapshotPolicy("auto", speed, 0.36, 0.0)  # one in 10,000 s: every 63 seconds
    assert rarely.passed_over(keeper, work(9e4), 62.0) is None
    assert rarely.passed_over(keeper, work(9e4), 64.0) == frozenset()


def test_an_older_state_that_is_smaller_may_cost_less(speed: StoreSpeed) -> None:
    """What was done since the older state would be lost: that decides."""
    policy = SnapshotPolicy("auto", speed, 36.0, 0.0)
    assert policy.passed_over(Keeper(), work(20.0), 20.0) == {"new"}
    policy = SnapshotPolicy("auto", speed, 36.0, 0.0)
    assert policy.passed_over(Keeper(), work(6000.0), 6000.0) == frozenset()


def choice(keeper: Keeper, speed: StoreSpeed, seconds: float, within: float | None) -> set[str]:
    newest = keeper.stand()
    assert newest is not None
    cost = moving_cost(newest, speed, work(seconds), within)
    return set(cheapest(keeper, newest, cost))


def test_what_is_cheaper_to_make_again_is_passed_over(speed: StoreSpeed) -> None:
    assert choice(Keeper(), speed, 60.0, None) == set(), "half a minute, for six seconds"
    assert choice(Keeper(), speed, 8.0, None) == {"new"}
    assert choice(Keeper(old=300 * MIB), speed, 3.0, None) == {"new", "left", "right"}
    assert choice(Keeper(new=MIB), speed, 0.0, None) == set(), "not worth a thought"


def test_what_fits_into_the_time(speed: StoreSpeed) -> None:
    assert choice(Keeper(), speed, 60.0, 60.0) == set()
    assert choice(Keeper(), speed, 60.0, 2.0) == {"new"}
    assert choice(Keeper(old=300 * MIB), speed, 60.0, 0.05) == {"new", "left", "right"}


def stop_now(keeper: Keeper, speed: StoreSpeed, **named: Any) -> int:
    """How often it was stopped."""
    stopped: list[str] = []
    stop, running = (lambda: stopped.append("x")), (lambda: False)
    how = Suspension(wait=False)
    with suppress(OSError):
        suspend(
            keeper,
            how,
            named.pop("until", None),
            speed,
            work(60.0),
            stop,
            running,
            Haste(),
            **named,
        )
    return len(stopped)


def test_a_query_is_stopped_once_it_is_disturbed(speed: StoreSpeed) -> None:
    class Failing(Keeper):
        def image(self, *arguments: object, **named: object) -> QueryImage | None:
            raise OSError("no room")

    assert stop_now(Keeper(new=MIB), speed) == 1
    failing = Failing(new=MIB)
    assert stop_now(failing, speed) == 1 and failing.calls == ["quiet", "go on"]
    failing = Failing(new=MIB)
    failing.survives = True
    assert stop_now(failing, speed) == 0, "it could have gone on"
    keeper = Keeper()
    ended = suspend(keeper, Suspension(), None, speed, work(), lambda: None, lambda: True, Haste())
    assert ended is None and keeper.calls == ["settle"]


def test_a_query_that_there_is_no_room_for_is_not_stopped(speed: StoreSpeed) -> None:
    """But where its machine is taken away, what fits is kept."""

    def room() -> float:
        return 50.0 * MIB

    keeper = Keeper(old=20 * MIB)
    keeper.survives = True
    with pytest.raises(StoreFull, match="419 MB of the store, which has 52 MB left"):
        stop_now(keeper, speed, room=room)
    assert keeper.calls == ["go on"]
    assert stop_now(keeper, speed, room=room, until=time.monotonic() + 60.0) == 1
    assert keeper.calls == ["go on", "quiet", "image ['new']"]


def test_what_a_query_did_that_fails_while_it_is_waited_for_is_kept(speed: StoreSpeed) -> None:
    keeper, stop, ended = Keeper(new=MIB), (lambda: None), (lambda: True)
    how, failed = Suspension(), (lambda: True)
    image = suspend(keeper, how, None, speed, work(), stop, ended, Haste(), failed=failed)
    assert image is not None and keeper.calls == ["settle", "quiet", "image []"]


def test_what_was_seen_counts_before_estimates() -> None:
    newest = Standing(PLAN, {"new": HeldState(1, 1, steps={1: 3.5, 2: 1.5})}, 4, 5)
    older = Standing(PLAN, {"old": HeldState(1, 1, steps={1: 3.5})}, 0, 5)
    assert work(100.0).again(older, newest) == 1.5
    both = {
        "left": HeldState(1, 1, steps={1: 3.0}),
        "right": HeldState(1, 1, steps={1: 3.0, 3: 0.2}),
    }
    in_common = Standing(PLAN, both, 0, 5)
    assert work(100.0).again(in_common, newest) == pytest.approx(1.8), "step 1 was done once"
    unknown = Standing(PLAN, {"old": HeldState(1, 1)}, 2, 5)
    assert work(100.0).again(unknown, newest) == pytest.approx(50.0, rel=0.01)


def test_rows_that_change_places_again_count_as_moving(speed: StoreSpeed) -> None:
    state = HeldState(1, 50 * MIB, steps={1: 1.2})
    cost = moving_cost(Standing(PLAN, {"s": state}, 1, 2), speed, work())
    shuffled = Standing(PLAN, {"s": replace(state, moving_seconds=2.0)}, 1, 2)
    assert cost(shuffled) == pytest.approx(cost(Standing(PLAN, {"s": state}, 1, 2)) + 2.0)


class Clock:
    """In the place of the module `time`: nobody waits."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Proceeding(Keeper):
    """Its one state is large, and small from a look on."""

    def __init__(self, small_from: int, seconds: float, done: int = 2) -> None:
        super().__init__()
        self.small_from, self.seconds, self.looks, self.done = small_from, seconds, 0, done

    def finished(self) -> int:
        self.looks += 1
        return self.done if self.looks >= self.small_from else 1

    def stand(self, without: Collection[str] = ()) -> Standing | None:
        small = self.looks >= self.small_from
        state = HeldState(1, MIB if small else 40 * MIB, steps={1: self.seconds})
        return Standing(PLAN, {} if without else {"s": state}, self.done if small else 1, 5)


class NearlyDone(Proceeding):
    """From a look on, and with one more pipeline finished at every look."""

    def finished(self) -> int:
        self.looks += 1
        return 1 if self.looks < self.small_from else min(self.looks, 100)


def test_waiting_goes_on_while_it_takes_less_than_moving(
    speed: StoreSpeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[suspend.__module__]
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(module, "_RESUMING_SECONDS", 0.05)
    monkeypatch.setattr(module, "time", clock := Clock())

    def looks_of(
        keeper: Proceeding, within: float | None = None, *, wait: bool = True, cheaper: bool = True
    ) -> int:
        how = Suspension(wait, within, cheaper)
        stop = lambda: None  # noqa: E731
        suspend(keeper, how, how.until(), speed, work(60.0), stop, lambda: False, Haste())
        return keeper.looks

    assert looks_of(Proceeding(20, seconds=60.0)) in range(20, 30), "until there is little to move"
    given_up = Proceeding(10_000, seconds=0.4)
    began = clock.now
    assert looks_of(given_up) > 5
    assert 0.4 <= clock.now - began < 20.0, "as long as writing it and making it again takes"
    assert looks_of(Proceeding(10_000, seconds=60.0), within=1.0) < 10, "there is no time for that"
    assert looks_of(Proceeding(10_000, seconds=60.0), wait=False) < 10
    told = Proceeding(10_000, seconds=60.0)
    assert looks_of(told, cheaper=False) < 10, "but for those that are running"
    assert told.calls[0] == "settle to its end"


def test_cached_tables_are_nothing_that_a_query_has_done(speed: StoreSpeed) -> None:
    """Another session reads the tables themselves, where it can."""

    class Cached(Keeper):
        def stand(self, without: Collection[str] = ()) -> Standing | None:
            if without:
                return None
            states = {"cached": HeldState(1000, 400 * MIB, steps={})}
            made = {"made": HeldState(1000, MIB, steps={1: 5.0})} if self.done > 1 else {}
            return Standing(PLAN, states | made, self.done, 5)

    def kept(finished: int, *, portable: bool) -> bool:
        keeper = Cached()
        keeper.done = finished
        behind = replace(work(60.0), portable=portable)
        now = Suspension(wait=False)
        stop, ended = (lambda: None), (lambda: False)
        return suspend(keeper, now, None, speed, behind, stop, ended, Haste()) is not None

    assert not kept(1, portable=True) and kept(1, portable=False) and kept(2, portable=True)


def test_what_is_nearly_done_is_waited_for_as_long_again(
    speed: StoreSpeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules[suspend.__module__]
    monkeypatch.setattr(module, "_RESUMING_SECONDS", 3.0)

    def waited(keeper: Proceeding) -> float:
        monkeypatch.setattr(module, "time", clock := Clock())
        began = clock.now
        suspend(keeper, Suspension(), None, speed, work(60.0), lambda: None, lambda: False, Haste())
        return clock.now - began

    assert waited(Proceeding(20, seconds=0.0)) < 3.5, "from when it was asked"
    assert waited(NearlyDone(20, seconds=0.0, done=4)) < 5.5, (
        "once, however many pipelines are left"
    )
    assert 4.8 < waited(Proceeding(20, seconds=0.0, done=4)) < 5.5, "from when it was nearly done"


def test_who_is_in_haste_ends_the_waiting(
    speed: StoreSpeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[suspend.__module__], "_RESUMING_SECONDS", 60.0)
    haste = Haste()
    threading.Timer(0.2, haste.ask, [time.monotonic() + 30.0]).start()
    keeper = Proceeding(10_000, seconds=600.0)
    began = time.monotonic()
    image = suspend(keeper, Suspension(), None, speed, work(), lambda: None, lambda: False, haste)
    assert time.monotonic() - began < 30.0, "it would have waited for a minute"
    assert image is not None and keeper.asked_until is not None, "the time that was said counts"


def test_who_is_in_haste_is_heard_while_an_image_is_written(speed: StoreSpeed) -> None:
    haste = Haste()
    told: list[float | None] = []

    class Writing(Keeper):
        def image(
            self, *arguments: object, until: Until = whenever, **named: object
        ) -> QueryImage | None:
            told.append(until())
            haste.ask(time.monotonic() + 100.0)
            told.extend((until(), until()))
            return QueryImage(PLAN)

    keeper, stop, ended = Writing(new=MIB), (lambda: None), (lambda: False)
    assert suspend(keeper, Suspension(False), None, speed, work(), stop, ended, haste) is not None
    assert told[0] is None and told[1] == told[2], "it comes no nearer to the end with every look"
    assert told[1] is not None and 70.0 < told[1] - time.monotonic() < 100.0


def test_the_earliest_time_counts_of_those_who_wait() -> None:
    haste = Haste()
    first, second = haste.ask(9.0), haste.ask(None)
    assert (haste.at_latest(None), haste.at_latest(7.0), haste.at_latest(11.0)) == (9.0, 7.0, 9.0)
    haste.withdraw(first)
    assert haste.asked and haste.at_latest(None) is None
    haste.withdraw(second)
    assert not haste.asked and haste.at_latest(7.0) == 7.0


def test_moving_pays_when_little_is_held(speed: StoreSpeed) -> None:
    little = Standing(PLAN, {"s": HeldState(10, MIB)}, 1, 2)
    found = prospect(little, 10.0, 0.5, speed)
    assert found.pays and found.left == pytest.approx(10.0)
    much = Standing(PLAN, {"s": HeldState(10, 2000 * MIB)}, 1, 2)
    assert not prospect(much, 10.0, 0.5, speed).pays
    running = Standing(PLAN, {"s": HeldState(10, MIB, steps={1: 1.0})}, 1, 2)
    found = prospect(running, 60.0, 0.02, speed)
    assert found.dropped == pytest.approx(59.0) and found.moving > 59.0
    assert found.left == 0.0, "fifty seconds were expected of it"
    kept = Standing(PLAN, {"s": HeldState(10, 2000 * MIB, kept=True)}, 1, 2)
    assert prospect(kept, 10.0, 0.5, speed).keeping < 1.0


def test_a_snapshot_that_was_given_up_is_still_due(speed: StoreSpeed) -> None:
    policy, keeper = SnapshotPolicy(30.0, speed, 0.0, 0.0), Keeper(new=MIB)
    assert policy.passed_over(keeper, work(), 31.0) == frozenset()
    assert policy.passed_over(keeper, work(), 32.0) is None, "that one is being taken"
    policy.given_up()
    assert policy.passed_over(keeper, work(), 33.0) == frozenset()


def test_questions_and_answers(make_store: Stores) -> None:
    run = Run.create(make_store("local"), new_manifest([QueryRecord("q", "SELECT 1")]))
    token = ask(run, Request("tell"))
    assert answer_to(run, token) is None
    answer(run, Request("tell", token=token), {"queries": {}})
    assert answer_to(run, token) == {"queries": {}}
    assert answer_to(run, token) is None, "an answer is given once"


def test_an_answer_that_is_taken_away_damages_nothing(make_store: Stores) -> None:
    run = Run.create(make_store("local"), new_manifest([QueryRecord("q", "SELECT 1")]))
    token = ask(run, Request("tell"))
    answer(run, Request("tell", token=token), {"queries": {}})
    run.end("done")
    run.store.delete_tree(f"runs/{run.run_id}/pieces/answers")
    run.store.delete_tree(f"runs/{run.run_id}/pieces/requests")
    assert Run.open(run.store, run.run_id).summary().status == "done"


def test_the_time_that_is_left_of_a_request() -> None:
    now = time.time()
    assert Request("suspend").left() is None
    assert Request("suspend", within=20.0, asked_at=now - 5.0).left() == pytest.approx(15.0, abs=1)
    assert Request("suspend", within=20.0, asked_at=now - 9e6).left() == 20.0, "another clock"


def test_a_paused_run_says_so(make_store: Stores) -> None:
    run = Run.create(make_store("local"), new_manifest([QueryRecord("q", "SELECT 1")]))
    run.pause()
    assert run.summary().status == "paused"
    run.go_on()
    assert run.summary().status == "running"
    run.pause()
    run.suspend()
    assert run.summary().status == "suspended"
    run.take_over(len(run.events()))
    assert run.summary().status == "running"


def test_the_rows_of_states_are_known() -> None:
    state = image_state("s-1", [("int", True)])
    plan = QueryPlan(state, ("a",))
    (count,) = known_rows(plan, {"s-1": 12.0}).values()
    assert count == 12.0
    assert not known_rows(plan, {"s-1": -1.0})
    assert not known_rows(plan, {})


def limited(scan: Node) -> Node:
    return Limit(scan, 5)


def schema_json(node: Node) -> str:
    """Spark's, without a Spark."""
    kinds = {"int": IntegerType(), "string": StringType()}
    fields = [StructField(column.name, kinds[column.type]) for column in node.schema]
    return str(StructType(fields).json())


def offered(store: ReliableStore, node: Node) -> tuple[Run, KeptResult]:
    """A state that was kept of a node, with its columns the other way round."""
    tables = tables_in([QueryPlan(node, node.column_names)])
    run = Run.create(store, new_manifest([QueryRecord("q", "SELECT 1")], tables))
    types = [(column.type, True) for column in reversed(node.schema)]
    scan = image_state("q-1", types)
    run.write_piece("states/q-1/000000", b"rows")
    kept = KeptResult(3, 100, ("states/q-1/000000",), schema_json(scan))
    places = tuple(reversed(range(len(types))))
    image = QueryImage(PLAN, {"q-1": kept}, origins={"q-1": Origin(node, places, whole=True)})
    assert ReusableStates(store).offer(run, [image]) == {"q-1"}
    return run, kept


def test_a_state_is_found_by_what_made_it(make_store: Stores, tmp_path: Path) -> None:
    store = make_store("local")
    rows = [(n, f"{n}") for n in range(10)]
    scan = parquet_table(tmp_path / "t", {"a": "int", "b": "string"}, rows)
    run, _ = offered(store, limited(scan))
    reusable = ReusableStates(store)
    # The same rows elsewhere, under other names.
    (tmp_path / "u").mkdir()
    moved = tmp_path / "u" / "other.parquet"
    assert isinstance(scan.source, FileSource)
    moved.write_bytes(Path(scan.source.files[0]).read_bytes())
    columns = tuple(
        replace(c, column=replace(c.column, name=f"x_{c.column.name}")) for c in scan.columns
    )
    elsewhere = Scan(FileSource("u", "parquet", (str(moved),)), columns)
    found = reusable.used_by(QueryPlan(limited(elsewhere), ("a", "b")))
    assert found is not None
    (kept,) = found.states.values()
    assert kept.run == run.run_id and kept.rows == 3
    assert found.plan.root.column_names == ("x_a", "x_b")
    texts = [output.expression.text for output in found.plan.root.outputs]  # type: ignore[attr-defined]
    assert [text.strip("`")[-1] for text in texts] == ["1", "0"], "columns are where they were put"
    # Other settings, other rows, other work, a run that is gone.
    other = QueryPlan(limited(scan), ("a", "b"), (("spark.sql.ansi.enabled", "false"),))
    assert reusable.used_by(other) is None
    assert reusable.used_by(QueryPlan(Limit(scan, 6), ("a", "b"))) is None
    changed = parquet_table(tmp_path / "v", {"a": "int", "b": "string"}, rows[1:])
    assert reusable.used_by(QueryPlan(limited(changed), ("a", "b"))) is None
    store.delete_tree(f"runs/{run.run_id}")
    assert reusable.used_by(QueryPlan(limited(scan), ("a", "b"))) is None


def test_what_has_no_content_is_not_offered(make_store: Stores) -> None:
    store = make_store("local")
    run = Run.create(store, new_manifest([QueryRecord("q", "SELECT 1")]))
    kept = KeptResult(3, 100, (), schema_json(PLAN.root))
    for node in (
        limited(table("t", a="int")),
        limited(StateScan("image", "s", PLAN.root.schema)),
    ):
        image = QueryImage(PLAN, {"q-1": kept}, origins={"q-1": Origin(node, (0,), whole=True)})
        assert not ReusableStates(store).offer(run, [image])
    part = QueryImage(PLAN, {"q-1": kept}, origins={"q-1": Origin(PLAN.root, (0,), whole=False)})
    assert not ReusableStates(store).offer(run, [part])


def test_requests_are_left_to_the_one_who_drives_the_run(make_store: Stores) -> None:
    store = make_store("local")
    former = Run.create(store, new_manifest([QueryRecord("q", "SELECT 1")]))
    former.append("halting")
    assert not former.overtaken()
    other = Run.open(store, former.run_id)
    other.take_over(1)
    assert former.overtaken() and not other.overtaken()
    ask(former, Request("tell"))
    asked: list[str] = []
    take_requests(former, lambda request: asked.append("former"))
    take_requests(other, lambda request: asked.append("other"))
    assert asked == ["other"]


def test_requests_that_fail_are_answered(make_store: Stores) -> None:
    run = Run.create(make_store("local"), new_manifest([QueryRecord("q", "SELECT 1")]))

    def act(request: Request) -> None:
        raise StoreFull("no room") if request.what == "pause" else OSError("a pipe that broke")

    tokens = [ask(run, Request("pause")), ask(run, Request("tell"))]
    run.write_piece("requests/unknown", b'{"what": "dance"}')
    path = run.store.url.removeprefix("file:") + f"/runs/{run.run_id}/pieces/requests"
    ask(run, Request("tell", token="0damaged"))
    Path(path, "0damaged").write_bytes(b"no piece")
    take_requests(run, act)
    assert answer_to(run, "0damaged")["error"]["name"] == "STORE_CORRUPT"
    told = [answer_to(run, token)["error"] for token in (*tokens, "unknown")]
    assert [each["name"] for each in told] == ["STORE_FULL", "QUERY_FAILED", "WRONG_USAGE"]
    assert "a pipe that broke" in told[1]["message"]
    assert not run.piece_sizes("requests")
