"""Scheduling, recovery and garbage collection, without any input or output.

Events go in, instructions come out. The driver and the workers carry the instructions out; a
simulation does so with a fake clock, network, disk and store.
"""
