"""Many queries as one: shared work, the order of queries, mini-batches, deadlines."""
