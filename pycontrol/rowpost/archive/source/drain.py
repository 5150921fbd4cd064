"""The stream that removes messages from a queue: a drain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa

from rowpost.archive.source.backlog import measure
from rowpost.archive.source.bounds import Bounds
from rowpost.archive.source.gone import naming_what_is_gone
from rowpost.archive.source.options import ReadOptions
from rowpost.archive.source.queue_stream import (
    QueueState,
    StreamRefused,
    check_offset,
    declared_worker,
    split,
)
from rowpost.archive.source.reread import read_spool_range
from rowpost.archive.source.streams import Offset, QueueStream, StreamRange
from rowpost.database.connection import Connection

__all__ = ["Drain"]

_OFFSET = ("queue", "owner", "number")
MOVE_ROWS = 4000  # messages in one call: fewer than SQL Server's threshold of lock escalation


@dataclass(frozen=True)
class SpoolRange(StreamRange):
    """A range of spool numbers, with the owner of the spool."""

    owner: str


class Drain(QueueStream):
    """Move messages from the queue to a spool table. Only the owner in this stream's checkpoint can delete them there.

    `plan` moves the messages, and an offset is a number of the spool. If a run stops after a move and before the batch is
    logged, the moved messages are part of the next batch.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._initial: Offset | None = None
        self._checked = False
        self._planned = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_initial": None, "_checked": True}

    def initial(self) -> Offset:
        """Return an offset before the first spool number, with a new owner identifier, unless the stream continues."""
        if self._initial is None:
            identity = self.describe().identity
            self._initial = self.confirmed(identity, _OFFSET) or {"queue": identity, "owner": str(uuid4()), "number": 0}
        return self._initial

    def estimate(self, start: Offset) -> int:
        """Return about how many messages there are to move."""
        state = self.describe()
        return 0 if state.first is None else state.last - state.first + 1

    def end_at_present(self) -> None:
        """Limit the run to row versions that were assigned before it."""
        self._target = self.describe().last

    def plan(self, start: Offset, bounds: Bounds) -> Offset:
        """Move the next batch to the spool. If the spool has unread messages of this stream, they are the next batch."""
        check_offset(_OFFSET, start)
        state = self.describe()
        self.check_same_queue(start, state)
        self._check_no_consumers(state)
        upto = state.last if self._target is None else self._target
        self._planned = self.ask(lambda database: self._fill_spool(database, start, bounds, upto))
        return {**start, "number": self._planned}

    def report(self) -> Offset | None:
        """Return how many messages are still in the queue and in the spool, for the query's progress."""
        return self.lag(self._planned)

    def measure_lag(self, database: Connection, position: int) -> dict[str, object]:
        """Measure what is in the queue, and count the messages in the spool."""
        row = next(iter(database.call("describe_spool", self.options.queue)), None)
        spooled = 0 if row is None or row.first_number is None else row.last_number - row.first_number + 1
        return {**measure(database, self.options.queue, 0).as_json(), "spooled": spooled}

    def parts(self, start: Offset, end: Offset) -> Sequence[SpoolRange]:
        """Split the batch into ranges of spool numbers. Raises StreamRefused if the checkpoint belongs to another queue."""
        check_offset(_OFFSET, end)
        self.check_same_queue(end, self.describe())
        ranges = split(start["number"], end["number"], self.options.parts(end["number"] - start["number"]))
        return [SpoolRange(each.above, each.upto, each is ranges[0], end["owner"]) for each in ranges]

    def read(self, part: SpoolRange) -> Iterator[pa.RecordBatch]:
        """Read the messages of one range, the same at every attempt.

        Reading also confirms the owner of the spool: what is read has an owner who can continue, in a log of Spark or in an archive.
        """
        with self.task_connection(part) as connection:
            connection.run(lambda database: self._confirm(database, part.owner))
            yield from read_spool_range(connection, self.options, self.schema, part)

    def commit(self, end: Offset) -> int:
        """Delete the messages of committed batches from the spool, and return their number."""
        return self.ask(lambda database: database.call("drop_spool", self.options.queue, owner=end["owner"], upto=end["number"]))[0].dropped

    def drop_confirmed(self, end: Offset) -> int:
        """Delete what a killed run could not delete after it had stored it, if the spool has an owner and this is its stream."""
        found = next(iter(self.ask(lambda database: database.call("describe_spool", self.options.queue))), None)
        if found is None or found.owned_by != end["owner"] or found.first_number is None or found.first_number > end["number"]:
            return 0
        return self.commit(end)

    def _confirm(self, database: Connection, owner: str) -> None:
        with naming_what_is_gone(database, self.options.queue):
            database.call("confirm_spool", self.options.queue, owner=owner)

    def _fill_spool(self, database: Connection, start: Offset, bounds: Bounds, upto: int) -> int:
        """Move the messages of one batch, and return its last number.

        If the server stops before it has confirmed a move, the repeated call finds the moved messages in the spool.
        """
        spooled = self._spooled(database, start["owner"])
        if spooled > start["number"]:
            return spooled
        above = 0
        while True:
            above = upto if bounds.bytes is None else bounds.end(database, self.options.queue, above, upto)
            moved, spooled = self._move_all(database, start["owner"], bounds.messages, above)
            if moved or above >= upto:  # otherwise consumers have locked all messages up to there
                return max(spooled, start["number"])

    def _move_all(self, database: Connection, owner: str, wanted: int | None, upto: int) -> tuple[int, int]:
        """Move up to `wanted` messages. Returns how many were moved, and the last number of the spool."""
        moved = spooled = 0
        while wanted is None or moved < wanted:
            count = MOVE_ROWS if wanted is None else min(MOVE_ROWS, wanted - moved)
            moved_now, spooled = self._move(database, owner, count, upto)
            moved += moved_now
            if moved_now < count:
                break
        return moved, spooled

    def _move(self, database: Connection, owner: str, count: int, upto: int) -> tuple[int, int]:
        with database.transaction():
            take_over = self.options.take_over
            return database.call("move_to_spool", self.options.queue, owner=owner, count=count, upto=upto, take_over=take_over)[0]

    def _spooled(self, database: Connection, owner: str) -> int:
        """Return the highest number in the spool if this stream owns it; 0 if the spool is empty or has another owner."""
        found = database.call("describe_spool", self.options.queue)
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
                "Drain only queues without consumers, such as audit and error. Otherwise use mode=tail, or set allowConsumers=true (--shared)."
            )
        self._checked = True
