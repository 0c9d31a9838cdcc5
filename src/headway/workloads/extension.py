"""DuckDB's benchmark extensions, loaded from their wheels: nothing is fetched from the network."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import duckdb

from headway.base.errors import FileNotReadable


def connect_with(extension: str, database: str = ":memory:") -> duckdb.DuckDBPyConnection:
    """A DuckDB connection in which `extension` ("tpch" or "tpcds") is loaded."""
    path = extension_file(extension)
    connection = duckdb.connect(
        database,
        config={
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        },
    )
    try:
        connection.load_extension(str(path))
        connection.execute("SET enable_progress_bar = false")  # it would write to our stdout
    except duckdb.Error as error:
        connection.close()
        raise FileNotReadable(
            f"DuckDB {duckdb.__version__} cannot load {path}: {error}",
            hint=f"install duckdb and duckdb-extension-{extension} of one version",
        ) from error
    return connection


def extension_file(extension: str) -> Path:
    """The extension's file inside its wheel, for the DuckDB version that is installed."""
    package = f"duckdb_extension_{extension}"
    spec = importlib.util.find_spec(package)
    roots = spec.submodule_search_locations if spec else None
    for root in roots or ():
        path = Path(root, "extensions", f"v{duckdb.__version__}", f"{extension}.duckdb_extension")
        if path.is_file():
            return path
    raise FileNotReadable(
        f"DuckDB's extension {extension} for version {duckdb.__version__} is not installed",
        hint=f"pip install duckdb-extension-{extension}=={duckdb.__version__}",
    )
