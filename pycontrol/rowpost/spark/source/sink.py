"""`df.write.format("rowpost")` and `df.writeStream.format("rowpost")`: a DataFrame becomes messages of a queue, once.

    df.repartition(8, "id").write.format("rowpost").option("queue", "Sales").option("jobKey", "replay-7") \\
        .option("jobParts", 8).mode("append").save()

Columns: headers and body, and id where it is given (the row's id; a new one otherwise); a queue's other columns are
left out. A task that Spark runs again, and a whole job that runs again under its jobKey, write nothing a second time.

* `ledger` (the default): each partition is sent by one transaction that also enters it into the ledger. A job that is
  run again must have the same rows in the same partitions: repartition it by a column of its data, and say how many
  partitions with jobParts, which a jobKey needs here. Other data under a used key are refused; partitions appear one after another.
* `staged`: tasks store their messages aside, and one transaction at the end sends all of them: all or none, whatever
  partitions the job had the first time.
* A stream stages each batch; its key is the query's id, which lives in the checkpoint.
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

__all__ = ["LedgerWriter", "StagedWriter", "StreamWriter", "Tally", "append_only"]

CALL_BYTES = 8 << 20  # headers and bodies of one call, unless one message has more
LONGEST_KEY = 200
_DIGITS = 2**64
_TYPES = {"id": (StringType,), "headers": (StringType,), "body": (BinaryType, StringType)}


class Tally:
    """How many messages, and their digest: the same for the same messages in any order."""

    def __init__(self, messages: int = 0, digest: int = 0) -> None:
        self.messages, self._sum = messages, digest

    def add(self, id: str | None, headers: str, body: bytes | None) -> None:
        """One more message."""
        told = blake2b(headers.encode(), digest_size=8, person=(id or "").encode()[:16])
        told.update(b"-" if body is None else b"+" + body)
        self.messages += 1
        self._sum = (self._sum + int.from_bytes(told.digest(), "big")) % _DIGITS

    @property
    def digest(self) -> str:
        """Hexadecimal."""
        return f"{self._sum:016x}"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task has written: under which key, by which of its tries, and the tally of it."""

    job_key: str
    attempt: str
    messages: int
    digest: str


def append_only(overwrite: bool) -> None:
    """Raises SettingsError for a write that would replace what the queue holds."""
    if overwrite:
        raise SettingsError('A queue is written to with .mode("append"). rowpost queue purge empties one.')


class _Writer:
    """What the writers share: the columns, the key, messages in groups."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.options, self.columns = options, _columns(schema)
        #: a write without a key is a job of its own; made here, it is the same in every task and in commit
        self.job_key = _job_key(options.job_key or str(uuid4()), options.queue)

    def _groups(self, batches: Iterator[pa.RecordBatch], tally: Tally) -> Iterator[list[OutgoingMessage]]:
        """Messages by call: bounded in number and in bytes."""
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
        """Stores a task's messages aside, under a name that no other try of it has."""
        tally, attempt = Tally(), str(uuid4())
        with self._open() as database:
            for group in self._groups(batches, tally):
                database.call("stage_messages", job_key=job_key, attempt=attempt, messages=group)
        return Written(job_key, attempt, tally.messages, tally.digest)

    def _send(self, database: Connection, written: Sequence[Written]) -> None:
        """Sends what was staged, in the transaction that is open."""
        expected = sum(each.messages for each in written)
        attempts = [each.attempt for each in written]
        sent = database.call("send_staged", self.options.queue, job_key=written[0].job_key, attempts=attempts)[0][0]
        if sent != expected:
            raise DatabaseError(
                f"{expected} messages were staged for {self.options.queue}, and {sent} are there: somebody deleted the others. "
                "Nothing was sent; run the job again."
            )

    def _forget(self, job_key: str) -> None:
        with self._open() as database:
            database.call("drop_staged", job_key=job_key)

    def _refuse_other(self, stored: tuple[int | None, str | None], tally: Tally, what: str) -> None:
        """Raises JobKeyUsed where other messages were written under this key."""
        if stored != (tally.messages, tally.digest):
            raise JobKeyUsed(
                f"The job key {self.options.job_key!r} was used already for {self.options.queue}, and {what} of it was something else then: "
                f"{stored[0]} messages, now {tally.messages}. Nothing of it was sent. Other data need another key; the same data must have "
                "the same rows in the same partitions: repartition by a column of the data before writing."
            )


class LedgerWriter(_Writer, DataSourceArrowWriter):
    """Each partition in a transaction of its own, with its entry in the ledger."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Sends one partition, unless the ledger has it."""
        part, tally = TaskContext.get().partitionId(), Tally()
        with self._open() as database, database.transaction():
            claim = {"job_key": self.job_key, "part": part, "parts": self.options.job_parts}
            claimed, messages, digest = database.call("claim_ledger", **claim)[0]
            if claimed:
                for group in self._groups(iterator, tally):
                    database.call("send_messages", self.options.queue, messages=group)
                database.call("settle_ledger", job_key=self.job_key, part=part, messages=tally.messages, digest=tally.digest)
        if not claimed:
            for _ in self._groups(iterator, tally):
                pass
            self._refuse_other((messages, digest), tally, f"partition {part}")
        return Written(self.job_key, "", tally.messages, tally.digest)

    def commit(self, messages: list[Written | None]) -> None:
        """Notes how many partitions the job had. Raises SettingsError where that is not what jobParts said."""
        with self._open() as database:
            database.call("complete_ledger", job_key=self.job_key, parts=len(messages))
        if self.options.job_parts not in (None, len(messages)):
            raise SettingsError(
                f"jobParts said {self.options.job_parts}, and the DataFrame had {len(messages)} partitions. All of its messages were sent, "
                f"once: say jobParts {len(messages)} when the job runs again."
            )

    def abort(self, messages: list[Written | None]) -> None:
        """Nothing: partitions that were sent are in the ledger, and the job's next run leaves them out."""


class StagedWriter(_Writer, DataSourceArrowWriter):
    """All partitions at once, at the end."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stores one partition aside."""
        return self._stage(self.job_key, iterator)

    def commit(self, messages: list[Written | None]) -> None:
        """Sends everything, unless the ledger says that it was sent."""
        written = [each for each in messages if each is not None]
        total = Tally(sum(each.messages for each in written), sum(int(each.digest, 16) for each in written) % _DIGITS)
        with self._open() as database, database.transaction():
            claimed, stored, digest = database.call("claim_ledger", job_key=self.job_key, part=0, parts=1)[0]
            if claimed:
                if written:
                    self._send(database, written)
                database.call("settle_ledger", job_key=self.job_key, part=0, messages=total.messages, digest=total.digest)
        self._forget(self.job_key)
        if not claimed:
            self._refuse_other((stored, digest), total, "the whole")

    def abort(self, messages: list[Written | None]) -> None:
        """Deletes what was stored aside."""
        self._forget(self.job_key)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A stream's batches, each at once: in order, and none twice."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Stores one partition of a batch aside; the query's id stands in the checkpoint."""
        query = TaskContext.get().getLocalProperty("sql.streaming.queryId")
        return self._stage(_job_key(f"stream {query}", self.options.queue), iterator)

    def commit(self, messages: list[Written | None], batchId: int) -> None:
        """Sends the batch, unless this one or a later one was sent."""
        written = [each for each in messages if each is not None]
        if not written:
            return
        key = written[0].job_key
        with self._open() as database, database.transaction():
            if database.call("claim_ledger", job_key=key, part=batchId, parts=0)[0][0]:
                self._send(database, written)
        self._forget(key)

    def abort(self, messages: list[Written | None], batchId: int) -> None:
        """Deletes what was stored aside."""
        for each in messages:
            if each is not None:
                self._forget(each.job_key)


def _columns(schema: StructType) -> frozenset[str]:
    given = {field.name: field.dataType for field in schema}
    missing = {"headers", "body"} - given.keys()
    strange = given.keys() - set(MESSAGE.fieldNames())
    if missing or strange:
        wrong = f"lacks {', '.join(sorted(missing))}" if missing else f"has {', '.join(sorted(strange))}, which no message has"
        raise SettingsError(f"A DataFrame for a queue has the columns headers and body, and id where it is given; this one {wrong}.")
    for name, types in _TYPES.items():
        if name in given and not isinstance(given[name], types):
            raise SettingsError(f"The column {name} is {given[name].simpleString()}: it must be {types[0]().simpleString()}.")
    return frozenset(given)


def _job_key(key: str, queue: str) -> str:
    """One key may write to several queues: to each once."""
    full = f"{key}@{queue}"
    if not key or len(full) > LONGEST_KEY:
        raise InvalidJobKey(f"The job key and the queue's name together have {len(full)} characters; {LONGEST_KEY} are the most.")
    return full


def _uuid(text: Any) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidMessage(f"{text!r} is no id of a message: the column id holds uuids as text, or null for a new one.") from None
