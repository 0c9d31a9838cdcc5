"""Names that come from outside are checked before they reach a path or a query."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime

from headway.base.errors import InvalidIdentifier

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_id(text: str, what: str = "id") -> str:
    """`text` itself when it may name something in the store, otherwise InvalidIdentifier."""
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise InvalidIdentifier(
            f"{text!r} is not a valid {what}",
            hint="use 1 to 64 letters, digits, hyphens and underscores",
        )
    return text


def new_run_id(now: datetime | None = None) -> str:
    """A fresh run id that sorts by time and is short enough to type."""
    moment = now or datetime.now(UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
