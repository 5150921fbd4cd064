"""Send requests and wait for their replies, in a program that is not a handler: a web application or a script.

    web = Endpoint("Shop.Web", send_only=True, instance="web1")
    callbacks = web.callbacks(load_settings("production"))      # once per process; close() at its end
    reply = callbacks.request(PlaceOrder(42), to="Sales", timeout=timedelta(seconds=5))

Each instance has its own queue, `<endpoint>.<instance>`, which receives the replies to its requests. No other instance
receives them. One thread receives from this queue, for any number of threads that wait. A reply is matched to its
request by the header NServiceBus.CorrelationId. A reply that arrives too late is dropped, with a warning and a count.
Two processes must not use the same instance name, because each would receive replies of the other.

The first request creates the queue if the login may do so. Otherwise create it before:

    rowpost queue create Shop.Web.web1 --no-delayed
    rowpost queue grant --login web --receive-from Shop.Web.web1 --send-to Sales

While the receiver runs, it renews a lease on its queue. `rowpost queue check` lists queues whose lease has expired.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from datetime import timedelta
from typing import Any, Protocol

from rowpost.database.connection import Connection, connect
from rowpost.database.dialects.protocol import Commit
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
from rowpost.handling.sender import Sender
from rowpost.recoverability.outcome import identity_of
from rowpost.settings.environment import Settings
from rowpost.wire.address import parse_address
from rowpost.wire.headers import CORRELATION_ID, REPLY_TO_ADDRESS
from rowpost.wire.message import Message
from rowpost.wire.outgoing import AddressedMessage, Outgoing

__all__ = ["Callbacks", "Requester", "opener"]

logger = logging.getLogger("rowpost")

#: seconds between two polls for replies while a request waits: the pause doubles from the first value to the second
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.002, 0.05
#: seconds between two polls while no request waits, and after an error
IDLE_PAUSE_SECONDS, ERROR_PAUSE_SECONDS = 1.0, 1.0
RECEIVE_BATCH = 50
#: seconds after which a queue counts as orphaned if its lease was not renewed
LEASE_SECONDS = 600
RENEW_EVERY_SECONDS = 60.0
#: how many timed-out requests are remembered, to say how late their replies are
REMEMBERED_TIMEOUTS = 10_000


class Requester(Sender, Protocol):
    """The endpoint of a receiver of replies.

    Attributes:
        instance: names this process among those of the endpoint.
    """

    instance: str | None

    def typed(self, message: Message) -> Any:
        """Return a reply decoded to its class."""

    def dispatch(
        self, database: Connection, groups: list[list[Outgoing]], *, begin: bool = False, commit: Commit = False
    ) -> None:
        """Send messages in one round trip."""


class Callbacks:
    """The in-flight requests of one instance of an endpoint. Safe for any number of threads.

    Args:
        endpoint: needs an `instance`.
        connect: opens a connection. Two are used, one for requests and one for replies.

    Attributes:
        dropped: how many messages in the queue were no replies that somebody waits for, by reason: "late", "unknown",
            "expired" or "corrupt". Each is a warning in the log, too.

    Raises:
        SettingsError: the endpoint has no `instance`.
    """

    def __init__(self, endpoint: Requester, connect: Callable[[], Connection]) -> None:
        if not endpoint.instance:
            raise SettingsError(
                f"The endpoint {endpoint.name!r} cannot wait for replies: it has no queue for them. "
                'Give this process a name: Endpoint(…, instance="web1").'
            )
        self.endpoint = endpoint
        self.queue = replace(endpoint.address, table=f"{endpoint.address.table}.{endpoint.instance}").format()
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
        self.dropped: Counter[str] = Counter()

    def __enter__(self) -> Callbacks:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    def start(self) -> None:
        """Create the queue if it is missing, and start to receive. The first request does this too.

        Raises:
            NoReply: the receiver was closed.
            PermissionDenied: the queue is missing, and the login may not create it.
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
        """Stop the receiver.

        Requests that still wait raise NoReply. The queue remains for the next process of this name.
        """
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
        """Send a request, wait for its reply and return it. See `Bus.request`, which does the same."""
        seconds = timeout.total_seconds()
        if seconds <= 0:
            raise InvalidMessage(
                f"A request cannot have the timeout {timeout}: it leaves no time for a reply. Use a positive timeout."
            )
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
            (request,) = (each for each in bus.outgoing if isinstance(each, AddressedMessage))
            correlation_id = str(request.headers.get(CORRELATION_ID) or "")
            if not correlation_id or correlation_id in self._pending:
                raise InvalidMessage(
                    f"The request cannot be sent: it needs a {CORRELATION_ID} of its own. Do not set this header."
                )
            self._pending[correlation_id] = future  # before it is sent: the reply may be faster than this thread
            try:
                self.endpoint.dispatch(self._sending, [bus.outgoing], begin=True, commit=True)
            except BaseException:
                del self._pending[correlation_id]
                raise
        self._wake.set()
        return correlation_id, future

    def _give_up(self, correlation_id: str, future: Future[Message], timeout: timedelta) -> Message:
        with self._lock:
            if self._pending.pop(correlation_id, None) is not None:
                if len(self._given_up) >= REMEMBERED_TIMEOUTS:
                    del self._given_up[next(iter(self._given_up))]
                self._given_up[correlation_id] = time.monotonic()
                raise NoReply(
                    f"No reply to the request {correlation_id[:100]} arrived in {self.queue!r} within {timeout}."
                )
        return future.result()  # it arrived between the timeout and the lock

    # -------------------------------------------------------------- the receiving thread
    def _run(self) -> None:
        database: Connection | None = None
        pause = MIN_PAUSE_SECONDS
        while not self._closing:
            try:
                if database is None or database.closed:
                    database = self._connect()
                self._renew(database)
                found = self._receive(database)
            except RowpostError as error:
                logger.warning("Replies in %s cannot be received and will be tried again: %s", self.queue, error)
                if database is not None:
                    database.close()
                    database = None
                self._wait(ERROR_PAUSE_SECONDS)
                continue
            pause = MIN_PAUSE_SECONDS if found else min(2 * pause, MAX_PAUSE_SECONDS)
            if not found and self._wait(pause if self._pending else IDLE_PAUSE_SECONDS):
                pause = MIN_PAUSE_SECONDS
        if database is not None:
            database.close()

    def _wait(self, seconds: float) -> bool:
        """Wait until a request is sent, at most so many seconds. Return whether one was sent."""
        woken = self._wake.wait(seconds)
        self._wake.clear()
        return woken

    def _receive(self, database: Connection) -> int:
        rows = database.call("receive_messages", self.queue, begin=True, count=RECEIVE_BATCH)
        database.commit()  # before replies are delivered: what could not be committed is received again
        for key, row_version, expired, headers, body in rows:
            self._deliver(Message(key, row_version, expired, headers, body or b""))
        return len(rows)

    def _deliver(self, message: Message) -> None:
        try:
            correlation_id = message.headers.get(CORRELATION_ID) or ""
        except MessageCorrupt as error:
            self._drop("corrupt", message, f"its request cannot be determined. {error}")
            return
        if message.expired:
            self._drop("expired", message, "its time to be received was over.")
            return
        with self._lock:
            future = self._pending.pop(correlation_id, None)
            given_up_at = self._given_up.pop(correlation_id, None)
        if future is not None:
            future.set_result(message)
        elif given_up_at is not None:
            late = time.monotonic() - given_up_at
            self._drop("late", message, f"it arrived {late:.1f} s late, for request {correlation_id[:100]}.")
        else:
            text = (
                f"it replies to no request of this process: correlation id {correlation_id[:100]}. It replies to an "
                "earlier process, was sent twice, or another process uses the same instance name."
            )
            self._drop("unknown", message, text)

    def _drop(self, reason: str, message: Message, text: str) -> None:
        self.dropped[reason] += 1
        message_id, message_type = identity_of(message)
        logger.warning(
            "Dropped message %s (%s) in %s: %s", message_id or message.id, message_type or "no type", self.queue, text
        )

    # -------------------------------------------------------------- the queue
    def _ensure_queue(self, database: Connection) -> None:
        name = parse_address(self.queue).short(database.engine).format()
        if name in {row[0] for row in database.call("list_queues")}:
            return
        try:
            create_queue(database, name, delayed=False)
        except (DeployError, PermissionDenied) as error:
            raise PermissionDenied(
                f"The queue {name!r} for replies to this instance does not exist and cannot be created: {error} Let an "
                f"administrator run: rowpost queue create {name} --no-delayed; rowpost queue grant --receive-from "
                f"{name} --login …"
            ) from error

    def _renew(self, database: Connection) -> None:
        now = time.monotonic()
        if now - self._renewed_at >= RENEW_EVERY_SECONDS:
            database.call_atomically("renew_lease", queue_name=self.queue, seconds=LEASE_SECONDS)
            self._renewed_at = now


def opener(where: Settings | Connection, name: str) -> Callable[[], Connection]:
    """Return a function that opens connections to the database of settings, or of a connection.

    Raises:
        DatabaseError: the caller shared the connection, and rowpost does not know how to open a second one.
    """
    if isinstance(where, Settings):
        return lambda: connect(where, application_name=f"rowpost {name}")
    if where.open_second is None:
        raise DatabaseError(
            "A request needs connections of its own, and rowpost cannot open them to the database of a shared "
            "connection. Say once where the database is: endpoint.callbacks(load_settings(…))."
        )
    return where.open_second
