"""Tell what the last run of a tail could not read, because transactions were open."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rowpost.archive.source.held import Held, held_above
from rowpost.archive.source.reconnect import PatientConnection
from rowpost.spark.source.checkpoint import committed_offset, offsets_by_queue
from rowpost.spark.source.options import in_environment, read_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["what_is_held"]


def what_is_held(options: Mapping[str, str], checkpoint: str | Path, spark: SparkSession | None = None) -> Held:
    """Return what the last run of a tail could not read. The checkpoint says whether transactions were open.

    Raises:
        DatabaseUnavailable: the server was away for longer than connectRetrySeconds.
    """
    asked = in_environment(read_options(options, stream=True))
    offsets = offsets_by_queue(committed_offset(checkpoint, spark), asked.queue)
    connection = PatientConnection(asked)
    try:
        return Held.of_all(
            [connection.run(partial(held_above, queue=queue, offset=offset)) for queue, offset in offsets.items() if offset.get("polls")]
        )
    finally:
        connection.close()
