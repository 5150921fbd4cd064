"""Requests that wait for their reply, in a program that is no handler: a web application, a script.

    web = Endpoint("Shop.Web", send_only=True, instance="web1")
    callbacks = web.callbacks(load_settings("production"))      # once per process; close() at its end
    reply = callbacks.request(PlaceOrder(42), to="Sales", timeout=timedelta(seconds=5))

Each instance has a queue of its own, `<endpoint>.<instance>`, where replies to its requests come: never to another
instance, nor into the endpoint's own queue (reference A8). One thread receives there, one message at a time, whatever
the number of threads that wait. Replies find their request by NServiceBus.CorrelationId; one that comes too late is
logged and dropped. Two processes must not share an instance's name: they would take each other's replies.

The queue is made by the first request where the login may; else somebody makes it before:

    rowpost queue create Shop.Web.web1 --no-delayed
    rowpost queue grant --login web --receive-from Shop.Web.web1 --send-to Sales

As long as the receiver runs it renews a lease on its queue; `rowpost queue check` names queues whose lease ran out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rowpost.database.connection import Connection, connect
from rowpost.deploy.queues import create_queue
from rowpost.errors import (
    DatabaseError,
    DeployError,
    InvalidMessage,
    MessageCorrupt,
    NoReply,
    PermissionDenied,
    RowpostError,
    SettingsError,
)
from rowpost.handling.context import Bus
from rowpost.settings.environment import Settings
from rowpost.wire.address import parse_address
from rowpost.wire.headers import CORRELATION_ID, REPLY_TO_ADDRESS
from rowpost.wire.message import Message

if TYPE_CHECKING:
    from rowpost.endpoint.endpoint import Endpoint

__all__ = ["Callbacks", "opener"]

logger = logging.getLogger("rowpost")

# Seconds: between two looks for replies while somebody waits (doubling), while nobody does, and after trouble.
SHORTEST_PAUSE = 0.002
LONGEST_PAUSE = 0.05
IDLE_PAUSE = 1.0
AFTER_TROUBLE = 1.0
RECEIVE_BATCH = 50
# Seconds: a queue counts as orphaned when its lease was not renewed for so long.
LEASE = 600
RENEW_EVERY = 60.0
REMEMBERED_LATE = 10_000


class Callbacks:
    """The requests in flight of one instance of an endpoint. For any number of threads.

    Args:
        endpoint: with an `instance`.
        connect: opens a connection; two are used, one for requests and one for replies.
    """

    def __init__(self, endpoint: Endpoint, connect: Callable[[], Connection]) -> None:
        if not endpoint.instance:
            raise SettingsError(
                f"The endpoint {endpoint.name!r} cannot wait for replies: it has no queue of its own for them. "
                'Name this process: Endpoint(…, instance="web1").'
            )
        self.endpoint = endpoint
        self.queue = f"{endpoint.name}.{endpoint.instance}"
        self._connect = connect
        self._lock = threading.Lock()
        self._pending: dict[str, Future[Message]] = {}
        self._given_up: dict[str, float] = {}
        self._wake = threading.Event()
        self._sending: Connection | None = None
        self._address = ""
        self._thread: threading.Thread | None = None
        self._closing = False
        self._renewed_at = float("-inf")

    def __enter__(self) -> Callbacks:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._closing

    def start(self) -> None:
        """Makes the queue if need be, and begins to receive; the first request does it otherwise.

        Raises:
            PermissionDenied: the queue is missing, and the login may not make it.
        """
        with self._lock:
            if self._closing:
                raise NoReply(f"The receiver of replies in {self.queue!r} was closed.")
            if self._thread is not None:
                return
            database = self._connect()
            try:
                self._ensure_queue(database)
            except BaseException:
                database.close()
                raise
            self._sending = database
            self._address = database.canonical(parse_address(self.queue))
            self._thread = threading.Thread(target=self._run, name=f"rowpost replies {self.queue}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ends the receiver; who still waits gets NoReply. The queue stays, for the next process of this name."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            waiting, self._pending = list(self._pending.values()), {}
            if self._sending is not None:
                self._sending.close()
        for future in waiting:
            future.set_exception(NoReply(f"The receiver of replies in {self.queue!r} was closed."))

    def request(
        self,
        message: Any,
        to: str | None = None,
        *,
        timeout: timedelta,
        headers: Mapping[str, str | None] | None = None,
    ) -> Any:
        """Sends a request, waits for its reply and returns it: see Bus.request, which does the same."""
        seconds = timeout.total_seconds()
        if seconds <= 0:
            raise InvalidMessage(f"A timeout of {timeout} leaves no time for a reply.")
        self.start()
        correlation_id, future = self._send(message, to, headers)
        try:
            reply = future.result(min(seconds, threading.TIMEOUT_MAX))
        except FutureTimeout:
            reply = self._give_up(correlation_id, future, timeout)
        return self.endpoint.typed(reply)

    # -------------------------------------------------------------- the requesting threads
    def _send(
        self, message: Any, to: str | None, extra: Mapping[str, str | None] | None
    ) -> tuple[str, Future[Message]]:
        future: Future[Message] = Future()
        with self._lock:
            if self._closing or self._sending is None:
                raise NoReply(f"The receiver of replies in {self.queue!r} was closed.")
            if self._sending.closed:
                self._sending = self._connect()
            bus = Bus(self.endpoint, self._sending)
            bus.send(message, to, headers={**(extra or {}), REPLY_TO_ADDRESS: self._address})
            correlation_id = str(bus.operations[0].headers.get(CORRELATION_ID) or "")
            if not correlation_id or correlation_id in self._pending:
                raise InvalidMessage(f"A request needs a {CORRELATION_ID} of its own: leave the header to rowpost.")
            self._pending[correlation_id] = future  # before it leaves: the reply may be faster than this thread
            try:
                self.endpoint.dispatch(self._sending, bus.operations, begin=True, commit=True)
            except BaseException:
                del self._pending[correlation_id]
                raise
        self._wake.set()
        return correlation_id, future

    def _give_up(self, correlation_id: str, future: Future[Message], timeout: timedelta) -> Message:
        with self._lock:
            if self._pending.pop(correlation_id, None) is not None:
                if len(self._given_up) >= REMEMBERED_LATE:
                    del self._given_up[next(iter(self._given_up))]
                self._given_up[correlation_id] = time.monotonic()
                raise NoReply(f"No reply to request {correlation_id[:100]} came to {self.queue!r} within {timeout}.")
        return future.result()  # it came between the timeout and the lock

    # -------------------------------------------------------------- the receiving thread
    def _run(self) -> None:
        database: Connection | None = None
        pause = SHORTEST_PAUSE
        while not self._closing:
            try:
                if database is None or database.closed:
                    database = self._connect()
                self._renew(database)
                found = self._receive(database)
            except RowpostError as error:
                logger.warning("Replies in %s cannot be received, trying again: %s", self.queue, error)
                if database is not None:
                    database.close()
                    database = None
                self._wait(AFTER_TROUBLE)
                continue
            pause = SHORTEST_PAUSE if found else min(2 * pause, LONGEST_PAUSE)
            if not found and self._wait(pause if self._pending else IDLE_PAUSE):
                pause = SHORTEST_PAUSE
        if database is not None:
            database.close()

    def _wait(self, seconds: float) -> bool:
        """Until a request is sent, at most so long; whether one was."""
        woken = self._wake.wait(seconds)
        self._wake.clear()
        return woken

    def _receive(self, database: Connection) -> int:
        rows = database.call("receive_messages", self.queue, begin=True, count=RECEIVE_BATCH)
        database.commit()  # before anybody hears of them: what could not be committed comes again
        for key, row_version, expired, headers, body in rows:
            if not expired:
                self._deliver(Message(key, row_version, expired, headers, body or b""))
        return len(rows)

    def _deliver(self, message: Message) -> None:
        try:
            correlation_id = message.headers.get(CORRELATION_ID) or ""
        except MessageCorrupt as error:
            logger.error("Dropped row %s of %s: nobody can tell whose reply it is. %s", message.id, self.queue, error)
            return
        with self._lock:
            future = self._pending.pop(correlation_id, None)
            given_up_at = self._given_up.pop(correlation_id, None)
        if future is not None:
            future.set_result(message)
        elif given_up_at is not None:
            late = time.monotonic() - given_up_at
            text = "Dropped a reply in %s that came %.1f s late: request %s."
            logger.warning(text, self.queue, late, correlation_id[:100])
        else:
            text = (
                "Dropped a message in %s that answers no request of this process: correlation id %s. It answers an "
                "earlier process, was sent twice, or another process has the same instance name."
            )
            logger.warning(text, self.queue, correlation_id[:100])

    # -------------------------------------------------------------- the queue
    def _ensure_queue(self, database: Connection) -> None:
        name = parse_address(self.queue).short(database.engine).format()
        if name in {row.queue_name for row in database.call("list_queues")}:
            return
        try:
            create_queue(database, name, delayed=False)
        except (DeployError, PermissionDenied) as error:
            raise PermissionDenied(
                f"The queue {name!r} for replies to this instance does not exist and cannot be made: {error} Let somebody "
                f"who may run: rowpost queue create {name} --no-delayed; rowpost queue grant --receive-from {name} --login …"
            ) from error

    def _renew(self, database: Connection) -> None:
        now = time.monotonic()
        if now - self._renewed_at >= RENEW_EVERY:
            database.call("renew_lease", queue_name=self.queue, seconds=LEASE)
            self._renewed_at = now


def opener(where: Settings | Connection, name: str) -> Callable[[], Connection]:
    """How to open connections to the database of some settings, or that of a connection.

    Raises:
        DatabaseError: the connection was lent, and rowpost does not know how to open another.
    """
    if isinstance(where, Settings):
        return lambda: connect(where, application_name=f"rowpost {name}")
    if where.another is None:
        raise DatabaseError(
            "A request needs connections of its own, and rowpost cannot open them beside one that was lent. "
            "Say once where the database is: endpoint.callbacks(load_settings(…))."
        )
    return where.another
