"""Spark's Python daemon, quiet about readers that have enough: `spark.python.daemon.module` of a Spark on this machine.

A task that ends before it has read everything (a limit, a failure, a stream that stops) closes its end of the pipe, and
the daemon of PySpark prints a stack for the worker that still had something to say. It is no error of anybody's.
"""

from __future__ import annotations

import sys
import traceback

from pyspark import daemon

__all__: list[str] = []

_print = traceback.print_exc


def _print_but_for_a_broken_pipe() -> None:
    if not isinstance(sys.exception(), BrokenPipeError):
        _print()


if __name__ == "__main__":
    traceback.print_exc = _print_but_for_a_broken_pipe
    daemon.manager()
