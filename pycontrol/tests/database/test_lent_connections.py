"""A connection that somebody lends: what is sent through it follows its own transaction, however that was begun."""

from dataclasses import dataclass

import psycopg
import pytest

from rowpost.database.contract import load_contract
from rowpost.database.dialects.protocol import object_name
from rowpost.database.dialects.sqlserver.odbc import find_driver, load_pyodbc
from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import QueueNotFound, SettingsError
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage
from rowpost.wire.message_types import message_type

TYPE = {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder"}


@message_type("Shop.Messages.Shipped")
@dataclass(frozen=True)
class Shipped:
    order_id: int


@pytest.fixture
def lend(target):
    """A connection of the driver's own, as a web application has it: `lend(autocommit)`."""
    connections = []

    if target.settings.engine == "postgresql":
        driver, url = psycopg, target.url
    else:
        driver, url = load_pyodbc(), f"Driver={{{find_driver()}}};{target.url}"

    def connect(autocommit):
        connections.append(driver.connect(url, autocommit=autocommit))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


def send(connection, queue):
    Queue(queue.name, connection).send(b"1")


def send_many(connection, queue):
    Queue(queue.name, connection).send_many([OutgoingMessage(b"1")] * 1500)


def send_by_bus(connection, queue):
    with Endpoint("Web", send_only=True).open(connection) as bus:
        bus.send(b"1", to=queue.name, headers=TYPE)
        bus.send(b"2", to=queue.name, headers=TYPE)


@pytest.mark.parametrize("way", [send, send_many, send_by_bus])
@pytest.mark.promise("joins-callers-transaction")
def test_without_autocommit_a_rollback_takes_back_what_was_sent_first(queue, lend, way):
    connection = lend(False)

    way(connection, queue)
    connection.rollback()

    assert queue.peek() == 0


@pytest.mark.parametrize(("way", "stored"), [(send, 1), (send_many, 1500), (send_by_bus, 2)])
@pytest.mark.promise("joins-callers-transaction")
def test_without_autocommit_the_callers_commit_stores_what_was_sent(queue, lend, way, stored):
    connection = lend(False)

    way(connection, queue)
    before = queue.peek()
    connection.commit()

    assert (before, queue.peek(2000)) == (0, stored)


@pytest.mark.parametrize(("end", "stored"), [("rollback", 0), ("commit", 2)])
@pytest.mark.promise("joins-callers-transaction")
def test_without_autocommit_an_event_follows_the_callers_transaction_as_a_command_does(
    queue, lend, database, end, stored
):
    database.call("subscribe", endpoint="Sales", topic="Shop.Messages.Shipped", queue_address=queue.name)
    connection = lend(False)

    with Endpoint("Web", send_only=True).open(connection) as bus:
        bus.send(b"1", to=queue.name, headers=TYPE)
        bus.publish(Shipped(2))
    before = queue.peek()
    getattr(connection, end)()

    database.call("unsubscribe", endpoint="Sales", topic="Shop.Messages.Shipped")
    assert (before, queue.peek()) == (0, stored)


@pytest.mark.parametrize(("way", "stored"), [(send, 1), (send_many, 1500), (send_by_bus, 2)])
def test_with_autocommit_what_was_sent_is_stored_at_once(queue, lend, way, stored):
    connection = lend(True)

    way(connection, queue)

    assert queue.peek(2000) == stored


@pytest.mark.parametrize("verb", ["send", "publish"])
def test_with_autocommit_a_bus_stores_all_or_nothing(queue, lend, database, verb):
    connection = lend(True)
    database.call("subscribe", endpoint="Gone", topic="Shop.Messages.Shipped", queue_address="Nowhere")

    web = Endpoint(
        "Web", send_only=True, error_queue="No queue"
    )  # which would take the copy of a subscriber that is gone
    with pytest.raises(QueueNotFound, match="Nowhere"), web.open(connection) as bus:
        bus.send(b"1", to=queue.name, headers=TYPE)
        if verb == "send":
            bus.send(b"2", to="Nowhere", headers=TYPE)
        else:
            bus.publish(Shipped(2))

    database.call("unsubscribe", endpoint="Gone", topic="Shop.Messages.Shipped")
    assert queue.peek() == 0
    Queue(queue.name, connection).send(b"the connection is well")


def test_a_bus_in_which_nothing_is_sent_does_nothing(queue, lend):
    connection = lend(True)

    with Endpoint("Web", send_only=True).open(connection):
        pass

    assert queue.peek() == 0


@pytest.mark.parametrize(
    ("module", "name", "words"),
    [
        (
            "psycopg2.extensions",
            "connection",
            "psycopg2's connection .* psycopg 3 .*pyodbc.* psycopg2 is psycopg's predecessor",
        ),
        ("sqlite3", "Connection", "sqlite3's Connection .*psycopg 3"),
    ],
)
def test_a_connection_of_another_package_is_refused_with_the_one_that_is_wanted(module, name, words):
    other = type(name, (), {"__module__": module})

    with pytest.raises(SettingsError, match=words):
        Queue("Sales", other())


def test_a_queue_that_has_lost_a_procedure_is_not_said_to_be_missing(database, sql, make_queue):
    queue = make_queue()
    kind = "PROCEDURE" if database.dialect.name == "sqlserver" else "ROUTINE"
    procedure = object_name(database.dialect, load_contract().find_template("send_message"), queue.name)
    sql.run(f"DROP {kind} {procedure}")

    with pytest.raises(
        QueueNotFound,
        match=f"No queue named '{queue.name}' with the procedure send_message.*queue check says how to repair",
    ):
        queue.send(b"1")
