"""Worker processes with DuckDB's kernels: a whole query, also when one of them is killed."""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headway.base.errors import QueryFailed
from headway.lineage.topology import Feed, Partitioning
from headway.pipelined.core.events import Options
from headway.pipelined.execution import Execution
from headway.pipelined.programs import (
    Action,
    ColumnType,
    Dataflow,
    NumberRange,
    SideProgram,
    StageProgram,
    Statement,
    StoredPiece,
    TableInput,
)
from headway.pipelined.worker.duckdb_kernels import start_kernels
from headway.storage import Run
from headway.testing.local_session import LocalSession

UNITS, ROWS, KEYS = 40, 5_000, 100
KEY = ColumnType("key", "BIGINT")
TOTAL = ColumnType("total", "BIGINT")
NUMBER = ColumnType("n", "BIGINT")


class Session(LocalSession):
    def rows(
        self,
        dataflow: Dataflow,
        query: str = "q1",
        started: Callable[[Execution], None] = lambda execution: None,
    ) -> list[tuple[int, int]]:
        options = Options(inputs_per_task=1)
        pieces = self.execute(dataflow, query, options=options, started=started)
        tables = [pa.ipc.open_stream(self.run.read_piece(p.piece)).read_all() for p in pieces]
        return [(row["key"], row["total"]) for table in tables for row in table.to_pylist()]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    opened = Session(tmp_path)
    yield opened
    opened.close()


def sums(table: TableInput, condition: str = "true") -> Dataflow:
    """The numbers of a table summed by their last digits, in order."""
    emit = Statement(
        Action.EMIT,
        f'SELECT n % {KEYS} AS "key", n AS total FROM "#batch" WHERE {condition}',
    )
    scan = SideProgram(Feed.SHARED, (NUMBER,), table, batch=(emit,))
    added = Statement(Action.APPEND, 'SELECT "key", total FROM "#batch"', "sums")
    grouped = Statement(
        Action.EMIT, 'SELECT "key", CAST(sum(total) AS BIGINT) AS total FROM sums GROUP BY "key"'
    )
    by_key = SideProgram(
        Feed.EXCHANGE,
        (KEY, TOTAL),
        upstream=0,
        partitioning=Partitioning.HASH,
        keys=('"key"',),
        batch=(added,),
        end=(grouped,),
    )
    collected = Statement(Action.APPEND, 'SELECT "key", total FROM "#batch"', "rows")
    ordered = Statement(Action.EMIT, 'SELECT "key", total FROM "rows" ORDER BY "key"')
    gathered = SideProgram(
        Feed.EXCHANGE,
        (KEY, TOTAL),
        upstream=1,
        partitioning=Partitioning.GATHER,
        batch=(collected,),
        end=(ordered,),
    )
    return Dataflow(
        (
            StageProgram(3, (scan,), {}, (KEY, TOTAL)),
            StageProgram(3, (by_key,), {"sums": (KEY, TOTAL)}, (KEY, TOTAL)),
            StageProgram(1, (gathered,), {"rows": (KEY, TOTAL)}, (KEY, TOTAL)),
        ),
        ("key", "total"),
    )


def numbers() -> TableInput:
    ranges = tuple(NumberRange(u * ROWS, (u + 1) * ROWS, 1) for u in range(UNITS))
    return TableInput((("range", "n"),), numbers=ranges, bytes=(ROWS * 8,) * UNITS)


def pieces(run: Run) -> TableInput:
    """The same numbers, staged in the store."""
    names = []
    for unit in range(UNITS):
        sink = io.BytesIO()
        table = pa.table({"n": pa.array(range(unit * ROWS, (unit + 1) * ROWS), pa.int64())})
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        names.append(StoredPiece(run.run_id, f"staged/t/{unit}"))
        run.write_piece(names[-1].name, sink.getvalue())
    return TableInput((("n", "n"),), pieces=tuple(names), bytes=(ROWS * 8,) * UNITS)


EXPECTED = [(key, sum(range(key, UNITS * ROWS, KEYS))) for key in range(KEYS)]


@pytest.mark.parametrize("staged", [False, True])
def test_a_query_on_duckdb(session: Session, staged: bool) -> None:
    for name in ("w1", "w2"):
        session.workers.in_thread(name, start_kernels, memory=512 << 20)
    session.cluster.await_workers(2, 10.0)
    table = pieces(session.run) if staged else numbers()
    assert session.rows(sums(table)) == EXPECTED


def test_an_error_of_duckdb_fails_the_query_with_its_message(session: Session) -> None:
    session.workers.in_thread("w1", start_kernels, memory=512 << 20)
    session.cluster.await_workers(1, 10.0)
    with pytest.raises(QueryFailed, match="nonsense"):
        session.rows(sums(numbers(), condition="nonsense = 1"))
    assert session.rows(sums(numbers()), "q2") == EXPECTED


def test_a_program_that_cannot_be_read_is_refused(session: Session) -> None:
    session.workers.in_thread("w1", start_kernels, memory=512 << 20)
    session.cluster.await_workers(1, 10.0)

    class Nonsense(Dataflow, frozen=True):
        def encode(self) -> bytes:
            return b"nonsense"

    flow = sums(numbers())
    with pytest.raises(QueryFailed, match="ValidationError"):
        session.rows(Nonsense(flow.stages, flow.names))


@pytest.mark.slow
@pytest.mark.parametrize("after_tasks", [5, 25, 45])
def test_a_killed_process_costs_no_rows(session: Session, after_tasks: int) -> None:
    processes = [
        session.workers.in_process(name, module="headway.pipelined.worker", memory=512 << 20)
        for name in ("w1", "w2", "w3")
    ]
    session.cluster.await_workers(3, 20.0)
    done = threading.Event()
    executions: list[Execution] = []

    def kill() -> None:
        while not done.wait(0.001):
            if executions and executions[0].report.tasks >= after_tasks:
                processes[1].signal(signal.SIGKILL)
                return

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        rows = session.rows(sums(numbers()), started=executions.append)
    finally:
        done.set()
        killer.join()
    assert rows == EXPECTED
    assert processes[1].exit_code == -signal.SIGKILL
    assert executions[0].report.workers_lost == 1
