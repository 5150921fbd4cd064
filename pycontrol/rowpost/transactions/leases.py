"""A handler's hold on a message without an open transaction: `Lease`, and `LeaseScope`, which its context uses.

`pipeline.lease` makes both, and says what the transaction is at the end. See docs/guides/long-handlers.md.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NoReturn
from uuid import UUID

from rowpost.database.connection import Connection
from rowpost.errors import InvalidMessage, SettingsError
from rowpost.wire.outgoing import Outgoing

__all__ = ["NO_CONNECTION", "Lease", "LeaseScope", "Lend"]

#: the characters of a progress text that are stored
TEXT_LIMIT = 200
NO_CONNECTION = (
    "context.connection cannot be used here: with receive='lease' no connection is held while a handler works. Write "
    "within `with context.commit() as connection:`, whose end commits together with the message, or open a connection "
    "of your own."
)
#: takes from a connection what a handler gets: the driver's, or one for an event loop
Lend = Callable[[Connection], Any]
#: what closes a message at its commit: the audit copy, and what ServiceControl is told
Closing = Callable[[Mapping[str, str | None]], list[Outgoing]]


class Lease:
    """The lease of one message. Thread-safe: a handler reports its progress, and another thread renews the lease.

    Attributes:
        token: names the lease for the database.
        lost: whether the last renewal did not find it. It may be wrong; only the commit decides.
    """

    def __init__(self, token: UUID) -> None:
        self.token = token
        self.lost = False
        self._lock = threading.Lock()
        self._progress: dict[str, Any] = {}

    def progress(self, fraction: float, text: str = "") -> None:
        """Keep how far the handler is; the next renewal stores it.

        Raises:
            InvalidMessage: the fraction is no number from 0 to 1, or the text is no text.
        """
        is_number = isinstance(fraction, int | float) and not isinstance(fraction, bool)
        if not is_number or math.isnan(fraction) or not 0 <= fraction <= 1:
            raise InvalidMessage(f"The progress must be a number from 0 to 1 (got {fraction!r}).")
        if not isinstance(text, str):
            raise InvalidMessage(f"The text of a progress must be a text (got {type(text).__name__}).")
        stored = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()[:TEXT_LIMIT]
        with self._lock:
            self._progress = {"percent": int(fraction * 100), "text": stored}

    @property
    def document(self) -> dict[str, Any]:
        """The lease as `renew_leases` takes it."""
        with self._lock:
            return {"token": str(self.token), **self._progress}


class LeaseScope:
    """What a handler may do with its leased message: commit it, and say how far it is.

    Args:
        lease: the lease.
        commit: returns the block in which the message is committed. It gets a function that takes what was sent, and
            one that takes from a connection what the handler gets.

    Attributes:
        committed: whether the message is committed: nothing can be sent any more.
        gone: whether the handler has ended the transaction of its commit, so that the message may be in no table.
        unsent: why what was sent is not sent yet, although what the handler wrote is committed; None if it is.
        closing: returns what is sent at the end of the message beside what its handlers sent. The endpoint sets it.
    """

    def __init__(
        self, lease: Lease, commit: Callable[[Callable[[], list[Outgoing]], Lend], AbstractContextManager[Any]]
    ) -> None:
        self.lease, self.commit = lease, commit
        self.committed = self.gone = False
        self.unsent: Exception | None = None
        self.closing: Closing = lambda audit_headers: []

    def business_connection(self, database: Connection) -> NoReturn:
        """Refuse.

        Raises:
            SettingsError: always.
        """
        raise SettingsError(NO_CONNECTION)

    def enlist(self, participant: Any, database: Connection) -> NoReturn:
        """Refuse.

        Raises:
            SettingsError: always.
        """
        raise SettingsError(
            f"{participant!r} cannot take part: with receive='lease' only the queue's database can, within "
            "`with context.commit() as connection:`. Use another connection, which commits on its own."
        )
