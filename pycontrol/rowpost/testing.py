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

`RequestTest` answers the requests of an endpoint, without a database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass
from datetime import timedelta
from typing import Any

from rowpost.database import embedded
from rowpost.database.connection import Connection, connect_url
from rowpost.database.dialects.protocol import Commit
from rowpost.deploy.sagas import drop_saga
from rowpost.endpoint.callbacks import Callbacks
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import open_temporary, prepare, registered_sagas
from rowpost.errors import InvalidMessage, NoReply, SchemaMissing, UnexpectedReply
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Decision, Failure, Recoverability
from rowpost.sagas.correlation import correlation_text
from rowpost.sagas.declaration import Saga
from rowpost.sagas.instances import instances
from rowpost.sagas.state import decode_state
from rowpost.settings.environment import Settings
from rowpost.transport.queue import Queue
from rowpost.wire.headers import IS_SAGA_TIMEOUT, REPLY_TO_ADDRESS
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.outgoing import AddressedMessage, Call, Outgoing

__all__ = ["RequestTest", "SagaTest", "Sent", "temporary_database"]


@contextmanager
def temporary_database(*endpoints: Endpoint) -> Iterator[Connection]:
    """Create an empty database on the embedded server, deploy the endpoints there, and drop it at the end of the block.

    No environment uses this database, so that a test finds no messages but its own. Create the tables of your handlers
    with `database.driver_connection`, which is a psycopg connection.

    Raises:
        DatabaseUnavailable: the embedded server does not start.
    """
    settings = Settings()
    url = embedded.create_temporary(settings.data_folder)
    try:
        with connect_url(settings.engine, url, "rowpost test") as database:
            for endpoint in endpoints:
                prepare(endpoint, database)
            yield database
    finally:
        embedded.drop_temporary(url)


@dataclass(frozen=True)
class Sent:
    """One message that the saga sent.

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
            self._database = open_temporary(f"rowpost {self._endpoint.name}", self._endpoint.default_schema)
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


class _Recording(Endpoint):
    """An endpoint that stores its saga's state, and records outgoing messages instead of sending them."""

    def __init__(self, name: str, test: SagaTest) -> None:
        self._test = test
        self._written = _Remembering()
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
        sent = Sent(self._written.message_of(addressed.body), addressed.destination, addressed.headers, addressed.delay)
        (self._test.timeouts if addressed.headers.get(IS_SAGA_TIMEOUT) == "True" else self._test.all_sent).append(sent)

    def _give_up(self, failure: Failure) -> Decision:
        self._test.failure = failure.error
        return Decision.ERROR


class _Remembering(JsonSerializer):
    """A JSON serializer that remembers which message it encoded as which body."""

    def __init__(self) -> None:
        super().__init__()
        self._bodies: list[tuple[bytes, Any]] = []

    def encode(self, message: Any) -> bytes:
        body = super().encode(message)
        self._bodies.append((body, message))
        return body

    def message_of(self, body: bytes) -> Any:
        """Return the message of a body, or the body itself if it was sent as bytes."""
        return next((message for written, message in reversed(self._bodies) if written is body), body)
