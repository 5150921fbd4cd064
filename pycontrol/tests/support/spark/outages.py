"""A PostgreSQL server of its own with queues for Spark, to stop and to start in a test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.postgres import Server
from tests.support.spark.queues import Queues

__all__ = ["own_server"]


@contextmanager
def own_server(spark: SparkSession | None = None) -> Iterator[tuple[Server, Queues]]:
    """Start a server for the block. Its environment file contains its URL, because Spark's processes have started already."""
    with tempfile.TemporaryDirectory(prefix="rowpost-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Server(folder / "p")
        server.create()
        server.start()
        try:
            yield server, Queues(server.url(), folder, spark=spark, named_url=f'"{server.url()}"', ahead=8)
        finally:
            server.stop()
