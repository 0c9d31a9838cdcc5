"""The page that follows one query through every stage tells what really happens."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

SCRIPT = Path(__file__).parents[2] / "scripts" / "journey.py"


def test_the_journey_is_what_the_page_says(
    spark: SparkSession, workload_data: Callable[[str], Path], tmp_path: Path
) -> None:
    specification = importlib.util.spec_from_file_location("journey", SCRIPT)
    assert specification is not None and specification.loader is not None
    script = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(script)
    made = script.journey(spark, workload_data("tpch"), tmp_path / "store")
    assert made == script.PAGE.read_text(encoding="utf-8"), "run `make docs` to write it anew"
