"""Test support for users: run a saga on a real database, message by message, and fire its timeouts explicitly.

    with SagaTest(OrderPolicy) as saga:
        saga.handle(PlaceOrder("A1", 500))
        saga.fire(PaymentOverdue)

        assert saga.sent == [RemindCustomer("A1")]
        assert saga.state("A1").reminded

Each message is stored, received, handled and committed as in production. Messages that the saga sends are not
delivered: they are kept in `sent`, in order, and its timeouts in `timeouts`.

An endpoint is tested on a database of its own:

    with temporary_database(sales) as database:
        with sales.open(database) as bus:
            bus.send(PlaceOrder(42), to="Sales")
        outcome = sales.process_one(database)

`HandlerTest` runs an endpoint's handlers, and `RequestTest` answers its requests, without a database. The pytest
plugin, which comes with rowpost, has the fixtures `rowpost_url` and `rowpost_database` (`rowpost.pytest_plugin`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from rowpost.database import embedded
from rowpost.database.connection import Connection, connect_url
from rowpost.database.dialects.choice import dialect_for
from rowpost.database.dialects.postgresql.temporary import create_database, drop_database
from rowpost.database.dialects.protocol import Commit
from rowpost.deploy.sagas import drop_saga
from rowpost.endpoint.callbacks import Callbacks
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import open_temporary, prepare, registered_sagas
from rowpost.endpoint.schedules import ScheduleSender
from rowpost.errors import InvalidMessage, NoReply, SchemaMissing, SettingsError, UnexpectedReply
from rowpost.handling.context import Bus, Context
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Decision, Failure, Recoverability
from rowpost.sagas.correlation import correlation_text
from rowpost.sagas.declaration import Saga
from rowpost.sagas.instances import instances
from rowpost.sagas.state import decode_state
from rowpost.settings.environment import Settings
from rowpost.transactions.leases import Lease, LeaseScope, Lend
from rowpost.transport.queue import Queue
from rowpost.wire.headers import IS_SAGA_TIMEOUT, MESSAGE_INTENT, REPLY_TO_ADDRESS
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message import Message, encode_headers
from rowpost.wire.outgoing import AddressedMessage, Call, Outgoing
from rowpost.wire.serialization import Serializer, Serializers

__all__ = ["HandlerTest", "RequestTest", "SagaTest", "Sent", "deployed", "temporary_database", "temporary_url"]

NO_DATABASE = (
    "This handler uses a database, and its test has none. Give HandlerTest a connection=… or a session=… of your own, "
    "or run the handler on a real database: temporary_database(endpoint), and endpoint.process_one(database)."
)


@contextmanager
def temporary_database(*endpoints: Endpoint) -> Iterator[Connection]:
    """Create an empty database on the embedded server, deploy the endpoints there, and drop it at the end of the block.

    No environment uses this database, so that a test finds no messages but its own. Create the tables of your handlers
    with `database.driver_connection`, which is a psycopg connection.

    Raises:
        DatabaseUnavailable: the embedded server does not start.
    """
    with temporary_url() as url, deployed(url, *endpoints) as database:
        yield database


@contextmanager
def temporary_url(server: str | None = None) -> Iterator[str]:
    """Create an empty database, and drop it at the end of the block. Yields its URL.

    Args:
        server: the URL of a database of the server, whose login may create others; None: the embedded server.

    Raises:
        DatabaseUnavailable: the server cannot be reached, or does not start.
        SettingsError: the URL is not one of PostgreSQL.
    """
    if server is None:
        url = embedded.create_temporary(Settings().data_folder)
        try:
            yield url
        finally:
            embedded.drop_temporary(url)
        return
    if not server.startswith(("postgresql://", "postgres://")):
        raise SettingsError("Tests create their databases on PostgreSQL: give a URL that begins with postgresql://.")
    name = f"rowpost_test_{uuid4().hex}"
    create_database(server, name)
    try:
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
    finally:
        drop_database(server, name)


@contextmanager
def deployed(url: str, *endpoints: Endpoint) -> Iterator[Connection]:
    """Connect to a database, and deploy endpoints there."""
    with connect_url("postgresql", url, "rowpost test") as database:
        for endpoint in endpoints:
            prepare(endpoint, database)
        yield database


@dataclass(frozen=True)
class Sent:
    """One message that a handler or a saga sent.

    `to` is its destination, None for an event; `delay` the delay of a timeout or send.
    """

    message: Any
    to: str | None
    headers: Mapping[str, str | None]
    delay: timedelta | None = None


class SagaTest:
    """One saga in a separate endpoint. At first its queue is empty, and it has no instance.

    Args:
        saga: the saga's class.
        database: the database to use; by default one of the embedded server that only this process uses.
    """

    def __init__(self, saga: type[Saga[Any]], database: Connection | None = None) -> None:
        self._saga = saga
        self._endpoint = _Recording(f"SagaTest.{saga.__name__}", self)
        self._endpoint.saga(saga)
        self._given = database
        #: exists within the `with` block
        self._database: Connection
        #: the messages that the saga sent and published, and its timeouts that were not fired yet
        self.all_sent: list[Sent] = []
        self.timeouts: list[Sent] = []
        self.failure: BaseException | None = None

    def __enter__(self) -> SagaTest:
        if self._given is None:
            self._database = open_temporary(f"rowpost {self._endpoint.name}")
        else:
            self._database = self._given
        self._drop_changed_saga()
        prepare(self._endpoint, self._database)
        Queue(self._endpoint.queue, self._database).purge()
        for key, _, version, *_ in instances(self._database, self._table):
            self._database.call("complete_saga", self._table, id=key, concurrency=version)
        return self

    def _drop_changed_saga(self) -> None:
        """Drop a saga of this name, with its table, if it was deployed with another correlation by an earlier test."""
        (declared,) = self._endpoint.sagas
        with suppress(SchemaMissing):  # no schema is deployed yet
            for registered in registered_sagas(self._database):
                if registered[0] == declared.name and registered != astuple(declared):
                    drop_saga(self._database, declared.name)

    def __exit__(self, *_: object) -> None:
        self._endpoint.close()
        if self._given is None:
            self._database.close()

    @property
    def sent(self) -> list[Any]:
        """The messages that the saga sent and published, in order."""
        return [each.message for each in self.all_sent]

    def handle(self, message: Any, headers: Mapping[str, str | None] | None = None) -> list[Sent]:
        """Send the saga a message and handle it once; return the messages that it sent, without timeouts.

        Raises:
            Exception: the error that the saga raised. Its work is rolled back.
        """
        before = len(self.all_sent)
        with Endpoint("SagaTest.Sender", send_only=True).open(self._database) as bus:
            bus.send(message, to=self._endpoint.queue, headers={REPLY_TO_ADDRESS: "SagaTest.Sender", **(headers or {})})
        self.failure = None
        outcome = self._endpoint.process_one(self._database)
        if outcome.kind not in (Kind.HANDLED, Kind.DISCARDED):
            raise self.failure or InvalidMessage(f"The message was not handled: {outcome.error}")
        return self.all_sent[before:]

    def fire(self, cls: type) -> list[Sent]:
        """Fire the oldest timeout of that class; return the messages that the saga sent.

        Raises:
            InvalidMessage: the saga requested no such timeout.
            Exception: the error that the saga raised.
        """
        for place, timeout in enumerate(self.timeouts):
            if isinstance(timeout.message, cls):
                del self.timeouts[place]
                return self.handle(timeout.message, timeout.headers)
        asked = ", ".join(sorted({type(each.message).__name__ for each in self.timeouts})) or "nothing"
        raise InvalidMessage(f"The saga requested no timeout {cls.__name__}. Its unfired timeouts are: {asked}.")

    def state(self, value: Any) -> Any:
        """Return the state of the instance with that correlation value; None if it does not exist or is complete."""
        declared = self._saga.declaration
        text = correlation_text(value, declared.kind, declared.property)
        rows = self._database.call("load_saga", self._table, correlation_value=text, locked=False, lock_timeout_ms=5000)
        return self._decoded(rows[0].data) if rows else None

    @property
    def states(self) -> list[Any]:
        """The states of all instances."""
        return [self._decoded(data) for *_, data, _ in instances(self._database, self._table)]

    @property
    def _table(self) -> str:
        return self._endpoint.sagas[0].name

    def _decoded(self, text: str) -> Any:
        declared = self._saga.declaration
        return decode_state(text, declared.state, declared.name, declared.renamed, declared.removed)


class RequestTest(Callbacks):
    """Answers the requests of an endpoint's callbacks while the block runs, at once and without a database.

        with RequestTest(web) as requests:
            requests.when(PlaceOrder, OrderAccepted(42))
            page = render(web)                  # calls web.callbacks().request(PlaceOrder(42), …)

        assert requests.sent == [PlaceOrder(42)]

    `request` raises NoReply for what has no answer; the future of `submit` waits, and can be cancelled.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint, endpoint._own_database)
        self._endpoint, self._replaced = endpoint, endpoint._callbacks
        self._answers: list[tuple[type, Callable[[Any], object], Any]] = []
        #: the requests, in order
        self.sent: list[Any] = []

    def __enter__(self) -> RequestTest:
        self._endpoint._callbacks = self
        return self

    def __exit__(self, *_: object) -> None:
        self._endpoint._callbacks = self._replaced

    def when(self, cls: type, reply: Any, matches: Callable[[Any], object] = lambda message: True) -> None:
        """Answer requests of a class that match with a reply; an exception is raised. The first answer counts."""
        self._answers.append((cls, matches, reply))

    def request(self, message: Any, to: str | None = None, *, timeout: timedelta, **options: Any) -> Any:
        """Return the answer to a request. Raises NoReply: there is none."""
        future = self.submit(message, to, **options)
        if not future.done():
            raise NoReply(f"The test has no answer to {message!r:.100}. Give it one: requests.when(…).")
        return future.result()

    def submit(self, message: Any, to: str | None = None, *, reply: type | None = None, **_: Any) -> Future[Any]:
        """Record a request, and answer it if there is an answer. Raises UnexpectedReply as `Callbacks.submit`."""
        self.sent.append(message)
        future: Future[Any] = Future()
        found = [answer for cls, matches, answer in self._answers if isinstance(message, cls) and matches(message)]
        for answer in found[:1]:
            if isinstance(answer, BaseException):
                future.set_exception(answer)
            elif reply is not None and not isinstance(answer, reply):
                text = f"The request expects a reply of {reply.__qualname__}, and got {type(answer).__qualname__}."
                future.set_exception(UnexpectedReply(text))
            else:
                future.set_result(answer)
        return future


class HandlerTest:
    """The handlers of an endpoint, without a database. What they send is kept, and an error that one raises is raised.

        with HandlerTest(charges, client=FakeClient()) as test:
            test.handle(ChargeCard(1))

            assert test.sent == [CardCharged(1)]

    A message is encoded and decoded as it would be in production, and the functions around handlers are called. Sagas
    are tested with `SagaTest`.

    Args:
        endpoint: the endpoint.
        connection: what `context.connection`, and the block of `context.commit()`, give to the handlers; none by
            default.
        session: what `context.session` gives to them; none by default.
        resources: what handlers get for their further arguments, by the arguments' names; what is left out is made by
            its provider.
    """

    def __init__(self, endpoint: Endpoint, *, connection: Any = None, session: Any = None, **resources: Any) -> None:
        self._endpoint, self._resources, self._session = endpoint, resources, session
        dialect = dialect_for("postgresql")  # whose addresses name no database
        self._database = _WithoutDatabase(
            connection or _Nothing(), dialect, owned=False, open_second=lambda: self._database
        )
        self._written = _Remembering(endpoint.serializers.default)
        self._former: dict[str, Any] = {}
        #: what was sent, published and replied, in order
        self.all_sent: list[Sent] = []
        #: why the last message was discarded; None if it was handled
        self.discarded: str | None = None

    def __enter__(self) -> HandlerTest:
        endpoint = self._endpoint
        self._former = {"serializers": endpoint.serializers, "dispatch": endpoint.dispatch}
        endpoint.surroundings.check(self._resources)
        endpoint.surroundings.given = self._resources
        endpoint.serializers = _Serializers(endpoint.serializers, self._written)
        endpoint.dispatch = lambda database, groups, **_: self._keep(groups)  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        self._endpoint.surroundings.given = {}
        self._endpoint.serializers = self._former["serializers"]
        del self._endpoint.dispatch

    @property
    def sent(self) -> list[Any]:
        """The messages that were sent, without their destinations and delays, for which see `all_sent`."""
        return self._with_intent("Send")

    @property
    def published(self) -> list[Any]:
        """The events that were published."""
        return self._with_intent("Publish")

    @property
    def replied(self) -> list[Any]:
        """The replies."""
        return self._with_intent("Reply")

    def handle(self, message: Any, headers: Mapping[str, str | None] | None = None) -> None:
        """Run the handlers of a message, as if it had been received.

        Args:
            message: an instance of a message class, or bytes with their type among the headers.
            headers: are added to those that a sender writes. `NServiceBus.ReplyToAddress` makes a reply possible.

        Raises:
            NoHandler: the endpoint has none for it.
            SettingsError: a handler uses a database.
            Exception: what a handler raises. What it sent is not kept.
        """
        endpoint, kept = self._endpoint, len(self.all_sent)
        bus = Bus(endpoint, self._database)
        bus.send(message, to=endpoint.queue, headers=headers)
        (addressed,) = bus.end()
        if not isinstance(addressed, AddressedMessage):
            raise TypeError("a bus collects messages")
        received = Message(uuid4(), 1, False, encode_headers(addressed.headers), addressed.body)
        scope = self._scope() if endpoint.leases_message(received) or endpoint.leases else None
        context = _TestContext(endpoint, self._database, received, scope)
        context.given = self._session
        try:
            discard = endpoint._handlers.run(received, context)
        except BaseException:
            del self.all_sent[kept:]
            raise
        finally:
            outgoing = context.end()
        self.discarded = None if discard is None else discard.reason
        if scope is None or not scope.committed:
            self._keep([outgoing])

    def tick(self, schedule: Callable[[datetime], Any], due: datetime) -> Any:
        """Make the message of a due time, as a supervisor does when it sends it. It is kept like what a handler sends.

        Args:
            schedule: the function that `Endpoint.every` decorates.
            due: the due time, which has a time zone.

        Returns:
            The message, which `handle` takes; None if the function made none.

        Raises:
            SettingsError: it is no schedule of the endpoint.
            InvalidMessage: the function raises an error, or the message cannot be sent.
        """
        declared = next((each for each in self._endpoint.schedules if each.function is schedule), None)
        if declared is None:
            name = getattr(schedule, "__name__", schedule)
            raise SettingsError(f"{name} is no schedule of {self._endpoint.name}. Decorate it with @endpoint.every(…).")
        outgoing = ScheduleSender.of(self._endpoint, declared).make(self._database, declared.name, due)
        self._keep([outgoing])
        return self.all_sent[-1].message if outgoing else None

    def _scope(self) -> LeaseScope:
        @contextmanager
        def commit(take: Callable[[], list[Outgoing]], lend: Lend) -> Iterator[Any]:
            yield lend(self._database)
            self._keep([take()])
            scope.committed = True

        scope = LeaseScope(Lease(uuid4()), commit)
        return scope

    def _keep(self, groups: Iterable[Iterable[Outgoing]]) -> None:
        for group in groups:
            self.all_sent += [self._written.sent(each) for each in group if isinstance(each, AddressedMessage)]

    def _with_intent(self, intent: str) -> list[Any]:
        return [each.message for each in self.all_sent if each.headers[MESSAGE_INTENT] == intent]


class _WithoutDatabase(Connection):
    """A connection with what does not ask a server: the forms of addresses."""

    @property
    def async_connection(self) -> Any:
        """What the test has given."""
        return self.raw_connection


class _TestContext(Context):
    """A context whose session is what the test has given."""

    given: Any = None

    def open_session(self, *, is_async: bool = False) -> Any:
        """Return that session, which nobody completes."""
        if self.given is None:
            raise SettingsError(NO_DATABASE)
        return SimpleNamespace(session=self.given)


class _Nothing:
    """In the place of a driver's connection: every use of it raises an error."""

    def __getattr__(self, name: str) -> Any:
        raise SettingsError(NO_DATABASE)


class _Serializers(Serializers):
    """Those of an endpoint, which remember what they have encoded."""

    def __init__(self, former: Serializers, default: _Remembering) -> None:
        self._former, self.default = former, default

    def find(self, content_type: str | None) -> Any:
        return self._former.find(content_type)


class _Recording(Endpoint):
    """An endpoint that stores its saga's state, and records outgoing messages instead of sending them."""

    def __init__(self, name: str, test: SagaTest) -> None:
        self._test = test
        self._written = _Remembering(JsonSerializer())
        super().__init__(name, recoverability=Recoverability(policy=self._give_up), serializers=[self._written])

    def dispatch(
        self,
        database: Connection,
        groups: list[list[Outgoing]],
        *,
        begin: bool = False,
        commit: Commit = False,
        also: Iterable[Call] = (),
    ) -> None:
        calls: list[list[Outgoing]] = [[each for each in group if isinstance(each, Call)] for group in groups]
        super().dispatch(database, calls, begin=begin, commit=commit, also=also)
        for group in groups:
            for each in group:
                if isinstance(each, AddressedMessage):
                    self._keep(each)

    def _keep(self, addressed: AddressedMessage) -> None:
        sent = self._written.sent(addressed)
        (self._test.timeouts if addressed.headers.get(IS_SAGA_TIMEOUT) == "True" else self._test.all_sent).append(sent)

    def _give_up(self, failure: Failure) -> Decision:
        self._test.failure = failure.error
        return Decision.ERROR


class _Remembering:
    """A serializer that remembers which message it encoded as which body."""

    def __init__(self, serializer: Serializer) -> None:
        self._serializer, self.content_type = serializer, serializer.content_type
        self._bodies: list[tuple[bytes, Any]] = []

    def encode(self, message: Any) -> bytes:
        """Return the body."""
        body = self._serializer.encode(message)
        self._bodies.append((body, message))
        return body

    def decode(self, body: bytes, cls: type) -> Any:
        """Return the message of a body."""
        return self._serializer.decode(body, cls)

    def sent(self, addressed: AddressedMessage) -> Sent:
        """Return an outgoing message as a test sees it."""
        return Sent(self.message_of(addressed.body), addressed.destination, addressed.headers, addressed.delay)

    def message_of(self, body: bytes) -> Any:
        """Return the message of a body, or the body itself if it was sent as bytes."""
        return next((message for written, message in reversed(self._bodies) if written is body), body)
