"""The writers behind `df.write.format("rowpost")` and `df.writeStream`: each row is sent as one message, exactly once.

    df.write.format("rowpost").option("queue", "Sales").option("jobKey", "replay-7").mode("append").save()

The columns headers and body are required, id is optional, and other columns of a message are ignored. Without the
option queue, the column queue names the destination of each row. If Spark repeats a task, or if a job runs again with
the same jobKey, nothing is sent twice. The modes are:

* `staged` (the default, `StagedWriter`): tasks store their messages in a staging table. When all tasks have succeeded,
  the driver sends them part by part. If anything fails before that, nothing is sent. If the driver is killed while it
  sends, the same job under its key sends the rest.
* `direct` (`DirectWriter`): each task sends its partition in one transaction. It writes each message once instead of
  twice, and a failed job leaves the partitions that were sent. A task whose input broke off sends nothing.

`StreamWriter` stages each batch of a stream. Its key is the query's id, which Spark keeps in the checkpoint.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from io import BufferedReader
from itertools import repeat
from traceback import walk_stack
from typing import Any, cast
from uuid import UUID, uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import SpecialLengths
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

from rowpost.archive.source.connection import naming_what_is_gone, open_database
from rowpost.database.connection import Connection
from rowpost.errors import InvalidMessage, JobKeyUsed, MessageCorrupt, SettingsError, SparkFailed
from rowpost.settings.environment import load_settings
from rowpost.spark.archive.schemas import MESSAGE
from rowpost.spark.source.job import (
    Destinations,
    Job,
    MessageTally,
    Stored,
    attempt_for,
    full_key,
    queues_of,
    same_messages,
    send_staged,
    total,
)
from rowpost.spark.source.options import APPLICATION, DIRECT, WriteOptions
from rowpost.wire.message import OutgoingMessage, decode_headers

__all__ = ["DirectWriter", "StagedWriter", "StreamWriter", "batch_writer", "check_complete", "pipe_of_task"]

_LOG = logging.getLogger("rowpost.spark.sink")
_LOG.setLevel(logging.INFO)  # for Spark's logs of its Python processes, if they are enabled; nothing else shows it
CALL_BYTES = 8 << 20  # headers and bodies of one call; a single larger message is sent alone
_QUEUE = "queue"
_TYPES = {"id": (StringType,), "headers": (StringType,), "body": (BinaryType, StringType), _QUEUE: (StringType,)}
# If computing a row fails, Spark closes the pipe of the task's rows. PySpark takes that for the end of the rows, and
# reports the error only after the writer has returned. After the last row of a complete input, Spark writes an end mark
# to the pipe. Mark and pipe are internals of PySpark, which are tested for each of its versions.
_END_MARK = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)
_WORKER_FILE, _WORKER_FUNCTION, _PIPE = "pyspark/worker.py", "main", "infile"


def batch_writer(options: WriteOptions, schema: StructType) -> StagedWriter | DirectWriter:
    """Begin a job and return its writer. A direct job that ran before goes on in mode staged.

    Raises SettingsError if the columns are not those of messages, InvalidJobKey, QueueNotFound, and JobKeyUsed if
    another login has used the key.
    """
    columns = _columns(schema, options)
    # without a jobKey each write is a separate job
    job = Job(full_key(options.job_key or str(uuid4()), options.queue), options.queue, uuid4().hex[:12])
    with open_database(options.environment, APPLICATION) as database:
        sealed, mode = job.begin(database, options.mode)
    return (DirectWriter if mode == DIRECT else StagedWriter)(options, columns, job, sealed)


class _Writer:
    """Columns and grouping of messages, which all writers share."""

    def __init__(self, options: WriteOptions, columns: frozenset[str]) -> None:
        self.options, self.columns = options, columns

    def _groups(
        self, batches: Iterator[pa.RecordBatch], tally: MessageTally
    ) -> Iterator[tuple[str, list[OutgoingMessage]]]:
        """Yield the queue and the messages of each call. Calls are limited in number, and together in bytes."""
        groups: dict[str | None, list[OutgoingMessage]] = {}
        size = 0
        for batch in batches:
            for id, headers, body, queue in self._rows(batch):
                tally.add(id, headers, body, queue)
                group = groups.setdefault(queue, [])
                group.append(OutgoingMessage(body, headers, None if id is None else _uuid(id)))
                size += len(headers) + len(body or b"")
                if size >= CALL_BYTES or len(group) >= self.options.messages_per_call:
                    for full in list(groups) if size >= CALL_BYTES else [queue]:
                        yield full or str(self.options.queue), groups.pop(full)
                    size = 0 if not groups else size
        yield from ((queue or str(self.options.queue), group) for queue, group in groups.items())

    def _rows(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, str, bytes | None, str | None]]:
        """Yield id, headers and body, and the queue if the rows name it."""
        ids = batch.column("id").to_pylist() if "id" in self.columns else [None] * batch.num_rows
        headers = map(_headers, batch.column("headers").to_pylist(), ids)
        bodies = batch.column("body").cast(pa.binary()).to_pylist()
        queues: Iterable[str | None] = repeat(None, batch.num_rows)
        if self.options.queue is None:
            queues = map(self._destination, batch.column(_QUEUE).to_pylist(), ids)
        return zip(ids, headers, bodies, queues, strict=True)

    def _destination(self, name: str | None, id: str | None) -> str:
        if not name:
            raise InvalidMessage(
                f"The message {id or 'without an id'} has no destination: its column queue is null or empty. Name a "
                "queue, or leave the row out."
            )
        return _resolved(name, self.options.environment)

    def _stage(self, job_key: str, attempt: str, batches: Iterator[pa.RecordBatch]) -> Stored:
        """Store a task's messages in the staging table, under an identifier of this attempt."""
        tally = MessageTally()
        with self._open() as database:
            for queue, group in self._groups(batches, tally):
                named = attempt if self.options.queue is not None else attempt_for(attempt, queue)
                database.call("stage_messages", job_key=job_key, attempt=named, messages=group)
        return Stored.of(attempt, tally, job_key)

    def _open(self) -> Connection:
        return open_database(self.options.environment, APPLICATION)


class _JobWriter(_Writer, DataSourceArrowWriter):
    """A writer of a batch, which is one run of a job."""

    def __init__(self, options: WriteOptions, columns: frozenset[str], job: Job, sealed: bool) -> None:
        super().__init__(options, columns)
        self.job, self.sealed = job, sealed

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record that the run failed. Tasks of it that are still running can store and send nothing any more."""
        with self._open() as database:
            self.job.fail(database)


class StagedWriter(_JobWriter):
    """Store all messages, and send them part by part when all tasks have succeeded."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        """Stage one partition. If an earlier run was sealed, only count it."""
        if self.sealed:
            tally = MessageTally()
            for _ in self._groups(iterator, tally):
                pass
            return Stored.of("", tally)
        task = _task()
        attempt = f"{self.job.run}/{task.partitionId()}/{task.taskAttemptId()}-{uuid4().hex[:12]}"
        return self._stage(self.job.key, attempt, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Send the parts that are not in the ledger, each in one transaction.

        Raises JobKeyUsed for other messages, QueueNotFound.
        """
        with self._open() as database:
            if not self.sealed:
                Destinations(database).check(queues_of(_stored(messages)))
            sent = sum(
                self.job.send(database, part, stored) for part, stored in self.job.seal(database, _stored(messages))
            )
            self.job.finish(database)
        _report(f"job {self.job.key}", _stored(messages), sent)


class DirectWriter(_JobWriter):
    """Send each partition in a separate transaction, together with its entry in the ledger."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        """Send one partition, unless an earlier attempt of the task has sent it.

        Raises SparkFailed if its rows broke off.
        """
        part, tally, pipe = _task().partitionId(), MessageTally(), pipe_of_task()
        with self._open() as database, naming_what_is_gone(database, self.options.queue), database.transaction():
            claimed, messages, digest = database.call("claim_ledger", job_key=self.job.key, part=part)[0]
            destinations = Destinations(database)
            for queue, group in self._groups(iterator, tally):
                if claimed and (queue == self.options.queue or destinations.has(queue)):
                    database.call("send_messages", queue, messages=group)
            check_complete(pipe)
            if claimed:
                destinations.check(tally.queues)
                database.call(
                    "settle_ledger", job_key=self.job.key, part=part, messages=tally.messages, digest=tally.digest
                )
        if not claimed and not same_messages((messages, digest), (tally.messages, tally.digest)):
            raise JobKeyUsed(
                f"Partition {part} of the job {self.job.key!r} was sent by an earlier attempt of its task, with "
                f"{messages} messages. Now it has {tally.messages}, or others. They were not sent. Use mode staged for "
                "data that differ each time they are computed."
            )
        return Stored.of("", tally)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Record that all partitions are sent."""
        stored = _stored(messages)
        sent = sum(each.messages for each in stored)
        sums: dict[str, Any] = {"messages": sent, "digest": total(each.digest for each in stored)}
        with self._open() as database:
            database.call_atomically(
                "end_job", job_key=self.job.key, run=self.job.run, done=True, parts=len(stored), **sums
            )
        _report(f"job {self.job.key}", stored, sent)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Send each batch of a stream in one transaction, in order and exactly once."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, _columns(schema, options))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        """Stage one partition of a batch."""
        query = _task().getLocalProperty("sql.streaming.queryId")
        return self._stage(full_key(f"stream {query}", self.options.queue), str(uuid4()), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Send the batch, unless the ledger has recorded it or a later one."""
        stored, sent = _stored(messages), 0
        if not stored:
            return
        key = stored[0].job_key
        with self._open() as database:
            with naming_what_is_gone(database, self.options.queue), database.transaction():
                if database.call("claim_ledger", job_key=key, part=batchId, parts=0)[0].claimed:
                    Destinations(database).check(queues_of(stored))
                    sent = send_staged(database, self.options.queue, key, stored)
            database.call("drop_staged", job_key=key)
        _report(f"batch {batchId} of {key}", stored, sent)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the staged messages."""
        for key in {each.job_key for each in _stored(messages)}:
            with self._open() as database:
                database.call("drop_staged", job_key=key)


def _report(what: str, stored: Sequence[Stored], sent: int) -> None:
    """Log what a commit has sent. Fewer than its tasks had: the others were sent before."""
    written = sum(each.messages for each in stored)
    _LOG.info("%s: tasks have written %d messages in %d parts, now sent %d", what, written, len(stored), sent)


def _stored(messages: Sequence[WriterCommitMessage | None]) -> list[Stored]:
    return [each for each in messages if isinstance(each, Stored)]


def _task() -> TaskContext:
    """Return the context of the task in which Spark calls a writer."""
    return cast(TaskContext, TaskContext.get())


@lru_cache
def _resolved(queue: str, environment: str | None) -> str:
    """Return a queue's name with the schema that the environment means."""
    return load_settings(environment, offline=True).naming.resolve(queue)


def _columns(schema: StructType, options: WriteOptions) -> frozenset[str]:
    given = {field.name: field.dataType for field in schema}
    if options.queue is None and _QUEUE not in given:
        raise SettingsError(
            'The write has no destination. Add .option("queue", "Sales"), or a column queue with the destination of '
            "each row. "
            "`rowpost queue list` shows the queues."
        )
    missing = {"headers", "body"} - given.keys()
    unknown = given.keys() - {*MESSAGE.fieldNames(), _QUEUE}
    if missing or unknown:
        wrong = f"{', '.join(sorted(missing))} missing" if missing else f"{', '.join(sorted(unknown))} unknown"
        raise SettingsError(
            f"The DataFrame cannot be written to a queue: {wrong}. It needs the columns headers and body, and may have "
            "id."
        )
    for name, types in _TYPES.items():
        if name in given and not isinstance(given[name], types):
            raise SettingsError(
                f"The column {name} must be {types[0]().simpleString()} (got {given[name].simpleString()})."
            )
    return frozenset(given)


def _headers(text: str | None, id: str | None) -> str:
    """Return headers that every endpoint can read. Raises InvalidMessage for others, which would fail in handlers."""
    try:
        if text is None:
            raise MessageCorrupt("They are null.")
        decode_headers(text)
    except MessageCorrupt as wrong:
        raise InvalidMessage(
            f"The headers of the message {id or 'without an id'} cannot be sent. {wrong} Write a JSON object whose "
            "values are texts or null, or an empty string for no headers. Leave other rows out before the write."
        ) from None
    return text


def _uuid(text: Any) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise InvalidMessage(
            f"{text!r} is not a message id. The column id must contain UUIDs as text, or null for a new id."
        ) from None


def pipe_of_task() -> BufferedReader:
    """Find the pipe through which the rows of the task come that runs in this thread.

    Raises SettingsError if this Spark has none.
    """
    for frame, _ in walk_stack(sys._getframe()):
        code = frame.f_code
        is_worker = code.co_name == _WORKER_FUNCTION and code.co_filename.replace("\\", "/").endswith(_WORKER_FILE)
        if is_worker and hasattr(frame.f_locals.get(_PIPE), "peek"):
            pipe: BufferedReader = frame.f_locals[_PIPE]
            return pipe
    raise SettingsError(
        "The mode direct cannot be used with this version of Spark: rowpost cannot find the pipe of the task's rows, "
        "and so cannot see "
        'whether they are complete. Nothing was sent. Remove .option("mode", "direct").'
    )


def check_complete(pipe: BufferedReader) -> None:
    """Raise SparkFailed if the rows of a pipe broke off. Call it after the last row."""
    found = pipe.peek(len(_END_MARK))[: len(_END_MARK)]
    if not found or not _END_MARK.startswith(found):
        raise SparkFailed(
            "The rows of this task broke off, because Spark failed to compute them. None of them was sent."
        )
