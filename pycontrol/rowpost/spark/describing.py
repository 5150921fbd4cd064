"""Say in Spark's web pages which job of rowpost a job of Spark belongs to.

    with described(spark, "rowpost retain archive/"): ...

The description belongs to the thread. The one that the user has set comes back after the block. Spark sets one of its
own for each batch of a stream; within `foreachBatch`, `described` replaces it. Spark Connect has no such property of a
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from pyspark.sql import SparkSession

from rowpost.spark.session import is_connect

__all__ = ["described", "describing"]

_PROPERTY = "spark.job.description"
Run = TypeVar("Run", bound=Callable[..., Any])


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs of Spark that this thread starts in the block."""
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_PROPERTY)
    context.setJobDescription(text)
    try:
        yield
    finally:
        if context._jsc is not None:  # the block may have stopped Spark
            context.setLocalProperty(_PROPERTY, before)  # type: ignore[arg-type]  # None removes it


def describing(job: str) -> Callable[[Run], Run]:
    """Decorate a function whose first arguments are a session and the folder of an archive: describe its jobs as
    `rowpost JOB FOLDER`.
    """

    def decorate(run: Run) -> Run:
        @wraps(run)
        def run_described(spark: SparkSession, path: str, *args: Any, **options: Any) -> Any:
            with described(spark, f"rowpost {job} {path}"):
                return run(spark, path, *args, **options)

        return cast(Run, run_described)

    return decorate
