"""Archive a queue to a table, exactly once even if the job is killed and restarted.

`ArchiveJob` describes a job, `run` executes it, and `read_archive` reads the result.

Spark logs the range of a batch before it reads the rows, and logs the batch as done after it was written. An
interrupted batch is read again with the same rows, and archive/identity.py decides whether the table has it. The day of
a message must not depend on the time of writing: `archived_at` is the batch time in Spark's log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery
from pyspark.sql.types import StructType

from rowpost.archive.address import check_checkpoint, located
from rowpost.archive.folder import METADATA_FOLDER
from rowpost.archive.identity import Offset, StreamBatch, by_epoch, by_queue, check_known, check_start
from rowpost.archive.source.options import DEFAULT_BYTES
from rowpost.archive.table import ArchiveTable, create_table, open_table
from rowpost.archive.writer import TableWriter
from rowpost.errors import SparkFailed
from rowpost.spark.archive.headers import parse_headers
from rowpost.spark.archive.rows import read_table, write_files
from rowpost.spark.archive.schemas import ARCHIVE, ESSENTIAL, MESSAGE, shaped
from rowpost.spark.describing import described
from rowpost.spark.explain import keep_running, short_errors
from rowpost.spark.progress import Measured, Receiver, measure_bytes
from rowpost.spark.session import is_connect
from rowpost.spark.source.checkpoint import Checkpoint, finalize, what_is_held
from rowpost.spark.stores import check_reachable

__all__ = [
    "ArchiveJob",
    "BatchWriter",
    "archive",
    "default_checkpoint",
    "follow",
    "given",
    "read_archive",
    "read_queue",
    "run",
    "start",
    "start_query",
    "trigger_of",
    "where_it_begins",
]

#: Messages in one batch of a tail; the other modes have the source's default.
TAIL_ROWS = 250_000
_POLL_INTERVAL_S = 0.3


def archive(df: DataFrame, queue: str) -> DataFrame:
    """Convert messages (schemas.MESSAGE) to archived messages (schemas.ARCHIVE). Works on streams too."""
    return shaped(parse_headers(_arrived(df, queue), day=True), ARCHIVE)


def _arrived(df: DataFrame, queue: str) -> DataFrame:
    """Add the time of the batch and the queue to messages. A stream of several queues has the queue already."""
    arrived = df.withColumn("archived_at", F.current_timestamp())
    return arrived if "queue" in df.columns else arrived.withColumn("queue", F.lit(queue))


def read_archive(spark: SparkSession, path: str, needed: Sequence[str] = ()) -> DataFrame:
    """Read the newest snapshot of an archive, or of live metrics.

    Raises ArchiveNotFound, SparkFailed if it lacks a column that is needed.
    """
    table = open_table(path)
    table.check_columns(needed)
    return read_table(spark, table)


@dataclass(frozen=True)
class ArchiveJob:
    """What to archive."""

    queue: str  # or several with commas between them
    path: str
    environment: str | None = None
    mode: str = "tail"  # or "drain"
    every: str | None = None  # such as "10 seconds"; None: archive the current messages, and end
    max_rows: int | None = None  # in one batch, which costs half a second; None: TAIL_ROWS, or 50,000 for a drain
    checkpoint: str | None = None
    options: tuple[tuple[str, str], ...] = ()  # more options of the source
    max_bytes: int = DEFAULT_BYTES  # of headers and bodies in one batch; a larger message is a batch of its own

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of the queues."""
        return tuple(dict.fromkeys(self.queue.split(",")))

    @property
    def source(self) -> dict[str, str]:
        """The options of the source that name the queues."""
        return given(subscribe=self.queue, environment=self.environment)

    @cached_property
    def checkpoint_location(self) -> str:
        """Where Spark stores its progress. Raises SettingsError."""
        if self.checkpoint:
            return check_checkpoint(self.checkpoint)
        return default_checkpoint(located(self.path), self.queue, self.mode)


def default_checkpoint(path: str, queue: str, mode: str) -> str:
    """Return the checkpoint within an archive's folder, in a folder that readers ignore.

    The order of several queues does not matter.
    """
    names = ",".join(sorted(set(queue.split(","))))
    safe = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):02X}" for c in names)
    return f"{path.rstrip('/')}/{METADATA_FOLDER}/checkpoints/{safe}-{mode}"


def run(
    spark: SparkSession,
    job: ArchiveJob,
    progress: Callable[[int, int], None] = lambda batches, rows: None,
    receivers: Sequence[Receiver] = (),
) -> dict[str, object]:
    """Archive all current messages, or run until stopped if `every` is set, and return counts.

    `progress` is called with the batches and rows so far, and each of `receivers` after each batch. With `every`, the
    stream starts again after an error that may pass. A KeyboardInterrupt stops it, and is raised again.
    """
    check_reachable(spark, job.checkpoint_location)
    table = create_table(job.path)
    before = table.version
    counted: dict[int, int] = {}

    def attempt() -> dict[str, int]:
        return follow(start(spark, job), progress, receivers, counted=counted)

    try:
        done = attempt() if job.every is None else keep_running(attempt, counted, job.queue)
        if is_connect(spark):  # it may have discarded the progress of an ended stream
            table.refresh()
            own = [each for each in table.notes(before) if each.get("job") == "archive" and each["queue"] == job.queue]
            new = [note["rows"] for note in own if note["rows"]]
            done = {"batches": len(new), "messages": sum(new)}
    except KeyboardInterrupt:
        _finish(job, table)
        raise
    dropped = _finish(job, table)
    # only a tail leaves messages because transactions are open
    held = asdict(what_is_held(job.source, job.checkpoint_location)) if job.mode == "tail" else {}
    return {"queue": job.queue, "mode": job.mode, **done, "dropped_from_spool": dropped, **held}


def _finish(job: ArchiveJob, table: ArchiveTable) -> int:
    """Delete the last batch from the spool, if the table has it: Spark would report its commit with the next batch."""
    if job.mode == "tail":
        return 0
    table.refresh()
    confirmed = {epoch: each.end for epoch, each in table.recorded().items()}
    return finalize(job.source, job.checkpoint_location, confirmed=confirmed)


def follow(
    query: StreamingQuery,
    progress: Callable[[int, int], None] = lambda batches, rows: None,
    receivers: Sequence[Receiver] = (),
    late: Callable[[Mapping[str, Any]], int] | None = None,
    counted: dict[int, int] | None = None,
) -> dict[str, int]:
    """Wait for the end of a stream, or stop it if interrupted, and count its batches and messages.

    `late` counts late messages.
    """
    counted = {} if counted is None else counted
    received: set[str] = set()
    try:
        ended: bool | None = False
        while not ended:
            ended = query.awaitTermination(_POLL_INTERVAL_S)  # type: ignore[arg-type]  # PySpark accepts fractions of a second, its annotation says int
            for each in query.recentProgress:
                if each["numInputRows"]:
                    counted[each["batchId"]] = each["numInputRows"]
                if (receivers or late) and each["timestamp"] not in received:
                    received.add(each["timestamp"])
                    reported = json.loads(each.json)
                    measured = replace(Measured.of(reported), late=None if late is None else late(reported))
                    for receive in receivers:
                        receive(measured)
            progress(len(counted), sum(counted.values()))
    finally:
        query.stop()
    return {"batches": len(counted), "messages": sum(counted.values())}


def trigger_of(every: timedelta) -> str:
    """Format an interval for Spark's triggers.

    >>> trigger_of(timedelta(seconds=1.5))
    '1500 milliseconds'
    """
    return f"{max(round(every.total_seconds() * 1000), 1)} milliseconds"


def read_queue(
    spark: SparkSession, queue: str, environment: str | None = None, columns: Sequence[str] | None = None
) -> DataFrame:
    """Read a queue's current messages (schemas.MESSAGE). With `columns`, unneeded bodies are not read."""
    reader = spark.read.format("rowpost").options(**given(queue=queue, environment=environment))
    if columns is not None:
        reader = reader.schema(StructType([column for column in MESSAGE if column.name in columns]))
    return reader.load()


def given(**options: str | int | None) -> dict[str, str]:
    """Return the options of the data source that have a value."""
    return {name: str(value) for name, value in options.items() if value is not None}


def start(spark: SparkSession, job: ArchiveJob) -> StreamingQuery:
    """Start the stream. Raises SparkFailed if its checkpoint and the table do not belong together."""
    table = create_table(job.path)
    way_out = (
        f"To continue where the archive ends, delete the folder {job.checkpoint_location}, or name a new one with "
        "--checkpoint: no message is then archived twice."
    )
    stored = Checkpoint(job.checkpoint_location)
    begins = where_it_begins(table, stored, job.queues, way_out, drain=job.mode == "drain")
    rows = job.max_rows or (TAIL_ROWS if job.mode == "tail" else None)
    bounds = given(startingOffsets="earliest", maxBytesPerTrigger=job.max_bytes, maxOffsetsPerTrigger=rows)
    options = {**job.source, "mode": job.mode, **bounds, **dict(job.options), "confirmedOffsets": json.dumps(begins)}
    read = measure_bytes(spark.readStream.format("rowpost").options(**options).load())
    writer = BatchWriter(job.path, job.checkpoint_location, queue=job.queue, parse=True, begins=begins, way_out=way_out)
    stream = _arrived(read, job.queue).writeStream.foreachBatch(writer).queryName(f"rowpost archive {job.queue}")
    return start_query(stream.option("checkpointLocation", job.checkpoint_location), job.every)


def start_query(writer: DataStreamWriter, every: str | None) -> StreamingQuery:
    """Start a stream with an interval between batches, such as "10 seconds".

    If it is None, the stream reads what is there, and ends.
    """
    return (writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)).start()


def where_it_begins(
    table: ArchiveTable, checkpoint: Checkpoint, queues: Sequence[str], way_out: str, *, drain: bool = False
) -> dict[str, Offset]:
    """Return the offsets, by epoch, at which a new checkpoint continues.

    Raises SparkFailed if a checkpoint does not belong to a table.
    """
    progress, records = checkpoint.progress(), table.recorded()
    if not drain:  # what a drain has archived is not in the queue any more
        check_known(progress, records, {file.queue for file in table.files()} & set(queues), table.address)
    last = -1 if progress.query is None else table.last_batch(progress.query)
    check_start(progress, records, last, table.address, queues, way_out)
    return {epoch: each.end for epoch, each in records.items() if each.queue in queues}


@dataclass(eq=False)
class BatchWriter:
    """Write one batch of a stream to a table, once. Raises SparkFailed if it is not the next one of the table."""

    path: str
    checkpoint: str
    schema: StructType = ARCHIVE  # of a table that does not exist yet
    queue: str | None = None
    parse: bool = False  # the tasks parse the headers of messages, which have `archived_at` and `queue`
    begins: Mapping[str, Offset] = field(default_factory=dict)  # of queues that are not in the checkpoint, by epoch
    way_out: str = ""  # how to continue when a batch is refused
    _query: str | None = field(default=None, init=False)
    # the last batch and its end, which Spark would read from a store again
    _last: tuple[int, Mapping[str, Offset]] = field(default=(-1, {}), init=False)
    _writer: TableWriter | None = field(default=None, init=False)

    @short_errors()
    def __call__(self, df: DataFrame, batch_id: int) -> None:
        if self._writer is None:
            needed = ESSENTIAL if self.schema == ARCHIVE else self.schema.fieldNames()
            self._writer = TableWriter(create_table(self.path, self.schema.json()), needed)
        spark, table = df.sparkSession, self._writer.table
        with described(spark, f"rowpost {'archive' if self.parse else 'metrics'} {self.queue}, batch {batch_id}"):
            batch = self._batch(table, batch_id)
            self._writer.add(batch, self.queue, lambda name: write_files(df, table, name, parse=self.parse))

    def _batch(self, table: ArchiveTable, number: int) -> StreamBatch:
        """Describe a batch by the checkpoint. A queue that is new in it begins where the source was told to."""
        stored = Checkpoint(self.checkpoint)
        self._query = self._query or stored.query  # a Spark Connect server cannot get it from the query
        if self._query is None:
            raise SparkFailed(
                f"The checkpoint {self.checkpoint} has no file metadata with the id of its query. "
                f"{self.way_out}".rstrip()
            )
        end = stored.offset(number)
        before = self._last[1] if self._last[0] == number - 1 else by_epoch(stored.offset(number - 1))
        self._last = number, by_epoch(end)
        names = {one["queue"]: name for name, one in by_queue(end, self.queue or "").items()}
        starts = {**self.begins, **before}
        return StreamBatch(table.address, self._query, number, starts, by_epoch(end), names, self.way_out)
