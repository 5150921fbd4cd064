"""Create archives for tests, without a queue and without Spark: each batch is written as an archiver would write it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from rowpost.archive.arrow_headers import archived
from rowpost.archive.columns import MESSAGE
from rowpost.archive.identity import StreamBatch
from rowpost.archive.parts import NewFile, write_parts
from rowpost.archive.table import create_table
from rowpost.archive.writer import TableWriter

__all__ = ["QUERY", "ArchiveMaker", "archived_rows", "message_batch"]

QUERY = "1f0c2a9e-0000-0000-0000-000000000000"


class ArchiveMaker:
    """Writes batches of one stream to an archive.

    Attributes:
        folder: has the checkpoint and the table.
        address: how commands name the archive.
    """

    def __init__(self, folder: Path, query: str = QUERY) -> None:
        self.folder, self._query = folder, query
        self.address = str(folder / "out")
        folder.mkdir(exist_ok=True)
        (folder / "metadata").write_text(json.dumps({"id": query}))

    @property
    def path(self) -> Path:
        """The table's folder."""
        return Path(self.address)

    def batch(self, number: int, rows: Sequence[tuple], queue: str = "audit") -> None:
        """Write one batch with one file for each day."""
        table = create_table(self.address)

        def write(name: str) -> list[NewFile]:
            return list(write_parts([message_batch(rows, queue)], table.folder.path, table.arrow_schema, name))

        TableWriter(table).add(StreamBatch(table.address, self._query, number), queue, write)

    def copy(self, folder: Path) -> ArchiveMaker:
        """Copy the archive and what else is in its folder, such as tables of decoded messages, to a new folder."""
        shutil.copytree(self.folder, folder)
        for path in folder.rglob("_rowpost/**/*.json"):  # these files name folders
            path.write_text(path.read_text().replace(str(self.folder), str(folder)))
        return ArchiveMaker(folder)


def message_batch(rows: Iterable[tuple], queue: str = "audit") -> pa.RecordBatch:
    """Return messages of a queue as the archiver writes them."""
    own = [
        {**dict(zip(MESSAGE.names, row, strict=True)), "archived_at": datetime.now(UTC), "queue": queue} for row in rows
    ]
    schema = [*MESSAGE, pa.field("archived_at", pa.timestamp("us", "UTC")), pa.field("queue", pa.string())]
    return archived(pa.RecordBatch.from_pylist(own, schema=pa.schema(schema)))


def archived_rows(path: object, *columns: str) -> list[dict]:
    """Return the rows of an archive or of another Delta table, read without Spark. `columns` are those that are read; all by default."""
    return DeltaTable(str(path)).to_pyarrow_table(columns=list(columns) or None).to_pylist()
