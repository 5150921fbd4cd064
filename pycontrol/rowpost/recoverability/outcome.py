"""Say what happened to a received message: `Outcome` with its `Kind`, and `RowState` for the way of a failed one."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple
from uuid import UUID

from rowpost.errors import MessageCorrupt
from rowpost.recoverability.discard import Discard
from rowpost.wire.headers import ENCLOSED_MESSAGE_TYPES
from rowpost.wire.message import Message
from rowpost.wire.message_types import split_enclosed_types

__all__ = ["DEADLOCKED", "EMPTY", "Discard", "InterruptedAttempt", "Kind", "Outcome", "RowState", "identity_of"]


class Kind(StrEnum):
    """The result of one receive. Each equals its text: `outcome.kind == "handled"`."""

    HANDLED = "handled"
    EMPTY = "empty"
    FAILED = "failed"
    DELAYED = "delayed"
    MOVED_TO_ERROR = "moved_to_error"
    EXPIRED = "expired"
    #: nobody had a use for the message, and the reason is known; what its handlers did has committed
    DISCARDED = "discarded"
    #: the headers cannot be read; the value is the name of this count in reports and events
    CORRUPT = "poison"
    #: another transaction's locks or changes rolled this one back: try again at once, nothing is wrong
    DEADLOCKED = "deadlocked"
    #: the message cannot be moved to the error queue, or the policy failed: an operator has to act
    UNMOVABLE = "unmovable"


#: why an expired message was dropped
OVERDUE = Discard("its time to be received was over")


class Outcome(NamedTuple):
    """The result of one receive, with the message's identity.

    Attributes:
        kind: what happened.
        row_version: the message's place in its queue.
        id: the id of the message's row.
        attempts: failed attempts so far, this one included; 0 if this one succeeded.
        error: type and text of the error, if there was one.
        message_id: the message's own id if an attempt failed or the message was dropped; None if its headers cannot be
            read.
        message_type: the type of a message that was dropped, if its headers name one.
        discard: why a message was dropped.
        exception: what the handler raised, in the process that ran it; without it elsewhere.
    """

    kind: Kind
    row_version: int | None = None
    id: UUID | None = None
    attempts: int = 0
    error: str | None = None
    message_id: str | None = None
    message_type: str | None = None
    discard: Discard | None = None
    exception: BaseException | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the handlers have returned: a policy may discard a message after a failed attempt."""
        return self.kind is Kind.HANDLED or (self.kind is Kind.DISCARDED and not self.attempts)

    @classmethod
    def failed(
        cls, kind: Kind, message: Message, attempts: int, error: str, exception: BaseException | None = None
    ) -> Outcome:
        """Return the outcome of a failed attempt."""
        return cls(kind, message.row_version, message.id, attempts, error, identity_of(message)[0], exception=exception)

    @classmethod
    def done(cls, message: Message, discard: Discard | None) -> Outcome:
        """Return the outcome of a message that was handled, or that its handlers discarded."""
        if discard is None:
            return cls(Kind.HANDLED, message.row_version, message.id)
        return cls._dropped(Kind.DISCARDED, message, discard)

    @classmethod
    def expired(cls, message: Message) -> Outcome:
        """Return the outcome of a message that expired before it was received."""
        return cls._dropped(Kind.EXPIRED, message, OVERDUE)

    @classmethod
    def _dropped(cls, kind: Kind, message: Message, discard: Discard) -> Outcome:
        message_id, message_type = identity_of(message)
        return cls(
            kind, message.row_version, message.id, message_id=message_id, message_type=message_type, discard=discard
        )


def identity_of(message: Message) -> tuple[str | None, str | None]:
    """Return the id and the type of a message, as far as its headers can be read."""
    try:
        types = split_enclosed_types(message.headers.get(ENCLOSED_MESSAGE_TYPES))
        return message.message_id, next(iter(types), None)
    except MessageCorrupt:
        return None, None


class InterruptedAttempt(NamedTuple):
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
