"""Archive a queue without Spark, exactly once even if the process is killed and started again.

`QueueArchiver` archives one queue, batch after batch: it plans a batch, writes its files and commits them with the
offsets of the batch.

The table is the checkpoint (identity.py), also if Spark has archived the queue: an archiver starts where the table
ends, and of two archivers one is refused. A drain deletes from its spool what the table has confirmed, and nothing
else. The owner of its spool is made of the ids of the table and of the queue, so that it is known before the first
commit. What is lost with a process is read again, or is in the spool.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import NAMESPACE_OID, UUID, uuid5

import pyarrow as pa
import pyarrow.compute as pc

from rowpost.archive.arrow_headers import archived
from rowpost.archive.columns import MESSAGE
from rowpost.archive.folder import ArchiveFolder
from rowpost.archive.identity import CheckpointProgress, Offset, Recorded, StreamBatch, check_known, is_before, is_same
from rowpost.archive.parts import NewFile, write_parts
from rowpost.archive.progress import Measured, Receiver
from rowpost.archive.source.connection import PatientConnection, Say
from rowpost.archive.source.cuts import Bounds
from rowpost.archive.source.drain import Drain
from rowpost.archive.source.options import DRAIN, ReadOptions
from rowpost.archive.source.queue_stream import Held, StreamRefused, held_above
from rowpost.archive.source.reading import read_ahead
from rowpost.archive.source.streams import BatchPart, Tail
from rowpost.archive.writer import TableWriter
from rowpost.errors import SparkFailed

__all__ = ["ConfirmedOffsets", "QueueArchiver"]

_LAG = ("lag_messages", "lag_seconds", "spooled", "held_by")
_WAY_OUT = (
    "Another archiver has added messages of this queue meanwhile. Let one of them archive the queue: this command "
    "continues where the archive ends when it is started again."
)


class ConfirmedOffsets:
    """Notes in a folder outside of an archive: the last offset of each queue that the archive has confirmed.

    An archiver needs no checkpoint to continue. But a table cannot tell that it had a newer version, so that an archive
    that was restored from an older copy is refused only with one.
    """

    def __init__(self, place: str) -> None:
        self._folder = ArchiveFolder(place)

    def check(self, archive: str, queue: str, position: Offset) -> None:
        """Raise SparkFailed if the archive ends before the last offset that it has confirmed."""
        noted = self._folder.read(self._name(archive, position))
        if noted is not None and is_before(position, noted):
            raise SparkFailed(
                f"The archive {archive} is older than the checkpoint {self._folder.path}: it has confirmed messages of "
                f"{queue} that it does not have now, so it was restored or replaced. Nothing was read or deleted. "
                "Restore the newer archive. If you do not have it, delete the folder of the checkpoint: a tail then "
                "archives again what is still in the queue. Messages that a drain had archived since are lost."
            )

    def note(self, archive: str, position: Offset) -> None:
        """Note an offset that the archive has confirmed."""
        self._folder.write(self._name(archive, position), dict(position))

    def _name(self, archive: str, position: Offset) -> str:
        named = f"{archive} {position['queue']}".encode()
        return f"confirmed/{hashlib.sha256(named).hexdigest()[:16]}.json"


class QueueArchiver:
    """The archiver of one queue.

    Args:
        writer: adds the batches to the table. Several archivers may share it, in one thread.
        recreated: archive a queue from its beginning that was dropped and created again after the table has archived
            it.
        receivers: are called with the numbers of each batch.
    """

    def __init__(
        self,
        writer: TableWriter,
        options: ReadOptions,
        *,
        recreated: bool = False,
        checkpoint: ConfirmedOffsets | None = None,
        receivers: Sequence[Receiver] = (),
        connect: Callable[[ReadOptions, Say], PatientConnection] = PatientConnection,
    ) -> None:
        self.queue, self.batches, self.messages, self.dropped = options.queue, 0, 0, 0
        self._writer, self._recreated, self._checkpoint = writer, recreated, checkpoint
        confirmed = {epoch: each.end for epoch, each in writer.table.recorded().items()}
        options = replace(options, confirmed=json.dumps(confirmed), partitions=1)
        self._stream: Tail | Drain = (Drain if options.mode == DRAIN else Tail)(options, MESSAGE, connect)
        self._receivers, self._bytes = receivers, 0  # of headers and bodies in the batch
        self._bounds = Bounds(options.max_rows, options.max_bytes)
        self._query = str(uuid5(NAMESPACE_OID, f"rowpost archive {options.queue}"))
        self._position: Offset = {}
        self._known = False  # whether the table has the position
        self._left: Offset = {}

    def begin(self, *, ends: bool) -> None:
        """Find where the table ends, and delete from a spool what the table has.

        With `ends`, only the current messages are archived.

        Raises:
            SparkFailed: the table has messages of the queue, but not their offset, or is older than the checkpoint.
            StreamRefused: the queue was created again, or was archived in the other mode, or the server is a standby.
        """
        state = self._stream.describe()
        state.check_primary()
        records = self._writer.table.recorded()
        self._known = state.identity in records
        if not self._known:
            self._check_new(state.identity, records)
        self._position = self._left = self._start(state.identity)
        if self._checkpoint is not None:
            self._checkpoint.check(self._writer.table.address, self.queue, self._position)
        if isinstance(self._stream, Drain):
            self.dropped += self._stream.drop_confirmed(self._position)
        if ends:
            self._stream.end_at_present()

    def step(self) -> bool:
        """Archive the next batch. Returns False if there is nothing to archive now.

        Raises:
            SparkFailed: another archiver has added messages of this queue.
            DatabaseUnavailable: the server was away for longer than the options allow.
            SpoolTaken: another stream drains the queue.
        """
        at, begin, self._bytes = datetime.now(UTC), time.perf_counter(), 0
        end = self._left = self._stream.plan(self._position, self._bounds)
        if is_same(end, self._position):
            return False
        rows = self._writer.add(self._batch(end), self.queue, lambda name: self._write(name, end)) or 0
        self._position, self._known = end, True
        if self._checkpoint is not None:
            self._checkpoint.note(self._writer.table.address, end)
        self.dropped += self._stream.commit(end)
        self.batches, self.messages = self.batches + bool(rows), self.messages + rows
        if self._receivers:
            self._tell(at, time.perf_counter() - begin, rows)
        return True

    def finish(self) -> Held:
        """Say what is left because transactions are open.

        Their state is stored in the table, so that a later run needs not wait for them all.
        """
        if not self._left.get("polls"):
            return Held()
        if self._left != self._position:
            self._writer.add(self._batch(self._left), self.queue, lambda name: [], always=True)
        return self._stream.ask(lambda database: held_above(database, self.queue, self._left))

    def close(self) -> None:
        """Close the connection."""
        self._stream.stop()

    def _start(self, identity: str) -> Offset:
        if self._stream.options.mode == DRAIN and not self._known:
            return {"queue": identity, "owner": str(uuid5(UUID(self._writer.table.id), identity)), "number": 0}
        return self._stream.initial()

    def _check_new(self, identity: str, records: Mapping[str, Recorded]) -> None:
        """Check a queue of which the table has no offset."""
        table = self._writer.table
        if self._stream.options.mode != DRAIN:  # what a drain has archived is not in the queue any more
            new = CheckpointProgress("of this command", None, -1, -1, lambda number: None)
            check_known(new, records, {file.queue for file in table.files()} & {self.queue}, table.address)
        before = [epoch for epoch, each in records.items() if each.queue == self.queue]
        if before and not self._recreated:
            raise StreamRefused(
                f"The archive {table.address} has the queue {self.queue} as {before[-1]}, but it is {identity} now: it "
                "was dropped and created again, or the database was restored. To archive it from its beginning, add "
                "--recreated. Messages that a restored database has again are then in the archive twice."
            )

    def _batch(self, end: Offset) -> StreamBatch:
        table, epoch = self._writer.table, end["queue"]
        table.refresh()
        number = table.last_batch(self._query) + 1
        starts = {epoch: self._position} if self._known else {}
        return StreamBatch(table.address, self._query, number, starts, {epoch: end}, {epoch: self.queue}, _WAY_OUT)

    def _write(self, name: str, end: Offset) -> list[NewFile]:
        table, parts = self._writer.table, self._stream.parts(self._position, end)
        rows = map(archived, read_ahead(self._rows(parts)))
        return list(write_parts(rows, table.folder.path, table.arrow_schema, name))

    def _tell(self, at: datetime, seconds: float, rows: int) -> None:
        """Tell the receivers of a batch, and how far the archiver is behind the queue after it."""
        lag = {name: value for name, value in self._stream.report().items() if name in _LAG}
        measured = Measured(
            f"{at:%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z",
            f"rowpost archive {self.queue}",
            self._writer.table.last_batch(self._query),
            rows,
            self._bytes,
            rows / seconds,
            seconds,
            **lag,
            written=rows,
        )
        for receive in self._receivers:
            receive(measured)

    def _rows(self, parts: Sequence[BatchPart]) -> Generator[pa.RecordBatch]:
        """Read a batch, with its queue and its time."""
        arrived = pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC"))
        for part in parts:
            for batch in self._stream.read(part):
                self._bytes += sum(
                    pc.sum(pc.binary_length(batch.column(name))).as_py() or 0 for name in ("headers", "body")
                )
                timed = batch.append_column("archived_at", pa.repeat(arrived, len(batch)))
                yield timed.append_column("queue", pa.repeat(self.queue, len(batch)))
