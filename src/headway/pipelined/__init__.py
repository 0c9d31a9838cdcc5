"""The pipelined engine: channels of DuckDB kernels over Arrow batches."""
