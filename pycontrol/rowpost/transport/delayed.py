"""Delayed messages: into their queue when their time has come, at most `delayed_lateness` late whoever stored them.

Every process with workers has a mover for its queues; the database elects one at a time per queue, inside
move_due_messages. A mover sleeps until the next message is due, by what it saw or the supervisor's looks have seen
since; but where no look tells it in time, never longer than the lateness, so that it learns of what other processes
stored meanwhile. Without a supervisor, in a test or a script:

    move_due(database, "Sales")

Messages of NServiceBus endpoints may name another queue in ForwardDestination: they go straight there (reference G3);
where there is no such queue, to the error queue with FailedQ naming the destination (G5, statement 57).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import uuid4

from rowpost.database.connection import Connection
from rowpost.database.receive_transaction import receive_transaction
from rowpost.errors import DatabaseUnavailable, Deadlock, MessageCorrupt, RowpostError
from rowpost.recoverability.policy import Host, failure_headers
from rowpost.transport.directory import Directory
from rowpost.wire.address import parse_address
from rowpost.wire.headers import FORWARD_DESTINATION
from rowpost.wire.message import MESSAGE_ID, decode_headers, encode_headers
from rowpost.wire.operation import Call

__all__ = ["Moved", "move_due", "wait_after_look"]

#: how many messages a mover takes at a time; one commit each
BATCH = 500
# Seconds between two rounds when what is due is held by somebody else.
SHORTEST = 0.02
# What a look that comes once a lateness may be late itself, in latenesses: then the mover goes by its own clock.
GRACE = 0.1
Row = tuple[datetime, str, bytes | None]


@dataclass(frozen=True, slots=True)
class Moved:
    """One round of a mover.

    `moved` went into the queue itself, `forwarded` where their header said, `failed` to the error queue; `next_due` are
    the seconds until the next message is due, None when none waits. `elected` is False where another mover is at it.
    """

    moved: int = 0
    forwarded: int = 0
    failed: int = 0
    next_due: float | None = None
    elected: bool = True

    def wait(self, lateness: float) -> float:
        """Seconds until the next round.

        >>> Moved(moved=100, next_due=0.0).wait(1.0), Moved(next_due=0.3).wait(1.0), Moved(next_due=60.0).wait(1.0)
        (0.0, 0.3, 1.0)
        """
        if not self.elected or self.next_due is None:
            return lateness
        if self.moved + self.forwarded + self.failed and self.next_due == 0.0:
            return 0.0
        return min(lateness, max(SHORTEST, self.next_due))


def wait_after_look(next_due: float, next_look: float, lateness: float) -> float:
    """Seconds until the mover's turn, after a look that saw when the next message is due, and until the next look.

    Looks that come at least once in a lateness are all that an idle queue needs: each puts off the mover's turn.

    >>> inf = float("inf")
    >>> wait_after_look(0.3, 1.0, 1.0), wait_after_look(inf, 30.0, 1.0), wait_after_look(inf, 1.0, 1.0)
    (0.3, 1.0, 1.1)
    """
    latest = lateness if next_look > lateness else max(lateness, next_look + GRACE * lateness)
    return min(next_due, latest)


def move_due(
    database: Connection,
    queue: str,
    *,
    error_queue: str = "error",
    batch: int = BATCH,
    directory: Directory | None = None,
) -> Moved:
    """Moves messages that are due, one batch, in one transaction.

    Raises:
        QueueNotFound: the queue has no delayed table, or there is no error queue for a message that needs it.
        DatabaseUnavailable.
    """
    move = ("move_due_messages", queue, {"count": batch})
    several = database.engine == "sqlserver"  # statements, which need a transaction around them; PostgreSQL's is one
    with receive_transaction(lambda: database):
        # an idle queue costs one round trip: what is to be forwarded takes another look, in a transaction that stays open
        ((moved, forwards, next_due_ms),) = database.call_all([move], begin=several, commit=several)[0]
        next_due = None if next_due_ms is None else next_due_ms / 1000
        done = Moved(moved or 0, next_due=next_due, elected=moved is not None)
        if moved is None or not forwards:
            return done
        ((more, forwards, _),) = database.call_all([move], begin=True)[0]
        if more is None:
            database.commit()
            return done
        forwarder = _Forwarder(database, queue, error_queue, directory or Directory())
        rest = _forward(database, forwarder, more, min(forwards, batch))
        return replace(rest, moved=rest.moved + moved)


def _forward(database: Connection, forwarder: _Forwarder, moved: int, count: int) -> Moved:
    """The other half of a round: what goes elsewhere. When the next one is due, the next round tells."""
    try:
        return Moved(moved, forwarder.forward_all(count), next_due=0.0)
    except (DatabaseUnavailable, Deadlock):
        raise
    except RowpostError:  # a destination does not exist: which one, shows when they go one by one
        database.rollback()  # what had moved with them moves in the next round
    forwarded, failed = forwarder.forward_each(count)
    return Moved(0, forwarded, failed, 0.0)


class _Forwarder:
    """Sends due messages on to the queues that they name."""

    def __init__(self, database: Connection, queue: str, error_queue: str, directory: Directory) -> None:
        self._database, self._queue, self._error_queue, self._directory = database, queue, error_queue, directory

    def forward_all(self, count: int) -> int:
        """Within the mover's transaction, which this commits: all of them, in one round trip."""
        rows = self._database.call("receive_due_messages", self._queue, count=count)
        calls = [self._forward(row) for row in rows]
        if calls:
            self._database.call_all(calls, commit=True)
        else:
            self._database.commit()
        return len(rows)

    def forward_each(self, count: int) -> tuple[int, int]:
        """Each in a transaction of its own; returns how many went on, and how many to the error queue."""
        forwarded = failed = 0
        refused: tuple[Row, RowpostError] | None = None
        while forwarded + failed < count:
            rows = self._database.call("receive_due_messages", self._queue, begin=True, count=1)
            if not rows:
                self._database.commit()
                break
            if refused is not None and refused[0] == rows[0]:
                self._database.call_all([self._give_up(*refused)], commit=True)
                failed, refused = failed + 1, None
                continue
            try:
                self._database.call_all([self._forward(rows[0])], commit=True)
                forwarded, refused = forwarded + 1, None
            except (DatabaseUnavailable, Deadlock):
                raise
            except RowpostError as error:
                self._database.rollback()
                refused = (rows[0], error)
        return forwarded, failed

    def _forward(self, row: Row) -> Call:
        _, raw_headers, body = row
        try:
            headers = decode_headers(raw_headers)
        except MessageCorrupt:  # as it is, for somebody to look at (statement 36)
            return Call("send_message", self._error_queue, {"headers": raw_headers, "body": body})
        destination = headers.pop(FORWARD_DESTINATION, None)
        content = {"headers": encode_headers(headers), "body": body}
        if not destination:  # the words stood elsewhere in the headers: it is the queue's own
            return Call("send_message", self._queue, content)
        address = parse_address(destination)
        name = self._directory.find(self._database, address)
        if name is not None:
            return Call("send_message", name, content)
        place = self._database.local(address).qualified(self._database.engine)
        names = {"schema_name": place.schema, "table_name": place.table}
        if place.catalog is not None:
            names["catalog_name"] = place.catalog
        return Call("send_unregistered", None, {**names, **content})

    def _give_up(self, row: Row, error: RowpostError) -> Call:
        """FailedQ is the destination, not this queue: that is what has to be mended before a retry (reference G5)."""
        _, raw_headers, body = row
        headers = decode_headers(raw_headers)
        destination = headers.pop(FORWARD_DESTINATION, None) or self._queue
        headers = failure_headers(
            headers,
            error,
            queue=destination,
            host=Host.here(self._queue),
            at=datetime.now(UTC),
            message_id=headers.get(MESSAGE_ID) or str(uuid4()),
        )
        return Call("send_message", self._error_queue, {"headers": encode_headers(headers), "body": body})


