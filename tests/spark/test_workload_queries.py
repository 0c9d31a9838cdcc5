"""All 22 TPC-H and 99 TPC-DS queries: into a plan, through JSON, back to Spark, the same rows."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headway.plan.pipelines import pipelines_of
from headway.plan.serialize import plan_from_json, plan_to_json
from headway.spark.catalyst import import_plan
from headway.spark.compare import same_result
from headway.spark.frames import frame_of
from headway.workloads import WORKLOADS

_EVERY = 6
"""Of the TPC-DS queries, all of which take minutes, one in so many is not left for the night."""

QUERIES = [
    pytest.param(
        workload.name,
        name,
        text,
        id=f"{workload.name}-{name}",
        marks=[pytest.mark.nightly] if workload.name == "tpcds" and number % _EVERY else [],
    )
    for workload in WORKLOADS.values()
    for number, (name, text) in enumerate(workload.queries().items())
]


@pytest.mark.parametrize(("workload", "name", "text"), QUERIES)
def test_the_query_travels_and_keeps_its_result(
    workload: str,
    name: str,
    text: str,
    spark: SparkSession,
    workload_session: Callable[[str], SparkSession],
) -> None:
    frame = workload_session(workload).sql(text)
    plan = import_plan(frame).plan

    travelled = plan_from_json(plan_to_json(plan))
    assert travelled == plan
    assert len(pipelines_of(plan)) > 0

    # The other session knows none of the tables by name: the plan says where they are.
    back = frame_of(spark.newSession(), travelled)
    verdict = same_result(frame, back)
    assert verdict.equal, verdict.difference


@pytest.mark.parametrize("name", ["q03", "q09", "q13", "q15", "q18", "q21", "q22"])
def test_the_plan_reads_well(
    name: str, workload_session: Callable[[str], SparkSession], golden: Callable[[str, str], None]
) -> None:
    frame = workload_session("tpch").sql(WORKLOADS["tpch"].queries()[name])
    golden(f"plan/tpch-{name}.txt", import_plan(frame).plan.explain() + "\n")


OTHER_PROCESS = """
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headway.plan.serialize import plan_from_json
from headway.spark.frames import frame_of

plans, results = Path(sys.argv[1]), Path(sys.argv[2])
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "3")
    .config("spark.sql.ansi.enabled", "false")
    .config("spark.sql.session.timeZone", "America/Los_Angeles")
    .getOrCreate()
)
for file in sorted(plans.glob("*.json")):
    table = frame_of(spark, plan_from_json(file.read_bytes())).toArrow()
    with pa.ipc.new_file(str(results / file.stem), table.schema) as writer:
        writer.write_table(table)
"""


@pytest.mark.nightly
def test_plans_run_in_another_process_with_other_settings(
    tmp_path: Path, workload_session: Callable[[str], SparkSession]
) -> None:
    """The other application differs in cores, partitions, ANSI mode and time zone."""
    plans, results = tmp_path / "plans", tmp_path / "results"
    plans.mkdir(), results.mkdir()
    session = workload_session("tpch")
    names = ["q01", "q04", "q07", "q09", "q16", "q18", "q20", "q22"]
    frames = {name: session.sql(WORKLOADS["tpch"].queries()[name]) for name in names}
    for name, frame in frames.items():
        (plans / f"{name}.json").write_bytes(plan_to_json(import_plan(frame).plan))

    script = tmp_path / "other.py"
    script.write_text(OTHER_PROCESS)
    done = subprocess.run(
        [sys.executable, str(script), str(plans), str(results)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, frame in frames.items():
        with pa.ipc.open_file(str(results / name)) as reader:
            assert reader.read_all().to_pylist() == frame.toArrow().to_pylist(), name
