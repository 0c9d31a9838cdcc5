"""For every test: Spark and the marker for it, reproducible property tests, golden files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from headway.workloads import WORKLOADS, find_tables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCALE = 0.01
TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"

# A failure prints what reproduces it. No deadline: on two busy cores a slow example is no error.
settings.register_profile("headway", print_blob=True, derandomize=False, deadline=None)
settings.load_profile("headway")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the files in tests/golden instead of comparing with them",
    )


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if item.path.is_relative_to(TESTS / "spark") or "spark" in fixtures:
            item.add_marker(pytest.mark.spark)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("plans/tpch-3.txt", text)`: fails unless tests/golden has just that text."""

    def compare(name: str, text: str) -> None:
        file = GOLDEN / name
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            return
        expected = file.read_text(encoding="utf-8") if file.exists() else ""
        if text != expected or not file.exists():
            shown = f"tests/golden/{name}"
            lines = (expected.splitlines(), text.splitlines())
            difference = "\n".join(unified_diff(*lines, shown, "now", lineterm=""))
            pytest.fail(
                f"{shown} differs:\n{difference}\n"
                "If the new text is right, update the file with:\n"
                f'  .venv/bin/pytest "{request.node.nodeid}" --update-golden',
                pytrace=False,
            )

    return compare


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One for all tests: starting it costs more than most of them."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[2]")
        .appName("headway-tests")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.driver.memory", "6g")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def slow(spark: SparkSession) -> str:
    """A query that takes seconds."""
    from headway.testing.suspensions import slow_query

    return slow_query(spark)


@pytest.fixture(scope="session")
def slow_rows(spark: SparkSession, slow: str) -> pa.Table:
    """What plain Spark has for it."""
    return spark.sql(slow).toArrow()


@pytest.fixture(scope="session")
def workload_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a workload's tables, generated once."""
    root = tmp_path_factory.mktemp("data")

    def folder(name: str) -> Path:
        WORKLOADS[name].generate(SCALE, root / name)
        return root / name

    return folder


@pytest.fixture(scope="session")
def workload_session(
    spark: SparkSession, workload_data: Callable[[str], Path]
) -> Callable[[str], SparkSession]:
    """A Spark session that knows the tables of one workload, and no other's."""
    from headway.spark.tables import register_tables

    made: dict[str, SparkSession] = {}

    def session(name: str) -> SparkSession:
        if name not in made:
            made[name] = spark.newSession()
            register_tables(made[name], find_tables(workload_data(name)))
        return made[name]

    return session


@pytest.fixture(scope="session")
def redis_program() -> str:
    script = TESTS.parent / "scripts" / "ensure-redis.sh"
    found = subprocess.run([script], capture_output=True, text=True, check=True, timeout=300)
    return found.stdout.strip()
