"""Queries of many kinds, stopped after each of their stages: the rows are always Spark's."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headway.base.errors import WrongUsage
from headway.plan.graph import use_counts, walk
from headway.plan.nodes import Scan, StateScan
from headway.session import RunHandle, Session
from headway.session import session as headway_session
from headway.session.keepers import Standing
from headway.session.suspending import Suspension
from headway.spark import executors
from headway.spark import running as running_module
from headway.spark.adaptive import QueryWatch
from headway.spark.running import stages_of
from headway.testing.suspensions import (
    ATTEMPTS,
    NOW,
    await_stages,
    goes_on,
    images_of,
    resumed_with,
    running_of,
    suspend_after,
    suspended,
)

ROWS = 120_000
MORE_ATTEMPTS = 2
"""After the stage that a query was stopped at before: it may have no more."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys that are null, occur several times or have no partner; one that is everywhere."""
    folder = tmp_path_factory.mktemp("tables")
    facts = {
        "id": list(range(ROWS)),
        "k": [None if n % 11 == 0 else 7 if n % 3 == 0 else n % 1500 for n in range(ROWS)],
        "g": [None if n % 13 == 0 else n % 40 for n in range(ROWS)],
        "v": [n * 37 % 1001 / 8 for n in range(ROWS)],
    }
    dims = {
        "k": [None if n % 50 == 0 else n % 900 for n in range(1200)],
        "name": [f"name {n % 77}" if n % 7 else None for n in range(1200)],
    }
    pq.write_table(pa.table(facts), folder / "facts.parquet", row_group_size=20_000)
    pq.write_table(pa.table(dims), folder / "dims.parquet")
    return folder


@pytest.fixture
def session(spark: SparkSession, tables: Path, tmp_path: Path) -> Iterator[Session]:
    given = {"store_url": str(tmp_path / "store"), "engine_name": "spark"}
    with headway_session(spark.newSession(), **given) as made:
        made.tables(tables)
        yield made


HASHED = "(select crc32(cast(id as string)) as h from facts)"
KINDS = {
    "distinct": "select distinct g, k % 5 as m from facts order by g, m",
    "counts of distinct values": """
        select g, count(distinct k) as ks, count(distinct v) as vs, sum(id) as s
        from facts group by g order by g""",
    "left join": """
        select d.name, count(*) as n, sum(f.id) as s
        from facts f left join dims d on f.k = d.k group by d.name order by d.name""",
    "full join": """
        select f.g, d.name, count(*) as n from (select * from facts where id < 9000) f
        full join dims d on f.k = d.k group by f.g, d.name order by 1, 2""",
    "not in": """
        select g, count(*) as n from facts where k not in (select k from dims where k is not null)
        group by g order by g""",
    "not in, with nulls": "select count(*) as n from facts where k not in (select k from dims)",
    "not exists": """
        select count(*) as n, sum(id) as s from facts f
        where not exists (select 1 from dims d where d.k = f.k and d.name is null)""",
    "read twice": """
        with sums as (select k, sum(v) as v, count(*) as n from facts group by k)
        select a.k, a.v, b.n from sums a join sums b on a.k = b.k + 1
        where a.v > (select avg(v) from sums) order by a.k""",
    "limit and offset": """
        select g, count(*) as n, min(id) as i from facts group by g order by n desc, g
        limit 7 offset 3""",
    "sets": """
        select k from facts where id < 50000 intersect select k from dims
        except select k from facts where g = 3 order by k""",
    "union": """
        select m, sum(n) as n from (select g as m, count(*) as n from facts group by g
        union all select k % 40, count(*) from dims group by 1) group by m order by m""",
    "windows": """
        select g, k, r from (select g, k, n, rank() over (partition by g order by n desc, k) as r
        from (select g, k, count(*) as n from facts group by g, k)) where r <= 3
        order by g, r, k""",
    "rollup": """
        select g, k % 3 as m, count(*) as n, sum(id) as s from facts
        group by rollup (g, k % 3) order by g, m, n""",
    "scalar subqueries": """
        select g, (select max(k) from dims) as most, sum(v) as v from facts
        where v > (select avg(v) from facts where g = 1) group by g order by g""",
    "nothing in it": """
        select f.g, count(*) as n from facts f join (select k, count(*) as c from dims
        group by k having count(*) > 1000) d on f.k = d.k group by f.g order by f.g""",
    "one key everywhere": """
        select a.g, count(*) as n, sum(b.id) as s
        from (select k, g, count(*) as c from facts group by k, g) a
        join (select k, max(id) as id from facts group by k) b on a.k = b.k
        group by a.g order by a.g""",
    "fields of one name": """
        select g, count(*) as n, max(cast(m as string)) as m
        from (select f.g, f.k, max(named_struct('v', f.id, 'v', d.k)) as m
              from facts f join dims d on f.k = d.k group by f.g, f.k)
        group by g order by g""",
    "constants": """
        select n.name, count(*) as c, sum(s.s) as s
        from (select g, k, sum(id) as s from facts group by g, k) s
        join (select * from values (1, 'one', timestamp '2024-02-29 12:00:00', 1.50),
                (2, null, null, -0.25), (5, 'five', timestamp '1850-01-01 00:00:00', null)
              as n(g, name, at, d)) n on s.g = n.g
        group by n.name order by n.name""",
    "rows without columns": "select count(*) as n from (select distinct k, g from facts)",
    "a broadcast table without columns": f"""
        select /*+ broadcast(d) */ count(*) as n from {HASHED} f cross join
        (select name from dims where k < 3) d where h % 7 = 1""",
    "types of all kinds": """
        select g, max(t) as t, max(z) as z, max(d) as d, max(i) as i, max(s) as s, max(a) as a,
            max(b) as b, cast(max(x) as string) as x
        from (select g, k, max(timestamp_micros(id * 1000003)) as t,
                max(timestamp_ntz '2020-01-01 00:00:00' + make_dt_interval(0, 0, 0, id)) as z,
                max(date_add(date '1900-01-01', cast(id as int))) as d,
                max(make_dt_interval(0, 0, 0, id)) as i,
                max(named_struct('a', id, 'b', array(v, null))) as s, max(array(g, k)) as a,
                max(cast(cast(id as string) as binary)) as b,
                max(if(id % 9 = 0, double('nan'), -v)) as x
              from facts group by g, k)
        group by g order by g""",
}
QUICK = ("distinct", "left join", "read twice", "rows without columns")
MOMENTS = ", ".join(f"timestamp '2024-03-{n % 28 + 1:02d} {n % 24:02d}:30:00'" for n in range(40))


def test_moments_are_the_same_in_every_zone(session: Session) -> None:
    """Spark searches many constants in a set, of which nobody knows the time zone."""
    session.spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    text = f"""
        select /*+ broadcast(d) */ count(*) as n, sum(id) as s from facts f join
        (select k, count(*) as c from dims group by k) d on f.k = d.k
        where timestamp '2024-03-01 00:30:00' + make_dt_interval(0, id % 800) in ({MOMENTS})"""
    expected = session.spark.sql(text).toArrow().to_pylist()
    assert expected[0]["n"] > 0
    handle = suspended(session, text, 1)
    assert goes_on(session, handle.id).to_pylist() == expected
    assert resumed_with(session.store, handle.id), "it began anew"


def test_stages_are_counted_once_wherever_they_are_read(session: Session) -> None:
    """Also where it is a subquery that reads once more what the query itself has made."""
    joined = "from facts f join dims d on f.k = d.k"
    frame = session.spark.sql(
        f"select g, sum(v) as v {joined} group by g having sum(v) > (select avg(v) {joined}) "
        "order by v"
    )
    assert frame.toArrow().num_rows
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "ReusedExchange" in plan.partition("== Initial Plan ==")[0]
    stages = stages_of(frame)
    assert stages.finished == stages.total > 1 and not stages.unfinished


def test_what_is_only_looked_at_so_far_is_running(session: Session) -> None:
    """Before rows are put in order, all of them are read to find where to cut them; and a table is
    put into the cache by the first query that reads it."""
    session.spark.sql(
        "cache lazy table slowly as select id, crc32(cast(id as string)) as h from "
        "range(0, 4000000, 1, 2)"
    )
    try:
        for text in (
            "select id, h from (select id, crc32(cast(id as string)) as h from "
            "range(0, 6000000, 1, 2)) where h % 1000 = 1 order by h",
            "select h % 10 as d, count(*) as n from slowly group by 1 order by 1",
        ):
            handle = session.run(text)
            seen: list[int] = []
            while not handle.finished:
                for running in running_of(handle):
                    assert isinstance(running.watch, QueryWatch)
                    stages = stages_of(running.watch.frame)
                    if not stages.finished:
                        seen.append(len(stages.running))
                time.sleep(0.02)
            handle.wait()
            assert seen.count(1) > len(seen) / 2 > 1, f"{text}: {seen}"
    finally:
        session.spark.sql("drop view slowly")


@pytest.mark.nightly
def test_a_plan_that_nobody_can_read_holds_nobody_up(session: Session) -> None:
    """The others are suspended, and it begins anew."""
    deep = " + ".join(f"(id % {n})" for n in range(1, 400))
    texts = {
        "deep": f"select sum({deep}) as s from facts, (select explode(sequence(1, 30)))",
        "other": KINDS["left join"],
    }
    behind = f"""
        with sums as (select k, sum({deep}) as s from facts group by k)
        select /*+ broadcast(sums) */ sum(s) as s, sum(crc32(cast(f.id * e as string))) as x
        from (select k, id, explode(sequence(1, 200)) as e from facts) f
        join sums on f.k = sums.k"""
    handle = suspended(session, behind, 1)
    assert goes_on(session, handle.id).equals(session.spark.sql(behind).toArrow())
    queries = [session.sql(text, name=name) for name, text in texts.items()]
    for _ in range(ATTEMPTS):
        handle = session.run(queries)
        while not handle.finished and not running_of(handle):
            time.sleep(0.005)
        with suppress(WrongUsage):
            handle.suspend(NOW)
            break
    else:
        raise AssertionError("the query was always quicker")
    resumed = session.resume(handle.id)
    resumed.wait()
    for name, text in texts.items():
        assert resumed.arrow(name).equals(session.spark.sql(text).toArrow())


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k in QUICK else pytest.mark.nightly) for k in KINDS]
)
def test_stopped_after_every_stage(session: Session, kind: str) -> None:
    expected = session.spark.sql(KINDS[kind]).toArrow().to_pylist()
    stopped = kept = 0
    for stages in count(1):
        for _ in range(MORE_ATTEMPTS if stopped else ATTEMPTS):
            handle = session.run(KINDS[kind])
            if suspend_after(handle, stages):
                break
            handle.wait()
        else:
            break  # it never has so many
        stopped += 1
        states = images_of(session, handle.id)[-1]["states"]
        kept += bool(states)
        assert goes_on(session, handle.id).to_pylist() == expected, f"after {stages} stages"
        assert bool(resumed_with(session.store, handle.id)) == bool(states), "it began anew"
    print(f"{kind}: stopped {stopped} times, {kept} times with states")
    assert kept, "nothing was ever kept"


EXPLODED = "(select id, k, explode(sequence(1, 10)) as e from facts)"
JOINED = f"""
select /*+ merge(d) */ d.name, count(*) as n, sum(crc32(cast(id + e as string))) as s
from {EXPLODED} f join (select k, max(name) as name from dims group by k) d on f.k = d.k
group by d.name order by d.name
"""


@pytest.mark.nightly
def test_skewed_parts_of_a_shuffle_are_halved(session: Session) -> None:
    for name, value in {
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "1",
        "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.1",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "4096",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": "6",
    }.items():
        session.spark.conf.set(name, value)
    text = f"""select /*+ merge(d) */ d.name, count(*) as n, sum(crc32(cast(id + e as string))) as s
               from {EXPLODED} f join dims d on f.k = d.k group by d.name order by d.name"""
    expected = session.spark.sql(text).toArrow().to_pylist()
    for stages in (1, 2):
        handle = suspended(session, text, stages)
        assert goes_on(session, handle.id).to_pylist() == expected, f"after {stages} stages"
        assert resumed_with(session.store, handle.id), "it began anew"


@pytest.mark.nightly
def test_ways_to_read_a_shuffle_change_no_state(session: Session) -> None:
    """Small parts are read together: the same rows, which are not written a second time under
    another name."""
    for name, value in {
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "1g",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.shuffle.partitions": "6",
    }.items():
        session.spark.conf.set(name, value)
    expected = session.spark.sql(JOINED).toArrow().to_pylist()
    for _ in range(40):
        handle = session.run(JOINED)
        assert await_stages(handle, 1), "the smaller table, as it was shuffled"
        (before,) = handle.standings().values()
        while not is_joining(handle) and not handle.finished:
            time.sleep(0.005)
        after = list(handle.standings().values())
        with suppress(WrongUsage):
            handle.suspend(NOW)
            if before.standing.finished == 1 and [s.standing.finished for s in after] == [2]:
                break
    else:
        raise AssertionError("the query was always quicker")
    assert len(before.standing.states) == 1 and len(after[0].standing.states) == 2
    assert before.standing.states.keys() < after[0].standing.states.keys()
    assert goes_on(session, handle.id).to_pylist() == expected


def is_joining(handle: RunHandle) -> bool:
    """Both tables are shuffled, and Spark has decided how it reads their parts."""
    for running in running_of(handle):
        assert isinstance(running.watch, QueryWatch)
        found = stages_of(running.watch.frame)
        return found.finished >= 2 and bool(found.running)
    return False


USED_TWICE = """
with few as (
    select coalesce(id % 100, 0) as k, count(*) as c from range(0, 100000, 1, 2) group by 1),
sums as (
    select /*+ broadcast(few) */ id % 1000 as g, sum(c) as c, sum(crc32(cast(id as string))) as s
    from few join range(0, 20000000, 1, 8) on k = id % 100 group by 1)
select count(*) as n, sum(a.c + b.c) as c, max(a.s + b.s) as s
from sums a join sums b on a.g = b.g + 1
"""


@pytest.mark.parametrize("kind", ["windows", "read twice", "full join"])
def test_states_are_kept_where_no_executor_takes_tasks(
    session: Session, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All of them are being taken away: the driver reads what they have, also parts of groups."""

    def no_tasks(*_: object) -> None:
        raise AssertionError("a frame of the state was made, which takes tasks")

    session.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    expected = session.spark.sql(KINDS[kind]).toArrow()
    monkeypatch.setattr(executors, "leaving_executors", lambda spark: (frozenset({"0"}), True))
    monkeypatch.setattr(running_module, "state_frame", no_tasks)
    handle = suspended(session, KINDS[kind], 1)
    states = images_of(session, handle.id)[-1]["states"]
    assert states and not any(state["broadcast"] for state in states.values())
    assert all(state["pieces"] for state in states.values())
    assert goes_on(session, handle.id).equals(expected)


def test_older_states_stand_in_for_a_newer_one(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a state was made from is no state beside it, and is there when it is passed over."""
    session.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    expected = session.spark.sql(KINDS["left join"]).toArrow()
    newest: set[str] = set()

    def pass_over(keeper: object, standing: Standing, *_: object, **__: object) -> frozenset[str]:
        newest.clear()
        newest.update(standing.states)
        return frozenset(newest)

    monkeypatch.setattr(sys.modules[Suspension.__module__], "cheapest", pass_over)
    for _ in range(ATTEMPTS):
        handle = suspended(session, KINDS["left join"], 3)
        kept = images_of(session, handle.id)[-1]["states"].keys()
        if len(kept) == 2:  # and not the groups, of a query that was quicker
            break
    else:
        raise AssertionError("the query was always quicker")
    assert len(newest) == 1 and not newest & kept, "the groups, and both tables in their place"
    assert goes_on(session, handle.id).equals(expected)
    assert sorted(resumed_with(session.store, handle.id)) == sorted(kept)


TWICE = """
with sums as (select k, sum(v) as v from facts where k is not null group by k)
select a.k, a.v, b.v as w from sums a join sums b on a.k = b.k + 1 order by a.k
"""


def test_rows_that_are_read_twice_are_kept_once(session: Session) -> None:
    session.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    expected = session.spark.sql(TWICE).toArrow()
    for _ in range(ATTEMPTS):
        handle = suspended(session, TWICE, 1)
        (image,) = handle._keeping.images()
        read = Counter(
            node.state
            for node, count in use_counts(image.plan.root).items()
            if isinstance(node, StateScan)
            for _ in range(count)
        )
        if max(read.values(), default=0) >= 2:
            break
    else:
        raise AssertionError("no state was ever read twice")
    assert read.keys() == image.states.keys()
    folders = {piece.split("/")[1] for piece in handle._run.pieces("states")}
    assert folders == read.keys(), "and each is written once"
    assert goes_on(session, handle.id).equals(expected)


def test_what_a_stage_is_made_from_is_known_wherever_it_is_used(session: Session) -> None:
    """Spark plans the sums once, and the table below them is no part of the second place."""
    expected = session.spark.sql(USED_TWICE).toArrow()
    for seconds in (0.5, 0.3, 0.2, 0.1, 0.05) * 4:  # until the sums are being made
        handle = session.run(USED_TWICE)
        if not await_stages(handle, 2):
            continue
        time.sleep(seconds)
        with suppress(WrongUsage):
            images = list(handle.suspend(NOW).values())
            scans = [n for each in images for n in walk(each.plan.root) if isinstance(n, Scan)]
            assert len(scans) <= 1, "the rest reads more than the large table, or reads it twice"
            if scans:
                break
    else:
        raise AssertionError("the query was always quicker")
    assert images[0].states
    assert goes_on(session, handle.id).equals(expected)


NULL_KEYS = """
with named as (select k, name from dims where name is not null)
select /*+ broadcast(n) */ 'joined' as what, max(n.name) as name, count(*) as n,
    sum(crc32(cast(f.id as string))) as s
from facts f join named n on f.k = n.k
union all
select 'counted', max(name), count(*), sum(crc32(concat(k, name, e)))
from (select k, name, explode(sequence(1, 2000)) as e from named) group by length(name) > 0
"""


def test_a_broadcast_table_does_not_stand_for_rows_that_it_lacks(session: Session) -> None:
    """The same table is joined in one place, where rows without a key are of no use, and counted
    in another. Spark mostly takes these away by itself, and is kept from it here."""
    session.spark.conf.set("spark.sql.constraintPropagation.enabled", "false")
    expected = session.spark.sql(NULL_KEYS).toArrow().sort_by("what")
    missing = session.spark.sql("select 1 from dims where k is null and name is not null").count()
    assert missing
    handle = suspended(session, NULL_KEYS, 1)
    assert goes_on(session, handle.id).sort_by("what").equals(expected)
    assert resumed_with(session.store, handle.id), "it began anew"


LAST = """
with sums as (select g, k, sum(id) as s from facts group by g, k),
    hashed as (
        select /*+ broadcast(sums) */ f.g, sum(crc32(cast(f.id * e as string))) as h, sum(s) as s
        from (select id, g, k, explode(sequence(1, 30)) as e from facts) f
        join sums on f.g = sums.g and f.k = sums.k group by f.g)
select /*+ broadcast(hashed) */ few.name, sum(h) as h, sum(s) as s
from hashed join few on hashed.g = few.k group by few.name order by few.name
"""
"""The table `few` is joined last."""


@pytest.mark.parametrize("broadcast", ["few", "hashed"])
def test_a_cached_table_is_kept_as_it_is(
    session: Session, spark: SparkSession, broadcast: str
) -> None:
    """No other session has it: its rows are a state of the query, in this session or another."""
    few = session.spark.table("dims").where("k < 40").selectExpr("k", "upper(name) as name")
    few = few.cache()
    try:
        assert few.count()
        few.createOrReplaceTempView("few")
        text = LAST.replace("broadcast(hashed)", f"broadcast({broadcast})")
        expected = session.spark.sql(text).toArrow()
        # A cached table is broadcast at once.
        handle = suspended(session, text, 2 if broadcast == "few" else 1)
        few.unpersist(blocking=True)
        given = {"store_url": session.store.url, "engine_name": "spark"}
        with headway_session(spark.newSession(), **given) as other:
            other.tables(Path(session.spark.table("facts").inputFiles()[0][5:]).parent)
            assert goes_on(other, handle.id).equals(expected)
        assert len(resumed_with(session.store, handle.id)) >= 2, "the sums, and the cached table"
    finally:
        few.unpersist()


def test_rows_without_a_form_are_stopped_like_others(session: Session) -> None:
    """What nobody can keep is the result alone."""
    text = LAST.replace("order by few.name", "").replace(
        "few.name,", "make_ym_interval(0, cast(max(few.k) as int)) as months,"
    )
    session.spark.table("dims").where("k < 40").createOrReplaceTempView("few")
    rows = session.spark.sql(text).count()
    handle = suspended(session, text, 1)
    assert images_of(session, handle.id)[-1]["states"]
    resumed = session.resume(handle.id)
    resumed.wait()
    assert resumed_with(session.store, handle.id), "it began anew"
    assert resumed.progress()[0].rows == rows


def test_parts_of_groups_are_not_counted_as_rows(session: Session) -> None:
    handle = session.run(
        "with s as (select g, count(*) as n from (select id, g, explode(sequence(1, 5)) from facts)"
        " group by g) select /*+ merge(s) */ sum(crc32(cast(f.id * e as string)) + n) as h"
        " from s join (select id, g, explode(sequence(1, 60)) as e from facts) f on s.g = f.g"
    )
    found = []
    while not handle.finished:
        stands = list(handle.standings().values())
        states = [state for stand in stands for state in stand.standing.states.values()]
        found += [state.rows for state in states if state.steps]
        if found:
            break
        time.sleep(0.01)
    handle.cancel()
    assert found == [None], "40 groups, of which each task has some"


def test_constants_are_read_without_a_task(session: Session) -> None:
    tracker = session.spark.sparkContext.statusTracker()
    before = set(tracker.getJobIdsForGroup(None))
    told = session.explain(
        "select sum(a) from values (1, 'x'), (null, 'y') as t(a, b) where b > 'w'"
    )
    assert "Values" in told, told
    assert set(tracker.getJobIdsForGroup(None)) == before
