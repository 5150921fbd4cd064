"""Keep PySpark's worker processes from printing stack traces when Spark closes their pipe.

Spark closes a worker's pipe when nothing is wrong: when a task has enough rows, when a stream stops, when the program
ends, and after a minute without work. PySpark's daemon then prints the stack of a BrokenPipeError on the user's terminal.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

__all__ = ["hide_broken_pipes"]

_DAEMON = "pyspark.daemon"


def hide_broken_pipes() -> None:
    """Change what this process prints, if it is a worker that PySpark's daemon started. Otherwise do nothing."""
    specification = getattr(sys.modules["__main__"], "__spec__", None)
    if specification is not None and specification.name == _DAEMON and traceback.print_exc is _print:
        traceback.print_exc = _print_unless_broken_pipe


_print = traceback.print_exc


def _print_unless_broken_pipe(*args: Any, **options: Any) -> None:
    if not isinstance(sys.exception(), BrokenPipeError):
        _print(*args, **options)
