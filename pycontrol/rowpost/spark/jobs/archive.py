"""From a queue to a folder of Parquet files, or a Delta table: exactly once, whenever it is killed and started again.

Spark notes which rows a batch has before it reads them, and that the batch is done after it was written. A batch that
was interrupted is read again, row for row the same, and overwrites its own folders, whose names hold the query and the
batch's number. Its day must therefore not depend on when it is written: arrival is the time that Spark's log has.
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
from rowpost.spark.archive.folder import OWN, ArchiveFolder, Batch
from rowpost.spark.archive.headers import parse_headers
from rowpost.spark.archive.schemas import ARCHIVE, MESSAGE, shaped
from rowpost.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["FORMATS", "ArchiveJob", "BatchWriter", "archive", "default_checkpoint", "follow", "read_archive", "read_queue", "run", "start", "trigger_of"]

FORMATS = ("parquet", "delta")
KEY_LENGTH = 8
_EARLIEST = "2000-01-01"
_POLL = 0.3  # seconds
_WITH_BATCH = StructType([*ARCHIVE, StructField("batch", StringType())])

Progress = Callable[[int, int], None]


def archive(df: DataFrame, queue: str) -> DataFrame:
    """Messages (schemas.MESSAGE) as the archive keeps them (schemas.ARCHIVE). Works on streams as well."""
    arrived = parse_headers(df).withColumn("archived_at", F.current_timestamp()).withColumn("queue", F.lit(queue))
    times = [_plausible(F.col(name)) for name in ("processing_ended", "time_of_failure", "time_sent")]
    return shaped(arrived.withColumn("day", F.to_date(F.coalesce(*times, F.col("archived_at")))), ARCHIVE)


def _plausible(time: Column) -> Column:
    """Null for what no clock can have meant: it would make a folder for a day of the year 9999."""
    latest = F.col("archived_at") + F.expr("INTERVAL 1 DAY")
    return F.when((time <= latest) & (time >= F.lit(_EARLIEST).cast("timestamp")), time)


def read_archive(spark: SparkSession, path: str) -> DataFrame:
    """An archive as a DataFrame: schemas.ARCHIVE, and the column batch where it is Parquet.

    Raises ArchiveNotFound.
    """
    folder = ArchiveFolder(path)
    folder.must_exist()
    reader = spark.read.option("basePath", folder.path)
    if folder.is_delta:
        return reader.schema(ARCHIVE).parquet(*_delta().DeltaTable(folder.path).file_uris())
    return reader.schema(_WITH_BATCH).parquet(folder.path)


@dataclass(frozen=True)
class ArchiveJob:
    """What to archive. `every` is a span such as "10 seconds"; None archives what is there, then ends."""

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
    """Within the archive, below a name that no reader looks into."""
    safe = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):02X}" for c in queue)
    return f"{path.rstrip('/')}/{OWN}/checkpoints/{safe}-{mode}"


def run(spark: SparkSession, job: ArchiveJob, progress: Progress = lambda batches, rows: None) -> dict[str, object]:
    """Archives until all is archived, or for ever with `every`. Returns counts; `progress` gets batches and rows so far."""
    if job.format == "delta":
        _delta()
    before = _batches(job) if is_connect(spark) else None
    try:
        done = follow(start(spark, job), progress)
        if before is not None:  # a server of Spark Connect may have forgotten the progress of a stream that has ended
            new = {key: batch for key, batch in _batches(job).items() if key not in before}
            files = [path for batch in new.values() for path in batch.files]
            done = {"batches": len({batch.name for batch in new.values()}), "messages": ArchiveFolder(job.path).rows(files)}
    except KeyboardInterrupt:
        _finish_drain(spark, job)
        raise
    return {"queue": job.queue, "mode": job.mode, **done, "dropped_from_spool": _finish_drain(spark, job)}


def _batches(job: ArchiveJob) -> dict[tuple[str, str], Batch]:
    """The queue's batches in the archive so far, by day and name."""
    return {(batch.day, batch.name): batch for batch in ArchiveFolder(job.path).batches() if batch.queue == job.queue}


def _finish_drain(spark: SparkSession, job: ArchiveJob) -> int:
    """What the last batch took leaves the spool too: Spark would say so to the source at the next batch only."""
    if job.mode != "drain":
        return 0
    from rowpost.spark.source.checkpoint import finalize

    options = {"queue": job.queue} | ({} if job.environment is None else {"environment": job.environment})
    return finalize(options, job.checkpoint_location, spark)


def follow(query: StreamingQuery, progress: Progress = lambda batches, rows: None) -> dict[str, int]:
    """Waits for the end of a stream, and counts its batches and messages. Stops it when it is interrupted."""
    counted: dict[int, int] = {}
    try:
        ended = False
        while not ended:
            ended = query.awaitTermination(_POLL)
            counted |= {each["batchId"]: each["numInputRows"] for each in query.recentProgress if each["numInputRows"]}
            progress(len(counted), sum(counted.values()))
    finally:
        query.stop()
    return {"batches": len(counted), "messages": sum(counted.values())}


def trigger_of(every: timedelta) -> str:
    """A span as Spark's triggers want it.

    >>> trigger_of(timedelta(seconds=1.5))
    '1500 milliseconds'
    """
    return f"{max(round(every.total_seconds() * 1000), 1)} milliseconds"


def read_queue(spark: SparkSession, queue: str, environment: str | None = None, columns: Sequence[str] | None = None) -> DataFrame:
    """What a queue holds now (schemas.MESSAGE), or only some columns of it, which spares reading the bodies."""
    reader = spark.read.format("rowpost").option("queue", queue)
    if environment is not None:
        reader = reader.option("environment", environment)
    if columns is not None:
        reader = reader.schema(StructType([column for column in MESSAGE if column.name in columns]))
    return reader.load()


def start(spark: SparkSession, job: ArchiveJob) -> StreamingQuery:
    """The running stream."""
    reader = spark.readStream.format("rowpost").option("queue", job.queue).option("mode", job.mode)
    options = {"environment": job.environment, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(job.max_rows)}
    for name, value in [*options.items(), *job.options]:
        if value is not None:
            reader = reader.option(name, value)
    writer = BatchWriter(job.path, job.checkpoint_location, job.format)
    stream = archive(reader.load(), job.queue).writeStream.foreachBatch(writer).queryName(f"rowpost archive {job.queue}")
    stream = stream.option("checkpointLocation", job.checkpoint_location)
    return (stream.trigger(processingTime=job.every) if job.every else stream.trigger(availableNow=True)).start()


class BatchWriter:
    """Writes one batch of a stream into its own folders. Spark may call it twice for a batch; the second overwrites."""

    def __init__(self, path: str, checkpoint: str, format: str = "parquet") -> None:
        self.path, self.checkpoint, self.format = path, checkpoint, format
        self._key: str | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        if self._key is None:
            # the query's id, also where this runs in a server of Spark Connect
            text = "".join(row.value for row in df.sparkSession.read.text(f"{self.checkpoint}/metadata").collect())
            self._key = json.loads(text)["id"][:KEY_LENGTH]
        if self.format == "delta":
            _append_to_delta(df, self.path, self._key, batch_id)
            return
        batch = df.withColumn("batch", F.lit(f"{self._key}-{batch_id}"))
        write = batch.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        write.partitionBy("queue", "day", "batch").parquet(self.path)


def _append_to_delta(df: DataFrame, path: str, key: str, batch_id: int) -> None:
    """One commit a batch, which Delta's own log knows by query and number; the batch goes through the driver."""
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
        raise SparkUnavailable("Delta tables need one package more: pip install 'rowpost[delta]'") from error
    return deltalake
