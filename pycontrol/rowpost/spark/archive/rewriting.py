"""Replace batches of an archive: write new files, count their rows, then make one recoverable change."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rowpost.errors import SparkFailed
from rowpost.spark.archive.folder import ArchiveFolder, Batch, Change
from rowpost.spark.jobs.archive import read_archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["new_name", "replace"]


def new_name(stamp: str) -> str:
    """Return a unique name for a change and for the batch that it writes.

    >>> new_name("20261120T120000")[:24]
    'changed-20261120T120000-'
    """
    return f"changed-{stamp}-{uuid.uuid4().hex[:8]}"


def replace(
    spark: SparkSession,
    folder: ArchiveFolder,
    batches: Sequence[Batch],
    make: Callable[[DataFrame], DataFrame] | None,
    *,
    name: str,
    kind: str,
    keeps_rows: bool = False,
) -> Change:
    """Replace batches of one queue and day with the result of `make`, or remove them if `make` is None.

    Args:
        make: takes and returns a DataFrame of schemas.ARCHIVE with the column batch.
        name: name of the change, from `new_name`.
        kind: kind of the change for the journal.
        keeps_rows: check that the number of rows does not change.

    Raises:
        SparkFailed: a file is incomplete, or the number of rows would change. The archive is unchanged.
    """
    old = [path for batch in batches for path in batch.files]
    before, place = folder.rows(old), folder.new_place(name)
    if make is not None:
        df = _read_files(spark, folder, old)
        make(df).drop("queue", "day").write.mode("overwrite").partitionBy("batch").parquet(f"{folder.path}/{place}")
    after = folder.rows(folder.written(place))
    if keeps_rows and after != before:
        folder.remove(f"new/{name}")
        raise SparkFailed(f"Cannot {kind} {batches[0].queue} on {batches[0].day}: {before} rows would become {after}. Nothing was changed. Run `rowpost spark verify`.")
    change = Change(
        name=name, kind=kind, queue=batches[0].queue, day=batches[0].day, batches=tuple(batch.name for batch in batches),
        old=tuple(folder.relative(path) for path in old), new=place,
        place=folder.relative(batches[0].path).rpartition("/")[0], rows_before=before, rows_after=after,
    )  # fmt: skip
    folder.change(change)
    return change


def _read_files(spark: SparkSession, folder: ArchiveFolder, files: Sequence[str]) -> DataFrame:
    schema = read_archive(spark, folder.path).schema
    scheme = folder.path.partition("://")[0] + "://" if "://" in folder.path else ""
    return spark.read.option("basePath", folder.path).schema(schema).parquet(*(scheme + path for path in files))
