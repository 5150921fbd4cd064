"""An endpoint: a name, handlers by message type, routes, and how failures are treated.

    sales = Endpoint("Sales")

    @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def place_order(message: PlaceOrder, context: Context) -> None:
        context.connection.execute(...)         # commits with the message
        context.publish(OrderPlaced(message.order_id))

`rowpost run shop.app:sales` runs it. `sales.process_one(database)` handles one message in a test.

`Endpoint` adds to its `declaration.EndpointDeclaration` what runs: it processes messages for a pipeline
(`handling.processor.Processor`), it sends (`handling.sender.Sender`), and it starts what a program without a supervisor
needs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from rowpost.database.connection import Connection
from rowpost.database.dialects.protocol import Commit
from rowpost.database.pool import Connections
from rowpost.endpoint.callbacks import Callbacks, opener
from rowpost.endpoint.declaration import EndpointDeclaration
from rowpost.endpoint.opening import Opening
from rowpost.endpoint.options import EndpointOptions, takes_options
from rowpost.endpoint.provisioning import open_temporary, prepare, subscribe
from rowpost.endpoint.session import Sessions
from rowpost.errors import SettingsError, SubscriptionRefused
from rowpost.handling.audit import acknowledgement, audited, forwarded
from rowpost.handling.context import Bus, Context
from rowpost.handling.observer import SendObserver
from rowpost.handling.processor import Caused, control_message
from rowpost.handling.subscriptions import asks_for_subscription, subscription_refused, take_subscription
from rowpost.pipeline.lease import Leasing
from rowpost.pipeline.modes import OtherDatabases, business_of, others_of
from rowpost.pipeline.observer import EndpointObserver
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Discard, Outcome
from rowpost.settings.environment import Settings
from rowpost.settings.service_control import ServiceControlSettings
from rowpost.transactions.leases import LeaseScope
from rowpost.transactions.scope import MODES, Scope
from rowpost.transport.delayed import move_due
from rowpost.transport.directory import Directory
from rowpost.transport.dispatch import dispatch
from rowpost.wire.address import SUBSCRIPTION_TABLE, parse_address
from rowpost.wire.headers import CONTROL_MESSAGE, FORWARD_DESTINATION, RETRY_UNIQUE_MESSAGE_ID
from rowpost.wire.message import Message, decode_headers
from rowpost.wire.outgoing import Call, Outgoing

__all__ = ["MODES", "Endpoint"]


class Endpoint(EndpointDeclaration):
    """A named endpoint. Its input queue has its name.

    For the arguments and errors see `endpoint.options.EndpointOptions`.
    """

    #: made when they are needed first
    _embedded: Connection | None = None
    _pipeline: Pipeline | None = None
    _piped: Connection | None = None
    _callbacks: Callbacks | None = None
    _sessions: Sessions | None = None

    @takes_options(EndpointOptions)
    def __init__(self, options: EndpointOptions) -> None:
        super().__init__(options)
        self.metrics_instance: str | None = None
        self.tracing: SendObserver | None = None
        self._observer: EndpointObserver | None = None
        self._directory = Directory()
        self._lock = threading.RLock()
        #: of the pipelines of this process that no worker has made
        self._leasing: list[Leasing] = []

    # -------------------------------------------------------------- what a program calls
    def open(self, connection: Any = None, *, queues: Settings | Connection | None = None) -> Opening:
        """Return what yields a bus on a caller's connection: `with` a `Bus`, and `async with` an `AsyncBus`.

        What is sent in the block joins the caller's transaction at the end of the block.

        If no transaction is open and the connection is in autocommit mode, the messages are sent in a transaction of
        their own: either all of them are stored, or none.

        Args:
            connection: a `Connection`, or a connection of psycopg or pyodbc; with `async with`, an `AsyncConnection` of
                psycopg too. None uses a temporary database of this process.
            queues: for an endpoint with an outbox: where its queue is. `connection` leads to the business database
                then, which stores the messages until they are sent; see `session`.

        Raises:
            SettingsError: `queues` is given, and the endpoint has no outbox or no queue.
        """
        return Opening(self._opened, connection, queues)

    @contextmanager
    def _opened(self, connection: Any, queues: Settings | Connection | None) -> Iterator[Bus]:
        if queues is not None:
            if isinstance(queues, Settings):
                self.configure(queues)
            session = self._sessions_of().open(connection, queues)
            try:
                yield session
                session.store()
            finally:
                session.end()
            return
        if connection is None:
            connection = self._own_database()
        database = connection if isinstance(connection, Connection) else Connection.share(connection)
        bus = Bus(self, database)
        try:
            yield bus
        finally:
            collected = bus.end()
        alone = not database.join()
        self.dispatch(database, [collected], begin=alone, commit=alone)

    def process_one(self, database: Connection | None = None) -> Outcome:
        """Move due delayed messages, then receive and handle at most one message in this process. Useful in tests.

        Args:
            database: the connection. None uses a temporary database of this process on the embedded server, with the
                endpoint's queues.

        Returns:
            What happened: `kind` is `Kind.EMPTY` if the queue is empty, and `error` says why a handler failed.

        Raises:
            QueueNotFound: the database has no such queue.
        """
        with self._lock:
            database = database or self._own_database()
            pipeline = self._pipeline
            if pipeline is None or database is not (self._piped if self.leases else pipeline.database):
                self._end_pipeline()
                pipeline = self._pipeline = self.pipeline(database, self.queue)
                self._piped = database
            return self.process_next(pipeline)

    def pipeline(self, database: Connection, queue: str, others: OtherDatabases | None = None) -> Pipeline:
        """Return a pipeline that handles messages of the endpoint's queue, or of its instance's, in this process."""
        self.surroundings.check()
        observers = [] if self._observer is None else [self._observer.pipeline(self.name, self.instance or "")]
        connect = database.open_second
        if not self.needs_leases:
            return Pipeline(database, queue, self, reconnect=connect, others=others, observers=observers)
        if connect is None:
            raise SettingsError(
                f"{self.name} has receive='lease', which needs connections of its own, and rowpost cannot open any "
                "beside a shared one. Pass a Connection of connect()."
            )
        business = business_of(self, queue, others or OtherDatabases())
        leasing = Leasing(Connections(connect), queue, self.lease_seconds, business)
        self._leasing.append(leasing)
        receiving = leasing.connection() if self.leases else database
        return Pipeline(receiving, queue, self, reconnect=connect, observers=observers, leasing=leasing)

    def process_next(self, pipeline: Pipeline) -> Outcome:
        """Move due delayed messages of a pipeline's queue, and return those of expired leases. Then receive and handle
        at most one message.
        """
        database, queue = pipeline.database, pipeline.queue
        if self._directory.find(database, queue).delays:
            move_due(database, queue, error_queue=self.error_queue, directory=self._directory, host=self.host)
        pipeline.return_expired()
        return pipeline.process_one()

    def callbacks(self, where: Settings | Connection | None = None) -> Callbacks:
        """Return the receiver of replies to this process's requests. The first call creates it; `close` ends it.

        Args:
            where: settings of the database, or a connection to it that a second one can be opened for. None uses a
                temporary database of this process.

        Raises:
            SettingsError: the endpoint has no `instance`.
            DatabaseError: rowpost cannot open connections to the database of a shared connection. Give settings first.
        """
        with self._lock:
            if isinstance(where, Settings):
                self.configure(where)
            if self._callbacks is None or self._callbacks.closed:
                opened = opener(self._own_database() if where is None else where, self.name)
                self._callbacks = Callbacks(self, opened, others_of(where) if isinstance(where, Settings) else None)
            return self._callbacks

    def subscribe(self, database: Connection, table: str = SUBSCRIPTION_TABLE) -> None:
        """Subscribe to what handlers declare with `subscribe=True`. `rowpost run` does this when it starts.

        Args:
            database: the connection.
            table: the address of the environment's table of subscriptions, `Settings.subscription_table`.

        Raises:
            SettingsError: the endpoint only sends, so that it has no queue for events.
        """
        subscribe(self, database, table)

    def report_to(self, where: ServiceControlSettings, database: Connection) -> None:
        """Report to ServiceControl as an environment says. A worker calls this before it receives.

        Args:
            where: the environment's section. It names the instance on each message that is sent, and says whether sagas
                are audited.
            database: the connection to receive on. No transaction is open.

        Raises:
            DatabaseUnavailable: the connection is lost.
        """
        self.metrics_instance = where.instance
        if where.saga_audit and self.sagas:
            self._sagas.audit(
                database, self._directory.find(database, where.queue), reply_to=database.canonical(self.address)
            )

    def observe(self, observer: EndpointObserver | None) -> None:
        """Observe sends and handlers with OpenTelemetry from now on; None ends that.

        `endpoint.telemetry` calls this.
        """
        with self._lock:
            self.tracing = observer if observer is not None and observer.traces else None
            self._observer = self._handlers.observer = observer
            self._end_pipeline()  # the next one is made with the observer

    def close(self) -> None:
        """Stop the receiver of replies, close the connections that `process_one` and `open` opened, and end what
        handlers shared (`provides`).
        """
        with self._lock:
            self._end_pipeline()
            opened = (self._callbacks, self._sessions, *self._leasing, self._embedded)
            self._callbacks = self._embedded = None
            self._leasing = []
        for each in opened:  # without the lock, because a handler that ends first may need it
            if each is not None:
                each.close()
        self.surroundings.close()

    def _end_pipeline(self) -> None:
        """Close what the pipeline of `process_one` has opened; its receiving connection is the caller's."""
        with self._lock:
            if self._pipeline is not None:
                self._pipeline.close_others()
                self._pipeline = None

    def _sessions_of(self) -> Sessions:
        with self._lock:
            if self._sessions is None:
                self._sessions = Sessions(self)
            return self._sessions

    def _own_database(self) -> Connection:
        with self._lock:
            if self._embedded is None or self._embedded.closed:
                self._embedded = open_temporary(f"rowpost {self.name}")
                prepare(self, self._embedded)
            return self._embedded

    # -------------------------------------------------------------- what the pipeline calls: Processor
    def handle(self, message: Message, database: Connection, scope: Scope | None = None) -> Caused:
        """Run the handlers of a message. Return what they sent and what their sagas store; nothing is sent yet.

        Raises:
            NoHandler: no handler is registered for the message's types.
            MessageNotDeserialized: the body cannot be decoded to a handler's class.
            Exception: whatever a handler raises.
        """
        headers = message.headers
        started = None if self.audit_queue is None else datetime.now(UTC)
        destination = headers.get(FORWARD_DESTINATION)
        if destination:  # of a delayed message: NServiceBus's mover may have brought it here on its way
            destination = super().resolve(destination)
            own = [database.local(parse_address(each)) for each in (self.queue, self.instance_queue) if each]
            if database.local(parse_address(destination)) not in own:
                return Caused([forwarded(message, headers, destination)])
        if headers.get(CONTROL_MESSAGE) == "True":
            caused = Caused([], self._control(headers, database))
        else:
            leased = scope if isinstance(scope, LeaseScope) else None
            if leased is not None:
                leased.closing = partial(self._closing, message, headers, started)
            caused = self._run(message, database, scope)
            if leased is not None and leased.committed:
                return caused
        if self.audit_queue is not None or headers.get(RETRY_UNIQUE_MESSAGE_ID):
            caused.outgoing += self._closing(message, headers, started, caused.audit_headers or {})
        return caused

    def _closing(
        self,
        message: Message,
        headers: Mapping[str, str | None],
        started: datetime | None,
        audit_headers: Mapping[str, str | None],
    ) -> list[Outgoing]:
        """Return what is sent at the end of a message beside what its handlers sent."""
        outgoing: list[Outgoing] = []
        if headers.get(RETRY_UNIQUE_MESSAGE_ID):
            outgoing += self.acknowledge(headers)
        if self.audit_queue is not None and started is not None:
            original = decode_headers(message.raw_headers)  # a handler may have changed message.headers
            if self.not_audited is None or not self.not_audited(original):
                outgoing.append(
                    audited(
                        message, self.audit_queue, self.host, started, {**original, **audit_headers},
                        self.options.audit_time_to_be_received,
                    )
                )  # fmt: skip
        return outgoing

    def _run(self, message: Message, database: Connection, scope: Scope | None) -> Caused:
        """Run the handlers, and return what they caused."""
        context = Context(self, database, message, scope)
        audit_headers = context.audit_headers  # not after its end
        try:
            discard = self._handlers.run(message, context)
        finally:
            outgoing = context.end()
        return Caused(outgoing, discard, audit_headers)

    def acknowledge(self, headers: Mapping[str, str | None]) -> Sequence[Outgoing]:
        """Return what tells ServiceControl that a message with these headers was handled, if it has retried it."""
        return acknowledgement(headers, super().resolve)

    def _control(self, headers: Mapping[str, str | None], database: Connection) -> Discard | None:
        """Follow a control message. Return why, if nothing can be done with it."""
        if not asks_for_subscription(headers):
            return control_message(headers)
        if not self.options.takes_subscriptions:
            raise self._subscription_refused(headers)
        take_subscription(self.address, database, headers, self.resolve)
        return None

    def _subscription_refused(self, headers: Mapping[str, str | None]) -> SubscriptionRefused:
        return subscription_refused(
            self.name, headers, f"Declare it with Endpoint({self.name!r}, takes_subscriptions=True)."
        )

    def store(self, database: Connection, outgoing: list[Outgoing]) -> list[Outgoing]:
        """Store at once what sagas store, and return what is left to send."""
        return self._sagas.store(database, outgoing)

    def in_lock_order(self, messages: list[Message]) -> list[Message]:
        """Return the messages of a batch in an order in which all workers lock instances of sagas."""
        return self._sagas.in_lock_order(messages, self._handlers.read)

    def dispatch(
        self,
        database: Connection,
        groups: list[list[Outgoing]],
        *,
        begin: bool = False,
        commit: Commit = False,
        also: Iterable[Call] = (),
    ) -> None:
        """Send what one or several messages caused, a group for each, in one round trip with BEGIN, COMMIT and the
        calls of `also`.
        """
        dispatch(
            database,
            groups,
            self._directory,
            own_queue=None if self.send_only else self.queue,
            error_queue=self.error_queue,
            host=self.host,
            begin=begin,
            commit=commit,
            also=also,
        )

    # -------------------------------------------------------------- what a bus calls: Sender, with route_of
    def may_reply_to(self, database: Connection, address: str) -> bool:
        """Return whether handlers may reply to an address. Raises InvalidQueueName: it is none."""
        if self._reply_to is None:
            return True
        place = self._directory.find(database, self.resolve(address))
        if self._reply_to == "registered":
            return place.registered
        return place.name in {self._directory.find(database, self.resolve(each)).name for each in self._reply_to}
