"""The streams of a queue, batch by batch: what they share, and the tail.

`Tail` reads a queue without changing it. `drain.Drain` removes the messages from the queue. An archiver, or Spark, stores the offsets:

    start = stream.initial()                         # or the stored one
    end = stream.plan(start, Bounds(1000))
    batches = [batch for part in stream.parts(start, end) for batch in stream.read(part)]
    stream.commit(end)                               # when the messages are stored

Offsets are JSON and contain the queue's identity: `{"queue": identity, …}`. Spark plans in one process, and reads in others.

Each call may be repeated: after a lost connection, it runs again as a whole.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow as pa

from rowpost.archive.source.backlog import measure
from rowpost.archive.source.bounds import Bounds
from rowpost.archive.source.cuts import Sampled, divide
from rowpost.archive.source.gone import naming_what_is_gone
from rowpost.archive.source.held import holders
from rowpost.archive.source.options import LATEST, ReadOptions
from rowpost.archive.source.queue_stream import (
    QueueState,
    Range,
    StreamRefused,
    check_offset,
    describe,
    split,
    wait_for_watermark,
)
from rowpost.archive.source.reconnect import PatientConnection, Say, say, say_nothing
from rowpost.archive.source.reread import read_queue_range
from rowpost.archive.source.watermark import Notes, Watermark
from rowpost.database.connection import Connection

__all__ = ["Offset", "QueueStream", "StreamRange", "Tail", "TailRange"]

LAG_INTERVAL_S = 5.0
_OFFSET = ("queue", "row_version")
Offset = dict[str, Any]
Result = TypeVar("Result")


@dataclass(frozen=True)
class StreamRange(Range):
    """A part of a stream's batch. `first` is set in one part of each batch."""

    first: bool


@dataclass(frozen=True)
class TailRange(StreamRange):
    """A range of row versions, with the queue's identity and last purge at planning time."""

    queue: str
    purged: int | None


class QueueStream:
    """State that both modes share. The planner's connection is not pickled, so that no task of Spark receives it.

    `connect` makes the connections of this stream: another one may end a wait for the server.
    """

    connect: Callable[[ReadOptions, Say], PatientConnection] = PatientConnection

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        self.options, self.schema = options, schema
        self._connection: PatientConnection | None = None
        self._target: int | None = None
        self._lag: tuple[int, float, dict[str, object]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "schema": self.schema, "_connection": None, "_target": None, "_lag": None}

    @property
    def connection(self) -> PatientConnection:
        """The planner's connection, which outlives restarts of the server."""
        if self._connection is None:
            self._connection = self.connect(self.options, say)
        return self._connection

    def share(self, connection: PatientConnection) -> None:
        """Use the planner's connection of a stream that reads several queues."""
        self._connection = connection

    def ask(self, action: Callable[[Connection], Result]) -> Result:
        """Run an action on the planner's connection, as PatientConnection.run does. Raises QueueNotFound if the queue is gone."""

        def named(database: Connection) -> Result:
            with naming_what_is_gone(database, self.options.queue):
                return action(database)

        return self.connection.run(named)

    def describe(self) -> QueueState:
        """Poll the queue."""
        return self.ask(lambda database: describe(database, self.options.queue))

    @contextmanager
    def task_connection(self, part: StreamRange) -> Iterator[PatientConnection]:
        """Connect for one task. Only the task of a batch's first range says that it waits: the others would repeat it."""
        connection = self.connect(self.options, say if part.first else say_nothing)
        try:
            yield connection
        finally:
            connection.close()

    def lag(self, position: int) -> dict[str, object]:
        """Return how far the stream is behind. Measures again if the position has changed, and otherwise every five seconds."""
        if self._lag is None or self._lag[0] != position or time.monotonic() >= self._lag[1]:
            found = self.ask(lambda database: self.measure_lag(database, position))
            self._lag = (position, time.monotonic() + LAG_INTERVAL_S, found)
        return self._lag[2]

    def measure_lag(self, database: Connection, position: int) -> dict[str, object]:
        """Return lag_messages, lag_seconds and what else the mode knows."""
        raise NotImplementedError

    def plan(self, start: Offset, bounds: Bounds) -> Offset:
        """Return the end of the next batch, which does not exceed the bounds."""
        raise NotImplementedError

    def stop(self) -> None:
        """Close the planner's connection."""
        if self._connection is not None:
            self._connection.close()

    def confirmed(self, identity: str, keys: Sequence[str]) -> Offset | None:
        """Return the offset at which a stream without a checkpoint continues. Raises StreamRefused if it is of the other mode."""
        known = json.loads(self.options.confirmed).get(identity)
        if known is None or set(keys) <= known.keys():
            return known
        queue, other = self.options.queue, "a drain" if "owner" in known else "a tail"
        raise StreamRefused(
            f"The messages of {queue} were archived in this place by {other}, and mode={self.options.mode} would archive some of them again. "
            f"Continue with {other}, or archive the queue to another folder."
        )

    def check_same_queue(self, offset: Offset, state: QueueState) -> None:
        """Raise StreamRefused if the checkpoint belongs to another queue, or this server is a standby: each task may reach another one."""
        state.check_primary()
        if offset["queue"] != state.identity:
            raise StreamRefused(
                f"This checkpoint belongs to the queue {offset['queue']}, but {self.options.queue} is {state.identity} now. "
                "It is another queue, or the queue was dropped and created again, or the database was restored. "
                "Start with a new checkpoint, `rowpost archive` with --recreated. The option startingOffsets sets the start."
            )


class Tail(QueueStream):
    """Read each message exactly once as it arrives, although transactions commit out of order.

    An offset also has the polls that may still help (`polls`), so that a later run continues with them.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._start_planning()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), **dict.fromkeys(("_watermark", "_restored", "_last", "_notes", "_end"))}

    def _start_planning(self) -> None:
        self._watermark = Watermark()
        self._restored = False
        self._last: int | None = None  # of a run that ends: the last row version that was assigned before it
        self._notes: Notes = []
        self._end = 0  # of the last planned batch

    def initial(self) -> Offset:
        """Return the start of a stream without a checkpoint, from the option startingOffsets."""
        state = self.describe()
        if (known := self.confirmed(state.identity, _OFFSET)) is not None:
            return known
        starting = self.options.starting
        if not isinstance(starting, int):
            starting = self._wait_for_watermark() if starting == LATEST else 0
        return self._offset(state, starting)

    def beginning(self) -> Offset:
        """Return the start of a queue that was not in the stream before: its first message, unless it continues."""
        state = self.describe()
        return self.confirmed(state.identity, _OFFSET) or self._offset(state, 0)

    def estimate(self, start: Offset) -> int:
        """Return about how many messages there are to read."""
        state = self.describe()
        return state.last - max(start["row_version"], state.last if state.first is None else state.first - 1)

    def end_at_present(self) -> None:
        """Limit the run to the messages written before it."""
        self._last = self.describe().last

    def plan(self, start: Offset, bounds: Bounds) -> Offset:
        """Return the end of the next batch: the watermark, or less if the batch is bounded."""
        state = self.describe()
        self._check_no_loss(start, state)
        if not self._restored:
            self._watermark.restore(start["row_version"], start.get("polls", ()))
            self._restored = True
        if self._last is not None and self._target is None:
            self._target = self._wait_for_watermark()
            self._notes = self._watermark.notes() if self._target < self._last else []
        end = self._watermark.advance(state.poll)
        if self._target is None:
            self._notes = self._watermark.notes()
        else:
            end = min(end, self._target)
        begin = self._end = start["row_version"]
        if end <= begin:
            # a run that ends keeps what it has learnt in an empty batch; another stream keeps it in its next batch
            return start if self._target is None else self._noted(start)
        if bounds.may_end(end - begin):
            end = self.ask(lambda database: bounds.end(database, self.options.queue, begin, end))
        self._end = end
        return self._offset(state, end)

    def report(self) -> Offset | None:
        """Return the last assigned row version, how far the stream is behind it, and who holds it back, for the query's progress."""
        state = self.describe()
        return {"queue": state.identity, "row_version": state.last, "purged": state.purged, **self.lag(self._end)}

    def measure_lag(self, database: Connection, position: int) -> dict[str, object]:
        """Measure what is above the last planned row version."""
        found: dict[str, object] = {**measure(database, self.options.queue, position).as_json(), "held_by": []}
        if self._notes:
            found["held_by"] = [each.as_json() for each in holders(database, self.options.queue, self._notes)]
        return found

    def parts(self, start: Offset, end: Offset) -> Sequence[TailRange]:
        """Split the batch into ranges. Raises StreamRefused if the checkpoint belongs to another queue."""
        check_offset(_OFFSET, end)
        self.check_same_queue(end, self.describe())
        ranges = self._divided(start["row_version"], end["row_version"])
        return [TailRange(each.above, each.upto, each is ranges[0], end["queue"], end["purged"]) for each in ranges]

    def read(self, part: TailRange) -> Iterator[pa.RecordBatch]:
        """Read the messages of one range, then check that no purge removed some of them meanwhile."""
        with self.task_connection(part) as connection:
            yield from read_queue_range(connection, self.options, self.schema, part)
            state = connection.run(lambda database: describe(database, self.options.queue))
        self.check_same_queue({"queue": part.queue}, state)
        self._check_not_purged(part.above, part.purged, state)

    def commit(self, end: Offset) -> int:
        """Do nothing: a tail does not change the queue. Returns 0."""
        return 0

    def _divided(self, above: int, upto: int) -> list[Range]:
        """Divide a batch evenly, or by a sample of its messages if most of its row versions are a gap."""
        width, limit = upto - above, self.options.max_rows
        if width <= 2 * limit if limit is not None else self.options.max_bytes is None:
            return split(above, upto, self.options.parts(width))
        rows = self.ask(lambda database: database.call("sample_range", self.options.queue, above=above, upto=upto))
        return divide(above, upto, self.options.partitions, [Sampled(*row) for row in rows], self.options.part_rows)

    def _offset(self, state: QueueState, row_version: int) -> Offset:
        return self._noted({"queue": state.identity, "row_version": row_version, "purged": state.purged})

    def _noted(self, offset: Offset) -> Offset:
        kept = {key: value for key, value in offset.items() if key != "polls"}
        return {**kept, "polls": [list(note) for note in self._notes]} if self._notes else kept

    def _wait_for_watermark(self) -> int:
        timeout_s = self.options.watermark_timeout_s
        return self.ask(lambda database: wait_for_watermark(database, self.options.queue, timeout_s, self._watermark))

    def _check_no_loss(self, start: Offset, state: QueueState) -> None:
        check_offset(_OFFSET, start)
        self.check_same_queue(start, state)
        if start["row_version"] > state.last:
            raise StreamRefused(
                f"This stream has read {self.options.queue} up to row version {start['row_version']}, but the queue's last row version is "
                f"{state.last}: its table was truncated or restored. Start with a new checkpoint, and an archive in a new folder."
            )
        self._check_not_purged(start["row_version"], start.get("purged"), state)

    def _check_not_purged(self, above: int, known: int | None, state: QueueState) -> None:
        if self.options.fail_on_data_loss and state.purged is not None and state.purged != known and state.purged > above:
            raise StreamRefused(
                f"The queue {self.options.queue} was purged up to row version {state.purged}, but this stream has read it up to "
                f"{above} only. Messages in between may be lost. To continue with the remaining messages, set failOnDataLoss=false (--accept-loss)."
            )
