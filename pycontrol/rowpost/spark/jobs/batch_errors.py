"""Keep the errors of a batch short, which Spark searches for the reason why a stream was stopped.

Spark does this with a regular expression that calls itself for each character. The stack trace of a job, which Python passes on with its
error, makes it run out of stack: the stream's thread then dies with a thousand lines of StackOverflowError instead of the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rowpost.spark.explain import to_rowpost_error

__all__ = ["short_errors"]


@contextmanager
def short_errors() -> Iterator[None]:
    """Raise errors of Spark's process within the block as rowpost's errors, without their stack trace. Others pass unchanged.

    Use it as a decorator of what `foreachBatch` calls.
    """
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("py4j.", "pyspark.")):
            raise
        raise to_rowpost_error(error) from None
