"""Purge a queue: delete its messages in transactions of 2,000, on record.

purged = purge(database, Operator("command line"), "Sales", progress=print)
print(purged.sentence)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rowpost.database.connection import Connection
from rowpost.errors import RowpostError
from rowpost.operations.log import Operator, RunningOperation, recordable
from rowpost.operations.operation import Result

__all__ = ["PurgeResult", "purge"]

BATCH = 2_000


class PurgeResult(Result, frozen=True):
    """How many messages of a queue were deleted. `ended`: no message is left that nobody has locked."""

    queue: str
    purged: int
    ended: bool

    @property
    def sentence(self) -> str:
        return f"Deleted {self.purged:,} message{'' if self.purged == 1 else 's'} from {self.queue}."


def purge(
    database: Connection, operator: Operator, queue: str, *, expired: bool = False,
    progress: Callable[[int], None] = lambda deleted: None, stop: Callable[[], str | None] = lambda: None,
) -> PurgeResult:  # fmt: skip
    """Delete the messages of a queue, without those that receivers have locked.

    Args:
        expired: only messages whose time to be received has passed.
        progress: called after each transaction with the number deleted so far.
        stop: asked after each transaction: None to go on, or the state in which the operation ends now, "done" or
            "cancelled".

    Raises:
        QueueNotFound, PermissionDenied: nothing was deleted.
    """
    operation = RunningOperation.begin(database, operator, "purge", queue, expired=expired or None)
    deleted, purged, state = 0, BATCH, None
    try:
        while purged == BATCH and state is None:
            with database.transaction():
                purged = database.call("purge_expired" if expired else "purge_queue", queue=queue, count=BATCH)[
                    0
                ].purged
                operation.report(done=deleted + purged)
            deleted += purged
            progress(deleted)
            state = stop() or ("cancelled" if operation.cancelled else None)
    except BaseException as error:
        with suppress(RowpostError):
            operation.report(operation_state="failed", outcome=recordable(error))
        raise
    ended = purged < BATCH
    operation.report(
        operation_state="done" if ended else state, outcome=None if ended else "More messages waited when it ended."
    )
    return PurgeResult(queue, deleted, ended)
