"""The stream readers behind `spark.readStream.format("rowpost")`.

`TailReader` reads a queue without changing it. `DrainReader` removes the messages from the queue.

Offsets are JSON in Spark's checkpoint and contain the queue's identity: `{"queue": identity, …}`. Spark calls
latestOffset and partitions in one process, and read in others. It calls commit for a batch only when it builds the next
batch. The last batch of a run is therefore committed by checkpoint.finalize or by the next run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable
from rowpost.spark.source.options import LATEST, ReadOptions
from rowpost.spark.source.queue_stream import (
    QueueState,
    Range,
    StreamRefused,
    check_offset,
    check_schema,
    declared_worker,
    describe,
    open_queue,
    read_batches,
    split,
    wait_for_watermark,
)
from rowpost.spark.source.watermark import Watermark

__all__ = ["DrainReader", "TailReader"]

MOVE_ROWS = 4000  # messages in one call: fewer than SQL Server's threshold of lock escalation
Offset = dict[str, Any]


@dataclass(frozen=True)
class TailRange(Range):
    """A range of row versions, with the queue's identity and last purge at planning time."""

    queue: str
    purged: int | None


@dataclass(frozen=True)
class SpoolRange(Range):
    """A range of spool numbers, with the owner of the spool."""

    owner: str


class _QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """State that both modes share. The planner's connection is not pickled, so that no task receives it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        check_schema(schema)
        self.options, self.schema = options, schema
        self._database: Connection | None = None
        self._target: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "schema": self.schema, "_database": None, "_target": None}

    @property
    def database(self) -> Connection:
        if self._database is None or self._database.closed:
            self._database = open_queue(self.options)
        return self._database

    def describe(self) -> QueueState:
        """Poll the queue. If the connection is broken, reconnect once."""
        try:
            return describe(self.database, self.options.queue)
        except DatabaseUnavailable:
            self.stop()
            return describe(self.database, self.options.queue)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of the option maxOffsetsPerTrigger."""
        return ReadAllAvailable() if self.options.max_rows is None else ReadMaxRows(self.options.max_rows)

    def stop(self) -> None:
        """Close the planner's connection."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def check_same_queue(self, offset: Offset, identity: str) -> None:
        """Raise StreamRefused if the checkpoint belongs to another queue."""
        if offset["queue"] != identity:
            raise StreamRefused(
                f"This checkpoint belongs to the queue {offset['queue']}, but {self.options.queue} is {identity} now. "
                "It is another queue, or the queue was dropped and created again, or the database was restored. "
                "Start with a new checkpoint. The option startingOffsets sets its start."
            )


class TailReader(_QueueStream):
    """Read each message exactly once as it arrives, although transactions commit out of order."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._watermark = Watermark()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_watermark": Watermark()}

    def initialOffset(self) -> Offset:
        """Return the start of a stream without a checkpoint, from the option startingOffsets."""
        state = self.describe()
        starting = self.options.starting
        if not isinstance(starting, int):
            starting = self._wait_for_watermark() if starting == LATEST else 0
        return self._offset(state, starting)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the run to the messages written before it. Waits up to watermarkTimeoutSeconds for open transactions."""
        self._target = self._wait_for_watermark()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return the end of the next batch: the watermark, or less if the batch is limited."""
        state = self.describe()
        self._check_no_loss(start, state)
        end = self._watermark.advance(state.poll)
        if self._target is not None:
            end = min(end, self._target)
        begin = start["row_version"]
        if end <= begin:
            return start
        if isinstance(limit, ReadMaxRows):
            # no message will appear below the first visible one, up to the watermark: skip that range without counting it
            empty_to = min(end, (end if state.first is None else state.first - 1))
            end = min(end, max(begin, empty_to) + limit.max_rows)
        return self._offset(state, end)

    def reportLatestOffset(self) -> Offset | None:
        """Return the last assigned row version, for the query's progress report."""
        state = self.describe()
        return self._offset(state, state.last)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Split the batch into ranges. Raises StreamRefused if the checkpoint belongs to another queue."""
        check_offset(("queue", "row_version"), end)
        self.check_same_queue(end, self.describe().identity)
        ranges = split(start["row_version"], end["row_version"], self.options.partitions)
        return [TailRange(each.above, each.upto, end["queue"], end["purged"]) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one range, then check that no purge removed some of them meanwhile."""
        if not isinstance(partition, TailRange):
            raise _not_ours(partition)
        with open_queue(self.options) as database:
            yield from read_batches(database, "read_range", self.options, self.schema, partition)
            state = describe(database, self.options.queue)
        self.check_same_queue({"queue": partition.queue}, state.identity)
        self._check_not_purged(partition.above, partition.purged, state)

    def commit(self, end: Offset) -> None:
        """Do nothing: a tail does not change the queue."""

    def _offset(self, state: QueueState, row_version: int) -> Offset:
        return {"queue": state.identity, "row_version": row_version, "purged": state.purged}

    def _wait_for_watermark(self) -> int:
        return wait_for_watermark(self.database, self.options.queue, self.options.watermark_timeout_s, self._watermark)

    def _check_no_loss(self, start: Offset, state: QueueState) -> None:
        check_offset(("queue", "row_version"), start)
        self.check_same_queue(start, state.identity)
        if start["row_version"] > state.last:
            raise StreamRefused(
                f"This stream has read {self.options.queue} up to row version {start['row_version']}, but the queue's last row version is "
                f"{state.last}: its table was truncated or restored. Start with a new checkpoint."
            )
        self._check_not_purged(start["row_version"], start.get("purged"), state)

    def _check_not_purged(self, above: int, known: int | None, state: QueueState) -> None:
        if self.options.fail_on_data_loss and state.purged is not None and state.purged != known and state.purged > above:
            raise StreamRefused(
                f"The queue {self.options.queue} was purged up to row version {state.purged}, but this stream has read it up to "
                f"{above} only. Messages in between may be lost. To continue with the remaining messages, set failOnDataLoss=false."
            )


class DrainReader(_QueueStream):
    """Move messages from the queue to a spool table. Only the owner in this stream's checkpoint can delete them there.

    latestOffset moves the messages, and an offset is a number of the spool. If a run stops after a move and before Spark
    logs the batch, the moved messages are part of the next batch.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Offset | None = None
        self._checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_initial": None, "_checked": True}

    def initialOffset(self) -> Offset:
        """Return an offset before the first spool number, with a new owner identifier."""
        if self._initial is None:
            self._initial = {"queue": self.describe().identity, "owner": str(uuid4()), "number": 0}
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the run to row versions that were assigned before it."""
        self._target = self.describe().last

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Move the next batch to the spool. If the spool has unread messages of this stream, they are the next batch."""
        check_offset(("queue", "owner", "number"), start)
        state = self.describe()
        self.check_same_queue(start, state.identity)
        self._check_no_consumers(state)
        upto = state.last if self._target is None else self._target
        wanted = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        spooled = self._spooled(start["owner"])
        if spooled > start["number"]:
            return {**start, "number": spooled}
        moved = 0
        while wanted is None or moved < wanted:
            count = MOVE_ROWS if wanted is None else min(MOVE_ROWS, wanted - moved)
            moved_now, spooled = self._move(start["owner"], count, upto)
            moved += moved_now
            if moved_now < count:
                break
        return {**start, "number": max(spooled, start["number"])}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Split the batch into ranges of spool numbers. Raises StreamRefused if the checkpoint belongs to another queue."""
        check_offset(("queue", "owner", "number"), end)
        self.check_same_queue(end, self.describe().identity)
        ranges = split(start["number"], end["number"], self.options.partitions)
        return [SpoolRange(each.above, each.upto, end["owner"]) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the messages of one range, the same at every attempt.

        Spark starts tasks only after it has logged the batch, so reading also confirms the owner of the spool.
        """
        if not isinstance(partition, SpoolRange):
            raise _not_ours(partition)
        with open_queue(self.options) as database:
            database.call("confirm_spool", self.options.queue, owner=partition.owner)
            yield from read_batches(database, "read_spool", self.options, self.schema, partition)

    def commit(self, end: Offset) -> None:
        """Delete the messages of committed batches from the spool."""
        self.database.call("drop_spool", self.options.queue, owner=end["owner"], upto=end["number"])

    def _move(self, owner: str, count: int, upto: int) -> tuple[int, int]:
        with self.database.transaction():
            take_over = self.options.take_over
            return self.database.call("move_to_spool", self.options.queue, owner=owner, count=count, upto=upto, take_over=take_over)[0]

    def _spooled(self, owner: str) -> int:
        """Return the highest number in the spool if this stream owns it; 0 if the spool is empty or has another owner."""
        found = self.database.call("describe_spool", self.options.queue)
        if not found or found[0][0] != owner:
            return 0
        return found[0][3] or 0

    def _check_no_consumers(self, state: QueueState) -> None:
        if self._checked or self.options.allow_consumers:
            return
        queue, handler = self.options.queue, declared_worker(self.options)
        if handler is not None or state.consumers:
            who = f"the environment declares a worker for it ({handler})" if handler else f"{state.consumers} workers receive from it now"
            raise StreamRefused(
                f"The queue {queue} is not drained: {who}, and a drain would take their messages. "
                "Drain only queues without consumers, such as audit and error. Otherwise use mode=tail, or set allowConsumers=true."
            )
        self._checked = True


def _not_ours(partition: InputPartition) -> TypeError:
    return TypeError(f"A {type(partition).__name__} is not a partition of this stream.")
