"""The stream that removes messages from a queue: a drain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa

from rowpost.archive.identity import Offset
from rowpost.archive.source.connection import PatientConnection
from rowpost.archive.source.cuts import Bounds, Range, split
from rowpost.archive.source.queue_stream import StreamRefused, StreamState, backlog
from rowpost.archive.source.reading import read_whole_range
from rowpost.archive.source.streams import BatchPart, QueueStream, check_offset
from rowpost.database.connection import Connection
from rowpost.settings.environment import load_settings

__all__ = ["Drain", "spooled"]

MOVE_ROWS = 4000  # messages in one call: fewer than SQL Server's threshold of lock escalation


def describe_spool(database: Connection, queue: str) -> Any:
    """Return the spool's owner and numbers; None if nobody owns it."""
    return next(iter(database.call("describe_spool", queue)), None)


def spooled(database: Connection, queue: str) -> int:
    """Count the spooled messages: those of the batch that a drain is writing, or was writing when it was killed."""
    spool = describe_spool(database, queue)
    return 0 if spool is None or spool.first_number is None else spool.last_number - spool.first_number + 1


class Drain(QueueStream):
    """Move messages from the queue to a spool table. Only the owner in this stream's checkpoint can delete them there.

    An offset is a number of the spool. What was moved before a run stopped, and is in no batch, is in the next one.
    """

    keys = ("queue", "owner", "number")
    _initial: Offset | None = None
    _checked = False

    def initial(self, *, joined: bool = False) -> Offset:
        """Return an offset before the first spool number, with a new owner identifier, unless the stream continues."""
        if self._initial is None:
            identity = self.describe().identity
            self._initial = self.confirmed(identity) or {"queue": identity, "owner": str(uuid4()), "number": 0}
        return self._initial

    def estimate(self, start: Offset) -> int:
        """Return about how many messages there are to move."""
        state = self.describe()
        return 0 if state.first is None else state.last - state.first + 1

    def end_at_present(self) -> None:
        """Limit the run to row versions that were assigned before it."""
        self._target = self.describe().last

    def plan(self, start: Offset, bounds: Bounds) -> Offset:
        """Move the next batch to the spool.

        If the spool has unread messages of this stream, they are the next batch.
        """
        check_offset(self.keys, start)
        state = self.describe()
        self.check_same_queue(start, state)
        self._check_no_consumers(state)
        upto = state.last if self._target is None else self._target
        self._planned = self.ask(lambda database: self._fill_spool(database, start, bounds, upto))
        return {**start, "number": self._planned}

    def measure_lag(self, database: Connection) -> dict[str, object]:
        """Measure what is in the queue, and count the messages in the spool."""
        return {**backlog(database, self.options.queue, 0), "spooled": spooled(database, self.options.queue)}

    def divide(self, start: Offset, end: Offset) -> Sequence[Range]:
        """Divide a batch into ranges of spool numbers."""
        return split(start["number"], end["number"], self.options.parts(end["number"] - start["number"]))

    def read_part(self, connection: PatientConnection, part: BatchPart) -> Iterator[pa.RecordBatch]:
        """Confirm the owner of the spool, and read: what is read has an owner who can continue, in a log of Spark or in
        an archive.
        """
        self.ask(
            lambda database: database.call("confirm_spool", self.options.queue, owner=part.end["owner"]), connection
        )
        yield from read_whole_range(connection, self.options, self.schema, part, of_spool=True)

    def commit(self, end: Offset) -> int:
        """Delete the messages of committed batches from the spool, and return their number."""
        owner, upto = end["owner"], end["number"]
        rows = self.ask(lambda database: database.call("drop_spool", self.options.queue, owner=owner, upto=upto))
        return int(rows[0].dropped)

    def drop_confirmed(self, end: Offset) -> int:
        """Delete what a killed run could not delete after it had stored it, if the spool has an owner and this is its
        stream.
        """
        spool = self.ask(lambda database: describe_spool(database, self.options.queue))
        if spool is None or spool.owned_by != end["owner"] or spool.first_number is None:
            return 0
        return self.commit(end) if spool.first_number <= end["number"] else 0

    def _fill_spool(self, database: Connection, start: Offset, bounds: Bounds, upto: int) -> int:
        """Move the messages of one batch, and return its last number.

        A call that is repeated after an outage finds them in the spool.
        """
        spool = describe_spool(database, self.options.queue)
        if spool is not None and spool.owned_by == start["owner"] and (spool.last_number or 0) > start["number"]:
            return int(spool.last_number)
        above = 0
        while True:
            above = upto if bounds.bytes is None else bounds.end(database, self.options.queue, above, upto)
            moved, last = self._move_all(database, start["owner"], bounds.messages, above)
            if moved or above >= upto:  # otherwise consumers have locked all messages up to there
                return max(last, int(start["number"]))

    def _move_all(self, database: Connection, owner: str, wanted: int | None, upto: int) -> tuple[int, int]:
        """Move up to `wanted` messages. Returns how many were moved, and the last number of the spool."""
        moved = last = 0
        while wanted is None or moved < wanted:
            count = MOVE_ROWS if wanted is None else min(MOVE_ROWS, wanted - moved)
            chosen: dict[str, Any] = {"owner": owner, "count": count, "upto": upto, "take_over": self.options.take_over}
            with database.transaction():
                moved_now, last = database.call("move_to_spool", self.options.queue, **chosen)[0]
            moved += moved_now
            if moved_now < count:
                break
        return moved, last

    def _check_no_consumers(self, state: StreamState) -> None:
        if self._checked or self.options.allow_consumers:
            return
        queue = self.options.queue
        declared = load_settings(self.options.environment).queue(queue)
        handler = declared.worker.handler if declared is not None and declared.worker is not None else None
        if handler is not None or state.consumers:
            who = (
                f"the environment declares a worker for it ({handler})"
                if handler
                else f"{state.consumers} workers receive from it now"
            )
            raise StreamRefused(
                f"The queue {queue} is not drained: {who}, and a drain would take their messages. Drain only queues "
                "without consumers, such as audit and error. Otherwise use mode=tail, or set allowConsumers=true "
                "(--shared)."
            )
        self._checked = True
