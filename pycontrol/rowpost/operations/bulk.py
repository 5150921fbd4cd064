"""Bulk operations: previewed, executed in small transactions, on record, cancelled from anywhere, and gone on with.

    selection = FailedSelection("error", Filter(failed_queue="Billing"))
    print(preview(database, selection).matched)
    operation = BulkOperation.begin(database, Operator("dashboard", "ada"), selection, FailureChange("retry"), reason="the gateway is back")
    operation.run(progress=lambda counted: print(counted.finished, counted.total))

An operation first reads the error queue to its end, which fixes to which messages it applies: what fails again
meanwhile is not changed twice. Then it changes the matching messages in batches. Each batch is one transaction with its
report, which has the row version that was reached. So a process that is killed leaves no message half changed, and
another process goes on behind the last batch that was committed. The report names its executor: a process that lost the
operation to another one is refused, and rolls back.

The values of headers that an edit sets are not on record. Only a digest is, so that `BulkOperation.resume` needs the
same values again.
"""  # noqa: E501

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from rowpost.database.connection import Connection
from rowpost.errors import DatabaseUnavailable, InvalidMessage, OperationTaken, RowpostError
from rowpost.operations.log import (
    BULK,
    LoggedOperation,
    Operator,
    RunningOperation,
    cancel_operation,
    find_operation,
    recordable,
)
from rowpost.operations.operation import Result
from rowpost.operations.rights import Right
from rowpost.transport.changes import BATCH, Changed, FailureChange
from rowpost.transport.error_queue import ErrorQueue, Filter
from rowpost.transport.failed_message import FailedMessage
from rowpost.transport.failure_groups import Scan, cause_of, scan

__all__ = [
    "EVERYTHING",
    "WORDS",
    "BulkCounts",
    "BulkOperation",
    "BulkWords",
    "CancelRequested",
    "FailedSelection",
    "preview",
    "request_cancel",
]

PAGE, EXAMPLES = 1_000, 5
#: for `read_at_most`: to the end of the queue
EVERYTHING = 2**62
#: refused messages that are kept with their reasons
KEPT_REFUSALS = 20


class BulkWords(NamedTuple):
    """What a kind of bulk operation is called: as a heading, as a command, while it runs, and afterwards."""

    title: str
    verb: str
    doing: str
    done: str


WORDS = {
    "retry": BulkWords("Retry failed messages", "Retry", "Retrying", "retried"),
    "discard": BulkWords("Discard failed messages", "Discard", "Discarding", "discarded"),
    "move": BulkWords("Move failed messages", "Move", "Moving", "moved"),
    "edit": BulkWords("Edit a header of failed messages", "Edit and retry", "Editing", "edited"),
}


@dataclass(frozen=True, slots=True)
class FailedSelection:
    """To which messages an operation applies.

    Attributes:
        queue: the error queue.
        wanted: what the messages must match.
        cause: the key of a group of `failure_groups`; None: all causes.
        after: only messages with a higher row version.
        up_to: only messages up to this row version; None: to the end of the queue when the operation begins.
    """

    queue: str
    wanted: Filter = field(default_factory=Filter)
    cause: str | None = None
    after: int | None = None
    up_to: int | None = None

    def matches(self, message: FailedMessage, database: Connection) -> bool:
        """Return whether the message is selected. Row versions are not compared."""
        return self.wanted.matches(message, database) and (self.cause is None or cause_of(message).key == self.cause)


@dataclass(frozen=True, slots=True)
class BulkCounts:
    """How far an operation is.

    `total` is None while the messages are counted; `read` says how many were read for that.
    """

    number: int
    total: int | None = None
    read: int = 0
    done: int = 0
    gone: int = 0
    refused: int = 0

    @property
    def finished(self) -> int:
        """How many messages it has dealt with."""
        return self.done + self.gone + self.refused

    def plus(self, became: Changed) -> BulkCounts:
        """Return the counts after some messages more."""
        return replace(
            self, done=self.done + became.done, gone=self.gone + became.gone, refused=self.refused + len(became.refused)
        )


def preview(database: Connection, selection: FailedSelection, read_at_most: int = EVERYTHING) -> Scan:
    """Return which messages an operation would change, by cause, and the first five of them.

    Changes nothing. Raises QueueNotFound.
    """
    return scan(
        ErrorQueue(database, selection.queue),
        selection.wanted,
        key=selection.cause,
        after=selection.after,
        show=EXAMPLES,
        read_at_most=read_at_most,
        up_to=selection.up_to,
    )


class BulkOperation:
    """One bulk operation, executed by this process. Not for several threads at once."""

    #: what a login needs to begin one
    right = Right.CHANGE_FAILED

    def __init__(
        self,
        database: Connection,
        selection: FailedSelection,
        change: FailureChange,
        counts: BulkCounts,
        operation: RunningOperation,
    ) -> None:
        self._errors = ErrorQueue(database, selection.queue)
        self._database, self._selection, self._change, self._operation = database, selection, change, operation
        self.name, self.queue, self.words = change.kind + BULK, selection.queue, WORDS[change.kind]
        self.counts = counts
        #: row version and reason of the first 20 messages that stay
        self.refusals: list[tuple[int, str]] = []

    @classmethod
    def begin(
        cls,
        database: Connection,
        operator: Operator,
        selection: FailedSelection,
        change: FailureChange,
        reason: str | None = None,
    ) -> BulkOperation:
        """Record an operation, which `run` executes.

        Raises:
            QueueNotFound: there is no such error queue, or no queue to which the messages go.
            QueueNotGranted: the login may not receive from the error queue.
        """
        errors = ErrorQueue(database, selection.queue)
        if change.to is not None:
            errors.check_destination(change.to)
        operation = RunningOperation.begin(
            database,
            operator,
            change.kind + BULK,
            errors.queue.name,
            reason=reason,
            up_to=selection.up_to,
            **_details(selection, change),
        )
        return cls(database, selection, change, BulkCounts(operation.number), operation)

    @classmethod
    def resume(
        cls, database: Connection, number: int, headers: Mapping[str, str | None] | None = None
    ) -> BulkOperation:
        """Go on with an operation that was interrupted, cancelled or failed.

        Args:
            headers: the headers that an edit sets, as they were given when it began.

        Raises:
            OperationNotFound: no such operation.
            OperationTaken: a process executes it, or it is done, or it is no bulk operation.
            InvalidMessage: the headers are not those with which it began.
            PermissionDenied: the login is no operator.
        """
        selection, change = _stored(find_operation(database, number), headers or {})
        ongoing = RunningOperation.resume(database, number)
        if ongoing is None:
            raise OperationTaken(_why_taken(find_operation(database, number)))
        operation = find_operation(database, number)
        selection = replace(
            selection,
            after=operation.reached if operation.reached is not None else selection.after,
            up_to=operation.up_to,
        )
        return cls(
            database,
            selection,
            change,
            BulkCounts(number, None, 0, operation.done, operation.gone, operation.refused),
            ongoing,
        )

    def run(
        self,
        progress: Callable[[BulkCounts], None] = lambda counts: None,
        stop: Callable[[], str | None] = lambda: None,
    ) -> str:
        """Execute the operation to its end, and return the state in which it ended: done, cancelled, interrupted or
        failed.

        Args:
            progress: called after each batch.
            stop: asked before each batch: None to go on, or the state in which the operation ends now, "cancelled" or
                "interrupted".

        Raises:
            OperationTaken: another process executes it. What this one has committed stands.
            DatabaseUnavailable: the operation is listed as interrupted half a minute later.
            RowpostError: what made it fail, after that was recorded.
        """
        try:
            state = self._collect_and_change(progress, stop)
        except (OperationTaken, DatabaseUnavailable):
            raise
        except RowpostError as error:
            with suppress(RowpostError):
                self._operation.report(operation_state="failed", outcome=recordable(error))
            raise
        except BaseException:
            with suppress(RowpostError):  # without a connection, it is listed as interrupted half a minute later
                self._operation.report(operation_state="interrupted")
            raise
        self._operation.report(operation_state=state, outcome=self._first_refusal())
        return state

    def _collect_and_change(self, progress: Callable[[BulkCounts], None], stop: Callable[[], str | None]) -> str:
        rows = self._collect(progress, stop)
        for start in range(0, len(rows), BATCH):
            asked = self._asked(stop)
            if asked:
                return asked
            for part in self._errors.change_all(rows[start : start + BATCH], self._change, self._report_part):
                self.counts = self.counts.plus(part)
                self.refusals = [*self.refusals, *part.refused][:KEPT_REFUSALS]
            progress(self.counts)
        return "done" if self.counts.total is not None else self._asked(stop) or "cancelled"

    def _asked(self, stop: Callable[[], str | None]) -> str | None:
        """Return the state in which the operation ends now, because the caller or the record asks for it."""
        return stop() or ("cancelled" if self._operation.cancelled else None)

    def _collect(self, progress: Callable[[BulkCounts], None], stop: Callable[[], str | None]) -> Sequence[int]:
        """Return the row versions of the messages, and report how many they are and which one is the last.

        Empty if the operation ends now.
        """
        rows, at, up_to = array("q"), self._selection.after, self._selection.up_to
        more = True
        while more:
            if self._asked(stop):
                return array("q")
            page = self._errors.queue.browse(PAGE, at, 0)
            for browsed in page:
                if up_to is not None and browsed.row_version > up_to:
                    break
                at = browsed.row_version
                if self._selection.matches(FailedMessage(browsed, self._errors.name_here), self._database):
                    rows.append(at)
            more = len(page) == PAGE and at == page[-1].row_version
            self.counts = replace(self.counts, read=self.counts.read + len(page))
            progress(self.counts)
            self._operation.keep()
        self.counts = replace(self.counts, total=self.counts.finished + len(rows))
        self._operation.report(total=self.counts.total, up_to=at if up_to is None else up_to)
        progress(self.counts)
        return rows

    def _report_part(self, rows: Sequence[int], became: Changed) -> None:
        """Report a part in the transaction of its messages."""
        after = self.counts.plus(became)
        self._operation.report(done=after.done, gone=after.gone, refused=after.refused, reached=rows[-1])

    def _first_refusal(self) -> str | None:
        if not self.refusals:
            return None
        (row, reason), more = self.refusals[0], self.counts.refused - 1
        return f"Message {row} stays: {reason}" + (f" {more:,} more stay." if more > 0 else "")


class CancelRequested(Result, frozen=True):
    """Whether an operation had not ended when it was asked to stop."""

    operation: int
    cancelled: bool

    @property
    def sentence(self) -> str:
        if self.cancelled:
            return f"Operation {self.operation} stops after the messages that it changes now."
        return f"Operation {self.operation} had already ended."


def request_cancel(database: Connection, number: int, user: str | None = None) -> CancelRequested:
    """Ask an operation to stop, whichever process executes it. Raises OperationNotFound, PermissionDenied."""
    return CancelRequested(number, cancel_operation(database, number, user))


def _details(selection: FailedSelection, change: FailureChange) -> dict[str, Any]:
    """Return what is on record of an operation, without the values of headers. None: not given."""
    wanted = selection.wanted
    salt = uuid4().hex
    return {
        "failed_queue": wanted.failed_queue,
        "exception": wanted.exception,
        "type": wanted.message_type,
        "since": None if wanted.since is None else wanted.since.astimezone(UTC).isoformat(),
        "cause": selection.cause,
        "after": selection.after,
        "to": change.to,
        "sets": [name for name, value in change.headers.items() if value is not None] or None,
        "removes": [name for name, value in change.headers.items() if value is None] or None,
        "digest": f"{salt}:{_digest(salt, change.headers)}" if change.headers else None,
    }


def _digest(salt: str, headers: Mapping[str, str | None]) -> str:
    return hashlib.sha256(repr((salt, sorted(headers.items()))).encode()).hexdigest()


def _stored(operation: LoggedOperation, headers: Mapping[str, str | None]) -> tuple[FailedSelection, FailureChange]:
    """Return what an operation on record selects and changes. Raises OperationTaken, InvalidMessage."""
    if not operation.name.endswith(BULK) or operation.queue is None:
        raise OperationTaken(
            f"Operation {operation.number} ({operation.name}) is no bulk operation, so it cannot go on. Repeat it "
            "instead."
        )
    known = operation.details
    change = {**headers, **dict.fromkeys(known.get("removes", ()))}
    salt, _, digest = str(known.get("digest", "")).partition(":")
    if digest and digest != _digest(salt, change):
        raise InvalidMessage(
            f"The values of headers are not on record. To go on with operation {operation.number}, give those with "
            f"which it began, of: {', '.join(known.get('sets', ()))}."
        )
    since = datetime.fromisoformat(known["since"]) if "since" in known else None
    wanted = Filter(known.get("failed_queue"), known.get("exception"), known.get("type"), since)
    selection = FailedSelection(operation.queue, wanted, known.get("cause"), known.get("after"), operation.up_to)
    return selection, FailureChange(operation.name.removesuffix(BULK), known.get("to"), change if digest else {})


def _why_taken(operation: LoggedOperation) -> str:
    if operation.goes_on:
        return (
            f"Operation {operation.number} goes on: its process reported less than 30 seconds ago. To stop it, cancel "
            "it."
        )
    return f"Operation {operation.number} is {operation.state}: nothing is left of it."
