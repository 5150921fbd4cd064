"""What changes something: retry, edit and discard failed messages; purge, pause and limit a queue;
reschedule and cancel delayed messages. Each act is one line in the log.

An act is bounded in time, so that its page comes back: a purge or a retry of many messages says how many are done, and the rest stays.
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
from rowpost.transport.error_queue import BATCH, ErrorQueue, Filter, Retried
from rowpost.transport.failure_groups import scan
from rowpost.wire.message import Headers

__all__ = ["ActLog", "Acts"]

#: seconds after which a purge or a retry of many stops between two batches
LONGEST_S = 8.0
PURGE_BATCH, MOST_RETRIED, SCANNED = 2_000, 5_000, 20_000
_log = logging.getLogger("rowpost.dashboard.acts")


class ActLog:
    """Writes who did what, and what became of it. The record's attribute `act` is the same as a mapping."""

    @contextmanager
    def act(self, user: str, name: str, **details: Any) -> Iterator[dict[str, Any]]:
        """Run an act and log it at its end. The block may add to the mapping."""
        act: dict[str, Any] = {"event": "Act", "act": name, "user": user, **details}
        try:
            yield act
        except RowpostError as error:
            self._write({**act, "outcome": "refused", "error": str(error)}, logging.WARNING)
            raise
        except BaseException:
            self._write({**act, "outcome": "failed"}, logging.ERROR)
            raise
        self._write({**act, "outcome": "done"}, logging.INFO)

    def _write(self, act: dict[str, Any], level: int) -> None:
        shown = ", ".join(f"{name} {value!r}" for name, value in act.items() if name not in ("event", "act", "user", "outcome"))
        _log.log(level, "%s by %r %s: %s", act["act"], act["user"], act["outcome"], shown, extra={"act": act})


@dataclass(frozen=True)
class Acts:
    """The acts of one user on one connection. They raise what the server says, PermissionDenied for example."""

    database: Connection
    user: str
    log: ActLog = field(default_factory=ActLog)

    def retry(self, queue: str, row: int) -> str:
        """Move a failed message back, and return the queue to which it went. Raises as ErrorQueue.retry."""
        with self.log.act(self.user, "retry", queue=queue, row=row) as act:
            act["to"] = ErrorQueue(self.database, queue).retry(row)
        return act["to"]

    def edit(self, queue: str, row: int, body: bytes | None, headers: Headers | None, to: str | None) -> str:
        """Send an edited copy, and return the queue to which it went. Raises as ErrorQueue.edit."""
        with self.log.act(self.user, "edit", queue=queue, row=row, body_edited=body is not None, headers_edited=headers is not None) as act:
            act["to"] = ErrorQueue(self.database, queue).edit(row, body=body, headers=headers, to=to)
        return act["to"]

    def discard(self, queue: str, row: int, reason: str) -> None:
        """Remove a failed message for good. The log keeps its id and the reason. Raises MessageNotFound."""
        with self.log.act(self.user, "discard", queue=queue, row=row, reason=reason) as act:
            errors = ErrorQueue(self.database, queue)
            act["message_id"] = errors.find(row).message_id
            errors.discard(row)

    def retry_group(self, queue: str, key: str, up_to: int, wanted: Filter | None = None, after: int | None = None) -> tuple[Retried, int]:
        """Move back the matching messages of one cause between two row versions: at most 5,000, and for at most 8 seconds.

        Returns:
            What was done, and how many of those that were found are left because the time was over.
        """
        end = time.monotonic() + LONGEST_S
        with self.log.act(self.user, "retry group", queue=queue, cause=key, up_to=up_to) as act:
            errors = ErrorQueue(self.database, queue)
            rows = [each.row_version for each in scan(errors, wanted, key=key, after=after, up_to=up_to, show=MOST_RETRIED, read_at_most=SCANNED).messages]
            done = Retried()
            for start in range(0, len(rows), BATCH):
                part = errors.retry_all(rows=rows[start : start + BATCH])
                done = Retried(done.retried + part.retried, done.gone + part.gone, done.refused + part.refused)
                if time.monotonic() > end:
                    break
            left = len(rows) - done.retried - done.gone - len(done.refused)
            act |= {"retried": done.retried, "gone": done.gone, "refused": len(done.refused), "left": left}
        return done, left

    def purge(self, queue: str) -> tuple[int, bool]:
        """Delete messages for at most 8 seconds; return how many, and whether the queue was purged to its end."""
        end = time.monotonic() + LONGEST_S
        with self.log.act(self.user, "purge", queue=queue) as act:
            act["deleted"] = 0
            while True:
                purged = self.database.call_atomically("purge_queue", queue=queue, count=PURGE_BATCH)[0].purged
                act["deleted"] += purged
                if purged < PURGE_BATCH or time.monotonic() > end:
                    break
        return act["deleted"], purged < PURGE_BATCH

    def pause(self, queue: str, reason: str | None) -> None:
        """Pause a queue for the supervisors of all hosts."""
        with self.log.act(self.user, "pause", queue=queue, reason=reason):
            pause(self.database, queue, self._signed(reason))

    def resume(self, queue: str, reason: str | None) -> None:
        """End the pause of a queue."""
        with self.log.act(self.user, "resume", queue=queue, reason=reason):
            resume(self.database, queue, self._signed(reason))

    def limit(self, queue: str, limit: int | None, reason: str | None, *, shared: bool) -> None:
        """Limit a queue's workers; None: as the environments say. Raises InvalidCount."""
        with self.log.act(self.user, "limit", queue=queue, limit=limit, shared=shared, reason=reason):
            limit_workers(self.database, queue, limit, shared=shared, reason=self._signed(reason))

    def send_now(self, queue: str, key: str) -> None:
        """Let a delayed message be due now. Raises MessageNotFound."""
        with self.log.act(self.user, "send now", queue=queue, key=key):
            DelayedMessages(queue, self.database).reschedule(key, timedelta(0))

    def cancel(self, queue: str, key: str, reason: str) -> None:
        """Remove a delayed message for good. The log keeps its id and the reason. Raises MessageNotFound."""
        with self.log.act(self.user, "cancel", queue=queue, key=key, reason=reason) as act:
            act["message_id"] = DelayedMessages(queue, self.database).cancel(key).message_id

    def _signed(self, reason: str | None) -> str:
        """Return the reason with the visitor's name: the database knows only the dashboard's login."""
        return f"{reason} ({self.user})" if reason else f"({self.user})"
