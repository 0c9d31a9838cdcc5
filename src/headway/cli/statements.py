"""The queries that a user names: files, standard input, texts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.base.errors import FileNotReadable, WrongUsage

STANDARD_INPUT = "-"


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    sql: str


def read_statements(
    files: Iterable[str], texts: Iterable[str], name: str | None = None
) -> list[Statement]:
    """Every statement with its name: the file's, or `name`; further ones get _2, _3."""
    statements: list[Statement] = []
    for file in files:
        stem = "stdin" if file == STANDARD_INPUT else Path(file).stem
        statements += _statements(_read(file), name or stem, source=file)
    for text in texts:
        statements += _statements(text, name or "query", source="--sql")
    if not statements:
        raise WrongUsage(
            "there is no query to run", hint="name a file with SQL, `-`, or give --sql TEXT"
        )
    return statements


def _statements(text: str, name: str, *, source: str) -> Iterator[Statement]:
    parts = split_statements(text)
    if not parts:
        raise WrongUsage(f"{source} holds no SQL statement")
    for number, part in enumerate(parts, start=1):
        yield Statement(name if number == 1 else f"{name}_{number}", part)


def split_statements(text: str) -> list[str]:
    """Cut at every `;` that is not in a string, a quoted name or a comment; comments stay.

    A text that cannot even be cut into words is left whole: Spark says best what is wrong with it.
    So is a script (BEGIN ... END), where `;` has its own meaning.
    """
    import sqlglot
    from sqlglot.errors import TokenError

    try:
        tokens = sqlglot.tokenize(text, dialect="spark")
    except TokenError:
        return [text.strip()]
    parts: list[str] = []
    begin = words = 0
    for token in tokens:
        if token.token_type.name == "BEGIN" and not words:
            return [*parts, text[begin:].strip()]
        if token.token_type.name != "SEMICOLON":
            words += 1
            continue
        if words:
            parts.append(text[begin : token.start].strip())
        begin, words = token.end + 1, 0
    return [*parts, text[begin:].strip()] if words else parts


def _read(file: str) -> str:
    try:
        if file == STANDARD_INPUT:
            return sys.stdin.read()
        return Path(file).expanduser().read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise FileNotReadable(f"there is no file {file}", hint="check the path") from None
    except IsADirectoryError:
        raise FileNotReadable(
            f"{file} is a folder", hint=f"name the files in it: {file.rstrip('/')}/*.sql"
        ) from None
    except UnicodeDecodeError as error:
        raise FileNotReadable(
            f"{file} is not UTF-8 text (byte {error.start})", hint="is it really SQL?"
        ) from error
    except OSError as error:
        raise FileNotReadable(
            f"{file} cannot be read: {error.strerror}", hint="check its permissions"
        ) from error
