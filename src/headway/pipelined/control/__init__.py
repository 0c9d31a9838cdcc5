"""Where a coordinator keeps its tables: durable, one transaction at a time."""
