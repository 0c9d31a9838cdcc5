"""What goes to the terminal: people's tables and scripts' JSON on stdout, the rest on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.base.errors import HeadwayError

PIPED_WIDTH = 4000  # nothing is cut where no terminal limits it
_STYLES = {
    "done": "green",
    "running": "cyan",
    "failed": "red",
    "damaged": "red",
    "interrupted": "yellow",
    "lost": "yellow",
    "suspended": "yellow",
    "paused": "yellow",
    "waiting": "dim",
}
_MARKS = {"done": "✓", "failed": "✗", "interrupted": "■", "suspended": "‖", "paused": "‖"}
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the process here; how it ends is for `main` to say."""
        self.quiet = True
        raise BrokenPipeError


def stdout() -> Console:
    return _console(sys.stdout)


def stderr() -> Console:
    return _console(sys.stderr)


def _console(file: Any) -> Console:
    console = _Console(file=file, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console


def print_json(value: Any) -> None:
    """One line on stdout. Decimals, dates and bytes become text."""
    sys.stdout.write(msgspec.json.encode(value, enc_hook=str).decode() + "\n")
    sys.stdout.flush()


def error_object(error: HeadwayError | None) -> dict[str, str | None] | None:
    if error is None:
        return None
    return {"name": error.name, "message": error.message, "hint": error.hint}


def print_error(error: HeadwayError, *, of: str | None = None) -> None:
    """`NAME: message` and its hint on stderr; `of` is the query that it belongs to."""
    text = Text(f"{of}: " if of else "")
    text.append(error.name, style="bold red").append(f": {error.message}")
    if error.hint:
        text.append("\nHint: ", style="bold").append(error.hint)
    stderr().print(text, soft_wrap=True)


def table(*columns: str, numbers: Iterable[str] = ()) -> Table:
    """A table with those columns; `numbers` are the ones aligned to the right."""
    right = set(numbers)
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in right,
            overflow="fold",
        )
    return made


def status_text(status: str, *, mark: bool = False) -> Text:
    shown = f"{_MARKS.get(status, ' ')} {status}" if mark else status
    return Text(shown, style=_STYLES.get(status, ""))


def status_mark(status: str) -> Text:
    return Text(_MARKS.get(status, " "), style=_STYLES.get(status, ""))


def count_text(count: int | None) -> str:
    return "" if count is None else f"{count:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def seconds_text(seconds: float | None) -> str:
    """1.24 below ten, 12.4 below a minute, 2:05 and 1:02:05 above."""
    if seconds is None:
        return ""
    if seconds < 59.95:
        return f"{seconds:.2f}" if seconds < 9.995 else f"{seconds:.1f}"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def duration_text(seconds: float) -> str:
    text = seconds_text(seconds)
    return text if ":" in text else f"{text} s"


def local_time(moment: str | None) -> str:
    """A moment of the store, in UTC, as the clock on the wall shows it."""
    if moment is None:
        return ""
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def bytes_text(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def bar_text(value: float, largest: float, width: int = 24) -> Text:
    """A bar of a bar chart, drawn to an eighth of a character."""
    eighths = round(8 * width * value / largest) if largest > 0 else 0
    whole, part = divmod(max(eighths, 1 if value > 0 else 0), 8)
    return Text("█" * whole + (_EIGHTHS[part] if part else ""), style="cyan")
