"""The example on the README's first screen does what the README says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

README = Path(__file__).parents[2] / "README.md"


def test_the_example_prints_what_it_says(
    spark: SparkSession,
    workload_data: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, output = re.findall(r"```(?:python)?\n(.*?)```", README.read_text(), re.DOTALL)[1:3]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWAY_STORE_URL", str(tmp_path / "store"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tpch").symlink_to(workload_data("tpch"))
    capsys.readouterr()
    exec(compile(code, str(README), "exec"), {})
    assert capsys.readouterr().out.strip() == output.strip()
