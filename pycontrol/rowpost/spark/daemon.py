"""PySpark's worker daemon without the stack traces of closed pipes.

A local Spark uses it as `spark.python.daemon.module`. If a task ends before it has read all rows (because of a limit, a
failure or a stopped stream), it closes its end of the pipe. PySpark's daemon then prints a stack trace for the worker
that was still writing, although nothing is wrong.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from pyspark import daemon

__all__: list[str] = []

_print = traceback.print_exc


def _print_unless_broken_pipe(*args: Any, **options: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError):
        _print(*args, **options)


if __name__ == "__main__":
    traceback.print_exc = _print_unless_broken_pipe
    daemon.manager()
