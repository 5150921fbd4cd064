"""The streams of a queue, batch by batch: what they share, and the tail. `drain.Drain` removes the messages from the
queue.

    start = stream.initial()                         # or the stored one
    end = stream.plan(start, Bounds(1000))
    batches = [batch for part in stream.parts(start, end) for batch in stream.read(part)]
    stream.commit(end)                               # when the messages are stored

Offsets are JSON and contain the queue's identity. Spark plans in one process, and reads in others. Each call may be
repeated: after a lost connection, it runs again as a whole.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeVar

import pyarrow as pa

from rowpost.archive.identity import Offset
from rowpost.archive.source.connection import PatientConnection, Say, naming_what_is_gone, say
from rowpost.archive.source.cuts import Bounds, Range, Sampled, divide, split
from rowpost.archive.source.options import LATEST, ReadOptions
from rowpost.archive.source.queue_stream import (
    StreamRefused,
    StreamState,
    backlog,
    check_readable,
    describe,
    holders,
    wait_for_watermark,
)
from rowpost.archive.source.reading import read_whole_range
from rowpost.archive.source.watermark import Notes, Watermark
from rowpost.database.connection import Connection

__all__ = ["BatchPart", "QueueStream", "Tail", "check_offset"]

LAG_INTERVAL_S = 5.0
Connect = Callable[[ReadOptions, Say], PatientConnection]
Result = TypeVar("Result")


@dataclass(frozen=True)
class BatchPart(Range):
    """A part of a batch of a queue.

    The batch ends at `end`. `first` tells whether it is the first part of its batch.
    """

    queue: str
    end: Offset
    first: bool


class QueueStream:
    """What both modes share. `connect` makes the connections: another one may end a wait for the server."""

    #: The keys that each offset has.
    keys: ClassVar[tuple[str, ...]]

    def __init__(
        self,
        options: ReadOptions,
        schema: pa.Schema,
        connect: Connect = PatientConnection,
        connection: PatientConnection | None = None,
    ) -> None:
        self.options, self.schema, self._connect = options, schema, connect
        self.connection = connection or connect(options, say)
        self._target: int | None = None  # of a run that ends: the last row version that it may read
        self._planned = 0  # the end of the last planned batch
        self._lag: tuple[int, float, dict[str, object]] | None = None

    def ask(self, action: Callable[[Connection], Result], connection: PatientConnection | None = None) -> Result:
        """Run an action as PatientConnection.run does, by default on the planner's connection.

        Raises QueueNotFound if the queue is gone.
        """

        def named(database: Connection) -> Result:
            with naming_what_is_gone(database, self.options.queue):
                return action(database)

        return (connection or self.connection).run(named)

    def describe(self) -> StreamState:
        """Poll the queue."""
        return self.ask(lambda database: describe(database, self.options.queue))

    def divide(self, start: Offset, end: Offset) -> Sequence[Range]:
        """Divide a batch into ranges."""
        raise NotImplementedError

    def read_part(self, connection: PatientConnection, part: BatchPart) -> Iterator[pa.RecordBatch]:
        """Read the messages of one part."""
        raise NotImplementedError

    def measure_lag(self, database: Connection) -> dict[str, object]:
        """Return lag_messages, lag_seconds and what else the mode knows."""
        raise NotImplementedError

    def parts(self, start: Offset, end: Offset) -> Sequence[BatchPart]:
        """Split a batch into parts. Raises StreamRefused if the checkpoint belongs to another queue."""
        check_offset(self.keys, end)
        self.check_same_queue(end, self.describe())
        ranges = self.divide(start, end)
        return [BatchPart(each.above, each.upto, self.options.queue, end, each is ranges[0]) for each in ranges]

    def read(self, part: BatchPart) -> Iterator[pa.RecordBatch]:
        """Read one part, the same at each attempt. Only the task of the first one says that it waits for the server."""
        with closing(self._connect(self.options, say if part.first else lambda text: None)) as connection:
            yield from self.read_part(connection, part)

    def report(self) -> Offset:
        """Return how far the stream is behind, for the query's progress.

        Measures again after a new plan, and otherwise every five seconds.
        """
        if self._lag is None or self._lag[0] != self._planned or time.monotonic() >= self._lag[1]:
            self._lag = self._planned, time.monotonic() + LAG_INTERVAL_S, self.ask(self.measure_lag)
        return self._lag[2]

    def stop(self) -> None:
        """Close the planner's connection."""
        self.connection.close()

    def confirmed(self, identity: str) -> Offset | None:
        """Return the offset at which a stream without a checkpoint continues.

        Raises StreamRefused if it is of the other mode.
        """
        known: Offset | None = json.loads(self.options.confirmed).get(identity)
        if known is None or set(self.keys) <= known.keys():
            return known
        queue, other = self.options.queue, "a drain" if "owner" in known else "a tail"
        raise StreamRefused(
            f"The messages of {queue} were archived in this place by {other}, and mode={self.options.mode} would "
            f"archive some of them again. Continue with {other}, or archive the queue to another folder."
        )

    def check_same_queue(self, offset: Offset, state: StreamState) -> None:
        """Raise StreamRefused if the checkpoint belongs to another queue, or this server is a standby: each task may
        reach another one.
        """
        state.check_primary()
        if offset["queue"] != state.identity:
            raise StreamRefused(
                f"This checkpoint belongs to the queue {offset['queue']}, but {self.options.queue} is {state.identity} "
                "now. It is another queue, or the queue was dropped and created again, or the database was restored. "
                "Start with a new checkpoint, `rowpost archive` with --recreated. The option startingOffsets sets the "
                "start."
            )


class Tail(QueueStream):
    """Read each message exactly once as it arrives, although transactions commit out of order.

    An offset has `polls` for a later run.
    """

    keys = ("queue", "row_version")
    _restored = False
    _last: int | None = None  # of a run that ends: the last row version that was assigned before it
    _notes: Notes = ()

    @cached_property
    def _watermark(self) -> Watermark:
        return Watermark()

    def initial(self, *, joined: bool = False) -> Offset:
        """Return where a stream without a checkpoint continues, or startingOffsets, or the start of a queue that joined
        later.
        """
        state = self.describe()
        if (known := self.confirmed(state.identity)) is not None:
            return known
        starting = 0 if joined else self.options.starting
        if not isinstance(starting, int):
            starting = self._wait_for_watermark() if starting == LATEST else 0
        return self._offset(state, starting)

    def estimate(self, start: Offset) -> int:
        """Return about how many messages there are to read."""
        state = self.describe()
        return state.last - max(int(start["row_version"]), state.last if state.first is None else state.first - 1)

    def end_at_present(self) -> None:
        """Limit the run to the messages written before it."""
        self._last = self.describe().last

    def plan(self, start: Offset, bounds: Bounds) -> Offset:
        """Return the end of the next batch: the watermark, or less if the batch is bounded."""
        state = self.describe()
        self._check_no_loss(start, state)
        if not self._restored:
            self.ask(lambda database: check_readable(database, self.options.queue))
            self._watermark.restore(start["row_version"], start.get("polls", ()))
            self._restored = True
        if self._last is not None and self._target is None:
            self._target = self._wait_for_watermark()
            self._notes = self._watermark.notes() if self._target < self._last else ()
        end = self._watermark.advance(state.poll)
        if self._target is None:
            self._notes = self._watermark.notes()
        else:
            end = min(end, self._target)
        begin = self._planned = start["row_version"]
        if end <= begin:
            # a run that ends keeps what it has learnt in an empty batch; another stream keeps it in its next batch
            return start if self._target is None else self._noted(start)
        if bounds.may_end(end - begin):
            end = self.ask(lambda database: bounds.end(database, self.options.queue, begin, end))
        self._planned = end
        return self._offset(state, end)

    def report(self) -> Offset:
        """Return the last assigned row version, how far the stream is behind it, and who holds it back, for the query's
        progress.
        """
        state = self.describe()
        return {"queue": state.identity, "row_version": state.last, "purged": state.purged, **super().report()}

    def measure_lag(self, database: Connection) -> dict[str, object]:
        """Measure what is above the last planned row version."""
        found = holders(database, self.options.queue, self._notes) if self._notes else ()
        return {**backlog(database, self.options.queue, self._planned), "held_by": list(found)}

    def divide(self, start: Offset, end: Offset) -> Sequence[Range]:
        """Divide a batch evenly, or by a sample of its messages if most of its row versions are a gap."""
        above, upto, limit = start["row_version"], end["row_version"], self.options.max_rows
        if upto - above <= 2 * limit if limit is not None else self.options.max_bytes is None:
            return split(above, upto, self.options.parts(upto - above))
        rows = self.ask(lambda database: database.call("sample_range", self.options.queue, above=above, upto=upto))
        return divide(above, upto, self.options.partitions, [Sampled(*row) for row in rows], self.options.part_rows)

    def read_part(self, connection: PatientConnection, part: BatchPart) -> Iterator[pa.RecordBatch]:
        """Read the messages of one range, then check that no purge removed some of them meanwhile."""
        yield from read_whole_range(connection, self.options, self.schema, part)
        state = connection.run(lambda database: describe(database, self.options.queue))
        self.check_same_queue(part.end, state)
        self._check_not_purged(part.above, part.end["purged"], state)

    def commit(self, end: Offset) -> int:
        """Do nothing: a tail does not change the queue. Returns 0."""
        return 0

    def _offset(self, state: StreamState, row_version: int) -> Offset:
        return self._noted({"queue": state.identity, "row_version": row_version, "purged": state.purged})

    def _noted(self, offset: Offset) -> Offset:
        kept = {key: value for key, value in offset.items() if key != "polls"}
        return {**kept, "polls": [list(note) for note in self._notes]} if self._notes else kept

    def _wait_for_watermark(self) -> int:
        timeout_s = self.options.watermark_timeout_s
        return self.ask(lambda database: wait_for_watermark(database, self.options.queue, timeout_s, self._watermark))

    def _check_no_loss(self, start: Offset, state: StreamState) -> None:
        check_offset(self.keys, start)
        self.check_same_queue(start, state)
        if start["row_version"] > state.last:
            raise StreamRefused(
                f"This stream has read {self.options.queue} up to row version {start['row_version']}, but the queue's "
                f"last row version is {state.last}: its table was truncated or restored. Start with a new checkpoint, "
                "and an archive in a new folder."
            )
        self._check_not_purged(start["row_version"], start.get("purged"), state)

    def _check_not_purged(self, above: int, known: int | None, state: StreamState) -> None:
        purged = state.purged
        if self.options.fail_on_data_loss and purged is not None and purged != known and purged > above:
            raise StreamRefused(
                f"The queue {self.options.queue} was purged up to row version {purged}, but this stream has read "
                f"it up to {above} only. Messages in between may be lost. To continue with the remaining messages, set "
                "failOnDataLoss=false (--accept-loss)."
            )


def check_offset(names: Sequence[str], offset: Offset) -> None:
    """Raise StreamRefused if an offset lacks one of the keys that this mode writes."""
    if not set(names) <= offset.keys():
        raise StreamRefused(
            f"The stream cannot use the checkpoint's offset {offset}: it needs {', '.join(names)}. The checkpoint "
            "belongs to another source, or to another mode (tail or drain). Use a separate checkpoint for each."
        )
