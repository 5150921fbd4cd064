"""Operations on one failed message: retry, move, edit and discard it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rowpost.database.connection import Connection
from rowpost.operations.log import Noted, Operator
from rowpost.operations.operation import Operation, Result
from rowpost.operations.rights import Right
from rowpost.transport.error_queue import ErrorQueue
from rowpost.transport.failed_message import FailedMessage
from rowpost.wire.message import Headers

__all__ = ["Discard", "Discarded", "Edit", "Edited", "Move", "Retried", "Retry"]


class Retried(Result, frozen=True):
    """A message that went back, and the queue to which it went."""

    row_version: int
    message_id: str
    retried_to: str

    @property
    def sentence(self) -> str:
        return f"Moved message {self.row_version} to {self.retried_to}."


class Edited(Result, frozen=True):
    """A message of which an edited copy was sent, and the queue to which the copy went."""

    row_version: int
    message_id: str
    edited_to: str

    @property
    def sentence(self) -> str:
        return f"Sent the edited copy of message {self.row_version} to {self.edited_to}."


class Discarded(Result, frozen=True):
    """A message that was removed for good."""

    row_version: int
    message_id: str
    discarded: bool = True

    @property
    def sentence(self) -> str:
        return f"Discarded message {self.row_version}."


_R = TypeVar("_R", bound=Result)


@dataclass(frozen=True, kw_only=True)
class _OnFailed(Operation[_R], Generic[_R]):
    """An operation on the message with a row version in the error queue `queue`."""

    right = Right.CHANGE_FAILED
    row: int

    def details(self) -> dict[str, Any]:
        return {"row": self.row}

    def perform(self, database: Connection, operator: Operator, noted: Noted) -> _R:
        errors = ErrorQueue(database, self.queue)
        failed = errors.find(self.row)
        noted.message_id = failed.message_id
        return self.change(errors, failed, noted)

    def change(self, errors: ErrorQueue, failed: FailedMessage, noted: Noted) -> _R:
        """Change the message."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Retry(_OnFailed[Retried]):
    """Move a message back, unchanged, to the queue where it failed. Raises as `ErrorQueue.retry`."""

    name = "retry"

    def change(self, errors: ErrorQueue, failed: FailedMessage, noted: Noted) -> Retried:
        noted.details["to"] = to = errors.retry(self.row)
        return Retried(self.row, failed.message_id, to)


@dataclass(frozen=True, kw_only=True)
class Move(_OnFailed[Retried]):
    """Move a message, unchanged, to the queue `to`. Raises as `ErrorQueue.retry`."""

    name = "move"
    to: str

    def change(self, errors: ErrorQueue, failed: FailedMessage, noted: Noted) -> Retried:
        noted.details["to"] = to = errors.retry(self.row, self.to)
        return Retried(self.row, failed.message_id, to)


@dataclass(frozen=True, kw_only=True)
class Edit(_OnFailed[Edited]):
    """Send a copy with another body or other headers; None: as they are. Raises as `ErrorQueue.edit`."""

    name = "edit"
    body: bytes | None = None
    headers: Headers | None = None
    to: str | None = None

    def details(self) -> dict[str, Any]:
        return {"row": self.row, "body_edited": self.body is not None, "headers_edited": self.headers is not None}

    def change(self, errors: ErrorQueue, failed: FailedMessage, noted: Noted) -> Edited:
        noted.details["to"] = to = errors.edit(self.row, body=self.body, headers=self.headers, to=self.to)
        return Edited(self.row, failed.message_id, to)


@dataclass(frozen=True, kw_only=True)
class Discard(_OnFailed[Discarded]):
    """Remove a message for good. The log keeps its id and the reason. Raises MessageNotFound."""

    name = "discard"

    def change(self, errors: ErrorQueue, failed: FailedMessage, noted: Noted) -> Discarded:
        errors.discard(self.row)
        return Discarded(self.row, failed.message_id)
