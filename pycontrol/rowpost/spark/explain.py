"""Translate Spark's errors into rowpost's errors, which name a cause and a remedy and have no Java stack trace.

    with explained():
        df.collect()

Spark returns an error that the source or the sink raised in a worker as text within its own error. `to_rowpost_error`
finds the class name in that text and creates the same error again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rowpost import errors
from rowpost.errors import ArchiveNotFound, RowpostError, SparkFailed, SparkUnavailable
from rowpost.spark.stores import missing_jar

__all__ = ["explained", "is_passing", "short_errors", "to_rowpost_error"]

_ROWPOST_ERROR = re.compile(r"^(?:[\w.]+Exception: )?rowpost\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
_CORRUPT = re.compile(
    r"(\S+\.parquet)[^\n]*(?:is not a Parquet file|CANNOT_READ|Could not read footer)|(?:file|path)[: ]+(\S+\.parquet)"
)
_CONDITION = re.compile(r"\[[A-Z_.]+\] ([^\n]+)")
#: how py4j begins the text of a Java exception, and the class name that follows
_CALL, _JAVA_CLASS = "An error occurred while calling", re.compile(r"^: ?(?:[\w$]+\.)+[\w$]+: ")
_GONE = (
    "Spark's process has exited or cannot be reached. Run the command again: it continues from its last commit, and "
    "sends nothing twice."
)
#: what Spark says of a Python process that did not start in time
_SLOW_START = ("failed to connect back", "Accept timed out")
_UNEXPLAINED = "Spark failed:"
_MODULES = ("pyspark.", "py4j.", "grpc.", "pyarrow.", "deltalake.", "_internal")  # the last one is deltalake's too


@contextmanager
def explained() -> Iterator[None]:
    """Raise Spark's errors within the block as rowpost's errors. Other errors pass unchanged."""
    try:
        yield
    except ConnectionError as error:  # of this process with the JVM
        raise SparkFailed(_GONE) from error
    except Exception as error:
        if not type(error).__module__.startswith(_MODULES):
            raise
        raise to_rowpost_error(error) from error


@contextmanager
def short_errors() -> Iterator[None]:
    """Raise errors of Spark's process within the block as rowpost's errors, without their stack trace.

    Others pass unchanged.

    Use it as a decorator of what `foreachBatch` calls. Spark searches the error of a batch for the reason why a stream
    was stopped, with a regular expression that calls itself for each character. The stack trace of a job, which Python
    passes on, makes it run out of stack: the stream's thread then dies with a thousand lines of StackOverflowError
    instead of the reason.
    """
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith(("py4j.", "pyspark.")):
            raise
        raise to_rowpost_error(error) from None


def to_rowpost_error(error: Exception) -> RowpostError:
    """Return the rowpost error that a Spark error contains. Otherwise return one that describes the Spark error."""
    text = str(error)
    found = _ROWPOST_ERROR.findall(text)
    if found:
        name, words = found[-1]
        kind = getattr(errors, name, None)
        return (kind if isinstance(kind, type) and issubclass(kind, RowpostError) else SparkFailed)(words.strip())
    return _explained(text) or SparkFailed(f"{_UNEXPLAINED} {_condition(text)}")


def is_passing(error: Exception) -> bool:
    """Tell whether the error that ended a stream may pass by itself, so that the stream can be started again.

    An error that rowpost raised or explains is not one of them: a person must do something, or the process of Spark is
    gone.
    """
    text = str(error)
    if type(error).__module__.startswith("rowpost."):
        return False
    if any(words in text for words in _SLOW_START):
        return True
    ours = _ROWPOST_ERROR.findall(text)
    if ours and not ours[-1][1].startswith(_UNEXPLAINED):  # a batch has put Spark's words into an error of rowpost
        return False
    return type(error).__name__ == "StreamingQueryException" and _explained(text) is None


def _explained(text: str) -> RowpostError | None:
    """Return the error for what users meet often, or None."""
    if (jar := missing_jar(text)) is not None:
        return SparkUnavailable(jar)
    if "OutOfMemoryError" in text or "Java heap space" in text:
        return SparkFailed(
            "Spark ran out of memory. Add --conf spark.driver.memory=4g, or reduce the batches with --max-rows."
        )
    if "PATH_NOT_FOUND" in text:
        return ArchiveNotFound(_condition(text))
    if "is not a Parquet file" in text or "CANNOT_READ_FILE_FOOTER" in text or "FAILED_READ_FILE" in text:
        named = _CORRUPT.search(text)
        where = (named[1] or named[2]) if named else "A file of the archive"
        return SparkFailed(
            f"{where} cannot be read: the file is incomplete. `rowpost spark verify` lists all incomplete files."
        )
    if "Connection refused" in text or "not connect" in text or "AsyncEventQueue" in text:
        return SparkFailed(_GONE)
    return None


def _condition(text: str) -> str:
    found = _CONDITION.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [_JAVA_CLASS.sub("", line) for line in lines if not line.startswith(_CALL)] or ["Spark gave no reason"]
    return (found[1] if found else lines[0])[:500]
