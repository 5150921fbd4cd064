"""`HandlerTest` and the pytest plugin: what a user's own tests stand on."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import timedelta
from unittest.mock import Mock

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage, NoHandler, SettingsError
from rowpost.testing import HandlerTest
from rowpost.wire.message_types import message_type


@message_type("Shop.ChargeCard")
@dataclass(frozen=True)
class ChargeCard:
    order_id: int


@message_type("Shop.CardCharged")
@dataclass(frozen=True)
class CardCharged:
    order_id: int


class Client:
    def charge(self, order_id):
        raise AssertionError("the real client")


class FakeClient:
    def __init__(self):
        self.charged = []

    def charge(self, order_id):
        self.charged.append(order_id)


def endpoint(handler, **options):
    made = Endpoint("Charges", **options)
    made.provides(Client)(Client)
    made.handles(ChargeCard)(handler)
    return made


def charge(message, context, client: Client):
    client.charge(message.order_id)
    context.send(CardCharged(message.order_id), to="Sales", delay=timedelta(days=1))
    context.publish(CardCharged(message.order_id + 1))
    if "NServiceBus.ReplyToAddress" in context.headers:
        context.reply(CardCharged(message.order_id + 2))


def test_a_handler_is_run_without_a_database_and_what_it_sends_is_kept():
    client = FakeClient()
    with HandlerTest(endpoint(charge), client=client) as test:
        test.handle(ChargeCard(1), {"NServiceBus.ReplyToAddress": "Web"})

        assert client.charged == [1]
        assert (test.sent, test.published, test.replied) == ([CardCharged(1)], [CardCharged(2)], [CardCharged(3)])
        assert [(each.to, each.delay) for each in test.all_sent] == [
            ("Sales", timedelta(days=1)), (None, None), ("Web", None),
        ]  # fmt: skip


def test_the_endpoint_is_as_before_behind_the_test(database, queue):
    made = endpoint(charge)
    with HandlerTest(made, client=FakeClient()) as test:
        test.handle(ChargeCard(1))

    with pytest.raises(AssertionError, match="the real client"), HandlerTest(made) as test:
        test.handle(ChargeCard(1))
    with made.open(database) as bus:
        bus.send(ChargeCard(1), to="Sales")
    assert queue.peek(10) == 1


def test_async_handlers_and_functions_around_them_are_run():
    async def handle(message, context):
        context.send(CardCharged(message.order_id), to="Sales")
        await context.send(CardCharged(9), to="Sales", immediate=True)

    made = endpoint(handle)

    @made.around
    async def twice(message, context, proceed):
        await proceed()
        context.send(CardCharged(7), to="Sales")

    with HandlerTest(made) as test:
        test.handle(ChargeCard(1))

    assert test.sent == [CardCharged(9), CardCharged(1), CardCharged(7)]


def test_an_error_is_raised_and_what_was_sent_before_it_is_not_kept():
    def handle(message, context):
        context.send(CardCharged(1), to="Sales", immediate=True)
        raise KeyError(message.order_id)

    with HandlerTest(endpoint(handle)) as test:
        with pytest.raises(KeyError):
            test.handle(ChargeCard(1))

        assert test.all_sent == []


def test_a_discarded_message_has_its_reason():
    def handle(message, context):
        if message.order_id:
            context.discard("a test order")

    with HandlerTest(endpoint(handle)) as test:
        test.handle(ChargeCard(1))
        assert test.discarded == "a test order"
        test.handle(ChargeCard(0))
        assert test.discarded is None


def test_what_needs_a_database_says_so_or_gets_what_the_test_has():
    def handle(message, context):
        context.connection.execute("INSERT INTO charges VALUES (1)")
        context.session.add(message)

    connection, session = Mock(), Mock()
    with HandlerTest(endpoint(handle), connection=connection, session=session) as test:
        test.handle(ChargeCard(1))
    with HandlerTest(endpoint(handle)) as test, pytest.raises(SettingsError, match="temporary_database"):
        test.handle(ChargeCard(1))
    with HandlerTest(endpoint(handle), connection=connection) as test, pytest.raises(SettingsError, match="session=…"):
        test.handle(ChargeCard(1))

    connection.execute.assert_called_with("INSERT INTO charges VALUES (1)")
    session.add.assert_called_once_with(ChargeCard(1))


def test_a_leased_message_is_committed_in_the_handlers_block():
    def handle(message, context):
        with context.commit() as connection:
            connection.execute("INSERT")
            context.send(CardCharged(1), to="Sales")

    with HandlerTest(endpoint(handle, receive="lease"), connection=Mock()) as test:
        test.handle(ChargeCard(1))

    assert test.sent == [CardCharged(1)]


def test_what_cannot_be_handled_or_encoded_is_refused():
    with HandlerTest(endpoint(charge), client=FakeClient()) as test:
        with pytest.raises(NoHandler):
            test.handle(CardCharged(1))
        with pytest.raises(InvalidMessage):
            test.handle({"order": 1})


# ------------------------------------------------------------------ the plugin
PROGRAM = """
import psycopg

from rowpost import Endpoint
from rowpost.recoverability.outcome import Kind

sales = Endpoint("Sales")
DATABASES = set()


@sales.handles_everything
def handle(message, context):
    context.connection.execute("INSERT INTO placed VALUES (1)")


def placed(database):
    database.driver_connection.execute("CREATE TABLE placed (id integer)")
    with sales.open(database) as bus:
        bus.send(b"1", to="Sales", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Order"})
    kind = sales.process_one(database).kind
    DATABASES.add(database.driver_connection.info.dbname)
    return kind, database.driver_connection.execute("SELECT count(*) FROM placed").fetchone()[0]


def test_one(rowpost_database):
    assert placed(rowpost_database(sales)) == (Kind.HANDLED, 1)


def test_other(rowpost_database, rowpost_url):
    assert placed(rowpost_database(sales)) == (Kind.HANDLED, 1)
    assert len(DATABASES) == 2
    with psycopg.connect(rowpost_url) as connection:
        assert connection.execute("SELECT count(*) FROM placed").fetchone() == (1,)
"""


@pytest.mark.parametrize("server", ["embedded", "given", "wrong"])
def test_the_plugins_fixtures_are_there_in_a_users_project(tmp_path, data_folder, embedded_url, server):
    (tmp_path / "test_sales.py").write_text(PROGRAM, encoding="utf-8")
    given = {"embedded": {}, "given": {"ROWPOST_TEST_URL": embedded_url}, "wrong": {"ROWPOST_TEST_URL": "mssql://"}}[
        server
    ]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sales.py"],
        cwd=tmp_path, env={"PATH": "", "PYTHONPATH": ":".join(sys.path), "ROWPOST_DATA": str(data_folder), **given},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    if server == "wrong":
        assert "give a URL that begins with postgresql://" in done.stdout
    else:
        assert "2 passed" in done.stdout, done.stdout + done.stderr
