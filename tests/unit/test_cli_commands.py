"""The commands that need no Spark, in process: help, wrong usage, runs and what is in them."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headway.base.errors import InternalError, WrongUsage
from headway.cli import main as cli
from headway.cli.rows import kept_rows, prepare_folder, write_parquet
from headway.plan.nodes import Column, QueryPlan, Values
from headway.plan.serialize import plan_to_builtins
from headway.storage import (
    FileFingerprint,
    ProcessRecord,
    QueryRecord,
    Run,
    TableRecord,
    new_manifest,
    open_store,
)

COMMANDS = (
    "run",
    "resume",
    "suspend",
    "explain",
    "runs",
    "show",
    "remove",
    "calibrate",
    "data",
    "bench",
    "demo",
    "config",
)
SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "city", "type": "string", "nullable": True, "metadata": {}},
            {"name": "sales", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
        ],
    }
)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.delenv("SPARK_HOME", raising=False)


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """`call("runs", "--json")` is the exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def last_json(text: str) -> Any:
    return json.loads(text.splitlines()[-1])


def arrow_bytes(rows: list[tuple[str | None, str]]) -> bytes:
    import decimal

    table = pa.table(
        {
            "city": pa.array([city for city, _ in rows], pa.string()),
            "sales": pa.array([decimal.Decimal(s) for _, s in rows], pa.decimal128(10, 2)),
        }
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def make_run(tmp_path: Path, run_id: str = "20260301-120000-aaaaaa", **changes: Any) -> Run:
    """Done q1 with two pieces, failed q2, interrupted q3, q4 that never began."""
    plan = plan_to_builtins(QueryPlan(Values((Column("c1", "int", False),), ()), ("c1",)))
    manifest = new_manifest(
        [
            QueryRecord("q1", "SELECT 1", plan=plan),
            QueryRecord("q2", "SELEC", not_imported=None),
            QueryRecord("q3", "SELECT 3"),
            QueryRecord("q4", "SELECT 4"),
        ],
        [TableRecord("sales", "parquet", (FileFingerprint("/d/1.parquet", 2048, "ab"),) * 3)],
        {"engine.name": "auto"},
        run_id=run_id,
    )
    run = Run.create(open_store(str(tmp_path / "data" / "headway")), manifest)
    run.append("query_started", "q1", engine="spark")
    run.write_piece("results/q1/000000-1", arrow_bytes([("Köln", "1.50"), (None, "2.00")]))
    run.write_piece("results/q1/000001-2", arrow_bytes([("[bold]", "3.25")]))
    run.append(
        "query_done", "q1", engine="spark", rows=3, bytes=10, seconds=1.5, schema=SCHEMA,
        pieces=["results/q1/000000-1", "results/q1/000001-2"],
    )  # fmt: skip
    run.append("query_failed", "q2", engine="spark", error="WRONG_SQL", message="bad", hint="mend")
    run.append("query_interrupted", "q3", engine="spark", error="RUN_INTERRUPTED", message="x")
    if changes.get("end", True):
        run.end("interrupted")
    return run


def test_help_names_every_command_and_how_to_use_it(call: Call) -> None:
    code, out, _ = call("--help")
    assert code == 0
    assert all(f"\n  {command} " in out for command in COMMANDS)
    for command in COMMANDS:
        code, out, _ = call(command, "--help")
        assert code == 0
        assert f"headway {command}" in out and "Examples:" in out
        assert "<bool" not in out


def test_version(call: Call) -> None:
    code, out, _ = call("--version")
    assert code == 0 and re.fullmatch(r"headway \S+\n", out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "no such command"),
        (["runs", "--nope"], "no such option"),
        (["show"], "missing argument"),
        (["data", "oracle", "--out", "x"], "oracle"),
        (["data", "tpch", "--out", "x", "--scale", "-1"], "not a scale"),
        (["data", "tpch", "--out", "x", "--scale", "many"], "valid number"),
        (["run"], "no query to run"),
        (["run", "missing.sql"], "no file missing.sql"),
        (["run", "--sql", "SELECT 1", "--tables", "./nowhere"], "does not exist"),
        (["run", "--sql", "SELECT 1", "--set", "store.ulr=x"], "no setting store.ulr"),
        (["run", "--sql", "SELECT 1", "--out", "o", "--set", "results.keep=false"], "not kept"),
        (["run", "--sql", "SELECT 1", "--deadline", "soon"], "no length of time"),
        (["run", "--sql", "SELECT 1", "--deadline", "0s"], "no length of time"),
        (["run", "--sql", "SELECT 1", "--priority", "query=1"], "with a deadline"),
        (["run", "--sql", "SELECT 1", "--deadline", "1m", "--priority", "q=1"], "no query q"),
        (["run", "--sql", "SELECT 1", "--deadline-of", "q=1m"], "no query q"),
        (["run", "--sql", "SELECT 1", "--deadline", "1m", "--deadline-of", "q"], "a query"),
        (["run", "--sql", "SELECT 1", "--deadline", "1m", "--after-deadline", "x"], "not known"),
        (["explain", "--sql", "SELECT 1", "--deadline", "x"], "no length of time"),
        (["resume", "last"], "no runs"),
        (["suspend", "last"], "no runs"),
        (["runs", "--config", "missing.toml"], "missing.toml"),
        (["bench", "plam"], "no benchmark plam"),
        (["bench", "plan", "--go-on"], "nothing to go on from"),
        (["show", "last", "--rows", "a", "--plan", "b"], "exclude"),
        (["show", "last"], "no runs"),
        (["show", "no/path"], "no runs"),
    ],
)
def test_wrong_usage_is_one_message_with_a_hint(
    call: Call, arguments: list[str], message: str
) -> None:
    code, out, err = call(*arguments, "--json")
    assert code == 2
    assert message in err.lower() or message in err
    assert re.match(r"[A-Z_]+: ", err) and "Traceback" not in err
    error = last_json(out)["error"]
    assert err.startswith(f"{error['name']}: {error['message']}")
    assert error["hint"] is None or f"Hint: {error['hint']}" in err


def test_no_runs_is_no_error_and_makes_no_store(call: Call, tmp_path: Path) -> None:
    assert call("runs")[:2] == (0, f"There are no runs in {tmp_path}/data/headway\n")
    assert last_json(call("runs", "--json")[1])["runs"] == []
    assert not (tmp_path / "data").exists()


def test_runs(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path)
    (found,) = last_json(call("runs", "--json")[1])["runs"]
    assert found["run_id"] == "20260301-120000-aaaaaa" and found["status"] == "interrupted"
    assert (found["queries_done"], found["queries_failed"], found["queries_total"]) == (1, 1, 4)
    code, out, _ = call("runs")
    assert code == 0
    assert re.search(r"20260301-120000-aaaaaa +\S+ \S+ +interrupted +1 +1 +4 ", out)
    assert "\x1b" not in out


def test_a_damaged_run_is_listed_and_named_and_breaks_nothing(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path)
    bad = make_run(tmp_path, "20260301-130000-bbbbbb")
    folder = tmp_path / "data" / "headway" / "runs" / bad.run_id
    (folder / "manifest").write_bytes(b"torn")
    code, out, _ = call("runs")
    assert code == 0 and "is damaged: " in out and "20260301-120000-aaaaaa" in out
    code, _, err = call("show", bad.run_id)
    assert code == 1 and err.startswith("STORE_CORRUPT: ")


def test_show(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path)
    told = last_json(call("show", "last", "--json")[1])
    assert [query["status"] for query in told["queries"]] == [
        "done",
        "failed",
        "interrupted",
        "not run",
    ]
    assert told["tables"] == [{"name": "sales", "format": "parquet", "files": 3, "bytes": 6144}]
    assert told["queries"][1]["error"] == {"name": "WRONG_SQL", "message": "bad", "hint": "mend"}
    assert told["events"][-1]["data"] == {"status": "interrupted"}
    code, out, _ = call("show", "2026")
    assert code == 0
    assert "q2: WRONG_SQL: bad\nHint: mend" in out
    assert re.search(r"sales +parquet +3 +6.0 KiB", out)


def test_show_a_run_whose_driver_is_gone(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path, end=False)
    run.append("query_started", "q4", engine="spark")
    assert last_json(call("show", "last", "--json")[1])["queries"][3]["status"] == "running"
    gone: Callable[[ProcessRecord], bool] = lambda record: True  # noqa: E731
    monkeypatch.setattr("headway.storage.runs.is_gone", gone)
    told = last_json(call("show", "last", "--json")[1])
    assert told["status"] == told["queries"][3]["status"] == "lost"


def test_show_rows(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path)
    told = last_json(call("show", "last", "--rows", "q1", "--json")[1])
    assert told["columns"] == ["city", "sales"]
    assert told["first_rows"] == [["Köln", "1.50"], [None, "2.00"], ["[bold]", "3.25"]]
    out = call("show", "last", "--rows", "q1", "--limit", "1")[1]
    assert "Köln" in out and "2 more rows" in out and "3.25" not in out
    assert "[bold]" in call("show", "last", "--rows", "q1")[1]
    code, _, err = call("show", "last", "--rows", "q2")
    assert code == 1 and "is not done" in err
    code, _, err = call("show", "last", "--rows", "q9")
    assert code == 2 and "q1, q2, q3, q4" in err


def test_show_plan(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path)
    code, out, _ = call("show", "last", "--plan", "q1")
    assert code == 0 and "Values" in out
    assert "plan" in last_json(call("show", "last", "--plan", "q1", "--json")[1])
    code, _, err = call("show", "last", "--plan", "q2")
    assert code == 1 and "no plan of query q2" in err


def test_an_unknown_run_and_an_ambiguous_one(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path)
    make_run(tmp_path, "20260301-120000-bbbbbb")
    code, _, err = call("show", "2026")
    assert code == 2 and "beginning of 2 runs" in err
    code, _, err = call("show", "nothing")
    assert code == 2 and err.startswith("RUN_NOT_FOUND: ")


def test_remove(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, _, err = call("remove", "last")
    assert code == 2 and "--yes" in err
    assert last_json(call("remove", "last", "2026", "--yes", "--json")[1]) == {
        "removed": ["20260301-120000-aaaaaa"]
    }
    assert last_json(call("runs", "--json")[1])["runs"] == []


def test_a_running_run_is_removed_only_by_force(call: Call, tmp_path: Path) -> None:
    make_run(tmp_path, end=False)
    code, _, err = call("remove", "last", "--yes")
    assert code == 1 and "still running" in err
    assert call("remove", "last", "--yes", "--force")[0] == 0


def test_parquet_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_rows(make_run(tmp_path), "q1")
    folder = prepare_folder(tmp_path / "out" / "deep")
    file = write_parquet(kept, folder)
    assert pq.read_table(file).column("city").to_pylist() == ["Köln", None, "[bold]"]
    before = file.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("headway.cli.rows._sync", fail)
    with pytest.raises(Exception, match="no space is left"):
        write_parquet(kept, folder)
    assert file.read_bytes() == before
    assert list(folder.iterdir()) == [file]


def test_out_must_be_a_folder(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, _, err = call("run", "--sql", "SELECT 1", "--out", "file")
    assert code == 2 and "is not a folder" in err


def test_config_says_where_values_come_from(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headway.toml").write_text("[run]\nparallel_queries = 3\n")
    (tmp_path / "spark-defaults.conf").write_text("spark.headway.results.keep false\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HEADWAY_PROGRESS_INTERVAL", "1s")
    arguments = ("--master", "local[1]", "--store", str(tmp_path))
    told = last_json(call("config", *arguments, "--json")[1])["settings"]
    found = {each["name"]: (each["value"], each["origin"]) for each in told}
    assert found["run.parallel_queries"] == ("3", "file headway.toml")
    assert found["results.keep"][1] == "Spark setting spark.headway.results.keep"
    assert found["progress.interval"] == ("1s", "environment HEADWAY_PROGRESS_INTERVAL")
    assert found["spark.master"] == ("local[1]", "command line")
    assert found["engine.name"] == ("auto", "default")
    assert "store.url" in call("config")[1]


def test_bench_lists_what_there_is(call: Call) -> None:
    assert "plan" in call("bench")[1]
    assert last_json(call("bench", "--json")[1])["benchmarks"][0]["name"] == "plan"


def test_data(call: Call, tmp_path: Path) -> None:
    arguments = ("data", "tpch", "--scale", "0.001", "--out", str(tmp_path / "tpch"))
    told = last_json(call(*arguments, "--json")[1])
    assert told["reused"] is False and told["tables"]["region"]["rows"] == 5
    code, out, _ = call(*arguments)
    assert code == 0 and "lineitem" in out and "Already in" in out


def test_our_own_bugs_are_short_and_leave_the_story_in_a_file(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise InternalError("the table of transitions has no row", story=("first", "second"))

    monkeypatch.setattr("headway.cli.commands.runs.list_runs", broken)
    monkeypatch.setattr("headway.cli.commands.runs.open_existing_store", lambda url: object())
    code, out, err = call("runs", "--json")
    assert code == 70
    assert err.startswith("INTERNAL_ERROR: ") and "bug in Headway" in err
    assert "Traceback" not in err and len(err.splitlines()) == 2
    hint = last_json(out)["error"]["hint"]
    story = Path(re.findall(r"/\S+\.txt", hint)[0])
    assert "Traceback" in story.read_text() and "second" in story.read_text()
    story.unlink()


def test_nothing_of_ours_counts_as_a_bug(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise WrongUsage("not [so]", hint="[like] this")

    monkeypatch.setattr("headway.cli.commands.runs.open_existing_store", refuse)
    assert call("runs") == (2, "", "WRONG_USAGE: not [so]\nHint: [like] this\n")


def test_pipes_and_spark(tmp_path: Path) -> None:
    """A reader that goes away is no error, and looking at runs does not load Spark."""
    make_run(tmp_path)
    script = f"{sys.executable} -X importtime -m headway.cli.main runs 2>import.txt | head -c 1"
    piped = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert piped.returncode == 0
    imported = (tmp_path / "import.txt").read_text()
    assert "headway.cli.commands.runs" in imported
    assert not re.search(r"\| +(pyspark|py4j)\b", imported)
    script = f"{Path(sys.executable).parent / 'headway'} show last | true; echo ${{PIPESTATUS[0]}}"
    piped = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60)
    assert piped.stderr == "" and piped.stdout.strip() in ("0", "141")
