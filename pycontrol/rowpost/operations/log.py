"""The record of what operators do: retry, discard, move, purge, pause and the like, by dashboard and command line.

    operator = Operator("dashboard", "ada")
    with operator.operation(database, "retry", "error", reason="the gateway is back") as noted:
        noted.outcome = ErrorQueue(database).retry(row)
    for operation in list_operations(database, 20):
        print(operation.number, operation.name, operation.who, operation.state)

An operation and its line in `rowpost.operation_log` commit together: `Operator.operation` opens the transaction. The
login is recorded by the server; the user is the one that the dashboard knows. A line never holds a body or the value of
a header. Bulk operations are in `bulk`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseError, OperationNotFound, OperationTaken, RowpostError

__all__ = [
    "BULK",
    "KEPT_DAYS",
    "LoggedOperation",
    "Noted",
    "Operator",
    "RunningOperation",
    "cancel_operation",
    "clean_operation_log",
    "find_operation",
    "list_operations",
    "recordable",
]

#: how the names of bulk operations end
BULK = "-all"
#: days after which the periodic maintenance deletes a line
KEPT_DAYS = 90
#: rows deleted at once; SQL Server locks the whole table from 5000 locks on
CLEAN_BATCH = 4_000
#: seconds between two reports of an operation that changes nothing meanwhile
REPORT_S = 1.0


@dataclass(frozen=True, slots=True)
class LoggedOperation:
    """A line of the record, in the order of the columns of list_operations. Times are in UTC, without a time zone.

    Attributes:
        number: names the operation.
        name: what was done, for example retry or discard-all.
        state: running, done, cancelled, failed, or interrupted: its process ended, or has been silent for 30 seconds.
        client: the program.
        login: the database's.
        user: who used the dashboard; None if only the login is known.
        details: what was selected and what changed.
        outcome: what became of it, or the first problem; None if there is nothing to say.
        total: messages that it applies to; None: not counted yet, or it is no bulk operation.
        done, gone, refused: messages that were changed; that another session had removed or locked; that stay, for
            example because their queue does not exist.
        reached, up_to: row versions of the last message that is finished, and of the last one that it applies to.
        cancelled_by: who asked it to stop.
    """

    number: int
    name: str
    state: str
    client: str
    login: str
    user: str | None
    queue: str | None
    message_id: str | None
    details: dict[str, Any]
    reason: str | None
    outcome: str | None
    started_at: datetime
    changed_at: datetime
    ended_at: datetime | None
    total: int | None
    done: int
    gone: int
    refused: int
    reached: int | None
    up_to: int | None
    cancelled_by: str | None

    @property
    def who(self) -> str:
        """The user with the login, or the login alone."""
        return f"{self.user} ({self.login})" if self.user else self.login

    @property
    def finished(self) -> int:
        """How many messages it has dealt with."""
        return self.done + self.gone + self.refused

    @property
    def may_go_on(self) -> bool:
        """Whether `BulkOperation.resume` can go on with it."""
        return self.name.endswith(BULK) and self.state in ("interrupted", "cancelled", "failed")

    @property
    def goes_on(self) -> bool:
        """Whether a process executes it now."""
        return self.state == "running"


@dataclass(slots=True)
class Noted:
    """What an operation says about itself, for its line; None: nothing. `done`: how many messages, by default 1."""

    message_id: str | None = None
    outcome: str | None = None
    done: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operator:
    """Who acts.

    Attributes:
        client: the program, for example "dashboard".
        user: who uses it, if the database's login does not say it.
    """

    client: str
    user: str | None = None

    def signed(self, reason: str | None) -> str | None:
        """Return a reason with the user's name, for tables that keep only the database's login."""
        if self.user is None:
            return reason
        return f"{reason} ({self.user})" if reason else f"({self.user})"

    @contextmanager
    def operation(
        self, database: Connection, name: str, queue: str | None, *, reason: str | None = None, **details: Any
    ) -> Iterator[Noted]:
        """Execute the block and record it, in one transaction.

        Raises:
            QueueNotFound: the queue does not exist.
            QueueNotGranted: the login may neither receive from the queue nor operate queues. Nothing was changed.
        """
        noted = Noted(details=details)
        with database.transaction():
            yield noted
            self.record(database, name, queue, noted, reason=reason)

    def record(
        self, database: Connection, name: str, queue: str | None, noted: Noted, *,
        reason: str | None = None, executor: UUID | None = None, up_to: int | None = None,
    ) -> int:  # fmt: skip
        """Record an operation in the caller's transaction, and return its number. Raises as `operation`.

        Args:
            executor: the operation goes on, and this names who reports it.
            up_to: the last row version that it applies to.
        """
        known = {key: value for key, value in noted.details.items() if value is not None}
        (row,) = database.call(
            "record_operation",
            operation_name=name,
            client=self.client,
            user_name=self.user,
            queue_name=queue,
            message_id=noted.message_id,
            details=json.dumps(known, ensure_ascii=False) if known else None,
            reason=reason or None,
            outcome=noted.outcome,
            done=noted.done,
            up_to=up_to,
            executor=executor,
        )
        return int(row.operation_id)


class RunningOperation:
    """An operation that this process executes in several transactions. Not for several threads at once."""

    def __init__(self, database: Connection, number: int, executor: UUID) -> None:
        self._database, self.number, self._executor = database, number, executor
        #: whether somebody has asked it to stop, as of the last report
        self.cancelled = False
        self._reported_at = time.monotonic()

    @classmethod
    def begin(
        cls, database: Connection, operator: Operator, name: str, queue: str, *,
        reason: str | None = None, up_to: int | None = None, **details: Any,
    ) -> RunningOperation:  # fmt: skip
        """Record an operation that goes on. Raises as `Operator.operation`."""
        executor = uuid4()
        with database.transaction():
            number = operator.record(
                database, name, queue, Noted(details=details), reason=reason, executor=executor, up_to=up_to
            )
        return cls(database, number, executor)

    @classmethod
    def resume(cls, database: Connection, number: int) -> RunningOperation | None:
        """Take over an operation that was interrupted, cancelled or failed; return None if it is not one of these.

        Raises PermissionDenied.
        """
        executor = uuid4()
        resumed = database.call_atomically("resume_operation", operation_id=number, executor=executor)[0].resumed
        return cls(database, number, executor) if resumed else None

    def report(self, **values: Any) -> None:
        """Report how far the operation is, in the caller's transaction if there is one.

        Values as for `report_operation`.

        Raises:
            OperationTaken: another process executes it, or it has ended. A transaction that the caller has open must be
                rolled back.
        """
        found = self._database.call_atomically(
            "report_operation", operation_id=self.number, executor=self._executor, **values
        )
        if not found:
            raise OperationTaken(
                f"Another process has taken operation {self.number}, or it has ended. `rowpost operations show "
                f"{self.number}` shows its state."
            )
        self.cancelled, self._reported_at = bool(found[0].is_cancelled), time.monotonic()

    def keep(self) -> None:
        """Report that the operation goes on, if the last report is a second old. Raises OperationTaken."""
        if time.monotonic() - self._reported_at > REPORT_S:
            self.report()


def recordable(error: BaseException) -> str:
    """Return what a line says about an error: its text, unless that may hold a part of a message, as a server's own
    words may.
    """
    if type(error) is DatabaseError or not isinstance(error, RowpostError):
        return f"{type(error).__name__}: the log or the output of its process says more."
    return str(error)


def list_operations(database: Connection, count: int = 50, before: int | None = None) -> list[LoggedOperation]:
    """Return operations, the last one first.

    Args:
        count: at most so many, 1 to 1,000.
        before: only operations with a lower number.

    Raises:
        InvalidCount: the count is out of its range.
        PermissionDenied: the login may not read the record.
    """
    return [_operation(row) for row in database.call("list_operations", count=count, before_id=before)]


def find_operation(database: Connection, number: int) -> LoggedOperation:
    """Return one operation. Raises OperationNotFound, PermissionDenied."""
    found = list_operations(database, 1, number + 1)
    if not found or found[0].number != number:
        raise OperationNotFound(
            f"There is no operation {number} on record: the number is wrong, or the operation began more than "
            f"{KEPT_DAYS} days ago. `rowpost operations list` shows the last ones."
        )
    return found[0]


def cancel_operation(database: Connection, number: int, user: str | None = None) -> bool:
    """Ask an operation to stop, and return whether it had not ended.

    It stops after the messages of its open transaction.

    Raises:
        OperationNotFound: no such operation.
        PermissionDenied: the login is no operator.
    """
    if database.call("cancel_operation", operation_id=number, user_name=user)[0].cancelled:
        return True
    find_operation(database, number)
    return False


def clean_operation_log(database: Connection, kept_days: float = KEPT_DAYS) -> int:
    """Delete the lines of operations that began before, in batches, and return how many. Raises PermissionDenied."""
    total, removed = 0, CLEAN_BATCH
    while removed == CLEAN_BATCH:
        removed = database.call_atomically(
            "clean_operation_log", retention_seconds=int(kept_days * 86_400), count=CLEAN_BATCH
        )[0].removed
        total += removed
    return total


def _operation(row: Any) -> LoggedOperation:
    try:
        details: Any = json.loads(row.details or "{}")
    except (ValueError, RecursionError):  # cut, because it was too long; or not written by rowpost
        details = {"text": row.details}
    return replace(LoggedOperation(*row), details=details if isinstance(details, dict) else {"text": row.details})
