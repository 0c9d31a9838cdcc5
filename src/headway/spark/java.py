"""The Java runtime that Spark needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from headway.base.errors import JavaNotFound

VERSIONS = ("17", "21")
RUNTIMES = Path("/usr/lib/jvm")  # where Debian puts them

_PROPERTY = re.compile(r"^\s*(java\.(?:home|specification\.version)) = (.*?)\s*$", re.MULTILINE)
_PATIENCE = 20.0


def find_java(environ: Mapping[str, str], runtimes: Path = RUNTIMES) -> Path:
    """The home of a Java that can run Spark: of JAVA_HOME, of the PATH, or of Debian."""
    refused = []
    for java in _candidates(environ, runtimes):
        found = _ask(java)
        if found.get("java.specification.version") in VERSIONS and "java.home" in found:
            return Path(found["java.home"])
        refused.append(f"{java} is {_describe(found)}")
    wanted = " or ".join(VERSIONS)
    raise JavaNotFound(
        f"Spark needs Java {wanted}" + (f", but {'; '.join(refused)}" if refused else ""),
        hint="install it with `apt-get install openjdk-17-jre-headless` as root, "
        f"or set JAVA_HOME to a Java {wanted}",
    )


def _candidates(environ: Mapping[str, str], runtimes: Path) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"]) / "bin" / "java"
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path)
    yield from sorted(runtimes.glob("*/bin/java"))


def _ask(java: Path) -> dict[str, str]:
    """What the command says of itself: it may be a link or a version manager's script."""
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(_PROPERTY.findall(answer.stderr + answer.stdout))


def _describe(found: Mapping[str, str]) -> str:
    version = found.get("java.specification.version")
    return f"Java {version}" if version else "not a Java that runs"
