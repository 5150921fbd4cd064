"""Purge a queue: delete its messages in transactions of 2,000, on record.

purged = purge(database, Actor("command line"), "Sales", progress=print)
print(purged.deleted, purged.ended)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from rowpost.database.connection import Connection
from rowpost.errors import RowpostError
from rowpost.transport.acts import Actor, Ongoing, recordable

__all__ = ["Purged", "purge"]

BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Purged:
    """How many messages were deleted, and whether that were all of those that nobody had locked."""

    deleted: int
    ended: bool


def purge(
    database: Connection, actor: Actor, queue: str, *, expired: bool = False,
    progress: Callable[[int], None] = lambda deleted: None, stop: Callable[[], str | None] = lambda: None,
) -> Purged:  # fmt: skip
    """Delete the messages of a queue, without those that receivers have locked.

    Args:
        expired: only messages whose time to be received has passed.
        progress: called after each transaction with the number deleted so far.
        stop: asked after each transaction: None to go on, or the state in which the act ends now, "done" or "cancelled".

    Raises:
        QueueNotFound, PermissionDenied: nothing was deleted.
    """
    act = Ongoing.begin(database, actor, "purge", queue, expired=expired or None)
    deleted, purged, state = 0, BATCH, None
    try:
        while purged == BATCH and state is None:
            with database.transaction():
                purged = database.call("purge_expired" if expired else "purge_queue", queue=queue, count=BATCH)[0].purged
                act.report(done=deleted + purged)
            deleted += purged
            progress(deleted)
            state = stop() or ("cancelled" if act.cancelled else None)
    except BaseException as error:
        with suppress(RowpostError):
            act.report(act_state="failed", outcome=recordable(error))
        raise
    ended = purged < BATCH
    act.report(act_state="done" if ended else state, outcome=None if ended else "More messages waited when it ended.")
    return Purged(deleted, ended)
