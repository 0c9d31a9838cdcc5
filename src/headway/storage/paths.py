"""Names and URLs from outside, checked before anything is opened: no path leaves the store."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headway.base.errors import InvalidPath

_SEGMENT = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]{0,127}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SPECIAL = frozenset("*?[]#")
_LONGEST_PATH = 800  # an object store's key has 1,024 bytes, and the store's own root comes first


def check_path(path: str) -> tuple[str, ...]:
    """The segments of a relative path inside a store, or InvalidPath."""
    segments = tuple(path.split("/")) if isinstance(path, str) else ()
    if (
        not segments
        or len(path) > _LONGEST_PATH
        or not all(_SEGMENT.fullmatch(segment) for segment in segments)
    ):
        raise InvalidPath(
            f"{path!r} is not a path inside a store",
            hint="join segments of 1 to 128 letters, digits and _ . = - by '/'; "
            "none may begin with a dot",
        )
    return segments


def check_prefix(prefix: str) -> tuple[str, ...]:
    """Like check_path, where '' stands for the whole store."""
    return check_path(prefix) if prefix != "" else ()


def is_segment(name: str) -> bool:
    return _SEGMENT.fullmatch(name) is not None


def join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def local_path(url: str) -> Path | None:
    """The path behind a plain path or a file URL; None for any other URL."""
    _check_text(url)
    if url.lower().startswith("file:"):
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InvalidPath(
                f"{url!r} does not name a file on this machine",
                hint="write file:///absolute/path, or the plain path",
            )
        decoded = unquote(parts.path)
        _check_text(decoded)
        return Path(decoded)
    if "://" in url:
        return None
    return Path(url).expanduser()


def check_remote_url(url: str) -> str:
    """The protocol of a store's URL, or InvalidPath for one that is not safe to use."""
    match = _SCHEME.match(url)
    rest = url[match.end() :] if match else ""
    authority = rest.split("/", 1)[0]
    problem = None
    if match is None:
        problem = "is not a URL"
    elif "::" in url or "://" in rest:
        problem = "chains file systems, and a cache in between cannot promise durability"
    elif not _SPECIAL.isdisjoint(rest) or {"", ".", ".."} & set(rest.rstrip("/").split("/")):
        problem = "holds an empty part, '.', '..' or one of * ? [ ] #"
    elif "@" in authority and ":" in authority.split("@", 1)[0]:
        # never repeat the URL in a message: it would print the password
        raise InvalidPath(
            "the store's URL holds a password",
            hint="leave it out, and give it by the environment or the settings",
        )
    if problem or match is None:
        raise InvalidPath(f"{url!r} {problem}", hint="use a path, file://, s3://bucket/folder, ...")
    return match.group(1).lower()


def _check_text(text: str) -> None:
    if not text or any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise InvalidPath(
            f"{text!r} is not a path or URL", hint="it is empty or holds control characters"
        )
