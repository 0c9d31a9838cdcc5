"""Where settings come from: Spark's configuration, the environment, a TOML file, the command line.

Each source is read whole: a name that is no setting is refused, even when nothing would use it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headway.base.errors import FileNotReadable, InvalidSetting
from headway.base.setting import Setting

SPARK_PREFIX = "spark.headway."
VARIABLE_PREFIX = "HEADWAY_"
CONFIG_VARIABLE = "HEADWAY_CONFIG"
CONFIG_FILE = Path("headway.toml")

Known = tuple[Setting[Any], ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's value in one source."""

    setting: Setting[Any]
    value: Any
    origin: str


def from_spark(known: Known, conf: Mapping[str, str]) -> Iterator[Given]:
    """Takes the whole of Spark's configuration and leaves alone what is not Headway's."""
    settings = {setting.spark_name: setting for setting in known}
    for name, text in conf.items():
        if name.startswith(SPARK_PREFIX):
            origin = f"Spark setting {name}"
            setting = _find(name, settings, origin, prefix=SPARK_PREFIX)
            yield Given(setting, setting.read(text, origin), origin)


def from_environment(known: Known, environ: Mapping[str, str]) -> Iterator[Given]:
    """A variable that is set to nothing counts as not set, as is the custom of shells."""
    settings = {setting.variable: setting for setting in known}
    for name, text in environ.items():
        if name.startswith(VARIABLE_PREFIX) and name != CONFIG_VARIABLE and text:
            origin = f"environment {name}"
            setting = _find(name, settings, origin, prefix=VARIABLE_PREFIX)
            yield Given(setting, setting.read(text, origin), origin)


def from_command_line(known: Known, values: Mapping[str, str]) -> Iterator[Given]:
    settings = {setting.name: setting for setting in known}
    for name, text in values.items():
        setting = _find(name, settings, "command line")
        yield Given(setting, setting.read(text, "command line"), "command line")


def from_toml(known: Known, file: Path | None, environ: Mapping[str, str]) -> Iterator[Given]:
    """The file the user names, or headway.toml of the current folder when there is one."""
    named = file or environ.get(CONFIG_VARIABLE)
    if not named and not CONFIG_FILE.exists():
        return
    path = Path(named or CONFIG_FILE)
    settings = {setting.name: setting for setting in known}
    for name, value in _leaves(_read_toml(path)):
        origin = f"file {path}"
        setting = _find(name, settings, origin)
        if not isinstance(value, str | int | float):
            raise InvalidSetting(
                f"{name} cannot be a {type(value).__name__} (from {origin})",
                hint=f"{name} accepts {setting.kind.accepts.replace('`', '')}",
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        yield Given(setting, setting.read(text, origin), origin)


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """`["run.parallel_queries=2"]` of the command line as the mapping `load_settings` takes."""
    assignments = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidSetting(
                f"{text!r} does not set anything (from command line)",
                hint="write name=value, such as run.parallel_queries=2",
            )
        assignments[name.strip()] = value
    return assignments


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotReadable(
            f"the settings file {path} does not exist",
            hint=f"it is named by --config or {CONFIG_VARIABLE}",
        ) from None
    except OSError as error:
        raise FileNotReadable(f"the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"the settings file {path} is not TOML: {error}") from error


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _find(
    name: str, settings: Mapping[str, Setting[Any]], origin: str, prefix: str = ""
) -> Setting[Any]:
    """The setting of that spelling. The prefix all share is left out when looking for the nearest:
    it would make everything look alike."""
    if name in settings:
        return settings[name]
    bare = [spelling.removeprefix(prefix) for spelling in settings]
    nearest = get_close_matches(name.removeprefix(prefix), bare, n=1, cutoff=0.5)
    raise InvalidSetting(
        f"there is no setting {name} (from {origin})",
        hint=f"did you mean {prefix}{nearest[0]}?"
        if nearest
        else f"the settings are {', '.join(settings)}",
    )
