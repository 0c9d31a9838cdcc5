"""Small batches that each make one kind of work weigh, to learn how long it takes here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

_FACT, _LARGE, _SMALL = "calibration_facts", "calibration_large", "calibration_small"
TABLES = (_FACT, _LARGE, _SMALL)


def write_tables(folder: Path, rows: int) -> dict[str, Path]:
    """A table with two keys and the tables that they find, as Parquet files by name."""
    texts = {
        _FACT: f"""SELECT i AS id, (i * 7919) % {rows // 8} AS large, (i * 31) % 200 AS small,
            (i * 13) % 1000 AS a, (i * 17) % 5000 AS b, i % 7 AS c,
            CAST((i * 37) % 10000 AS DECIMAL(7,2)) AS amount
            FROM range({rows}) AS t(i)""",
        _LARGE: f"SELECT i AS id, i % 100 AS kind, i % 9973 AS size FROM range({rows // 8}) t(i)",
        _SMALL: "SELECT i AS id, i % 10 AS region, 'name ' || i AS label FROM range(200) t(i)",
    }
    files = {}
    with duckdb.connect() as connection:
        for name, text in texts.items():
            files[name] = folder / f"{name}.parquet"
            connection.execute(f"COPY ({text}) TO '{files[name]}' (FORMAT parquet)")
    return files


def batches() -> list[dict[str, str]]:
    """Queries by name. Every batch shares its scan; they differ in what comes after it."""
    found = []
    for count in (2, 6):
        found += [
            _batch("scan", count, lambda n: f"SELECT sum(a), sum(b) FROM {_FACT} WHERE c <> {n}"),
            _batch(
                "amount",
                count,
                lambda n: f"SELECT c, sum(amount) FROM {_FACT} WHERE a >= {100 * n} GROUP BY c",
            ),
            _batch(
                "probe",
                count,
                lambda n: (
                    f"""SELECT region, sum(amount) FROM {_FACT} f
                    JOIN {_SMALL} s ON f.small = s.id WHERE region <> {n} GROUP BY region"""
                ),
            ),
            _batch(
                "build",
                count,
                lambda n: (
                    f"""SELECT kind, count(*) FROM {_FACT} f
                    JOIN {_LARGE} l ON f.large = l.id WHERE kind < {50 + n} GROUP BY kind"""
                ),
            ),
            _batch(
                "pass",
                count,
                lambda n: (
                    f"SELECT count(*), sum(amount) FROM {_FACT} f JOIN "
                    + (
                        f"{_SMALL} s ON f.small = s.id WHERE region <> {n}"
                        if n % 2
                        else f"{_LARGE} l ON f.large = l.id WHERE kind < {90 + n}"
                    )
                ),
            ),
            _batch(
                "groups",
                count,
                lambda n: f"SELECT b, sum(amount) FROM {_FACT} WHERE a < {900 - n} GROUP BY b",
            ),
            _batch(
                "kept",
                count,
                lambda n: f"SELECT id, amount FROM {_FACT} WHERE b < {60 + 10 * n}",
            ),
            _batch(
                "both",
                count,
                lambda n: (
                    f"""SELECT region, kind, sum(amount) FROM {_FACT} f
                    JOIN {_SMALL} s ON f.small = s.id JOIN {_LARGE} l ON f.large = l.id
                    WHERE a BETWEEN {n} AND {400 + 50 * n} GROUP BY region, kind"""
                ),
            ),
        ]
    return found


def _batch(name: str, count: int, text: Callable[[int], str]) -> dict[str, str]:
    return {f"{name}-{count}-{number + 1}": text(number) for number in range(count)}
