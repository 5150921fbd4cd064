"""Create archives for tests, without a queue: each batch is written as a stream would write it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from rowpost.spark.jobs.archive import BatchWriter, archive
from tests.support.spark.messages import messages

__all__ = ["QUERY", "ArchiveMaker"]

QUERY = "1f0c2a9e-0000-0000-0000-000000000000"


class ArchiveMaker:
    """Writes batches of one stream to an archive.

    Attributes:
        folder: has the checkpoint and the table.
        address: how commands name the archive.
    """

    def __init__(self, spark: SparkSession, folder: Path, query: str = QUERY) -> None:
        self.spark, self.folder = spark, folder
        self.address = str(folder / "out")
        folder.mkdir(exist_ok=True)
        (folder / "metadata").write_text(json.dumps({"id": query}))

    @property
    def path(self) -> Path:
        """The table's folder."""
        return Path(self.address)

    def batch(self, number: int, rows: Sequence[tuple], queue: str = "audit") -> None:
        """Write one batch with one file for each day."""
        BatchWriter(self.address, str(self.folder), queue=queue)(archive(messages(self.spark, *rows), queue).coalesce(1), number)

    def copy(self, folder: Path) -> ArchiveMaker:
        """Copy the archive and what else is in its folder, such as tables of decoded messages, to a new folder."""
        shutil.copytree(self.folder, folder)
        for path in folder.rglob("_rowpost/**/*.json"):  # these files name folders
            path.write_text(path.read_text().replace(str(self.folder), str(folder)))
        return ArchiveMaker(self.spark, folder)
