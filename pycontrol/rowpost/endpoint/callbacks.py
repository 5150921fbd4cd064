"""Send requests and wait for their replies, in a program that is not a handler: a web application or a script.

    web = Endpoint("Shop.Web", send_only=True, instance="web1")
    callbacks = web.callbacks(load_settings("production"))      # once per process; close() at its end
    reply = callbacks.request(PlaceOrder(42), to="Sales", timeout=timedelta(seconds=5))

Replies arrive in a queue of this process. Only the session that owns this queue receives from it (`acquire_queue`), and
a request is sent only while this process owns it, so that no other process takes its reply. One thread receives, for
any number of threads that wait. A message is the answer if it is a reply and has the request's correlation id. A reply
that arrives too late is dropped, with a warning and a count.

The queue of a send-only endpoint's replies is that of its instance, `<endpoint>.<instance>`. Another endpoint's
instance has two queues: `<endpoint>.<instance>`, whose messages all processes of the instance handle (see
`endpoint.instance`), and `<endpoint>.<instance>.replies`. What arrives among the replies and is none moves to the
former, or else to the error queue.

The first request creates the queues if the login may do so. Otherwise create them before:

    rowpost queue create Shop.Web.web1 --no-delayed
    rowpost queue grant --login web --receive-from Shop.Web.web1 --send-to Sales

While the receiver runs, it renews its ownership of the queue. `rowpost queue check` lists queues whose ownership has
ended.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from rowpost.database.connection import Connection, connect
from rowpost.deploy.queues import create_queue
from rowpost.endpoint.instance import Requester, receive_instance
from rowpost.errors import (
    DatabaseError,
    DatabaseUnavailable,
    DeployError,
    InvalidMessage,
    MessageCorrupt,
    NoHandler,
    NoReply,
    PermissionDenied,
    RowpostError,
    SettingsError,
)
from rowpost.handling.context import Bus
from rowpost.pipeline.modes import OtherDatabases
from rowpost.recoverability.copies import FailedCopies
from rowpost.recoverability.outcome import identity_of
from rowpost.recoverability.policy import Failure
from rowpost.settings.environment import Settings
from rowpost.transport.exclusive import SingleActiveConsumer
from rowpost.wire.address import parse_address
from rowpost.wire.headers import CORRELATION_ID, REPLY_TO_ADDRESS, is_reply
from rowpost.wire.message import Message
from rowpost.wire.outgoing import AddressedMessage, Call

__all__ = ["Callbacks", "opener"]

logger = logging.getLogger("rowpost")

#: seconds between two polls for replies while a request waits: the pause doubles from the first value to the second
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.002, 0.05
#: seconds between two polls while no request waits, and after an error
IDLE_PAUSE_SECONDS, ERROR_PAUSE_SECONDS = 1.0, 1.0
RECEIVE_BATCH = 50
#: seconds after which a queue counts as orphaned if its ownership was not renewed
OWNERSHIP_SECONDS = 600
RENEW_EVERY_SECONDS = 60.0
#: seconds that a request waits until this process owns the queue of replies; an earlier process may still be ending
OWN_WITHIN_SECONDS = 10.0
#: how many requests that were given up are remembered, to say how late their replies are
REMEMBERED_REQUESTS = 10_000


@dataclass(frozen=True)
class _Request:
    """A request that waits for its reply: of the class `reply`, if that is not None."""

    reply: type | None
    on_interim: Callable[[Any], object] | None
    future: Future[Any] = field(default_factory=Future)


class Callbacks:
    """The in-flight requests of one instance of an endpoint. Safe for any number of threads.

    Args:
        endpoint: needs an `instance`.
        connect: opens a connection. Two are used, one for requests and one for replies; a third one for messages to the
            instance.
        others: the URLs of the environment's other databases, for handlers; None for none.

    Attributes:
        dropped: how many messages in the queue were no replies that somebody waits for, by reason: "late", "unknown" or
            "expired". Each is a warning in the log, too.

    Raises:
        SettingsError: the endpoint has no `instance`.
    """

    def __init__(
        self, endpoint: Requester, connect: Callable[[], Connection], others: OtherDatabases | None = None
    ) -> None:
        if not endpoint.instance_queue:
            raise SettingsError(
                f"The endpoint {endpoint.name!r} cannot wait for replies: it has no queue for them. "
                'Give this process a name: Endpoint(…, instance="web1").'
            )
        self.endpoint = endpoint
        own = parse_address(endpoint.instance_queue)
        self.queue = (own if endpoint.send_only else replace(own, table=f"{own.table}.replies")).format()
        #: where messages move that are no replies
        self._handled = None if endpoint.send_only else own.format()
        self._connect, self._others = connect, others
        self._pending: dict[str, _Request] = {}
        self._given_up: dict[str, float] = {}
        #: held while a request is registered and sent
        self._lock = threading.Lock()
        self._sending: Connection | None = None
        self._address = ""
        self._wake, self._owned, self._closing = threading.Event(), threading.Event(), threading.Event()
        self._consumer = SingleActiveConsumer(self.queue)
        self._threads: list[threading.Thread] = []
        self._renewed_at = float("-inf")
        #: messages that cannot be moved stay below this row version for a moment
        self._above: int | None = None
        self._unmoved: set[UUID] = set()
        self.dropped: Counter[str] = Counter()

    def __enter__(self) -> Callbacks:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closing.is_set()

    def start(self) -> None:
        """Create the queues if they are missing, and start to receive. The first request does this too.

        Raises:
            NoReply: the receiver was closed.
            PermissionDenied: a queue is missing, and the login may not create it.
        """
        with self._lock:
            self._check_open()
            if self._threads:
                return
            database = self._connect()
            try:
                self._ensure_queue(database, self.queue, delayed=False)
                if self._handled is not None:
                    self._ensure_queue(database, self._handled, delayed=True)
            except BaseException:
                database.close()
                raise
            self._sending = database
            self._address = database.canonical(parse_address(self.queue))
            self._start_thread("replies", self._run)
            if self._handled is not None:
                handling = (self.endpoint, self._connect, self._others, self._closing)
                self._start_thread("instance", receive_instance, *handling)

    def close(self) -> None:
        """Stop the receiver.

        Requests that still wait raise NoReply. A handler that is running ends first. The queues remain for the next
        process of this name.
        """
        self._closing.set()
        self._wake.set()
        with self._lock:  # no request is registered after this
            if self._sending is not None:
                self._sending.close()
            waiting, self._pending = list(self._pending.values()), {}
        for request in waiting:
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(NoReply(f"The receiver of replies in {self.queue!r} was closed."))
        for thread in self._threads:
            thread.join()

    def request(self, message: Any, to: str | None = None, *, timeout: timedelta, **options: Any) -> Any:
        """Send a request, wait for its reply and return it. See `Bus.request`, which does the same."""
        seconds = timeout.total_seconds()
        if seconds <= 0:
            raise InvalidMessage(
                f"A request cannot have the timeout {timeout}: it leaves no time for a reply. Use a positive timeout."
            )
        future = self.submit(message, to, own_within=min(seconds, OWN_WITHIN_SECONDS), **options)
        try:
            return future.result(min(seconds, threading.TIMEOUT_MAX))
        except FutureTimeout:
            if future.cancel():
                raise NoReply(f"No reply to the request arrived in {self.queue!r} within {timeout}.") from None
        return future.result()  # it arrived between the timeout and the cancellation, or it is such an error itself

    def submit(
        self,
        message: Any,
        to: str | None = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        reply: type | None = None,
        on_interim: Callable[[Any], object] | None = None,
        own_within: float = OWN_WITHIN_SECONDS,
    ) -> Future[Any]:
        """Send a request, and return the future of its reply.

        `future.cancel()` gives the request up: the future's `result` raises CancelledError, and the reply is dropped as
        a late one. The request itself is not withdrawn. Cancel each future that you no longer wait for. With asyncio:
        `await asyncio.wrap_future(future)`.

        Args:
            message: as for `Bus.send`; `to` and `headers` too.
            reply: the class of which the reply has to be: a message class, an enum, int, or bytes for the raw body.
                None accepts every reply.
            on_interim: is called, on the thread that receives replies, with each message that the request's handler
                sends to the reply address before it replies. None leaves such messages to the handlers.
            own_within: seconds to wait until this process owns the queue of replies.

        Raises:
            As `Bus.request`. The future raises MessageNotDeserialized and UnexpectedReply.
        """
        request = _Request(reply, on_interim)
        self.start()
        if not self._owned.wait(own_within):
            raise NoReply(
                f"The request was not sent: another process receives from {self.queue!r}, or the database does not "
                f"answer. Give each process its own instance name, not {self.endpoint.instance!r} to all of them."
            )
        with self._lock:
            self._check_open()
            if self._sending is None or self._sending.closed:
                self._sending = self._connect()
            bus = Bus(self.endpoint, self._sending)
            bus.send(message, to, headers={**(headers or {}), REPLY_TO_ADDRESS: self._address})
            (sent,) = (each for each in bus.outgoing if isinstance(each, AddressedMessage))
            correlation_id = str(sent.headers.get(CORRELATION_ID) or "")
            if not correlation_id or correlation_id in self._pending:
                raise InvalidMessage(
                    f"The request cannot be sent: it needs a {CORRELATION_ID} of its own. Do not set this header."
                )
            self._pending[correlation_id] = request  # before it is sent: the reply may be faster than this thread
            try:
                self.endpoint.dispatch(self._sending, [bus.outgoing], begin=True, commit=True)
            except BaseException:
                del self._pending[correlation_id]
                raise
        request.future.add_done_callback(lambda future: self._give_up(correlation_id) if future.cancelled() else None)
        self._wake.set()
        return request.future

    # -------------------------------------------------------------- the requesting threads
    def _check_open(self) -> None:
        if self.closed:
            raise NoReply(f"The receiver of replies in {self.queue!r} was closed.")

    def _give_up(self, correlation_id: str) -> None:
        if self._pending.pop(correlation_id, None) is not None:
            if len(self._given_up) >= REMEMBERED_REQUESTS:
                self._given_up.pop(next(iter(self._given_up)), None)
            self._given_up[correlation_id] = time.monotonic()

    # -------------------------------------------------------------- the receiving thread
    def _run(self) -> None:
        database: Connection | None = None
        pause = MIN_PAUSE_SECONDS
        while not self.closed:
            try:
                if database is None or database.closed:
                    database = self._connect()
                if not self._owns(database):
                    self._closing.wait(ERROR_PAUSE_SECONDS)
                    continue
                self._renew(database)
                found = self._receive(database)
            except RowpostError as error:
                logger.warning("Replies in %s cannot be received and will be tried again: %s", self.queue, error)
                if database is not None:
                    database.close()
                    database = None
                self._closing.wait(ERROR_PAUSE_SECONDS)
                continue
            pause = MIN_PAUSE_SECONDS if found else min(2 * pause, MAX_PAUSE_SECONDS)
            if not found and self._wait(pause if self._pending else IDLE_PAUSE_SECONDS):
                pause = MIN_PAUSE_SECONDS
        if database is not None:
            database.close()

    def _owns(self, database: Connection) -> bool:
        """Return whether this process alone receives from the queue."""
        if self._consumer.held(database):
            self._owned.set()
            return True
        self._owned.clear()
        logger.warning("Another process receives from %s; this one waits until it ends.", self.queue)
        return False

    def _wait(self, seconds: float) -> bool:
        """Wait until a request is sent, at most so many seconds. Return whether one was sent."""
        woken = self._wake.wait(seconds)
        self._wake.clear()
        return woken

    def _receive(self, database: Connection) -> int:
        """Receive a batch. Deliver what answers after the commit, and move the rest in the same transaction."""
        count = RECEIVE_BATCH if self._above is None else 1
        rows = database.call("receive_messages", self.queue, begin=True, count=count, after_row_version=self._above)
        messages = [Message.of_row(row) for row in rows]
        if not messages:
            self._above = None
        moved = {message.id: self._elsewhere(message) for message in messages}
        try:
            # before replies are delivered: what could not be committed is received again
            database.call_all([call for call in moved.values() if call is not None], commit=True)
        except DatabaseUnavailable:
            raise
        except RowpostError as error:
            database.rollback()
            self._skip(messages, error)
            return len(messages)
        for message in messages:
            if moved[message.id] is None:
                self._deliver(message)
            else:
                logger.warning("Moved message %s from %s, because it is not a reply.", message.id, self.queue)
        return len(messages)

    def _skip(self, messages: list[Message], error: RowpostError) -> None:
        """Receive one by one from now on, and leave a message that cannot be moved, until the queue was read once."""
        if self._above is None:
            self._above = messages[0].row_version - 1
            return
        self._above = messages[0].row_version
        if messages[0].id not in self._unmoved:
            self._unmoved.add(messages[0].id)
            logger.warning("Message %s stays in %s and cannot be moved: %s", messages[0].id, self.queue, error)

    def _elsewhere(self, message: Message) -> Call | None:
        """Return the call that moves a message that is no answer; None for one that `_deliver` takes."""
        try:
            if message.expired or is_reply(message.headers):
                return None
            request = self._pending.get(message.headers.get(CORRELATION_ID) or "")
            if request is not None and request.on_interim is not None:
                return None
        except MessageCorrupt:
            pass
        if self._handled is not None:
            return Call("send_message", self._handled, {"headers": message.raw_headers, "body": message.body})
        error = NoHandler(
            f"The send-only endpoint {self.endpoint.name!r} has no handlers: {self.queue!r} gets replies."
        )
        copies = FailedCopies(self.queue, self._address, self.endpoint.error_queue, self.endpoint.host)
        return copies.for_error_queue(message, Failure(error, 1, 0, {})).call

    def _deliver(self, message: Message) -> None:
        if message.expired:
            self._drop("expired", message, "its time to be received was over.")
            return
        correlation_id, answers = message.headers.get(CORRELATION_ID) or "", is_reply(message.headers)
        request = self._pending.pop(correlation_id, None) if answers else self._pending.get(correlation_id)
        given_up_at = self._given_up.pop(correlation_id, None)
        if request is None and given_up_at is None:
            text = (
                f"it replies to no request of this process: correlation id {correlation_id[:100]}. It replies to an "
                "earlier process, or was sent twice."
            )
            self._drop("unknown", message, text)
        elif request is None or (answers and not request.future.set_running_or_notify_cancel()):
            late = 0.0 if given_up_at is None else time.monotonic() - given_up_at
            self._drop("late", message, f"it arrived {late:.1f} s late, for request {correlation_id[:100]}.")
        elif answers:
            try:
                request.future.set_result(self.endpoint.typed(message, request.reply))
            except RowpostError as error:
                request.future.set_exception(error)
        elif request.on_interim is not None:
            try:
                request.on_interim(self.endpoint.typed(message))
            except Exception as error:  # noqa: BLE001 -- a caller's function may raise anything: it ends the request
                self._give_up(correlation_id)
                if request.future.set_running_or_notify_cancel():
                    request.future.set_exception(error)

    def _drop(self, reason: str, message: Message, text: str) -> None:
        self.dropped[reason] += 1
        message_id, message_type = identity_of(message)
        logger.warning(
            "Dropped message %s (%s) in %s: %s", message_id or message.id, message_type or "no type", self.queue, text
        )

    # -------------------------------------------------------------- the queues
    def _start_thread(self, what: str, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, name=f"rowpost {what} {self.queue}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _ensure_queue(self, database: Connection, queue: str, *, delayed: bool) -> None:
        name = parse_address(queue).short(database.engine).format()
        if name in {row[0] for row in database.call("list_queues")}:
            return
        try:
            create_queue(database, name, delayed=delayed)
        except (DeployError, PermissionDenied) as error:
            raise PermissionDenied(
                f"The queue {name!r} of this instance does not exist and cannot be created: {error} Let an "
                f"administrator run: rowpost queue create {name}{'' if delayed else ' --no-delayed'}; rowpost queue "
                f"grant --receive-from {name} --login …"
            ) from error

    def _renew(self, database: Connection) -> None:
        now = time.monotonic()
        if now - self._renewed_at >= RENEW_EVERY_SECONDS:
            database.call_atomically("renew_ownership", queue_name=self.queue, seconds=OWNERSHIP_SECONDS)
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
