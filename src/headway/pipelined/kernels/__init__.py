"""DuckDB SQL with Spark's meaning: expressions, aggregates, windows, and what has none."""
