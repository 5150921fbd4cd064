"""Say what happened to a received message: `Outcome` with its `Kind`, and `RowState` for the way of a failed one."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from uuid import UUID

from rowpost.errors import MessageCorrupt
from rowpost.wire.message import Message

__all__ = ["DEADLOCKED", "EMPTY", "Interrupted", "Kind", "Outcome", "RowState"]


class Kind(Enum):
    """The result of one receive."""

    HANDLED = "handled"
    EMPTY = "empty"
    FAILED = "failed"
    DELAYED = "delayed"
    MOVED_TO_ERROR = "moved_to_error"
    EXPIRED = "expired"
    #: the headers cannot be read; the value is the name of this count in reports and events
    CORRUPT = "poison"
    #: another transaction's locks or changes rolled this one back: try again at once, nothing is wrong
    DEADLOCKED = "deadlocked"
    #: the message cannot be moved to the error queue, or the policy failed: an operator has to act
    UNMOVABLE = "unmovable"


class Outcome(NamedTuple):
    """The result of one receive, with the message's identity.

    Attributes:
        kind: what happened.
        row_version: the message's place in its queue.
        id: the id of the message's row.
        attempts: failed attempts so far, this one included.
        error: type and text of the error, if there was one.
        message_id: the message's own id if an attempt failed; None if its headers cannot be read.
    """

    kind: Kind
    row_version: int | None = None
    id: UUID | None = None
    attempts: int = 0
    error: str | None = None
    message_id: str | None = None

    @classmethod
    def failed(cls, kind: Kind, message: Message, attempts: int, error: str) -> Outcome:
        """Return the outcome of a failed attempt."""
        try:
            message_id = message.message_id
        except MessageCorrupt:
            message_id = None
        return cls(kind, message.row_version, message.id, attempts, error, message_id)


class Interrupted(NamedTuple):
    """A message whose handler was running when its connection was lost. The attempt is not counted yet.

    Attributes:
        row_id: the id of the message's row.
        row_version: the message's place in its queue.
        error: says that the connection was lost.
    """

    row_id: UUID
    row_version: int
    error: Exception


EMPTY = Outcome(Kind.EMPTY)
DEADLOCKED = Outcome(Kind.DEADLOCKED)


class RowState(Enum):
    """Where the row of a message is after its handler failed."""

    #: the open receiving transaction has removed it and holds its lock; no other worker can take it
    HELD = "held"
    #: it is in its queue again as soon as the receiving transaction is rolled back; another worker may take it
    RETURNED = "returned"
    #: its removal was committed before the handler ran: the message exists only in memory
    REMOVED = "removed"
    #: the handler ended the transaction: the row is in its queue again, or the message exists only in memory
    GONE = "gone"
