"""The two streams: `tail` reads a queue and leaves it as it is, `drain` takes its messages.

Offsets are JSON in Spark's checkpoint, and say whose they are: `{"queue": identity, ...}`. Spark calls latestOffset and
partitions in one process and read in others; commit for a batch comes when the next one is built, so that the last
batch of a run is committed by checkpoint.finalize, or by the next run.
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
from rowpost.spark.source.horizon import Horizon
from rowpost.spark.source.options import EARLIEST, LATEST, ReadOptions
from rowpost.spark.source.queue_stream import (
    QueueState,
    Range,
    StreamRefused,
    check_schema,
    declared_worker,
    describe,
    open_queue,
    read_batches,
    require,
    settle,
    split,
)

__all__ = ["DrainReader", "TailReader"]

MOVE = 4000  # messages a call: below SQL Server's threshold of lock escalation
Offset = dict[str, Any]


@dataclass(frozen=True)
class TailRange(Range):
    """A range, and what the queue was when it was planned."""

    queue: str
    purged: int | None


@dataclass(frozen=True)
class SpoolRange(Range):
    """A range of the spool, and whose it is."""

    owner: str


class _QueueStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What both modes share: the connection of the planner, which no task gets, and the end of a bounded run."""

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
        """Looks at the queue; a connection that broke meanwhile is opened again, once."""
        try:
            return describe(self.database, self.options.queue)
        except DatabaseUnavailable:
            self.stop()
            return describe(self.database, self.options.queue)

    def getDefaultReadLimit(self) -> ReadLimit:
        """As maxOffsetsPerTrigger says."""
        return ReadAllAvailable() if self.options.limit is None else ReadMaxRows(self.options.limit)

    def stop(self) -> None:
        """Closes the planner's connection."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def same_queue(self, offset: Offset, identity: str) -> None:
        """Raises StreamRefused where the checkpoint is of another queue than there is."""
        if offset["queue"] != identity:
            raise StreamRefused(
                f"This checkpoint belongs to the queue {offset['queue']}, and {self.options.queue} is {identity} now: "
                "another queue, or one that was dropped and made again, or a restored database. "
                "Start with a new checkpoint; startingOffsets says where."
            )


class TailReader(_QueueStream):
    """Reads on as messages come, all of them and none twice, although transactions commit out of order."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._horizon = Horizon()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_horizon": Horizon()}

    def initialOffset(self) -> Offset:
        """Where a stream without a checkpoint starts."""
        state = self.describe()
        starting = self.options.starting
        if starting == LATEST:
            starting = settle(self.database, self.options.queue, self.options.settle, self._horizon)
        return self._offset(state, 0 if starting == EARLIEST else int(starting))

    def prepareForTriggerAvailableNow(self) -> None:
        """The run ends with what was written before it; it waits for those who are still writing that, settleSeconds."""
        self._target = settle(self.database, self.options.queue, self.options.settle, self._horizon)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """How far the next batch goes: up to the horizon."""
        state = self.describe()
        self._refuse_loss(start, state)
        end = self._horizon.see(state.look)
        if self._target is not None:
            end = min(end, self._target)
        begin = start["row_version"]
        if end <= begin:
            return start
        if not isinstance(limit, ReadAllAvailable):
            # below the first one that can be seen nothing will appear, as far as the horizon goes
            empty_to = min(end, (end if state.first is None else state.first - 1))
            end = min(end, max(begin, empty_to) + limit.max_rows)
        return self._offset(state, end)

    def reportLatestOffset(self) -> Offset | None:
        """For the query's progress: how far row versions are drawn."""
        state = self.describe()
        return self._offset(state, state.last)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The batch by ranges; refuses a queue that is another one than the checkpoint's."""
        require(("queue", "row_version"), end)
        self.same_queue(end, self.describe().identity)
        ranges = split(start["row_version"], end["row_version"], self.options.partitions)
        return [TailRange(each.above, each.upto, end["queue"], end["purged"]) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range; afterwards, that they were still all there."""
        with open_queue(self.options) as database:
            yield from read_batches(database, "read_range", self.options, self.schema, partition)
            state = describe(database, self.options.queue)
        self.same_queue({"queue": partition.queue}, state.identity)
        self._refuse_purged(partition.above, partition.purged, state)

    def commit(self, end: Offset) -> None:
        """Nothing: the queue stays as it is."""

    def _offset(self, state: QueueState, row_version: int) -> Offset:
        return {"queue": state.identity, "row_version": row_version, "purged": state.purged}

    def _refuse_loss(self, start: Offset, state: QueueState) -> None:
        require(("queue", "row_version"), start)
        self.same_queue(start, state.identity)
        if start["row_version"] > state.last:
            raise StreamRefused(
                f"This stream has read {self.options.queue} up to row version {start['row_version']}, and the queue has come to "
                f"{state.last} only: its table was truncated or restored. Start with a new checkpoint."
            )
        self._refuse_purged(start["row_version"], start.get("purged"), state)

    def _refuse_purged(self, above: int, known: int | None, state: QueueState) -> None:
        if self.options.fail_on_data_loss and state.purged is not None and state.purged != known and state.purged > above:
            raise StreamRefused(
                f"The queue {self.options.queue} was purged up to row version {state.purged}, and this stream had read it up to "
                f"{above}: what was in between it may never see. To go on with what is left: failOnDataLoss=false."
            )


class DrainReader(_QueueStream):
    """Takes messages out of the queue, into a spool that only this stream's checkpoint can empty.

    Moving them is part of latestOffset: an offset is a number of the spool. What was moved and not logged lies there,
    and is in the next batch.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Offset | None = None
        self._checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_initial": None, "_checked": True}

    def initialOffset(self) -> Offset:
        """A new owner of the spool; the first number of a spool is above 0."""
        if self._initial is None:
            self._initial = {"queue": self.describe().identity, "owner": str(uuid4()), "number": 0}
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """The run ends with what was drawn before it."""
        self._target = self.describe().last

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Moves the next batch into the spool; what lies there already is the next batch."""
        require(("queue", "owner", "number"), start)
        state = self.describe()
        self.same_queue(start, state.identity)
        self._refuse_consumers(state)
        upto = state.last if self._target is None else self._target
        # the first move, of none or few, claims the spool and says what lies in it
        wanted = None if isinstance(limit, ReadAllAvailable) else limit.max_rows
        spooled = self._spooled(start["owner"])
        if spooled > start["number"]:
            return {**start, "number": spooled}
        moved = 0
        while wanted is None or moved < wanted:
            count = MOVE if wanted is None else min(MOVE, wanted - moved)
            now, spooled = self._move(start["owner"], count, upto)
            moved += now
            if now < count:
                break
        return {**start, "number": max(spooled, start["number"])}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The batch by ranges of numbers."""
        require(("queue", "owner", "number"), end)
        self.same_queue(end, self.describe().identity)
        ranges = split(start["number"], end["number"], self.options.partitions)
        return [SpoolRange(each.above, each.upto, end["owner"]) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one range, the same at every attempt. That a task reads them says that the batch was logged."""
        with open_queue(self.options) as database:
            database.call("confirm_spool", self.options.queue, owner=partition.owner)
            yield from read_batches(database, "read_spool", self.options, self.schema, partition)

    def commit(self, end: Offset) -> None:
        """Deletes what the stream has stored for good."""
        self.database.call("drop_spool", self.options.queue, owner=end["owner"], upto=end["number"])

    def _move(self, owner: str, count: int, upto: int) -> tuple[int, int]:
        with self.database.transaction():
            arguments = {"owner": owner, "count": count, "upto": upto, "take_over": self.options.take_over}
            return self.database.call("move_to_spool", self.options.queue, **arguments)[0]

    def _spooled(self, owner: str) -> int:
        """The highest number that lies in the spool, when it is this stream's; 0 when it is empty or nobody's."""
        found = self.database.call("describe_spool", self.options.queue)
        if not found or found[0][0] != owner:
            return 0
        return found[0][3] or 0

    def _refuse_consumers(self, state: QueueState) -> None:
        if self._checked or self.options.allow_consumers:
            return
        queue, handler = self.options.queue, declared_worker(self.options)
        if handler is not None or state.consumers:
            who = f"the environment declares a worker for it ({handler})" if handler else f"{state.consumers} workers receive from it now"
            raise StreamRefused(
                f"The queue {queue} is not drained: {who}, and every message goes to one of them or to this stream. "
                "Drain queues that nobody else reads, such as audit and error, use mode=tail, or say allowConsumers=true."
            )
        self._checked = True
