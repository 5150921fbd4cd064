"""Messages whose headers or errors cannot be stored, and handlers that return without having run: none is lost.

Every message that cannot be handled leaves its queue in a bounded number of attempts.
"""

import functools
import json
import logging
import warnings
from datetime import timedelta

import pytest

from rowpost.database.connection import Connection
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import DatabaseError, DatabaseUnavailable, LockTimeout
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.recoverability.retries import Retries
from rowpost.transport.delayed import move_due
from rowpost.wire.headers import FORWARD_DESTINATION
from rowpost.wire.message import OutgoingMessage, decode_headers, encode_headers
from tests.support.crashing import TYPE
from tests.support.pipelines import pipeline_with
from tests.support.workers import eventually

#: as JSON: NUL, half of a surrogate pair, and the harmless words that a NUL looks like when it is escaped
HOSTILE = {"nul": r'"a\u0000b"', "surrogate": r'"a\ud800b"', "words": r'"a\\u0000b"'}
STORED = {"nul": "a\ufffdb", "surrogate": "a?b", "words": "a\\u0000b"}
every_header = pytest.mark.parametrize("kind", HOSTILE)
every_text = pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "a\\u0000b"], ids=list(HOSTILE))
ATTEMPTS = 20  # more than any message here needs


@pytest.fixture
def desk(queue, sql, open_database):
    for name in ("error", "audit", "Billing", "Sales.Delayed"):
        sql.empty(name)
    return Desk(queue, sql, open_database)


class Desk:
    """The queue Sales and a pipeline over it."""

    def __init__(self, queue, sql, open_database):
        self.queue, self.sql, self.open_database = queue, sql, open_database
        self.database = open_database()

    def send(self, kind=None, **headers):
        hostile = f', "Shop.Note": {HOSTILE[kind]}' if kind else ""
        more = "".join(f", {json.dumps(name)}: {json.dumps(value)}" for name, value in headers.items())
        raw = f'{{"NServiceBus.EnclosedMessageTypes": "{TYPE}"{hostile}{more}}}'
        self.queue.send_many([OutgoingMessage(b"1", raw)])

    def endpoint(self, handler, **options):
        endpoint = Endpoint("Sales", **options)
        endpoint.handles(TYPE)(handler)
        return endpoint

    def work(self, handler, **options):
        """Handle until nothing waits; what became of each receive."""
        pipeline = pipeline_with(self.database, "Sales", handler, reconnect=self.database.open_second, **options)
        kinds = []
        while (outcome := pipeline.process_one()).kind is not Kind.EMPTY:
            kinds.append(outcome.kind)
            assert len(kinds) < ATTEMPTS, kinds[-3:]
        return kinds

    def at(self, name):
        return [
            (decode_headers(row[0]), bytes(row[1]))
            for row in self.sql.run(f"SELECT headers, body FROM {self.sql.table(name)}")
        ]


def fail(body, context):
    raise ValueError("no such order")


# ------------------------------------------------------------------ headers
@every_header
def test_a_failing_message_with_a_hostile_header_goes_to_the_error_queue(desk, kind):
    desk.send(kind)

    kinds = desk.work(desk.endpoint(fail, recoverability=Recoverability(1, 0)))

    ((headers, body),) = desk.at("error")
    assert kinds == [Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert (headers["Shop.Note"], body) == (STORED[kind], b"1")
    assert headers["NServiceBus.ExceptionInfo.Message"] == "no such order"


@every_header
def test_a_failing_message_with_a_hostile_header_is_delayed(desk, kind):
    desk.send(kind)

    kinds = desk.work(desk.endpoint(fail, recoverability=Recoverability(1, 1, timedelta(hours=1))))

    ((headers, body),) = desk.at("Sales.Delayed")
    assert kinds == [Kind.FAILED, Kind.DELAYED]
    assert (headers["Shop.Note"], headers["NServiceBus.Retries"], body) == (STORED[kind], "1", b"1")


@every_header
def test_a_handled_message_with_a_hostile_header_is_audited(desk, kind):
    desk.send(kind)

    kinds = desk.work(desk.endpoint(lambda body, context: None, audit_queue="audit"))

    ((headers, body),) = desk.at("audit")
    assert kinds == [Kind.HANDLED]
    assert (headers["Shop.Note"], body) == (STORED[kind], b"1")


@every_header
def test_a_delayed_message_with_a_hostile_header_is_forwarded_or_moves_to_the_error_queue(desk, kind):
    raw = f'{{"{FORWARD_DESTINATION}": "NoSuchQueue", "Shop.Note": {HOSTILE[kind]}}}'
    desk.queue.database.call("delay_message", "Sales", headers=raw, body=b"1", delay_ms=0)

    for _ in range(3):
        move_due(desk.database, "Sales")

    ((headers, body),) = desk.at("error")
    assert (headers["Shop.Note"], body, desk.at("Sales.Delayed")) == (STORED[kind], b"1", [])


@pytest.mark.parametrize("digits", ["9" * 10, "9" * 4300, "9" * 5000])
def test_a_number_of_retries_of_many_digits_counts_as_none(desk, digits):
    desk.send(**{"NServiceBus.Retries": digits})

    kinds = desk.work(desk.endpoint(fail, recoverability=Recoverability(0, 1, timedelta(hours=1))))

    ((headers, _),) = desk.at("Sales.Delayed")
    assert (kinds, headers["NServiceBus.Retries"]) == ([Kind.DELAYED], "1")


def test_the_words_backslash_u_0000_are_stored_as_they_are():
    headers = {"Shop.Note": "a\\u0000b"}

    assert decode_headers(encode_headers(headers)) == headers


# ------------------------------------------------------------------ errors
@every_text
@pytest.mark.parametrize("rounds", [0, 1])
def test_an_error_whose_text_cannot_be_stored_leaves_the_queue(desk, text, rounds):
    def handle(body, context):
        raise ValueError(text)

    desk.send()

    kinds = desk.work(desk.endpoint(handle, recoverability=Recoverability(1, rounds, timedelta(hours=1))))

    assert kinds == [Kind.FAILED, Kind.DELAYED if rounds else Kind.MOVED_TO_ERROR]
    assert [body for _, body in desk.at("Sales.Delayed" if rounds else "error")] == [b"1"]


def test_an_error_whose_text_raises_leaves_the_queue(desk):
    class Silent(ValueError):
        def __str__(self):
            raise RuntimeError("no text")

    def handle(body, context):
        raise Silent

    desk.send()

    kinds = desk.work(desk.endpoint(handle, recoverability=Recoverability(1, 0)))

    assert (kinds, len(desk.at("error"))) == ([Kind.FAILED, Kind.MOVED_TO_ERROR], 1)


def test_a_message_that_cannot_move_with_its_error_moves_as_it_is(desk, monkeypatch):
    def broken(*_, **__):
        raise RecursionError("a defect")

    monkeypatch.setattr("rowpost.recoverability.copies.failure_headers", broken)
    desk.send("nul")

    kinds = desk.work(desk.endpoint(fail, recoverability=Recoverability(1, 0)))

    ((headers, body),) = desk.at("error")
    assert kinds == [Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert (headers["Shop.Note"], body) == ("a\0b", b"1")


# ------------------------------------------------------------------ the count
@pytest.mark.parametrize("error", [LockTimeout, DatabaseError])
def test_an_attempt_that_cannot_be_counted_is_reported_and_leaves_the_message_in_its_place(desk, monkeypatch, error):
    def count(database, procedure, *arguments, **options):
        if procedure == "record_failure":
            raise error("injected")
        return call(database, procedure, *arguments, **options)

    call = type(desk.database).call_atomically
    desk.send()
    pipeline = pipeline_with(desk.database, "Sales", desk.endpoint(fail))
    monkeypatch.setattr("rowpost.database.connection.Connection.call_atomically", count)

    with pytest.raises(DatabaseError, match=r"could not be counted: .*injected.*no such order") as caught:
        pipeline.process_one()

    assert not isinstance(caught.value, LockTimeout)  # that would be retried without a report
    assert (desk.database.in_transaction, desk.queue.peek()) == (False, 1)


def test_a_message_that_is_gone_needs_no_count(desk, monkeypatch):
    monkeypatch.setattr(Retries, "_count", None)
    desk.send()

    kinds = desk.work(desk.endpoint(fail, transaction_mode="none"))

    assert (kinds, len(desk.at("error"))) == ([Kind.MOVED_TO_ERROR], 1)


class Stores:
    """Makes the first `count` attempts to store a message in the error queue fail."""

    def __init__(self, monkeypatch, count, error):
        self.left, self.error, self.call_all = count, error, Connection.call_all
        monkeypatch.setattr(Connection, "call_all", lambda *arguments, **options: self.store(*arguments, **options))

    def store(self, database, calls, **options):
        if self.left and any(call[:2] == ("send_message", "error") for call in calls):
            self.left -= 1
            raise self.error("injected")
        return self.call_all(database, calls, **options)


@pytest.mark.parametrize("error", [DatabaseError, DatabaseUnavailable, LockTimeout])
def test_a_message_that_only_memory_has_is_stored_on_a_new_connection_if_the_first_one_fails(desk, monkeypatch, error):
    desk.send(**{"Shop.Note": "kept"})
    Stores(monkeypatch, 1, error)

    kinds = desk.work(desk.endpoint(fail, transaction_mode="none"))

    ((headers, body),) = desk.at("error")
    assert (kinds, headers["Shop.Note"], body) == ([Kind.MOVED_TO_ERROR], "kept", b"1")


def test_a_message_that_only_memory_has_and_nothing_can_store_is_logged_as_critical(desk, monkeypatch, caplog):
    desk.send(**{"Shop.Note": "to be stored by hand"})
    Stores(monkeypatch, 2, DatabaseError)

    with caplog.at_level(logging.CRITICAL, "rowpost"):
        kinds = desk.work(desk.endpoint(fail, transaction_mode="none"))

    (record,) = caplog.records
    assert (kinds, desk.at("error")) == ([Kind.UNMOVABLE], [])
    assert all(word in record.getMessage() for word in ("'Sales'", "to be stored by hand", "injected"))


def test_a_message_that_only_memory_has_survives_the_loss_of_its_connection(desk):
    def handler(body, context):
        context.database.close()
        raise ValueError("the server restarts")

    desk.send()
    pipeline = pipeline_with(
        desk.open_database(), "Sales", desk.endpoint(handler, transaction_mode="none"), reconnect=desk.open_database
    )

    outcome = pipeline.process_one()

    pipeline.close()
    assert (outcome.kind, len(desk.at("error"))) == (Kind.MOVED_TO_ERROR, 1)


def test_a_corrupt_message_that_only_memory_has_is_stored_on_a_new_connection_if_the_first_one_fails(desk, monkeypatch):
    desk.queue.send_many([OutgoingMessage(b"1", "{not JSON")])
    Stores(monkeypatch, 1, DatabaseError)

    kinds = desk.work(desk.endpoint(fail, transaction_mode="none"))

    stored = [tuple(row) for row in desk.sql.run(f"SELECT headers, body FROM {desk.sql.table('error')}")]
    assert (kinds, [(headers, bytes(body)) for headers, body in stored]) == ([Kind.CORRUPT], [("{not JSON", b"1")])


def test_nothing_begins_on_a_connection_with_an_open_transaction(desk):
    desk.send()
    desk.database.call("receive_messages", "Sales", begin=True, count=1)

    with pytest.raises(DatabaseError, match="transaction"):
        desk.database.call("receive_messages", "Sales", begin=True, count=1)

    assert desk.database.closed or not desk.database.in_transaction
    eventually(lambda: desk.queue.peek() == 1, "the server has rolled back")


@pytest.mark.parametrize("begin", [lambda d: d.begin(), lambda d: d.call_all([("get_version", None, {})], begin=True)])
def test_no_way_to_begin_accepts_an_open_transaction(database, begin):
    database.begin()

    with pytest.raises(DatabaseError, match="transaction"):
        begin(database)


# ------------------------------------------------------------------ handlers that return without having run
async def coroutine(*_):
    """Do nothing, later."""


def generator(*_):
    yield


async def async_generator(*_):
    yield


def passes_on(function):
    """A decorator as they are written for plain functions: what an async one returns is passed on."""

    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


unrun = pytest.mark.parametrize("function", [coroutine, generator, async_generator])


@unrun
@pytest.mark.parametrize("plain", [True, False])
def test_a_handler_that_returns_without_having_run_fails_by_its_name(desk, function, plain):
    handler = passes_on(function)
    options = {"attempts": 2} if plain else {}
    desk.send()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kinds = desk.work(handler if plain else desk.endpoint(handler, recoverability=Recoverability(1, 0)), **options)

    ((headers, _),) = desk.at("error")
    assert kinds == [Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert f"The handler {function.__qualname__}" in headers["NServiceBus.ExceptionInfo.Message"]
