"""What a pipelined query has done and from what: names, records, and the plan of a recovery.

Everything here is a value or a pure function. The engine commits the records; after a loss they
say what must be done again.
"""
