"""Keep PySpark's processes from printing stack traces when Spark closes their pipe.

Spark closes it when nothing is wrong: when a task has enough rows, a stream stops, the program ends, or after a minute
without work. PySpark's daemon, and its process that plans a stream, then print the stack of a BrokenPipeError. The
thread of the driver that receives the counters of tasks prints an EOFError, when Spark stops amid tasks.
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["hide_broken_pipes", "hide_end_of_counters"]

_DAEMON, _PLANNER = "pyspark.daemon", "pyspark.sql.streaming.python_streaming_source_runner"


def hide_broken_pipes() -> None:
    """Change what this process prints, if it is a worker that PySpark's daemon started, or plans a stream.

    Otherwise do nothing.
    """
    name = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", None)
    if name == _DAEMON:
        traceback.print_exc = _print_unless_broken_pipe
    if name == _PLANNER:
        sys.excepthook = _hook_unless_broken_pipe


def hide_end_of_counters(spark: SparkSession) -> None:
    """Change what the driver prints if Spark closes the connection over which tasks send their counters."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        said = server.handle_error
        server.handle_error = lambda *request: (
            None if isinstance(sys.exception(), EOFError | ConnectionError) else said(*request)
        )


_print = traceback.print_exc


def _print_unless_broken_pipe(*args: Any, **options: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError):
        _print(*args, **options)


def _hook_unless_broken_pipe(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, BrokenPipeError):
        sys.__excepthook__(kind, error, trace)
