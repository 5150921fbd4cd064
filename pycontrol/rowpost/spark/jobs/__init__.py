"""The jobs of `rowpost spark`, one in each module.

A module has functions from DataFrame to DataFrame without I/O, and a `run`.
"""
