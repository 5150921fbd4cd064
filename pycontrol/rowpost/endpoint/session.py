"""Sessions: what a program sends outside of handlers, stored together with its own data in a business database.

    with sales.open(business_connection, queues=settings) as bus:
        business_connection.execute("INSERT INTO placed ...")
        bus.send(ChargeCard(42))

The messages are stored in the outbox of the business database, in the caller's transaction. They are sent after its
commit: at once if the block commits or the caller says so, else by a supervisor, which looks for such messages once a
minute. A program that dies between loses nothing, and the record of the dispatch prevents that a message is sent twice.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import Any, Protocol

from rowpost.database.connection import Connection, connect
from rowpost.errors import QueueNotFound, RowpostError, SettingsError
from rowpost.handling.context import Bus
from rowpost.handling.sender import Sender
from rowpost.outbox.cleanup import send_stored
from rowpost.outbox.declaration import Outbox, encode_outgoing, named, open_business
from rowpost.settings.environment import Settings
from rowpost.transport.directory import Directory
from rowpost.wire.message import new_id
from rowpost.wire.outgoing import Call

__all__ = ["SessionBus", "Sessions"]

logger = logging.getLogger("rowpost")


class Opener(Sender, Protocol):
    """The endpoint of sessions."""

    outbox: Outbox | None
    error_queue: str


class SessionBus(Bus):
    """A bus whose messages are stored in the business database and sent after the commit."""

    def __init__(self, sessions: Sessions, business: Connection, queues: Connection) -> None:
        super().__init__(sessions.endpoint, queues)
        self._sessions, self._business = sessions, business
        self._stored = False
        self._key = {"endpoint": sessions.endpoint.queue, "message_id": f"session-{new_id()}"}

    @property
    def connection(self) -> Any:
        """The driver's connection to the business database.

        SQL on it belongs to the transaction in which the messages are stored.
        """
        return self._business.driver_connection

    def store(self) -> None:
        """Store the messages in the caller's transaction; without one, commit and send them."""
        if not self.outgoing:
            return
        alone = not self._business.join()
        stored = {**self._key, "operations": encode_outgoing(self.outgoing)}
        with named(self._sessions.outbox.database):
            self._business.call_all(
                [Call("record_handled", None, self._key), Call("store_operations", None, stored)],
                begin=alone,
                commit=alone,
            )
        self._stored = True
        if alone:
            self.dispatch()

    def dispatch(self) -> bool:
        """Send the stored messages now.

        Call it after the commit of your own transaction; otherwise, a supervisor sends them later.

        Returns:
            Whether they were sent by this call. False if your transaction is not committed, if they had been sent
            before, or if a database cannot be used, which is logged: then a supervisor sends them.
        """
        return self._stored and self._sessions.send(self._key)


class Sessions:
    """The sessions of one endpoint, and their connections. Thread-safe.

    Raises:
        SettingsError: the endpoint has no outbox, or no queue of its own.
    """

    def __init__(self, endpoint: Opener) -> None:
        if endpoint.outbox is None:
            raise SettingsError(
                f"The endpoint {endpoint.name!r} has no outbox: omit queues=, or declare Endpoint({endpoint.name!r}, "
                "outbox=...)."
            )
        if endpoint.send_only:
            raise SettingsError(
                f"The endpoint {endpoint.name!r} is send_only. A session needs an endpoint with a queue, because the "
                "supervisor of that queue sends what a program that died has stored."
            )
        self.endpoint, self.outbox = endpoint, endpoint.outbox
        self._directory = Directory()
        self._lock = threading.Lock()
        #: where the queues are, as the last session said
        self._where: Any = None
        self._queues: Connection | None = None
        self._business: Connection | None = None

    def open(self, connection: Any, queues: Settings | Connection) -> SessionBus:
        """Return the bus of one session.

        Args:
            connection: to the business database: a `Connection`, or one of psycopg or pyodbc.
            queues: settings of the queues' database, or a connection to it that is used for sessions only.

        Raises:
            QueueNotFound: the endpoint's queue is not there.
        """
        business = connection if isinstance(connection, Connection) else Connection.share(connection)
        with self._lock:
            if self._where != queues:
                self._drop()
                self._where = queues
            database = self._open_queues()
            if not self._directory.find(database, self.endpoint.queue).registered:
                raise QueueNotFound(
                    f"No queue named {self.endpoint.queue!r}, which a session of that endpoint needs. Run: rowpost "
                    "apply"
                )
        return SessionBus(self, business, database)

    def send(self, key: dict[str, str]) -> bool:
        """Send what one session has stored. Return whether it was sent now."""
        with self._lock:
            try:
                business = self._open_business()
                if business is None:
                    return False
                sent = send_stored(
                    self._open_queues(), business, self._directory, key, self.endpoint.error_queue, self.endpoint.host
                )
                business.rollback()  # what send_stored may leave open
            except RowpostError as error:
                self._drop()
                logger.warning(
                    "What a session of %s has stored is not sent yet; a supervisor will send it: %s",
                    self.endpoint.name,
                    error,
                )
                return False
            return sent is True

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._drop()

    def _open_queues(self) -> Connection:
        if isinstance(self._where, Connection):
            return self._where
        if self._queues is None or self._queues.closed:
            self._queues = connect(self._where, application_name=f"rowpost {self.endpoint.name}")
        return self._queues

    def _open_business(self) -> Connection | None:
        """Open a connection beside the caller's, which has a transaction of its own; None if nobody said where the
        database is.
        """
        if self._business is None or self._business.closed:
            known = {each.name: each.url for each in self._where.outboxes} if isinstance(self._where, Settings) else {}
            if self.outbox.url is None and self.outbox.database not in known:
                return None
            self._business = open_business(self.outbox.find_url(known), f"rowpost session {self.endpoint.name}")
        return self._business

    def _drop(self) -> None:
        opened = (self._queues, self._business)
        self._queues = self._business = None
        for each in opened:
            if each is not None:
                with suppress(RowpostError):
                    each.close()
        if isinstance(self._where, Connection) and not self._where.closed:
            with suppress(RowpostError):
                self._where.rollback()
