"""What changes something: retry, edit and discard a failed message; purge, pause and limit a queue; reschedule and cancel delayed messages.

Each operation is a line of the record in the database, in the transaction of the operation, and one line in the log. Bulk operations are in `bulk`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from rowpost.database.connection import Connection
from rowpost.errors import RowpostError
from rowpost.transport.controls import limit_workers, pause, resume
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.transport.error_queue import ErrorQueue
from rowpost.transport.operation_log import Noted, Operator
from rowpost.transport.purging import Purged, purge
from rowpost.wire.message import Headers

__all__ = ["CLIENT", "OperationLines", "Operations"]

#: how the record names the dashboard
CLIENT = "dashboard"
#: seconds after which a purge stops between two transactions, so that its page comes back
LONGEST_S = 8.0
_log = logging.getLogger("rowpost.dashboard.operations")


class OperationLines:
    """Writes who did what, and what became of it. The record's attribute `operation` is the same as a mapping."""

    @contextmanager
    def operation(self, user: str, name: str, **details: Any) -> Iterator[dict[str, Any]]:
        """Run an operation and log it at its end. The block may add to the mapping."""
        operation: dict[str, Any] = {"event": "Operation", "operation": name, "user": user, **details}
        try:
            yield operation
        except RowpostError as error:
            self._write({**operation, "outcome": "refused", "error": str(error)}, logging.WARNING)
            raise
        except BaseException:
            self._write({**operation, "outcome": "failed"}, logging.ERROR)
            raise
        self._write({**operation, "outcome": "done"}, logging.INFO)

    def _write(self, operation: dict[str, Any], level: int) -> None:
        shown = ", ".join(f"{name} {value!r}" for name, value in operation.items() if name not in ("event", "operation", "user", "outcome"))
        _log.log(level, "%s by %r %s: %s", operation["operation"], operation["user"], operation["outcome"], shown, extra={"operation": operation})


@dataclass(frozen=True)
class Operations:
    """The operations of one user on one connection. They raise what the server says, PermissionDenied for example."""

    database: Connection
    user: str
    log: OperationLines = field(default_factory=OperationLines)

    @property
    def operator(self) -> Operator:
        """Who acts, for the record."""
        return Operator(CLIENT, self.user)

    @contextmanager
    def _operation(self, name: str, queue: str, *, reason: str | None = None, **details: Any) -> Iterator[Noted]:
        """Execute, record and log an operation, in one transaction."""
        said = {} if reason is None else {"reason": reason}
        with self.log.operation(self.user, name, queue=queue, **said, **details) as line:
            with self.operator.operation(self.database, name, queue, reason=reason, **details) as noted:
                yield noted
            line.update(noted.details, **({"message_id": noted.message_id} if noted.message_id else {}))

    def retry(self, queue: str, row: int) -> str:
        """Move a failed message back, and return the queue to which it went. Raises as ErrorQueue.retry."""
        with self._operation("retry", queue, row=row) as noted:
            errors = ErrorQueue(self.database, queue)
            noted.message_id = errors.find(row).message_id
            noted.details["to"] = to = errors.retry(row)
        return to

    def edit(self, queue: str, row: int, body: bytes | None, headers: Headers | None, to: str | None) -> str:
        """Send an edited copy, and return the queue to which it went. Raises as ErrorQueue.edit."""
        with self._operation("edit", queue, row=row, body_edited=body is not None, headers_edited=headers is not None) as noted:
            errors = ErrorQueue(self.database, queue)
            noted.message_id = errors.find(row).message_id
            noted.details["to"] = went = errors.edit(row, body=body, headers=headers, to=to)
        return went

    def discard(self, queue: str, row: int, reason: str) -> None:
        """Remove a failed message for good. The record keeps its id and the reason. Raises MessageNotFound."""
        with self._operation("discard", queue, reason=reason, row=row) as noted:
            errors = ErrorQueue(self.database, queue)
            noted.message_id = errors.find(row).message_id
            errors.discard(row)

    def purge(self, queue: str) -> Purged:
        """Delete messages for at most 8 seconds."""
        end = time.monotonic() + LONGEST_S
        with self.log.operation(self.user, "purge", queue=queue) as line:
            purged = purge(self.database, self.operator, queue, stop=lambda: "done" if time.monotonic() > end else None)
            line["deleted"] = purged.deleted
        return purged

    def pause(self, queue: str, reason: str | None) -> None:
        """Pause a queue for the supervisors of all hosts."""
        with self._operation("pause", queue, reason=reason) as noted:
            noted.done = 0
            pause(self.database, queue, self._signed(reason))

    def resume(self, queue: str, reason: str | None) -> None:
        """End the pause of a queue."""
        with self._operation("resume", queue, reason=reason) as noted:
            noted.done = 0
            resume(self.database, queue, self._signed(reason))

    def limit(self, queue: str, limit: int | None, reason: str | None, *, shared: bool) -> None:
        """Limit a queue's workers; None: as the environments say. Raises InvalidCount."""
        with self._operation("limit", queue, reason=reason, limit=limit, shared=shared) as noted:
            noted.done = 0
            limit_workers(self.database, queue, limit, shared=shared, reason=self._signed(reason))

    def send_now(self, queue: str, key: str) -> None:
        """Let a delayed message be due now. Raises MessageNotFound."""
        with self._operation("send-now", queue, key=key):
            DelayedMessages(queue, self.database).reschedule(key, timedelta(0))

    def cancel(self, queue: str, key: str, reason: str) -> None:
        """Remove a delayed message for good. The record keeps its id and the reason. Raises MessageNotFound."""
        with self._operation("cancel-delayed", queue, reason=reason, key=key) as noted:
            noted.message_id = DelayedMessages(queue, self.database).cancel(key).message_id or None

    def _signed(self, reason: str | None) -> str:
        """Return the reason with the visitor's name: the database knows only the dashboard's login."""
        return f"{reason} ({self.user})" if reason else f"({self.user})"
