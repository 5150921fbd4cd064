"""The writers behind `df.write.format("rowpost")` and `df.writeStream.format("rowpost")`.

They send each row of a DataFrame as one message, exactly once.

    df.repartition(8, "id").write.format("rowpost").option("queue", "Sales").option("jobKey", "replay-7") \\
        .option("jobParts", 8).mode("append").save()

The columns headers and body are required. The column id is optional; a row without one gets a new id. Other columns of
a message are ignored. If Spark repeats a task, or if a job runs again with the same jobKey, nothing is sent twice.

Options: queue, environment, jobKey, jobParts, mode and messagesPerCall. The modes are:

* `ledger` (the default, `LedgerWriter`): one transaction sends a partition and records it in the ledger. Partitions
  become visible one after another. A repeated job must have the same rows in the same partitions: repartition it by a
  column of its data. A jobKey requires jobParts, the number of partitions. Other data under a used key are refused.
* `staged` (`StagedWriter`): tasks store their messages in a staging table. One transaction at the end sends all of them
  or none. A repeated job may have other partitions.

`StreamWriter` stages each batch of a stream. Its key is the query's id, which Spark keeps in the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseError, InvalidJobKey, InvalidMessage, JobKeyUsed, SettingsError
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.connection import open_database
from rowpost.spark.source.options import WriteOptions
from rowpost.wire.message import OutgoingMessage

__all__ = ["LedgerWriter", "StagedWriter", "StreamWriter", "Tally", "check_append_only"]

CALL_BYTES = 8 << 20  # headers and bodies of one call; a single larger message is sent alone
MAX_KEY_LENGTH = 200
_MODULUS = 2**64
_TYPES = {"id": (StringType,), "headers": (StringType,), "body": (BinaryType, StringType)}


class Tally:
    """Number and digest of messages. The digest does not depend on their order."""

    def __init__(self, messages: int = 0, digest: int = 0) -> None:
        self.messages, self._sum = messages, digest

    def add(self, id: str | None, headers: str, body: bytes | None) -> None:
        """Add one message."""
        hashed = blake2b(headers.encode(), digest_size=8, person=(id or "").encode()[:16])
        hashed.update(b"-" if body is None else b"+" + body)
        self.messages += 1
        self._sum = (self._sum + int.from_bytes(hashed.digest(), "big")) % _MODULUS

    @property
    def digest(self) -> str:
        """The digest as 16 hexadecimal digits."""
        return f"{self._sum:016x}"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one attempt of a task has written."""

    job_key: str
    attempt: str
    messages: int
    digest: str


def check_append_only(overwrite: bool) -> None:
    """Raise SettingsError for a write that would replace the queue's messages."""
    if overwrite:
        raise SettingsError('A write to a queue cannot replace its messages. Use .mode("append"). `rowpost queue purge` empties a queue.')


class _Writer:
    """Columns, job key and grouping of messages, which all writers share."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.options, self.columns = options, _columns(schema)
        # without a jobKey each write is a separate job; the key is created here because tasks and commit must agree on it
        self.job_key = _job_key(options.job_key or str(uuid4()), options.queue)

    def _groups(self, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[list[OutgoingMessage]]:
        """Yield the messages of each call, limited in number and in bytes."""
        group: list[OutgoingMessage] = []
        size = 0
        for batch in batches:
            for id, headers, body in self._rows(batch):
                tally.add(id, headers, body)
                group.append(OutgoingMessage(body, headers, None if id is None else _uuid(id)))
                size += len(headers) + len(body or b"")
                if size >= CALL_BYTES or len(group) >= self.options.messages_per_call:
                    yield group
                    group, size = [], 0
        if group:
            yield group

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, str, bytes | None]]:
        ids = batch.column("id").to_pylist() if "id" in self.columns else [None] * batch.num_rows
        headers = [each or "" for each in batch.column("headers").to_pylist()]
        bodies = batch.column("body").cast(pa.binary()).to_pylist()
        return zip(ids, headers, bodies, strict=True)

    def _open(self) -> Connection:
        return open_database(self.options.environment)

    def _stage(self, job_key: str, batches: Iterator[pa.RecordBatch]) -> Written:
        """Store a task's messages in the staging table, under an identifier of this attempt."""
        tally, attempt = Tally(), str(uuid4())
        with self._open() as database:
            for group in self._groups(batches, tally):
                database.call("stage_messages", job_key=job_key, attempt=attempt, messages=group)
        return Written(job_key, attempt, tally.messages, tally.digest)

    def _send_staged(self, database: Connection, written: Sequence[Written]) -> None:
        """Send the staged messages within the open transaction. Raises DatabaseError if some are missing."""
        expected = sum(each.messages for each in written)
        attempts = [each.attempt for each in written]
        sent = database.call("send_staged", self.options.queue, job_key=written[0].job_key, attempts=attempts)[0][0]
        if sent != expected:
            raise DatabaseError(
                f"{expected} messages were staged for {self.options.queue}, but only {sent} of them exist: another session deleted the others. "
                "Nothing was sent. Run the job again."
            )

    def _drop_staged(self, job_key: str) -> None:
        with self._open() as database:
            database.call("drop_staged", job_key=job_key)

    def _check_same_messages(self, stored: tuple[int | None, str | None], tally: Tally, part: str) -> None:
        """Raise JobKeyUsed if other messages were written under this key."""
        if stored != (tally.messages, tally.digest):
            raise JobKeyUsed(
                f"The job key {self.options.job_key!r} was already used for {self.options.queue} with other messages: {part} had "
                f"{stored[0]} messages then, and has {tally.messages} now. It was not sent. Use another key for other data. The same data "
                "must have the same rows in the same partitions: repartition by a column of the data before writing."
            )


class LedgerWriter(_Writer, DataSourceArrowWriter):
    """Send each partition in a separate transaction, together with its entry in the ledger."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send one partition, unless the ledger has recorded it."""
        part, tally = _task().partitionId(), Tally()
        with self._open() as database, database.transaction():
            claimed, messages, digest = database.call("claim_ledger", job_key=self.job_key, part=part, parts=self.options.job_parts)[0]
            if claimed:
                for group in self._groups(iterator, tally):
                    database.call("send_messages", self.options.queue, messages=group)
                database.call("settle_ledger", job_key=self.job_key, part=part, messages=tally.messages, digest=tally.digest)
        if not claimed:
            for _ in self._groups(iterator, tally):
                pass
            self._check_same_messages((messages, digest), tally, f"partition {part}")
        return Written(self.job_key, "", tally.messages, tally.digest)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record the number of partitions. Raises SettingsError if it differs from jobParts."""
        with self._open() as database:
            database.call("complete_ledger", job_key=self.job_key, parts=len(messages))
        if self.options.job_parts not in (None, len(messages)):
            raise SettingsError(
                f"The option jobParts is {self.options.job_parts}, but the DataFrame had {len(messages)} partitions. All messages were sent "
                f"once. Set jobParts to {len(messages)} before the job runs again."
            )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: the ledger has recorded the partitions that were sent, and the next run skips them."""


class StagedWriter(_Writer, DataSourceArrowWriter):
    """Send all partitions in one transaction at the end."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage one partition."""
        return self._stage(self.job_key, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Send all staged messages, unless the ledger has recorded the job."""
        written = [each for each in messages if isinstance(each, Written)]
        total = Tally(sum(each.messages for each in written), sum(int(each.digest, 16) for each in written) % _MODULUS)
        with self._open() as database, database.transaction():
            claimed, stored, digest = database.call("claim_ledger", job_key=self.job_key, part=0, parts=1)[0]
            if claimed:
                if written:
                    self._send_staged(database, written)
                database.call("settle_ledger", job_key=self.job_key, part=0, messages=total.messages, digest=total.digest)
        self._drop_staged(self.job_key)
        if not claimed:
            self._check_same_messages((stored, digest), total, "the job")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the staged messages."""
        self._drop_staged(self.job_key)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Send each batch of a stream in one transaction, in order and exactly once."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stage one partition of a batch."""
        query = _task().getLocalProperty("sql.streaming.queryId")
        return self._stage(_job_key(f"stream {query}", self.options.queue), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Send the batch, unless the ledger has recorded it or a later one."""
        written = [each for each in messages if isinstance(each, Written)]
        if not written:
            return
        key = written[0].job_key
        with self._open() as database, database.transaction():
            if database.call("claim_ledger", job_key=key, part=batchId, parts=0)[0][0]:
                self._send_staged(database, written)
        self._drop_staged(key)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the staged messages."""
        for each in messages:
            if isinstance(each, Written):
                self._drop_staged(each.job_key)


def _task() -> TaskContext:
    """Return the context of the task in which Spark calls a writer."""
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("The writer is not called by a task of Spark.")
    return context


def _columns(schema: StructType) -> frozenset[str]:
    given = {field.name: field.dataType for field in schema}
    missing = {"headers", "body"} - given.keys()
    unknown = given.keys() - set(MESSAGE.fieldNames())
    if missing or unknown:
        wrong = f"{', '.join(sorted(missing))} missing" if missing else f"{', '.join(sorted(unknown))} unknown"
        raise SettingsError(f"The DataFrame cannot be written to a queue: {wrong}. It needs the columns headers and body, and may have id.")
    for name, types in _TYPES.items():
        if name in given and not isinstance(given[name], types):
            raise SettingsError(f"The column {name} must be {types[0]().simpleString()} (got {given[name].simpleString()}).")
    return frozenset(given)


def _job_key(key: str, queue: str) -> str:
    """Add the queue's name to a key: one key may write to several queues, once to each."""
    full = f"{key}@{queue}"
    if not key or len(full) > MAX_KEY_LENGTH:
        raise InvalidJobKey(f"The job key {key!r} is not valid: it must not be empty, and with the queue's name it may have at most {MAX_KEY_LENGTH} characters (got {len(full)}).")
    return full


def _uuid(text: Any) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidMessage(f"{text!r} is not a message id. The column id must contain UUIDs as text, or null for a new id.") from None
