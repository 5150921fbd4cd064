"""Archive a queue to Parquet files or a Delta table, exactly once even if the job is killed and restarted.

`ArchiveJob` describes a job, `run` executes it, and `read_archive` reads the result.

Spark logs the range of a batch before it reads the rows, and logs the batch as done after it was written. An interrupted
batch is read again with the same rows and overwrites its own folders, whose names contain the query and the batch number.
The day of a message must therefore not depend on the time of writing: `archived_at` is the batch time in Spark's log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from rowpost.errors import SparkUnavailable
from rowpost.spark.archive.folder import METADATA_FOLDER, ArchiveFolder, Batch
from rowpost.spark.archive.headers import parse_headers
from rowpost.spark.archive.schemas import ARCHIVE, MESSAGE, shaped
from rowpost.spark.progress import Measured, Receiver, measure_bytes
from rowpost.spark.session import is_connect
from rowpost.spark.source.held import what_is_held
from rowpost.version import install_command

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["FORMATS", "ArchiveJob", "BatchWriter", "archive", "default_checkpoint", "follow", "read_archive", "read_queue", "run", "start", "trigger_of"]

FORMATS = ("parquet", "delta")
KEY_LENGTH = 8
_EARLIEST = "2000-01-01"
_POLL_INTERVAL_S = 0.3
_WITH_BATCH = StructType([*ARCHIVE, StructField("batch", StringType())])

Progress = Callable[[int, int], None]


def archive(df: DataFrame, queue: str) -> DataFrame:
    """Convert messages (schemas.MESSAGE) to archived messages (schemas.ARCHIVE). Works on streams too."""
    arrived = parse_headers(df).withColumn("archived_at", F.current_timestamp())
    if "queue" not in df.columns:  # a stream of several queues has it
        arrived = arrived.withColumn("queue", F.lit(queue))
    times = [_plausible(F.col(name)) for name in ("processing_ended", "time_of_failure", "time_sent")]
    return shaped(arrived.withColumn("day", F.to_date(F.coalesce(*times, F.col("archived_at")))), ARCHIVE)


def _plausible(time: Column) -> Column:
    """Replace a time that must be wrong with null, so that it creates no folder for a day in the year 9999."""
    latest = F.col("archived_at") + F.expr("INTERVAL 1 DAY")
    return F.when((time <= latest) & (time >= F.lit(_EARLIEST).cast("timestamp")), time)


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """Read an archive: schemas.ARCHIVE, and for Parquet the column batch.

    Raises ArchiveNotFound.
    """
    folder = ArchiveFolder(path)
    folder.check_exists()
    reader = spark.read.option("basePath", folder.path)
    if folder.is_delta:
        return reader.schema(ARCHIVE).parquet(*_delta().DeltaTable(folder.path).file_uris())
    return reader.schema(_WITH_BATCH).parquet(folder.path)


@dataclass(frozen=True)
class ArchiveJob:
    """What to archive.

    Attributes:
        queue: a queue, or several with commas between them.
        mode: "tail" or "drain".
        every: the interval between batches, such as "10 seconds". If it is None, the job archives the current messages and ends.
        max_rows: rows in one batch.
        options: additional options of the source.
    """

    queue: str
    path: str
    environment: str | None = None
    mode: str = "tail"
    every: str | None = None
    max_rows: int = 50_000
    format: str = "parquet"
    checkpoint: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @cached_property
    def checkpoint_location(self) -> str:
        return self.checkpoint or default_checkpoint(self.path, self.queue, self.mode)


def default_checkpoint(path: str, queue: str, mode: str) -> str:
    """Return the checkpoint within the archive, in a folder that readers ignore."""
    safe = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):02X}" for c in queue)
    return f"{path.rstrip('/')}/{METADATA_FOLDER}/checkpoints/{safe}-{mode}"


def run(
    spark: SparkSession, job: ArchiveJob, progress: Progress = lambda batches, rows: None, receivers: Sequence[Receiver] = ()
) -> dict[str, object]:
    """Archive all current messages, or run until stopped if `every` is set.

    `progress` is called with the batches and rows so far, and each of `receivers` after each batch. Returns counts. A KeyboardInterrupt stops the stream and is raised again.
    """
    if job.format == "delta":
        _delta()
    before = _batches(job) if is_connect(spark) else None
    try:
        done = follow(start(spark, job), progress, receivers)
        if before is not None:  # Spark Connect may have discarded the progress of an ended stream
            new = {key: batch for key, batch in _batches(job).items() if key not in before}
            files = [path for batch in new.values() for path in batch.files]
            done = {"batches": len({batch.name for batch in new.values()}), "messages": ArchiveFolder(job.path).rows(files)}
    except KeyboardInterrupt:
        _finish_drain(spark, job)
        raise
    return {"queue": job.queue, "mode": job.mode, **done, "dropped_from_spool": _finish_drain(spark, job), **_held(spark, job)}


def _held(spark: SparkSession, job: ArchiveJob) -> dict[str, object]:
    """Say what the run has left because transactions were open. A drain leaves nothing for this reason."""
    return {} if job.mode == "drain" else what_is_held(_connection_options(job), job.checkpoint_location, spark).as_json()


def _connection_options(job: ArchiveJob) -> dict[str, str]:
    return {"subscribe": job.queue} | ({} if job.environment is None else {"environment": job.environment})


def _batches(job: ArchiveJob) -> dict[tuple[str, str], Batch]:
    """Return the queue's batches in the archive, by day and name."""
    return {(batch.day, batch.name): batch for batch in ArchiveFolder(job.path).batches() if batch.queue in job.queue.split(",")}


def _finish_drain(spark: SparkSession, job: ArchiveJob) -> int:
    """Delete the last batch from the spool: Spark would report its commit to the source only with the next batch."""
    if job.mode != "drain":
        return 0
    from rowpost.spark.source.checkpoint import finalize

    return finalize(_connection_options(job), job.checkpoint_location, spark)


def follow(
    query: StreamingQuery, progress: Progress = lambda batches, rows: None, receivers: Sequence[Receiver] = ()
) -> dict[str, int]:
    """Wait for the end of a stream, and count its batches and messages. Stops the stream if interrupted."""
    counted: dict[int, int] = {}
    received: set[str] = set()
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(_POLL_INTERVAL_S))  # type: ignore[arg-type]  # PySpark accepts fractions of a second, its annotation says int
            for each in query.recentProgress:
                if each["numInputRows"]:
                    counted[each["batchId"]] = each["numInputRows"]
                if receivers and each["timestamp"] not in received:
                    received.add(each["timestamp"])
                    measured = Measured.of(json.loads(each.json))
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


def read_queue(spark: SparkSession, queue: str, environment: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """Read a queue's current messages (schemas.MESSAGE). With `columns`, unneeded bodies are not read."""
    reader = spark.read.format("rowpost").option("queue", queue)
    if environment is not None:
        reader = reader.option("environment", environment)
    if columns is not None:
        reader = reader.schema(StructType([column for column in MESSAGE if column.name in columns]))
    return reader.load()


def start(spark: SparkSession, job: ArchiveJob) -> StreamingQuery:
    """Start the stream."""
    reader = spark.readStream.format("rowpost").option("subscribe", job.queue).option("mode", job.mode)
    options = {"environment": job.environment, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(job.max_rows)}
    for name, value in [*options.items(), *job.options]:
        if value is not None:
            reader = reader.option(name, value)
    writer = BatchWriter(job.path, job.checkpoint_location, job.format)
    stream = archive(measure_bytes(reader.load()), job.queue).writeStream.foreachBatch(writer).queryName(f"rowpost archive {job.queue}")
    stream = stream.option("checkpointLocation", job.checkpoint_location)
    return (stream.trigger(processingTime=job.every) if job.every else stream.trigger(availableNow=True)).start()


class BatchWriter:
    """Write one batch of a stream to its own folders. If Spark repeats a batch, the second call overwrites the first."""

    def __init__(self, path: str, checkpoint: str, format: str = "parquet") -> None:
        self.path, self.checkpoint, self.format = path, checkpoint, format
        self._key: str | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        if self._key is None:
            # Spark writes the query's id to the checkpoint; a Spark Connect server cannot get it from the query
            text = "".join(row.value for row in df.sparkSession.read.text(f"{self.checkpoint}/metadata").collect())
            self._key = json.loads(text)["id"][:KEY_LENGTH]
        if self.format == "delta":
            _append_to_delta(df, self.path, self._key, batch_id)
            return
        batch = df.withColumn("batch", F.lit(f"{self._key}-{batch_id}"))
        write = batch.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        write.partitionBy("queue", "day", "batch").parquet(self.path)


def _append_to_delta(df: DataFrame, path: str, key: str, batch_id: int) -> None:
    """Append a batch in one commit, unless Delta's log has recorded its query and number. The batch passes through the driver."""
    delta = _delta()
    last = delta.DeltaTable(path).transaction_version(key) if delta.DeltaTable.is_deltatable(path) else None
    if last is not None and last >= batch_id:
        return
    done = delta.CommitProperties(app_transactions=[delta.Transaction(app_id=key, version=batch_id)])
    delta.write_deltalake(path, df.toArrow(), mode="append", partition_by=["queue", "day"], commit_properties=done)


def _delta():
    try:
        import deltalake
    except ImportError as error:
        raise SparkUnavailable(f"Cannot use a Delta table: the package deltalake is not installed. Run: {install_command('delta')}") from error
    return deltalake
