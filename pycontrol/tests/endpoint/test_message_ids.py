"""One message id that is used twice in one block: the last one is stored, and another message is refused at the call."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.message_types import message_type
from rowpost.wire.outgoing import AddressedMessage
from tests.support.crashing import TYPE, Order
from tests.support.schema import named

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


def shipped_to(bus, to, number=1, **options):
    bus.send(OrderShipped(number), to=to, message_id="e1", **options)


def delays(sql):
    """Return how long the delayed messages of Sales wait."""
    now = sql.utc_now().replace(tzinfo=None)
    return [due.replace(tzinfo=None) - now for (due,) in sql.run(f"SELECT Due FROM {sql.table('Sales.Delayed')}")]


def spelt(database):
    return database.canonical(parse_address("Billing"))


TWICE = {
    "body": lambda bus: to_billing(bus, 2),
    "body to another spelling of the address": lambda bus: to_billing(bus, 2, to=spelt(bus.database)),
    "body by a header": lambda bus: bus.send(Order(2), to="Billing", headers={"NServiceBus.MessageId": "m1"}),
    "type": lambda bus: bus.send(
        b'{"Number":1}', to="Billing", message_id="m1", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Other"}
    ),
    "body of a delayed one": lambda bus: to_billing(bus, 2, delay=HOUR),
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
def test_of_a_delayed_message_that_is_sent_several_times_the_last_one_is_stored(sales, database, sql):
    due = datetime.now(UTC) + HOUR
    with sales.open(database) as bus:
        for delay in (HOUR, 2 * HOUR, due):
            to_billing(bus, 1, to="Sales", delay=delay)

    (left,) = delays(sql)
    assert left < 1.5 * HOUR


@pytest.mark.promise("duplicates-in-batch-collapse")
@pytest.mark.parametrize(
    ("first", "last", "stored"),
    [({"delay": HOUR}, {}, (1, 0)), ({}, {"delay": HOUR}, (0, 1)), ({"time_to_be_received": HOUR}, {}, (1, 0))],
    ids=["delayed, then at once", "at once, then delayed", "expiring, then not"],
)
def test_of_a_delayed_and_an_immediate_message_of_one_id_the_last_is_stored(
    sales, database, queue, sql, first, last, stored
):
    with sales.open(database) as bus:
        for options in (first, last):
            to_billing(bus, 1, to="Sales", **options)

    found = queue.browse()
    assert (len(found), len(delays(sql))) == stored
    assert [each.expires for each in found] == [None] * len(found)


@pytest.mark.promise("duplicates-in-batch-collapse")
def test_the_last_message_of_an_id_is_stored_in_the_place_of_the_first_one(sales, database):
    with sales.open(database) as bus:
        to_billing(bus, 1, headers={"Shop.Try": "1"})
        to_billing(bus, 2, message_id="m2")
        to_billing(bus, 1, headers={"Shop.Try": "2"})

    first, second = Queue("Billing", database).browse()
    assert (first.message_id, first.headers["Shop.Try"], second.message_id) == ("m1", "2", "m2")


SENDS_TOO = {
    "sent after it": (lambda bus: bus.publish(OrderShipped(1), message_id="e1"), lambda bus: shipped_to(bus, "Billing")),
    "sent before it": (lambda bus: shipped_to(bus, "Billing"), lambda bus: bus.publish(OrderShipped(1), message_id="e1")),
    "by another spelling": (
        lambda bus: bus.publish(OrderShipped(1), message_id="e1"), lambda bus: shipped_to(bus, spelt(bus.database))
    ),
    "delayed": (
        lambda bus: shipped_to(bus, "Billing", delay=HOUR), lambda bus: bus.publish(OrderShipped(1), message_id="e1")
    ),
}  # fmt: skip


@pytest.mark.promise("duplicates-in-batch-collapse")
@pytest.mark.parametrize("acts", SENDS_TOO)
def test_an_event_that_is_sent_to_its_subscriber_too_is_stored_there_once(sales, database, queue, subscribed, acts):
    with sales.open(database) as bus:
        for act in SENDS_TOO[acts]:
            act(bus)
        shipped_to(bus, "Sales")

    (row,) = Queue("Billing", database).browse()
    assert (row.message_id, row.headers["NServiceBus.MessageIntent"]) == ("e1", "Publish")
    assert [each.headers["NServiceBus.MessageIntent"] for each in queue.browse()] == ["Send"]


@pytest.mark.promise("duplicates-in-batch-collapse")
@pytest.mark.parametrize("first", ["event", "message"])
def test_an_event_and_another_message_of_its_id_are_refused_at_the_call_whoever_subscribes(sales, database, first):
    acts = [
        lambda bus: bus.publish(OrderShipped(1), message_id="e1"),
        lambda bus: shipped_to(bus, "Billing", number=2),
    ]
    one, other = acts if first == "event" else reversed(acts)
    with sales.open(database) as bus:
        one(bus)
        with pytest.raises(InvalidMessage, match=r"'e1' are sent .*, and they differ in their body"):
            other(bus)

        assert len(bus.outgoing) == 1


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "unregistered"])
def test_in_a_handler_an_event_that_is_sent_too_commits_with_its_message_and_once(
    sales, database, queue, subscribed, make_queue, sql, registered
):
    name = make_queue().name
    if not registered:
        like, name = name, named(f"{parse_address(name).table}Unregistered")
        sql.make_table_like(like, name)
    topic = {"endpoint": "Other", "topic": "Shop.Messages.OrderShipped"}
    database.call_atomically("subscribe", **topic, queue_address=name)

    @sales.handles(TYPE, Order)
    def handle(order, context):
        context.publish(OrderShipped(1), message_id="e1")
        shipped_to(context, "Billing")
        shipped_to(context, name)

    queue.send(b'{"Number":1}', HEADERS)
    queue.send(b'{"Number":1}', HEADERS)
    batches = Batches(Pipeline(database, "Sales", sales), BatchSize(2, None, now=2))
    outcomes = batches.process()
    database.call_atomically("unsubscribe", **topic)

    counts = [sql.value(f"SELECT COUNT(*) FROM {sql.table(each)}") for each in (name, "Billing")]
    if not registered:
        sql.run(f"DROP TABLE {sql.table(name)}")
    assert ([each.kind for each in outcomes], counts, queue.peek()) == ([Kind.HANDLED] * 2, [2, 2], 0)


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


@pytest.mark.parametrize("where", [{"destination": "Billing"}, {"topics": ("Shop.Messages.OrderShipped",)}])
def test_what_no_call_has_seen_fails_its_message_and_nothing_is_dropped(sales, queue, open_database, subscribed, where):
    database = open_database()

    @sales.handles(TYPE, Order)
    def handle(order, context):
        context.outgoing += [
            AddressedMessage({"NServiceBus.MessageId": "m1"}, b"1", **where),
            AddressedMessage({"NServiceBus.MessageId": "m1"}, b"2", "Billing"),
        ]

    queue.send(b'{"Number":1}', HEADERS)
    pipeline = Pipeline(database, "Sales", sales, reconnect=database.open_second)
    outcome = pipeline.process_one()
    pipeline.close()

    assert (outcome.kind, "'m1'" in outcome.error) == (Kind.FAILED, True)
    assert Queue("Billing", queue.database).peek() == 0
