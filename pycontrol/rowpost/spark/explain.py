"""What Spark says when something fails, as one of rowpost's errors: a cause and a thing to do, without a stack of Java.

An error that the source or the sink raised in a worker comes back as text inside Spark's; it is found there by its
name, and raised again as what it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from rowpost import errors
from rowpost.errors import ArchiveNotFound, RowpostError, SparkFailed

__all__ = ["explained", "in_our_words"]

_OURS = re.compile(r"^(?:[\w.]+Exception: )?rowpost\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
_CORRUPT = re.compile(r"(\S+\.parquet)[^\n]*(?:is not a Parquet file|CANNOT_READ|Could not read footer)|(?:file|path)[: ]+(\S+\.parquet)")
_CONDITION = re.compile(r"\[[A-Z_.]+\] ([^\n]+)")
_GONE = "Spark's own process has ended, or cannot be reached. Start the command again: what it did stands, nothing is done twice."
_MODULES = ("pyspark.", "py4j.", "grpc.", "pyarrow.")


@contextmanager
def explained() -> Iterator[None]:
    """Raises an error of Spark's within the block as one of rowpost's; others go through."""
    try:
        yield
    except RowpostError:
        raise
    except Exception as error:
        if isinstance(error, ConnectionError):  # between this process and the JVM
            raise SparkFailed(_GONE) from error
        if not type(error).__module__.startswith(_MODULES):
            raise
        raise in_our_words(error) from error


def in_our_words(error: Exception) -> RowpostError:
    """The error of rowpost's that is in Spark's, or one that says what happened."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        name, words = ours[-1]
        kind = getattr(errors, name, None)
        return (kind if isinstance(kind, type) and issubclass(kind, RowpostError) else SparkFailed)(words.strip())
    if "OutOfMemoryError" in text or "Java heap space" in text:
        return SparkFailed("Spark ran out of memory. Give it more, --conf spark.driver.memory=4g, or read less at a time: --max-rows.")
    if "PATH_NOT_FOUND" in text:
        return ArchiveNotFound(_condition(text))
    if "is not a Parquet file" in text or "CANNOT_READ_FILE_FOOTER" in text or "FAILED_READ_FILE" in text:
        found = _CORRUPT.search(text)
        where = (found[1] or found[2]) if found else "a file of the archive"
        return SparkFailed(f"{where} cannot be read: it was not written to its end. `rowpost spark verify` names all such files.")
    if "Connection refused" in text or "not connect" in text or "AsyncEventQueue" in text:
        return SparkFailed(_GONE)
    return SparkFailed(f"Spark failed: {_condition(text)}")


def _condition(text: str) -> str:
    found = _CONDITION.search(text)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "no reason was given")
    return (found[1] if found else first)[:500]
