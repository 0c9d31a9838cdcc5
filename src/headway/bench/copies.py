"""Tables that are larger than they are: more links to the same file are more rows, which every
engine has to read."""

from __future__ import annotations

import os
from pathlib import Path

_LARGEST = "lineitem"


def linked_tables(folder: Path, place: Path, copies: int) -> Path:
    """The tables of TPC-H below a new folder of `place`, the largest one so many times over."""
    made = place / str(copies)
    for table in sorted(each for each in folder.iterdir() if each.is_dir()):
        (made / table.name).mkdir(parents=True, exist_ok=True)
        for file in sorted(table.glob("*.parquet")):
            for number in range(copies if table.name == _LARGEST else 1):
                link = made / table.name / f"{file.stem}-{number:03d}.parquet"
                if not link.exists():
                    os.link(file, link)
    return made
