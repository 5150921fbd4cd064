"""Translate Spark's errors into rowpost's errors, which name a cause and a remedy and have no Java stack trace.

    with explained():
        df.collect()

Spark returns an error that the source or the sink raised in a worker as text within its own error. `to_rowpost_error`
finds the class name in that text and creates the same error again.

`keep_running` starts a stream again that ends with an error that may pass, for commands that run as a service. Spark
repeats a task that fails, but not the process that plans a stream, and one error of it ends the stream. A process that
starts too slowly on a busy machine, and a disk that is full for a minute, are such errors.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from rowpost import errors
from rowpost.archive.source.connection import Say, say
from rowpost.errors import ArchiveNotFound, RowpostError, SparkFailed, SparkUnavailable
from rowpost.spark.stores import missing_jar

__all__ = ["MAX_RESTARTS", "explained", "keep_running", "short_errors", "to_rowpost_error"]

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
#: Restarts in a row without a batch between them.
MAX_RESTARTS = 5
FIRST_DELAY_S = 1.0
Result = TypeVar("Result")


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
    """Raise errors of Spark's process within the block as rowpost's errors, without their stack trace. Others pass
    unchanged.

    Use it as a decorator of what `foreachBatch` calls. Spark searches the error of a batch for the reason why a stream
    was stopped, with a regular expression that runs out of stack on a long one: the stream's thread then dies with a
    thousand lines of StackOverflowError.
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
    """Tell whether the error that ended a stream may pass by itself. One that rowpost raised or explains does not."""
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


def keep_running(
    run: Callable[[], Result],
    batches: Mapping[int, Any],
    queue: str,
    *,
    say: Say = say,
    sleep: Callable[[float], object] = time.sleep,
) -> Result:
    """Run a stream to its end, and again after an error that may pass: after 1 second, then twice as long each time.

    A new one of its `batches` ends a row of restarts. Raises what cannot pass, or ended MAX_RESTARTS restarts in a row.
    """
    restarts, before = 0, len(batches)
    while True:
        try:
            return run()
        except Exception as error:
            restarts, before = (0 if len(batches) > before else restarts), len(batches)
            if restarts == MAX_RESTARTS or not is_passing(error):
                raise
            delay = FIRST_DELAY_S * 2**restarts
            restarts += 1
            reason = str(to_rowpost_error(error)).rstrip(".")
            say(
                f"the stream of {queue} ended: {reason}. It starts again in {delay:g} seconds (restart {restarts} of "
                f"{MAX_RESTARTS} in a row)"
            )
            sleep(delay)
