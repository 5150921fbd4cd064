"""One message id that is used twice in one block: the same message is stored once, another one is refused at the call."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.message_types import message_type
from rowpost.wire.outgoing import AddressedMessage
from tests.support.crashing import TYPE, Order

HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}
HOUR = timedelta(hours=1)


@message_type("Shop.Messages.OrderShipped")
@dataclass(frozen=True)
class OrderShipped:
    number: int


@pytest.fixture
def sales(sql):
    for name in ("Billing", "Sales.Delayed", "error"):
        sql.empty(name)
    return Endpoint("Sales")


@pytest.fixture
def subscribed(database):
    address = database.canonical(parse_address("Billing"))
    database.call("subscribe", endpoint="Billing", topic="Shop.Messages.OrderShipped", queue_address=address)
    yield
    database.call("unsubscribe", endpoint="Billing", topic="Shop.Messages.OrderShipped")


def to_billing(bus, number, **options):
    bus.send(Order(number), **{"to": "Billing", "message_id": "m1", **options})


def spelt(database):
    return database.canonical(parse_address("Billing"))


TWICE = {
    "body": lambda bus: to_billing(bus, 2),
    "body to another spelling of the address": lambda bus: to_billing(bus, 2, to=spelt(bus.database)),
    "body by a header": lambda bus: bus.send(Order(2), to="Billing", headers={"NServiceBus.MessageId": "m1"}),
    "type": lambda bus: bus.send(
        b'{"Number":1}', to="Billing", message_id="m1", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Other"}
    ),
    "delay": lambda bus: to_billing(bus, 1, delay=HOUR),
    "time to be received": lambda bus: to_billing(bus, 1, time_to_be_received=HOUR),
}


@pytest.mark.promise("duplicates-in-batch-collapse")
@pytest.mark.parametrize("what", TWICE)
def test_another_message_under_the_same_id_is_refused_at_the_call(sales, database, what):
    with sales.open(database) as bus:
        to_billing(bus, 1)
        with pytest.raises(InvalidMessage, match="'m1'"):
            TWICE[what](bus)

    assert [row.body for row in Queue("Billing", database).browse()] == [b'{"Number":1}']


@pytest.mark.promise("duplicates-in-batch-collapse")
def test_the_same_delayed_message_twice_is_stored_once(sales, database, sql):
    due = datetime.now(UTC) + HOUR
    with sales.open(database) as bus:
        for delay in (HOUR, HOUR, due):
            to_billing(bus, 1, to="Sales", delay=delay)
        with pytest.raises(InvalidMessage, match="delay"):
            to_billing(bus, 1, to="Sales", delay=2 * HOUR)

    assert sql.value(f"SELECT COUNT(*) FROM {sql.table('Sales.Delayed')}") == 1


def test_the_id_that_a_send_has_returned_is_known_too(sales, database):
    with sales.open(database) as bus:
        made = bus.send(Order(1), to="Billing")
        bus.send(Order(2), to="Sales", message_id=made)
        with pytest.raises(InvalidMessage, match=made):
            bus.send(Order(3), to="Billing", message_id=made)


def test_an_event_is_published_once_and_another_one_under_its_id_is_refused(sales, database, subscribed):
    with sales.open(database) as bus:
        bus.publish(OrderShipped(1), message_id="e1")
        bus.publish(OrderShipped(1), message_id="e1")
        with pytest.raises(InvalidMessage, match="'e1'"):
            bus.publish(OrderShipped(2), message_id="e1")

    assert [row.body for row in Queue("Billing", database).browse()] == [b'{"Number":1}']


def test_a_handler_hears_of_it_whatever_it_sends_by(sales, queue, database):
    heard = []

    @sales.handles("Shop.Messages.Before", Order)
    def before(order, context):
        context.reply(Order(1), headers={"NServiceBus.MessageId": "m1"})
        context.forward_current_message_to("Billing")

    @sales.handles(TYPE, Order)
    def handle(order, context):
        for again in (
            lambda: context.reply(Order(2), headers={"NServiceBus.MessageId": "m1"}),
            lambda: context.send(Order(3), to="Billing", message_id=context.message_id),
        ):
            with pytest.raises(InvalidMessage) as refused:
                again()
            heard.append(str(refused.value))

    types = {"NServiceBus.EnclosedMessageTypes": f"Shop.Messages.Before;{TYPE}"}
    queue.send(b'{"Number":1}', {**types, "NServiceBus.ReplyToAddress": "Billing", "NServiceBus.MessageId": "in"})
    outcome = Pipeline(database, "Sales", sales).process_one()

    assert (outcome.kind, ["'m1'" in heard[0], "'in'" in heard[1]]) == (Kind.HANDLED, [True, True])


def test_what_no_call_has_seen_fails_its_message_and_nothing_is_dropped(sales, queue, open_database):
    database = open_database()

    @sales.handles(TYPE, Order)
    def handle(order, context):
        context.outgoing += [
            AddressedMessage({"NServiceBus.MessageId": "m1"}, body, "Billing") for body in (b"1", b"2")
        ]

    queue.send(b'{"Number":1}', HEADERS)
    pipeline = Pipeline(database, "Sales", sales, reconnect=database.open_second)
    outcome = pipeline.process_one()
    pipeline.close()

    assert (outcome.kind, "'m1'" in outcome.error) == (Kind.FAILED, True)
    assert Queue("Billing", queue.database).peek() == 0
