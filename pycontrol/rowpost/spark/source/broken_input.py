"""Detect that the rows of a task broke off, before a direct write commits them.

Spark sends the rows of a task to its Python worker through a pipe. If computing a row fails, Spark closes the pipe.
PySpark takes the closed pipe for the end of the rows, and reports the error only after the writer has returned. After
the last row of a complete input, Spark writes an end mark to the pipe, which the worker reads when the writer has
returned. `check_complete` looks for this mark without taking it. The mark and the pipe are internals of PySpark, and
are tested for each version of Spark.
"""

from __future__ import annotations

import sys
from io import BufferedReader
from traceback import walk_stack

from pyspark.serializers import SpecialLengths

from rowpost.errors import SettingsError, SparkFailed

__all__ = ["check_complete", "pipe_of_task"]

_END_MARK = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)
_WORKER_FILE, _WORKER_FUNCTION, _PIPE = "pyspark/worker.py", "main", "infile"


def pipe_of_task() -> BufferedReader:
    """Find the pipe through which the rows of the task come that runs in this thread.

    Raises SettingsError if this Spark has none.
    """
    for frame, _ in walk_stack(sys._getframe()):
        code = frame.f_code
        is_worker = code.co_name == _WORKER_FUNCTION and code.co_filename.replace("\\", "/").endswith(_WORKER_FILE)
        if is_worker and hasattr(frame.f_locals.get(_PIPE), "peek"):
            pipe: BufferedReader = frame.f_locals[_PIPE]
            return pipe
    raise SettingsError(
        "The mode direct cannot be used with this version of Spark: rowpost cannot find the pipe of the task's rows, "
        "and so cannot see "
        'whether they are complete. Nothing was sent. Remove .option("mode", "direct").'
    )


def check_complete(pipe: BufferedReader) -> None:
    """Raise SparkFailed if the rows of a pipe broke off. Call it after the last row."""
    found = pipe.peek(len(_END_MARK))[: len(_END_MARK)]
    if not found or not _END_MARK.startswith(found):
        raise SparkFailed(
            "The rows of this task broke off, because Spark failed to compute them. None of them was sent."
        )
