"""Files of a worker: private, lost with the machine, and never half there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def write_file(path: Path, data: Any) -> None:
    """Under a temporary name first. Not forced to the disk: nobody reads it after a crash."""
    temporary = path.with_name(f".{path.name}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[os.write(handle, rest) :]
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
