"""The jobs of `rowpost spark`, one in each module.

A module has a function from DataFrame to DataFrame (or to a plan) that performs no I/O, and a `run` that reads and
writes.
"""
