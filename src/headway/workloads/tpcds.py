"""TPC-DS: 24 tables by DuckDB's dsdgen, 99 queries."""

from __future__ import annotations

import duckdb

from headway.workloads.data import Staging
from headway.workloads.extension import connect_with
from headway.workloads.workload import Progress, Workload, file_count, part_name

_TABLES = (
    "call_center",
    "catalog_page",
    "catalog_returns",
    "catalog_sales",
    "customer",
    "customer_address",
    "customer_demographics",
    "date_dim",
    "household_demographics",
    "income_band",
    "inventory",
    "item",
    "promotion",
    "reason",
    "ship_mode",
    "store",
    "store_returns",
    "store_sales",
    "time_dim",
    "warehouse",
    "web_page",
    "web_returns",
    "web_sales",
    "web_site",
)
_ROWS_PER_GROUP = 131_072


def write_tables(staging: Staging, scale: float, parts: int | None, progress: Progress) -> None:
    steps = 1 + len(_TABLES)
    with connect_with("tpcds", str(staging.scratch / "tpcds.duckdb")) as connection:
        progress("dsdgen", 0, steps)
        _run_dsdgen(connection, scale)
        for done, table in enumerate(_TABLES, start=1):
            progress(table, done, steps)
            _write_table(connection, staging, table, parts)
    progress("done", steps, steps)


def _run_dsdgen(connection: duckdb.DuckDBPyConnection, scale: float) -> None:
    try:
        connection.execute(f"CALL dsdgen(sf = {scale!r})")
    except RuntimeError as error:  # how DuckDB reports Ctrl-C
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from error
        raise


def _write_table(
    connection: duckdb.DuckDBPyConnection, staging: Staging, table: str, parts: int | None
) -> None:
    folder = staging.data / table
    folder.mkdir()
    ((rows,),) = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    count = file_count(rows, parts)
    for index in range(count):
        first, end = rows * index // count, rows * (index + 1) // count
        target = str(folder / part_name(index)).replace("'", "''")
        connection.execute(
            f"COPY (SELECT * FROM {table} WHERE rowid >= {first} AND rowid < {end}) TO '{target}' "
            f"(FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE {_ROWS_PER_GROUP})"
        )


TPCDS = Workload(
    name="tpcds",
    tables=_TABLES,
    write_tables=write_tables,
    smallest=0.01,  # at 0.007 and below dsdgen was still running after a minute
    largest=100,
    bytes_per_scale=900_000_000,  # the DuckDB file that is thrown away included
)
