"""An endpoint: a name, handlers by message type, routes, and how failures are treated.

    sales = Endpoint("Sales")

    @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def place_order(message: PlaceOrder, context: Context) -> None:
        context.connection.execute(...)         # commits with the message
        context.publish(OrderPlaced(message.order_id))

`rowpost run shop.app:sales` runs it; `sales.process_one(database)` handles one message in a test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from rowpost.database.connection import Connection
from rowpost.endpoint.declaration import MODES, check_declaration
from rowpost.errors import InvalidMessage, SettingsError
from rowpost.handling.audit import acknowledgement, audited, forwarded
from rowpost.handling.context import Bus, Context
from rowpost.handling.handlers import Handle, HandlerRegistry, RegisteredHandler, check_runs, name_of
from rowpost.outbox.operations import Outbox
from rowpost.recoverability.policy import Host, Recoverability
from rowpost.sagas.hosted import HostedSagas
from rowpost.transport.directory import Directory
from rowpost.transport.dispatch import dispatch
from rowpost.wire.address import parse_address
from rowpost.wire.headers import CONTROL_MESSAGE, ENCLOSED_MESSAGE_TYPES, FORWARD_DESTINATION
from rowpost.wire.message import Message, decode_headers
from rowpost.wire.message_types import find_class, split_enclosed_types, type_name, type_names
from rowpost.wire.operation import Call, Operation
from rowpost.wire.serialization import Serializer, Serializers

if TYPE_CHECKING:
    from rowpost.endpoint.callbacks import Callbacks
    from rowpost.pipeline.pipeline import Pipeline
    from rowpost.recoverability.outcome import Outcome
    from rowpost.sagas.declaration import Saga
    from rowpost.settings.environment import SagaSettings, Settings
    from rowpost.transactions.modes import Scope

__all__ = ["MODES", "Endpoint"]



class Endpoint:
    """A named endpoint. Its input queue bears its name.

    Args:
        name: also the queue's, and what subscriptions and diagnostics name.
        transaction_mode: one of MODES.
        participants: for transaction_scope, databases that may take part: URLs by name, `${VARIABLE}` for secrets
            (SQL Server: names of databases, see transactions.py). Those of the environment are added.
        outbox: the business database, where it is another one than the queue's: a name, or an Outbox; for receive_only.
        error_queue: where messages end that cannot be handled.
        audit_queue: where copies of handled messages go; None for no audit.
        recoverability: how often and when a failing message is tried again.
        serializers: by content type, the first is the default; JSON when none is given.
        send_only: has no queue: it only sends and publishes.
        limit: how many messages are handled at a time at most; None leaves it to the environment.
        strategy: how workers come and go: fixed, adaptive or peek; None leaves it to the environment.
        instance: names this process among those of the endpoint: replies to its requests come to the queue
            `<name>.<instance>` (callbacks.py).
        batch: how many messages may share a transaction (batch_size.py); None leaves it to the environment.
        time_limit: a handler that runs longer is killed together with its worker process: a failed attempt. None leaves
            it to the environment.

    Raises:
        SettingsError: no such mode, strategy or batch, a limit below 1, or an outbox in another mode than receive_only.
    """

    def __init__(
        self,
        name: str,
        *,
        transaction_mode: str = "sends_atomic_with_receive",
        participants: Mapping[str, str] | None = None,
        outbox: Outbox | str | None = None,
        error_queue: str = "error",
        audit_queue: str | None = None,
        recoverability: Recoverability | None = None,
        serializers: Iterable[Serializer] = (),
        send_only: bool = False,
        limit: int | None = None,
        strategy: str | None = None,
        instance: str | None = None,
        time_limit: timedelta | None = None,
        batch: str | int | None = None,
    ) -> None:
        check_declaration(name, transaction_mode, strategy, limit, batch, has_outbox=outbox is not None)
        self.name = name
        self.outbox = Outbox(outbox) if isinstance(outbox, str) else outbox
        self.batch = batch
        self.limit = limit
        self.strategy = strategy
        self.instance = instance
        self.time_limit = time_limit
        self.transaction_mode = transaction_mode
        self.participants = dict(participants or {})
        self.error_queue = error_queue
        self.audit_queue = audit_queue
        self.recoverability = recoverability or Recoverability()
        self.serializers = Serializers(*serializers)
        self.send_only = send_only
        self.host = Host.here(name)
        self._handlings = HandlerRegistry(name, self.serializers)
        self._routes: dict[str, str] = {}
        self._subscriptions: set[str] = set()
        self._directory = Directory()
        self._expected: dict[str, type] = {}
        self._sagas = HostedSagas(name, transaction_mode, has_outbox=outbox is not None)
        self._embedded: Connection | None = None
        self._pipeline: Pipeline | None = None
        self._callbacks: Callbacks | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r})"

    # -------------------------------------------------------------- what a user writes
    def handles(self, type_name: str, cls: type = bytes, *, subscribe: bool = False) -> Callable[[Handle], Handle]:
        """Declares a handler for a message type.

        Args:
            type_name: full name on the wire, without assembly and version.
            cls: class that the body becomes; bytes hands it over raw.
            subscribe: the type is an event of somebody else: subscribe to it when the endpoint starts.

        Raises:
            SettingsError: the function is async or a generator: nobody would run it.
        """

        def declare(function: Handle) -> Handle:
            check_runs(function, SettingsError, f"The handler {name_of(function)} of {self.name}")
            self._handlings.add(RegisteredHandler(type_name, cls, function))
            if subscribe:
                self._subscriptions.add(type_name)
            return function

        return declare

    def saga(self, saga: type[Saga]) -> type[Saga]:
        """Hosts a saga: its methods handle their messages here. Also a decorator of the class.

        Raises:
            SettingsError: its table is another saga's, or this endpoint's mode cannot keep its state.
        """
        for handling, topic in self._sagas.host(saga):
            self._handlings.add(handling)
            self._subscriptions |= {topic} - {None}
        return saga

    @property
    def sagas(self) -> tuple[SagaSettings, ...]:
        """The tables that its sagas need."""
        return self._sagas.tables

    def expects(self, *classes: type) -> None:
        """Classes of replies that requests get; those named by @message_type are known already."""
        self._expected.update((type_name(cls), cls) for cls in classes)

    def route(self, cls: type, to: str) -> None:
        """Where messages of a class go that are sent without a destination."""
        self._routes[type_name(cls)] = to

    def route_of(self, cls: type) -> str:
        """The destination of a message class, by its own name or one of its bases'.

        Raises:
            InvalidMessage: no route leads anywhere.
        """
        for name in type_names(cls):
            if name in self._routes:
                return self._routes[name]
        raise InvalidMessage(
            f"{self.name} knows no destination for {type_name(cls)}. Give one with to=…, or a route: endpoint.route({cls.__name__}, …)."
        )

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Topics that the endpoint subscribes to when it starts."""
        return tuple(sorted(self._subscriptions))

    @contextmanager
    def open(self, connection: Any = None) -> Iterator[Bus]:
        """A bus on a caller's connection: what is sent in the block joins the caller's own transaction at its end.

        Where none is open, and the connection is in autocommit, it has one of its own: all is stored, or nothing.
        Without a connection it leads to the embedded server, as process_one does.
        """
        if connection is None:
            connection = self._own_database()
        database = connection if isinstance(connection, Connection) else Connection.share(connection)
        bus = Bus(self, database)
        yield bus
        alone = not database.join()
        self.dispatch(database, bus.operations, begin=alone, commit=alone)

    def process_one(self, database: Connection | None = None) -> Outcome:
        """Moves what is due, then receives and handles at most one message, in this process: for tests.

        Without a database it is the embedded server, where the endpoint's queues are made if need be.

        Returns:
            What became of it: `kind` is Kind.EMPTY when nothing waits, and `error` says why a handler failed.

        Raises:
            QueueNotFound: the database has no such queue.
        """
        from rowpost.pipeline.pipeline import Pipeline
        from rowpost.transport.delayed import move_due

        with self._lock:
            database = database or self._own_database()
            if self._pipeline is None or self._pipeline.database is not database:
                self._pipeline = Pipeline(database, self.name, self, reconnect=database.another)
            if self._directory.find(database, parse_address(self.name)) and self._directory.delays(self.name):
                move_due(database, self.name, error_queue=self.error_queue, directory=self._directory)
            return self._pipeline.process_one()

    def callbacks(self, where: Settings | Connection | None = None) -> Callbacks:
        """The receiver of replies to this process's requests; the first call makes it, and `close` ends it.

        Args:
            where: settings of the database, or a connection that another one can be opened beside; the embedded
                server by default.

        Raises:
            SettingsError: the endpoint has no `instance`.
            DatabaseError: rowpost cannot open connections beside one that was lent: give settings first.
        """
        from rowpost.endpoint.callbacks import Callbacks, opener

        with self._lock:
            if self._callbacks is None or self._callbacks.closed:
                self._callbacks = Callbacks(self, opener(self._own_database() if where is None else where, self.name))
            return self._callbacks

    def subscribe(self, database: Connection) -> None:
        """Subscribes to what handlers declare with subscribe=True; `rowpost run` does it at its start."""
        from rowpost.endpoint.hosting import subscribe

        subscribe(self, database)

    def close(self) -> None:
        """Ends the receiver of replies, and the connections that process_one and open made."""
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.close()
            if self._embedded is not None:
                self._embedded.close()
            self._callbacks = self._embedded = self._pipeline = None

    def _own_database(self) -> Connection:
        from rowpost.endpoint.hosting import open_embedded

        with self._lock:
            if self._embedded is None or self._embedded.closed:
                self._embedded = open_embedded(self)
            return self._embedded

    # -------------------------------------------------------------- what the pipeline calls
    def handle(self, message: Message, database: Connection, scope: Scope | None = None) -> list[Operation | Call]:
        """Runs the handlers of a message and returns what they sent and what sagas store; nothing has left yet.

        Raises:
            NoHandler: nobody handles its types. MessageNotDeserialized: the body is not what the handler wants.
            Whatever a handler raises.
        """
        started = self.audit_queue and datetime.now(UTC)
        if self._is_for_another(message, database):
            return [forwarded(message)]
        if message.headers.get(CONTROL_MESSAGE) == "True":
            return []
        context = Context(self, database, message, scope)
        for handling, body in self._handlings.read(message):
            handling.call(body, context)
        context.operations += acknowledgement(message)
        if self.audit_queue is not None:
            came = decode_headers(message.raw_headers)  # a handler may have changed message.headers
            context.operations.append(audited(message, self.audit_queue, self.host, started, {**came, **context.audit_headers}))
        return self._sagas.settle(database, context.operations)

    def _is_for_another(self, message: Message, database: Connection) -> bool:
        """A delayed message that an NServiceBus mover brought here on its way to another queue (reference G3)."""
        destination = message.headers.get(FORWARD_DESTINATION)
        return bool(destination) and database.local(parse_address(destination)).format() != self.name

    def in_lock_order(self, messages: list[Message]) -> list[Message]:
        """The messages of a batch in the order in which to handle them: workers lock instances of sagas in the same one."""
        return self._sagas.in_lock_order(messages, self._handlings.read)

    def typed(self, message: Message) -> Any:
        """A reply as its class, where the program knows it; else its bytes. Raises MessageNotDeserialized."""
        for name in split_enclosed_types(message.headers.get(ENCLOSED_MESSAGE_TYPES)):
            cls = self._expected.get(name) or find_class(name)
            if cls is not None:
                return self._handlings.decode(message, cls)
        return message.body

    def store(self, database: Connection, operations: list[Operation | Call]) -> list[Operation]:
        """Stores at once what sagas store; returns what is to be sent."""
        return self._sagas.settle(database, operations, at_once=True)

    def dispatch(
        self, database: Connection, operations: list[Operation | Call], *, also: Iterable[Call] = (), **ends: bool
    ) -> None:
        """Calls and sends operations in one round trip, with the BEGIN and COMMIT of their transaction where wanted."""
        dispatch(database, [operations], self._directory, sender=self, also=also, **ends)

    def dispatch_sealed(self, database: Connection, groups: list[list[Operation | Call]], also: list[Call]) -> None:
        """Sends what the messages of a batch caused, with `also` and the commit of their sealed transaction."""
        dispatch(database, groups, self._directory, sender=self, commit="sealed", also=also)

    def dispatch_isolated(self, database: Connection, operations: list[Operation]) -> None:
        """Sends operations in a transaction of their own, on a connection of their own (reference C5)."""
        dispatch(database.beside(), [operations], self._directory, sender=self, begin=True, commit=True)

    def reply_address(self, database: Connection) -> str:
        """The canonical address of the endpoint's queue in this database."""
        return self._directory.address_of(database, self.name)
