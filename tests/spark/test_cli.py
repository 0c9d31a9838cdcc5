"""The command line with real Spark: in process where it can share the session, as a process of
its own where signals and what is left behind matter."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headway.cli.main import main
from headway.cli.rows import ResultFiles
from headway.testing.faults import DiskFault, disk_faults

HEADWAY = Path(sys.executable).parent / "headway"
SLOW = "SELECT count(*) FROM range(200000) a CROSS JOIN range(20000000) b WHERE a.id + b.id < 0"

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cwd = tmp_path / "cwd"
    cwd.mkdir()
    monkeypatch.chdir(cwd)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADWAY_ENGINE_NAME", "spark")  # the engine is not what is tested here


@pytest.fixture
def call(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def tables(tmp_path: Path) -> str:
    folder = tmp_path / "tables"
    folder.mkdir()
    rows = pa.table({"city": ["Bonn", "Köln", None], "amount": [1, 2, 3]})
    pq.write_table(rows, folder / "sales.parquet")
    return str(folder)


def last_json(text: str) -> Any:
    return json.loads(text.splitlines()[-1])


def test_run_one_query(call: Call, tables: str, spark: SparkSession) -> None:
    code, out, err = call(
        "run", "--sql", "SELECT city, sum(amount) AS total FROM sales GROUP BY city ORDER BY city",
        "--tables", tables,
    )  # fmt: skip
    assert code == 0
    assert re.search(r"NULL +3\s+Bonn +1\s+Köln +2", out)
    assert re.search(r"query +3 +[\d.]+ +spark +done", out)
    assert re.search(r"Run \S+ is kept in file:///", out)
    assert err.startswith("[1/1] query: 3 rows in ")
    assert not spark.catalog.tableExists("sales")  # tables of a command stay in it


def test_run_a_batch_with_failures(call: Call, tables: str, tmp_path: Path) -> None:
    file = tmp_path / "report.sql"
    file.write_text(
        "SELECT * FROM sales ORDER BY amount; -- the first\n"
        "SELECT * FROM nowhere;\nSELEC 1;\nSELECT 1 / (amount - amount) FROM sales;\n"
        "SELECT amount FROM sales WHERE false"
    )
    out_folder = tmp_path / "results"
    arguments = ("run", str(file), "--tables", tables, "--out", str(out_folder))
    code, out, err = call(*arguments, "--json", "--show", "1")
    assert code == 1 and err == ""
    told = last_json(out)
    assert told["status"] == "failed"
    queries = {query["query"]: query for query in told["queries"]}
    assert {name: query["status"] for name, query in queries.items()} == {
        "report": "done",
        "report_2": "failed",
        "report_3": "failed",
        "report_4": "failed",
        "report_5": "done",
    }
    names = [queries[f"report_{n}"]["error"]["name"] for n in (2, 3, 4)]
    assert names == ["TABLE_NOT_FOUND", "WRONG_SQL", "QUERY_FAILED"]
    assert queries["report"]["first_rows"] == [["Bonn", 1]]
    assert sorted(path.name for path in out_folder.iterdir()) == [
        "report.parquet",
        "report_5.parquet",
    ]
    assert pq.read_table(out_folder / "report.parquet").num_rows == 3
    empty = pq.read_table(out_folder / "report_5.parquet")
    assert empty.num_rows == 0 and empty.column_names == ["amount"]
    assert last_json(call("runs", "--json")[1])["runs"][0]["queries_failed"] == 3
    code, out, err = call(*arguments)
    assert code == 1
    assert re.search(r"report_2: TABLE_NOT_FOUND: .*nowhere.*\nHint: ", err)
    assert "Traceback" not in err and "SQLSTATE" not in err


def test_rows_are_shown_again_without_spark(call: Call, tables: str) -> None:
    call("run", "--sql", "SELECT * FROM sales ORDER BY amount", "--tables", tables)
    told = last_json(call("show", "last", "--rows", "query", "--json")[1])
    assert told["first_rows"] == [["Bonn", 1], ["Köln", 2], [None, 3]]
    assert "Scan" in call("show", "last", "--plan", "query")[1]
    shown = last_json(call("show", "last", "--json")[1])
    assert shown["tables"][0]["name"] == "sales" and shown["tables"][0]["files"] == 1


def test_explain(call: Call, tables: str) -> None:
    arguments = ("explain", "--sql", "SELECT city FROM sales", "--tables", tables)
    code, out, _ = call(*arguments)
    assert code == 0 and "Engine: spark" in out and "Pipelines" in out
    (told,) = last_json(call(*arguments, "--json")[1])["queries"]
    assert told["engine"] == "spark" and told["plan"] is not None
    code, out, err = call("explain", "--sql", "SELECT nope FROM sales", "--tables", tables)
    assert code == 1 and out == "" and err.startswith("query: WRONG_SQL: ")


def test_a_batch_with_a_deadline(call: Call, tables: str, tmp_path: Path) -> None:
    file = tmp_path / "reports.sql"
    file.write_text(
        "SELECT city, sum(amount) AS total FROM sales WHERE amount > 1 GROUP BY city;\n"
        "SELECT city, sum(amount) AS total FROM sales WHERE amount < 3 GROUP BY city;\n"
        "SELECT * FROM nowhere"
    )
    arguments = (str(file), "--tables", tables, "--deadline", "5m")
    code, out, _ = call("run", *arguments, "--priority", "reports_2=1")
    assert code == 1
    assert "2 of 3 queries within 5" in out and "3 rows of large tables" in out
    code, out, _ = call("run", *arguments, "--json", "--show", "9")
    told = last_json(out)
    rows = {query["query"]: query.get("first_rows") for query in told["queries"]}
    assert sorted(rows["reports"], key=str) == [["Köln", 2], [None, 3]]
    assert sorted(rows["reports_2"]) == [["Bonn", 1], ["Köln", 2]]
    (batch,) = told["batch"]["mini_batches"][:1]
    assert batch["shared_steps"] == 1 and told["batch"]["late"] == []
    code, _, err = call("resume", "last", "--tables", tables)
    assert code == 2 and "only a run that was suspended" in err


def test_explain_a_batch(call: Call, tables: str, tmp_path: Path) -> None:
    texts = [f"SELECT count(*) AS n FROM sales WHERE amount > {n}" for n in range(3)]
    arguments = ["explain", *(word for text in texts for word in ("--sql", text))]
    arguments += ["--tables", tables, "--deadline", "1m"]
    picture = tmp_path / "batch.svg"
    code, out, _ = call(*arguments, "--picture", str(picture))
    assert code == 0 and "Mini-batch 1: 3 queries" in out and "shared-1-1: sales" in out
    assert picture.read_text().startswith("<svg ")
    told = last_json(call(*arguments, "--json")[1])
    assert sorted(told["order"]) == ["query", "query_2", "query_3"]
    assert told["mini_batches"][0]["shared"][0]["table"] == "sales"


def test_explain_takes_the_options_of_run(call: Call, tables: str, tmp_path: Path) -> None:
    texts = [f"SELECT count(*) AS n FROM sales WHERE amount > {n}" for n in range(3)]
    file = tmp_path / "query.sql"
    file.write_text(";".join(texts))
    arguments = ["explain", str(file), "--json"]
    arguments += ["--tables", tables, "--deadline", "1m", "--failures-per-hour", "2"]
    own = [*arguments, "--priority", "query_3=2", "--deadline-of", "query_2=5s"]
    code, out, err = call(*own)
    assert code == 0, (out, err)
    assert last_json(out)["order"] == ["query_3", "query_2", "query"]
    file.write_text(";".join([*texts, "SELECT nope FROM sales"]))
    code, out, err = call(*arguments)
    assert code == 1 and "query_4: WRONG_SQL: " in err
    told = last_json(out)
    assert list(told["errors"]) == ["query_4"] and len(told["order"]) == 4


def test_results_are_there_as_soon_as_they_are_done(
    call: Call, tables: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a batch that goes on is reported on at its deadline."""
    early: list[set[str]] = []
    real = ResultFiles.write_new

    def looked_at(files: ResultFiles, handle: Any) -> None:
        real(files, handle)
        if not handle.finished:
            early.append({path.name for path in (tmp_path / "out").glob("*.parquet")})

    monkeypatch.setattr(ResultFiles, "write_new", looked_at)
    longer = "SELECT count(*) AS n FROM range(40000000) a JOIN range(200) b ON a.id % 100 = b.id"
    file = tmp_path / "query.sql"
    file.write_text(f"SELECT * FROM sales; {longer}")
    code, out, err = call(
        "run", str(file), "--tables", tables,
        "--deadline", "10ms", "--after-deadline", "continue", "--out", str(tmp_path / "out"),
        "--priority", "query=1",
    )  # fmt: skip
    assert code == 3
    assert {"query.parquet"} in early
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "query.parquet",
        "query_2.parquet",
    ]
    assert "0 of 2 queries within" in err and "late: query_2, no time was left for it" in out


def test_tables_from_a_catalog(call: Call, spark: SparkSession) -> None:
    arguments = ("run", "--sql", "SELECT current_database()", "--json", "--show", "1")
    told = last_json(call(*arguments, "--tables", "spark_catalog.default")[1])
    assert told["queries"][0]["first_rows"] == [["default"]]
    code, _, err = call(*arguments, "--tables", "nowhere")
    assert code == 2 and "neither a folder nor a catalog" in err and "default" in err


def test_a_table_that_is_not_what_its_name_says(call: Call, tables: str) -> None:
    Path(tables, "torn.parquet").write_bytes(b"PAR1 no parquet at all")
    code, _, err = call("run", "--sql", "SELECT 1", "--tables", tables)
    assert code == 2 and err.startswith("FILE_NOT_READABLE: table torn ")
    assert last_json(call("runs", "--json")[1])["runs"] == []


def test_a_full_disk(call: Call, tables: str) -> None:
    arguments = ("run", "--sql", "SELECT * FROM sales", "--tables", tables, "--json")
    with disk_faults(*(DiskFault("write", nth) for nth in range(4, 200))):
        code, out, err = call(*arguments)
    assert code == 1
    assert "STORE_FULL" in err + out and "Traceback" not in err
    assert call("runs")[0] == 0
    assert call(*arguments)[0] == 0


def test_bench_answers_with_one_json_object(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from headway.bench import BENCHMARKS, Benchmark

    def measure(spark: SparkSession, options: Any, progress: Any) -> dict[str, Any]:
        progress("one", 0, 1)
        return {"rows": spark.range(7).count(), "scale": options.scale, "data": str(options.data)}

    monkeypatch.setitem(BENCHMARKS, "tiny", Benchmark("tiny", "counts", 0.5, measure))
    told = last_json(call("bench", "tiny", "--json")[1])
    assert told == {"rows": 7, "scale": 0.5, "data": str(tmp_path / "cache" / "headway" / "data")}


def test_demo(call: Call, workload_data: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "tpch-0.01").symlink_to(workload_data("tpch"))
    code, out, _ = call("demo", "--scale", "0.01", "--data", str(tmp_path / "demo"))
    assert code == 0
    assert re.search(r"q09 +\d+ +[\d.:]+ +█", out)
    assert re.search(r"22 queries .* 22 done", out)
    assert re.search(r"Run \S+ is kept in ", out)


@pytest.fixture
def environment(tmp_path: Path, tables: str) -> dict[str, str]:
    (tmp_path / "tmp").mkdir()
    return os.environ | {"TMPDIR": str(tmp_path / "tmp"), "HEADWAY_SPARK_DRIVER_MEMORY": "1g"}


@pytest.fixture
def start(environment: dict[str, str]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start("run", ...)` begins the command as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [HEADWAY, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    direct = [int(child) for child in text.split()]
    return direct + [below for child in direct for below in children_of(child)]


def is_alive(pid: int) -> bool:
    """A zombie that nobody has waited for yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def runs_in(environment: dict[str, str]) -> list[dict[str, Any]]:
    listed = subprocess.run(
        [HEADWAY, "runs", "--json"], env=environment, capture_output=True, text=True, timeout=60
    )
    return list(last_json(listed.stdout)["runs"])


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_an_interrupt_leaves_a_run_that_says_so(
    number: signal.Signals,
    start: Callable[..., subprocess.Popen[str]],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    process = start("run", "--sql", "SELECT 1", "--sql", SLOW, "--sql", "SELECT 3", "--json")
    events = Path(environment["XDG_DATA_HOME"]) / "headway" / "runs"
    wait_until(lambda: len(list(events.glob("*/events/*.event"))) >= 3)  # SLOW has begun
    below = children_of(process.pid)
    assert below
    time.sleep(1)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    told = last_json(out)
    assert [query["status"] for query in told["queries"]] == ["done", "interrupted", "interrupted"]
    assert f"interrupted; run {told['run']} is kept" in err
    (run,) = runs_in(environment)
    assert run["run_id"] == told["run"] and run["status"] == "interrupted"
    wait_until(lambda: not any(map(is_alive, below)), 10)
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list(Path.cwd().iterdir()) == []


def test_an_interrupt_while_spark_starts(
    start: Callable[..., subprocess.Popen[str]], environment: dict[str, str]
) -> None:
    process = start("run", "--sql", "SELECT 1")
    wait_until(lambda: bool(children_of(process.pid)))
    time.sleep(1)
    below = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")
    wait_until(lambda: not any(map(is_alive, below)), 10)
    assert runs_in(environment) == []


@pytest.mark.nightly
def test_an_interrupt_inside_a_call_to_spark(
    start: Callable[..., subprocess.Popen[str]], environment: dict[str, str], tmp_path: Path
) -> None:
    many = tmp_path / "many.sql"
    many.write_text(";".join(f"SELECT {n} AS n FROM range(10)" for n in range(2000)))
    process = start("explain", str(many))
    wait_until(lambda: (Path(environment["XDG_DATA_HOME"]) / "headway").exists())  # Spark is up
    time.sleep(2)
    below = children_of(process.pid)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
    wait_until(lambda: not any(map(is_alive, below)), 10)


def test_a_spark_that_does_not_start(start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start("run", "--sql", "SELECT 1", "--master", "nonsense")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("SPARK_NOT_STARTED: ") and "aster" in err and "Traceback" not in err


@pytest.mark.nightly
def test_a_process_of_its_own_is_quiet_and_tidy(
    start: Callable[..., subprocess.Popen[str]], tables: str, tmp_path: Path
) -> None:
    query = "SELECT count(*) AS n, 1 / 0 FROM sales"
    process = start("run", "--sql", query, "--sql", "SELECT 2 AS two", "--tables", tables, "-q")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.splitlines()[0].startswith("query: QUERY_FAILED: Division by zero")
    assert len(err.splitlines()) == 2, err
    assert "\x1b" not in out + err
    assert list((tmp_path / "tmp").iterdir()) == []
    assert list(Path.cwd().iterdir()) == []
