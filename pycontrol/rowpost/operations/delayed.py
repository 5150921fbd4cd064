"""Operations on a message that is not due yet: send it now, let it be due at another time, or cancel it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from rowpost.database.connection import Connection
from rowpost.operations.documents import DelayedMessageDocument, document_of
from rowpost.operations.log import Noted, Operator
from rowpost.operations.operation import Operation, Result
from rowpost.operations.rights import Right
from rowpost.transport.delayed_messages import DelayedMessage, DelayedMessages
from rowpost.wire.description import WITHHELD, describe_body

__all__ = ["CancelDelayed", "CancelledDelayed", "MoveDelayed", "Rescheduled", "SendNow", "delayed_message_document"]


class Rescheduled(Result, frozen=True):
    """A delayed message that is due at another time. `due` is that time, or `now`."""

    words = "The delayed message {key} of {queue} is due {due}."
    queue: str
    key: str
    due: str


class CancelledDelayed(DelayedMessageDocument, Result, frozen=True, kw_only=True):
    """A delayed message that was removed for good, whole."""

    cancelled: bool = True
    reason: str | None = None

    @property
    def sentence(self) -> str:
        named = f"message {self.message_id}" if self.message_id else f"the message {self.key}"
        due = self.due[:19].replace("T", " ")
        return f"Cancelled {named} of {self.queue}, due {due} UTC: {self.reason}"


_R = TypeVar("_R", bound=Result)


@dataclass(frozen=True, kw_only=True)
class _OnDelayed(Operation[_R], Generic[_R]):
    """An operation on the delayed message of a queue that `key` names."""

    right = Right.CHANGE_DELAYED
    key: str

    def details(self) -> dict[str, Any]:
        return {"key": self.key}


@dataclass(frozen=True, kw_only=True)
class SendNow(_OnDelayed[Rescheduled]):
    """Let a delayed message be due now. Raises MessageNotFound."""

    name = "send-now"

    def perform(self, database: Connection, operator: Operator, noted: Noted) -> Rescheduled:
        DelayedMessages(self.queue, database).reschedule(self.key, timedelta(0))
        return Rescheduled(self.queue, self.key, "now")


@dataclass(frozen=True, kw_only=True)
class MoveDelayed(_OnDelayed[Rescheduled]):
    """Let a delayed message be due at another time, which has a time zone. Raises MessageNotFound, InvalidDelay."""

    name = "move-delayed"
    due: datetime

    def details(self) -> dict[str, Any]:
        return {"key": self.key, "due": self.due.isoformat(timespec="seconds")}

    def perform(self, database: Connection, operator: Operator, noted: Noted) -> Rescheduled:
        DelayedMessages(self.queue, database).reschedule(self.key, self.due - datetime.now(UTC))
        return Rescheduled(self.queue, self.key, f"{self.due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")


@dataclass(frozen=True, kw_only=True)
class CancelDelayed(_OnDelayed[CancelledDelayed]):
    """Remove a delayed message for good. The log keeps its id and the reason. Raises MessageNotFound."""

    name = "cancel-delayed"

    def perform(self, database: Connection, operator: Operator, noted: Noted) -> CancelledDelayed:
        message = DelayedMessages(self.queue, database).cancel(self.key)
        noted.message_id = message.message_id or None
        return document_of(CancelledDelayed, message, **_whole(self.queue, message), cancelled=True, reason=self.reason)


def delayed_message_document(queue: str, message: DelayedMessage) -> DelayedMessageDocument:
    """Return the document of a delayed message with its headers and body."""
    return document_of(DelayedMessageDocument, message, **_whole(queue, message))


def _whole(queue: str, message: DelayedMessage) -> dict[str, Any]:
    return {
        "queue": queue,
        "headers": dict(message.headers),
        "body": WITHHELD if message.withheld else describe_body(message.body) if message.body else None,
    }
