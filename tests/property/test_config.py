from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.base.config import load_settings
from headway.base.quantities import (
    LARGEST_SIZE,
    LONGEST_DURATION,
    parse_duration,
    parse_size,
    render_duration,
    render_size,
)

sizes = st.integers(0, LARGEST_SIZE) | st.builds(
    lambda count, power: count * 2**power, st.integers(0, 999), st.integers(0, 50)
)
durations = st.floats(0, LONGEST_DURATION) | st.integers(0, 10**9).map(lambda ms: ms / 1000)


@given(sizes)
def test_a_size_survives_being_written(size: int) -> None:
    assert parse_size(render_size(size)) == size


@given(st.integers(0, 1000), st.sampled_from(["k", "m", "g", "t"]))
def test_the_spellings_of_a_size_mean_the_same(count: int, letter: str) -> None:
    spellings = (letter, letter.upper(), f"{letter}b", f"{letter.upper()}iB", f" {letter}B")
    assert len({parse_size(f"{count}{unit}") for unit in spellings}) == 1


@given(durations)
def test_a_duration_survives_being_written(seconds: float) -> None:
    assert parse_duration(render_duration(seconds)) == seconds


@given(st.text(max_size=12))
def test_any_other_text_is_refused_by_name(text: str) -> None:
    for parse in (parse_size, parse_duration):
        try:
            assert parse(text) >= 0
        except ValueError as error:
            assert repr(text) in str(error)


@pytest.fixture(scope="module", autouse=True)
def empty_current_folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


PLACES = ("default", "Spark", "environment", "file", "command line")


@given(st.dictionaries(st.sampled_from(PLACES[1:]), st.integers(1, 64)))
def test_the_weightiest_source_wins(given_in: dict[str, int]) -> None:
    texts = {place: str(number) for place, number in given_in.items()}
    file = Path("own.toml")
    file.write_text(f"run.parallel_queries = {texts['file']}" if "file" in texts else "")
    settings = load_settings(
        spark_conf=_only("spark.headway.run.parallel_queries", texts.get("Spark")),
        environ=_only("HEADWAY_RUN_PARALLEL_QUERIES", texts.get("environment")),
        toml_file=file,
        command_line=_only("run.parallel_queries", texts.get("command line")),
    )
    weightiest = max(given_in, key=PLACES.index, default="default")
    assert settings.run.parallel_queries == given_in.get(weightiest, 1)
    assert settings.origin("run.parallel_queries").startswith(weightiest)


def _only(name: str, text: str | None) -> dict[str, str]:
    return {} if text is None else {name: text}
