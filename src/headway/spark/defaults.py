"""Spark's own defaults file, read without Spark: the same settings hold with and without a JVM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from headway.base.errors import FileNotReadable

_FILE = "spark-defaults.conf"
_LINE = re.compile(r"([^\s=:]+)\s*[=:\s]\s*(.*)")


def spark_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """What `spark-defaults.conf` sets, or nothing where Spark would find no such file."""
    folder = environ.get("SPARK_CONF_DIR") or _conf_folder(environ.get("SPARK_HOME"))
    if not folder:
        return {}
    file = Path(folder) / _FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise FileNotReadable(
            f"Spark's defaults {file} cannot be read: {error}",
            hint="mend the file, or unset SPARK_CONF_DIR",
        ) from error
    lines = (line.strip() for line in text.splitlines())
    found = (_LINE.fullmatch(line) for line in lines if line[:1] not in ("", "#", "!"))
    return {match[1]: match[2].strip() for match in found if match}


def _conf_folder(spark_home: str | None) -> str | None:
    return str(Path(spark_home) / "conf") if spark_home else None
