"""Move delayed messages into their queue when they are due, at most `delayed_lateness` seconds late.

Every process with workers has a delayed mover for its queues (`workers/tasks/delayed_mover.py`). The database elects
one at a time per queue, inside the procedure `move_due_messages`. Without a supervisor, in a test or a script:

    move_due(database, "Sales")

A mover waits until the next message is due, as far as it or a peek of the supervisor knows. If no peek informs it in
time, it waits at most `delayed_lateness` seconds, because other processes may have stored messages meanwhile.

Messages of NServiceBus endpoints may name another queue in the header `NServiceBus.SqlServer.ForwardDestination`. They
go directly to that queue. If there is no such queue, they go to the error queue, with `NServiceBus.FailedQ` naming the
destination. See docs/guides/delayed-delivery.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from uuid import uuid4

from rowpost.database.connection import Connection
from rowpost.database.receive_transaction import ReceiveTransaction
from rowpost.errors import DatabaseUnavailable, Deadlock, MessageCorrupt, RowpostError
from rowpost.recoverability.policy import Host, failure_headers
from rowpost.transport.directory import Directory, canonical_or_as_given
from rowpost.wire.address import endpoint_name
from rowpost.wire.headers import FORWARD_DESTINATION, MESSAGE_ID
from rowpost.wire.message import decode_headers, encode_headers
from rowpost.wire.outgoing import Call

__all__ = ["DueRound", "move_due", "wait_after_peek"]

#: messages that a mover moves at a time, in one transaction
BATCH = 500
# Shortest pause between two rounds, for due messages that another session has locked.
MIN_PAUSE_S = 0.02
# A peek may be late by this fraction of the lateness before the mover stops waiting for it.
PEEK_GRACE = 0.1

Row = tuple[datetime, str, bytes | None]


@dataclass(frozen=True, slots=True)
class DueRound:
    """The result of one round of a mover.

    Attributes:
        moved: messages moved into the queue itself.
        forwarded: messages sent to the destinations in their headers.
        failed: messages sent to the error queue, because their destination does not exist.
        next_due: seconds until the next message is due; None if there is none.
        elected: False if another mover works on the queue.
    """

    moved: int = 0
    forwarded: int = 0
    failed: int = 0
    next_due: float | None = None
    elected: bool = True

    def wait(self, lateness: float) -> float:
        """Return the seconds until the next round.

        >>> DueRound(moved=100, next_due=0.0).wait(1.0), DueRound(next_due=0.3).wait(1.0), DueRound(next_due=60.0).wait(1.0)
        (0.0, 0.3, 1.0)
        """  # noqa: E501
        if not self.elected or self.next_due is None:
            return lateness
        if self.moved + self.forwarded + self.failed and self.next_due == 0.0:
            return 0.0
        return min(lateness, max(MIN_PAUSE_S, self.next_due))


def wait_after_peek(next_due: float, next_peek: float, lateness: float) -> float:
    """Return the seconds until the mover's next round after a peek.

    If peeks come at least once per lateness, an idle queue needs no calls of the mover: each peek postpones its next
    round.

    Args:
        next_due: seconds until the next message is due, as the peek found.
        next_peek: seconds until the next peek.
        lateness: the setting `delayed_lateness`, in seconds.

    >>> inf = float("inf")
    >>> wait_after_peek(0.3, 1.0, 1.0), wait_after_peek(inf, 30.0, 1.0), wait_after_peek(inf, 1.0, 1.0)
    (0.3, 1.0, 1.1)
    """
    latest = lateness if next_peek > lateness else max(lateness, next_peek + PEEK_GRACE * lateness)
    return min(next_due, latest)


def move_due(
    database: Connection,
    queue: str,
    *,
    error_queue: str = "error",
    batch: int = BATCH,
    directory: Directory | None = None,
    host: Host | None = None,
) -> DueRound:
    """Move one batch of due messages in one transaction.

    Raises:
        QueueNotFound: the queue has no delayed table, or a message needs the error queue and there is none.
        DatabaseUnavailable: the connection is lost.
    """
    move = ("move_due_messages", queue, {"count": batch})
    several = (
        database.engine == "sqlserver"
    )  # several statements need a transaction; on PostgreSQL the call is one statement
    with ReceiveTransaction(database):
        # an idle queue costs one round trip; messages to forward take a second call, in a transaction that stays open
        ((moved, forwards, next_due_ms),) = database.call_all([move], begin=several, commit=several)[0]
        next_due = None if next_due_ms is None else next_due_ms / 1000
        done = DueRound(moved or 0, next_due=next_due, elected=moved is not None)
        if moved is None or not forwards:
            return done
        ((more, forwards, _),) = database.call_all([move], begin=True)[0]
        if more is None:
            database.commit()
            return done
        forwarder = _Forwarder(
            database, queue, error_queue, directory or Directory(), host or Host.here(endpoint_name(queue))
        )
        rest = _forward(database, forwarder, more, min(forwards, batch))
        return replace(rest, moved=rest.moved + moved)


def _forward(database: Connection, forwarder: _Forwarder, moved: int, count: int) -> DueRound:
    """Forward messages to other queues.

    `next_due` is 0, because the next round finds out when the next message is due.
    """
    try:
        return DueRound(moved, forwarder.forward_all(count), next_due=0.0)
    except (DatabaseUnavailable, Deadlock):
        raise
    except RowpostError:  # a destination does not exist; forwarding one by one shows which one
        database.rollback()  # the messages that were moved with them are moved in the next round
    forwarded, failed = forwarder.forward_each(count)
    return DueRound(0, forwarded, failed, 0.0)


class _Forwarder:
    """Sends due messages to the queues that their headers name."""

    def __init__(self, database: Connection, queue: str, error_queue: str, directory: Directory, host: Host) -> None:
        self._database, self._queue, self._error_queue, self._directory = database, queue, error_queue, directory
        self._host = host

    def forward_all(self, count: int) -> int:
        """Forward all messages in one round trip within the open transaction, and commit it; return their number."""
        rows = self._database.call("receive_due_messages", self._queue, count=count)
        calls = [self._forward(row) for row in rows]
        if calls:
            self._database.call_all(calls, commit=True)
        else:
            self._database.commit()
        return len(rows)

    def forward_each(self, count: int) -> tuple[int, int]:
        """Forward each message in its own transaction; return how many were forwarded, and how many went to the error
        queue.
        """
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
        except MessageCorrupt:  # unchanged, for a person to examine
            return Call("send_message", self._error_queue, {"headers": raw_headers, "body": body})
        destination = headers.pop(FORWARD_DESTINATION, None)
        content = {"headers": encode_headers(headers), "body": body}
        if not destination:  # the header's name occurred elsewhere in the headers: the message belongs to this queue
            return Call("send_message", self._queue, content)
        return self._directory.find(self._database, destination).send(content)

    def _give_up(self, row: Row, error: RowpostError) -> Call:
        """Move a message to the error queue. FailedQ is the destination, because a retry has to go there."""
        _, raw_headers, body = row
        headers = decode_headers(raw_headers)
        destination = headers.pop(FORWARD_DESTINATION, None) or self._queue
        headers = failure_headers(
            headers,
            error,
            queue=canonical_or_as_given(self._database, destination),
            host=self._host,
            at=datetime.now(UTC),
            message_id=headers.get(MESSAGE_ID) or str(uuid4()),
        )
        return Call("send_message", self._error_queue, {"headers": encode_headers(headers), "body": body})
