"""For every test: the `spark` marker, reproducible property tests, and golden files."""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pytest
from hypothesis import settings

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
        if item.path.is_relative_to(TESTS / "spark"):
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
