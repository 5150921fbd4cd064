"""What the pages and the JSON interface show of operations. Times are ISO 8601 in UTC."""

from __future__ import annotations

from typing import Any

from rowpost.dashboard.documents import Document, FailedGroup, FailedSummary
from rowpost.dashboard.reading import failed_groups, failed_summary
from rowpost.transport.failure_groups import Scan
from rowpost.transport.operation_log import LoggedOperation

__all__ = ["BulkPreview", "CancelDocument", "OperationDocument", "OperationPage", "operation_document", "preview_document"]


class OperationDocument(Document, frozen=True):
    """An operation on record. `total` is null while messages are counted, and for an operation on one. `state`: running, done, cancelled, failed, interrupted."""

    number: int
    name: str
    state: str
    who: str
    client: str
    queue: str | None
    message_id: str | None
    details: dict[str, Any]
    reason: str | None
    outcome: str | None
    started_at: str
    changed_at: str
    ended_at: str | None
    total: int | None
    done: int
    gone: int
    refused: int
    cancelled_by: str | None
    may_go_on: bool


class OperationPage(Document, frozen=True):
    """Operations, the last one first; `before` is the number before which the next page begins, null if there is none."""

    operations: list[OperationDocument]
    before: int | None = None


class BulkPreview(Document, frozen=True):
    """To which messages an operation would apply. `more`: not all messages were read, so there may be more than `matched`.

    With `up_to`, an operation applies to no message that fails later than this was read; null: to all up to the end of the queue when it begins.
    """

    queue: str
    read: int
    matched: int
    more: bool
    groups: list[FailedGroup]
    examples: list[FailedSummary]
    up_to: int | None = None


class CancelDocument(Document, frozen=True):
    """Whether an operation had not ended when it was asked to stop."""

    cancelled: bool


def operation_document(operation: LoggedOperation) -> OperationDocument:
    """Return the document of an operation."""
    return OperationDocument(**operation.document())


def preview_document(queue: str, found: Scan) -> BulkPreview:
    """Return the document of a preview."""
    examples = [failed_summary(message) for message in found.messages]
    return BulkPreview(queue, found.read, found.matched, found.more, failed_groups(found), examples, None if found.more else found.up_to)
