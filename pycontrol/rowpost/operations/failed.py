"""Operations on one failed message: retry, move, edit and discard it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rowpost.database.connection import Connection
from rowpost.operations.log import Noted, Operator
from rowpost.operations.operation import Operation, Result
from rowpost.operations.rights import Right
from rowpost.transport.error_queue import ErrorQueue
from rowpost.wire.message import Headers

__all__ = ["ChangedFailure", "DiscardFailed", "Edit", "Retry"]


class ChangedFailure(Result, frozen=True):
    """A failed message that an operation changed.

    `to`: the queue to which it, or its edited copy, went; null: it was discarded.
    """

    operation: str
    row_version: int
    message_id: str
    to: str | None = None

    @property
    def sentence(self) -> str:
        if self.to is None:
            return f"Discarded message {self.row_version}."
        if self.operation == Edit.name:
            return f"Sent the edited copy of message {self.row_version} to {self.to}."
        return f"Moved message {self.row_version} to {self.to}."


@dataclass(frozen=True, kw_only=True)
class _OnFailed(Operation[ChangedFailure]):
    """An operation on the message with the row version `row` in the error queue `queue`."""

    right = Right.CHANGE_FAILED
    row: int

    def details(self) -> dict[str, Any]:
        return {"row": self.row}

    def perform(self, database: Connection, operator: Operator, noted: Noted) -> ChangedFailure:
        errors = ErrorQueue(database, self.queue)
        noted.message_id = message_id = errors.find(self.row, max_body_bytes=0).message_id
        to = self.change(errors)
        if to is not None:
            noted.details["to"] = to
        return ChangedFailure(self.logged_as, self.row, message_id, to)

    def change(self, errors: ErrorQueue) -> str | None:
        """Change the message, and return the queue to which it went."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Retry(_OnFailed):
    """Move a message, unchanged, to the queue where it failed, or to the queue `to`. Raises as `ErrorQueue.retry`."""

    name = "retry"
    to: str | None = None

    @property
    def logged_as(self) -> str:
        return self.name if self.to is None else "move"

    def change(self, errors: ErrorQueue) -> str:
        return errors.retry(self.row, self.to)


@dataclass(frozen=True, kw_only=True)
class Edit(_OnFailed):
    """Send a copy with another body or other headers; None: as they are. Raises as `ErrorQueue.edit`."""

    name = "edit"
    body: bytes | None = None
    headers: Headers | None = None
    to: str | None = None

    def details(self) -> dict[str, Any]:
        return {"row": self.row, "body_edited": self.body is not None, "headers_edited": self.headers is not None}

    def change(self, errors: ErrorQueue) -> str:
        return errors.edit(self.row, body=self.body, headers=self.headers, to=self.to)


@dataclass(frozen=True, kw_only=True)
class DiscardFailed(_OnFailed):
    """Remove a message for good. The log keeps its id and the reason. Raises MessageNotFound."""

    name = "discard"

    def change(self, errors: ErrorQueue) -> None:
        errors.discard(self.row)
