"""An endpoint's handlers and what they send, on every engine that can be reached."""

from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage, MessageNotDeserialized, NoHandler, QueueNotFound, SettingsError
from rowpost.outbox.declaration import Outbox
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.message_types import message_type
from tests.support.schema import named
from tests.support.workers import eventually


@dataclass(frozen=True)
class Line:
    product_name: str
    count: int = 1


@message_type("Shop.Messages.PlaceOrder")
@dataclass(frozen=True)
class PlaceOrder:
    order_id: int
    lines: list[Line] = field(default_factory=list)
    note: str | None = None


@message_type("Shop.Messages.OrderPlaced")
@dataclass(frozen=True)
class OrderPlaced:
    order_id: int


@message_type("Shop.Messages.VipOrderPlaced")
@dataclass(frozen=True)
class VipOrderPlaced(OrderPlaced):
    discount: float = 0.1


@pytest.fixture
def sales():
    return Endpoint("Sales")


@pytest.fixture
def billing(database, sql):
    sql.empty("Billing")
    return Queue("Billing", database)


def handled(endpoint, queue, database, message, **headers):
    """Sends a message to the endpoint, receives it, runs its handlers, and dispatches what they sent."""
    with endpoint.open(database) as bus:
        bus.send(message, to=queue.name, headers=headers)
    (received,) = queue.receive(1)
    endpoint.dispatch(database, [endpoint.handle(received, database).outgoing])
    return received


def test_a_handler_gets_the_typed_message(sales, queue, database):
    seen = []
    sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)(lambda message, context: seen.append(message))
    order = PlaceOrder(42, [Line("Büro", 2), Line("Tisch")], "eilig")

    received = handled(sales, queue, database, order)

    assert seen == [order]
    assert received.body.startswith(b'{"OrderId":42,"Lines":[{"ProductName":')


def test_a_body_as_net_endpoints_write_it_and_one_with_pythons_names_are_both_read(sales, queue, database):
    seen = []
    sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)(lambda message, context: seen.append(message))
    headers = {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder, Shop.Messages, Version=1.0.0.0"}

    for body in (b'\xef\xbb\xbf{"OrderId":1,"Extra":true}', b'{"order_id":2}'):
        queue.send(body, headers)
        sales.handle(queue.receive()[0], database)

    assert seen == [PlaceOrder(1), PlaceOrder(2)]


def test_what_a_handler_sends_leaves_together_with_the_headers_of_the_conversation(sales, queue, billing, database):
    @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def place(message, context):
        context.send(OrderPlaced(message.order_id), to="Billing")
        context.reply(OrderPlaced(0))

    received = handled(sales, queue, database, PlaceOrder(42), **{"NServiceBus.ReplyToAddress": "Billing"})

    sent, reply = billing.receive(5)
    assert sent.body == b'{"OrderId":42}'
    assert sent.headers["NServiceBus.MessageIntent"] == "Send"
    assert reply.headers["NServiceBus.MessageIntent"] == "Reply"
    for message in (sent, reply):
        assert message.headers["NServiceBus.RelatedTo"] == received.message_id
        assert message.headers["NServiceBus.ConversationId"] == received.headers["NServiceBus.ConversationId"]
        assert message.headers["NServiceBus.CorrelationId"] == received.message_id
        assert message.headers["NServiceBus.EnclosedMessageTypes"] == "Shop.Messages.OrderPlaced"
        assert message.headers["NServiceBus.OriginatingEndpoint"] == "Sales"


@pytest.mark.engine_schema("spells the engine's own schema")
@pytest.mark.promise("duplicates-in-batch-collapse")
def test_the_same_message_id_to_the_same_queue_collapses_to_one_row(sales, queue, billing, database):
    @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def place(message, context):
        for spelling in ("Billing", f"Billing@[{'public' if database.engine == 'postgresql' else 'dbo'}]"):
            context.send(OrderPlaced(1), to=spelling, headers={"NServiceBus.MessageId": "m1"})
        context.send(OrderPlaced(2), to="Billing")

    handled(sales, queue, database, PlaceOrder(1))

    assert [row.body for row in billing.browse()] == [b'{"OrderId":1}', b'{"OrderId":2}']


@pytest.mark.engine_schema("spells the engine's own schema")
@pytest.mark.parametrize("spelling", ["Billing", "default", "canonical"])
def test_every_spelling_of_an_address_reaches_the_queue(sales, queue, billing, database, spelling):
    from rowpost.wire.address import Address

    address = {
        "Billing": "Billing",
        "default": "Billing@[public]" if database.engine == "postgresql" else "Billing@[dbo]",
        "canonical": database.canonical(Address("Billing")),
    }[spelling]

    with sales.open(database) as bus:
        bus.send(OrderPlaced(1), to=address)

    assert [m.body for m in billing.receive(5)] == [b'{"OrderId":1}']


def test_a_reply_to_a_message_without_reply_address_is_refused_with_what_to_do(sales, queue, database):
    sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)(lambda message, context: context.reply(OrderPlaced(1)))

    with pytest.raises(InvalidMessage, match="cannot be replied to"):
        handled(sales, queue, database, PlaceOrder(1), **{"NServiceBus.ReplyToAddress": None})


@pytest.mark.promise("unknown-destination-fails")
def test_an_unknown_destination_fails_and_nothing_of_the_handlers_sends_is_stored(sales, queue, billing, database):
    @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def place(message, context):
        context.send(OrderPlaced(1), to="Billing")
        context.send(OrderPlaced(2), to="Nowhere")

    queue.send(b'{"OrderId":1}', {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder"})
    with pytest.raises(QueueNotFound, match="Nowhere"), database.transaction():
        sales.dispatch(database, [sales.handle(queue.receive()[0], database).outgoing])

    assert billing.peek() == 0
    assert queue.peek() == 1


@pytest.mark.promise("unreadable-body-fails-at-once")
def test_a_body_that_does_not_parse_says_so(sales, queue, database):
    sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)(lambda message, context: None)
    queue.send(b"{", {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder"})

    with pytest.raises(MessageNotDeserialized, match="PlaceOrder"):
        sales.handle(queue.receive()[0], database)


def test_a_type_that_nobody_handles_is_named(sales, queue, database):
    queue.send(b"{}", {"NServiceBus.EnclosedMessageTypes": "Shop.Unknown"})

    with pytest.raises(NoHandler, match=r"Shop\.Unknown"):
        sales.handle(queue.receive()[0], database)


def test_a_foreign_message_without_headers_names_its_type_in_the_body(sales, queue, database, sql):
    seen = []
    sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)(lambda message, context: seen.append(message))
    sql.insert_minimal(queue.name, "", b'{"$type":"Shop.Messages.PlaceOrder, Shop","OrderId":7}')

    sales.handle(queue.receive()[0], database)

    assert seen == [PlaceOrder(7)]


@pytest.mark.promise("handlers-header-changes")
def test_headers_that_a_handler_changes_are_its_own_copy(sales, queue, database):
    @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def place(message, context):
        context.headers["NServiceBus.MessageId"] = "changed"

    received = handled(sales, queue, database, PlaceOrder(1))

    assert received.headers["NServiceBus.MessageId"] != "changed"


@pytest.mark.promise("subscribe-is-idempotent")
def test_subscribing_twice_is_one_row_and_a_new_address_moves_it(database):
    endpoint, topic = f"E{uuid4()}", f"T{uuid4()}"

    def rows():
        return [row for row in database.call("list_subscriptions") if row[1] == endpoint]

    database.call("subscribe", endpoint=endpoint, topic=topic, queue_address="Sales")
    database.call("subscribe", endpoint=endpoint, topic=topic, queue_address="Sales")
    once = rows()
    database.call("subscribe", endpoint=endpoint, topic=topic, queue_address="Billing")
    moved = rows()
    database.call("unsubscribe", endpoint=endpoint, topic=topic)

    assert once == [(topic, endpoint, "Sales")]
    assert moved == [(topic, endpoint, "Billing")]
    assert rows() == []


@pytest.fixture
def subscribed(database):
    """Subscribes endpoints for one test."""
    made = []

    def subscribe(endpoint, topic, address):
        database.call("subscribe", endpoint=endpoint, topic=topic, queue_address=address)
        made.append((endpoint, topic))

    yield subscribe
    for endpoint, topic in made:
        database.call("unsubscribe", endpoint=endpoint, topic=topic)


@pytest.mark.promise("derived-events")
def test_a_derived_event_reaches_subscribers_of_its_base_once(sales, queue, billing, database, subscribed):
    from rowpost.wire.address import Address

    subscribed("Billing", "Shop.Messages.OrderPlaced", named("Billing"))
    subscribed("Billing", "Shop.Messages.VipOrderPlaced", database.canonical(Address("Billing")))
    subscribed("Sales", "Shop.Messages.OrderPlaced", named("Sales"))

    with sales.open(database) as bus:
        bus.publish(VipOrderPlaced(1))

    (copy,) = billing.receive(5)
    assert copy.headers["NServiceBus.EnclosedMessageTypes"] == "Shop.Messages.VipOrderPlaced;Shop.Messages.OrderPlaced"
    (other,) = queue.receive(5)
    assert other.message_id == copy.message_id


@pytest.mark.promise("publish-without-subscribers")
def test_publishing_without_subscribers_succeeds(sales, queue, billing, database):
    with sales.open(database) as bus:
        bus.publish(OrderPlaced(1))

    assert (queue.peek(), billing.peek()) == (0, 0)


@pytest.mark.promise("time-to-be-received-sets-expiry")
def test_a_time_to_be_received_is_kept_by_a_send_of_the_bus(sales, billing, database, sql):
    with sales.open(database) as bus:
        bus.send(OrderPlaced(1), to="Billing", time_to_be_received=timedelta(minutes=1))

    assert billing.browse()[0].expires > sql.utc_now()


@pytest.mark.promise("delay-excludes-expiry")
def test_a_delay_and_a_time_to_be_received_exclude_each_other(sales, database):
    with pytest.raises(InvalidMessage, match="cannot have both"), sales.open(database) as bus:
        bus.send(OrderPlaced(1), to="Billing", delay=timedelta(1), time_to_be_received=timedelta(1))


@pytest.mark.promise("immediate-send-stays")
def test_an_immediate_send_stays_though_the_handler_fails(sales, queue, billing, database):
    @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
    def place(message, context):
        context.send(OrderPlaced(1), to="Billing", immediate=True)
        context.send(OrderPlaced(2), to="Billing")
        raise ValueError("no such order")

    queue.send(b'{"OrderId":1}', {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder"})
    with pytest.raises(ValueError, match="no such order"), database.transaction():
        sales.handle(queue.receive()[0], database)

    assert [m.body for m in billing.receive(5)] == [b'{"OrderId":1}']


# ------------------------------------------------------------------ where replies may go
@pytest.mark.parametrize(
    ("reply_to", "address", "sent"),
    [
        (None, "Billing", True), ("registered", "Billing", True), (["Billing"], "Billing", True), (["Billing"], None, True),
        ("registered", "Nowhere", False), (["Sales"], "Billing", False), ([], "Billing", False),
    ],
)  # fmt: skip
def test_an_endpoint_may_limit_where_it_replies_to(queue, database, billing, sql, reply_to, address, sent):
    """`None` as the address: the canonical form of Billing, as endpoints write it."""
    sql.empty("error")
    endpoint = Endpoint("Sales", reply_to=reply_to)
    endpoint.handles("Ask", bytes)(
        lambda message, context: context.reply(b"told", headers={"NServiceBus.EnclosedMessageTypes": "Told"})
    )
    address = address or database.canonical(parse_address("Billing"))
    queue.send(b"", {"NServiceBus.EnclosedMessageTypes": "Ask", "NServiceBus.ReplyToAddress": address})

    outcome = endpoint.process_one(database)

    failed = Queue("error", database).browse(5)
    assert (outcome.kind is Kind.HANDLED, billing.peek(), len(failed)) == (sent, int(sent), int(not sent))
    assert sent or "ReplyRefused" in failed[0].headers["NServiceBus.ExceptionInfo.ExceptionType"]
    sql.empty("error")


def test_another_word_for_where_to_reply_is_refused():
    with pytest.raises(SettingsError, match=r'Write "registered", or a list'):
        Endpoint("Sales", reply_to="Billing")


# ------------------------------------------------------------------ connections of its own
def test_what_process_one_has_opened_is_closed_when_another_database_follows_and_at_the_end(queue, open_database):
    """A failed attempt is counted on a second connection."""
    endpoint, opened = Endpoint("Sales"), []

    @endpoint.handles_everything
    def fail(message, context):
        raise ValueError("no")

    def watched():
        database = open_database()
        open_second = database.open_second
        database._open_second = lambda: opened.append(open_second()) or opened[-1]
        return database

    queue.send(b"", {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.Foreign"})
    first, other = watched(), watched()
    outcomes = [endpoint.process_one(first), endpoint.process_one(other)]
    then = [each.closed for each in opened]
    endpoint.close()

    assert [outcome.kind for outcome in outcomes] == [Kind.FAILED] * 2
    assert (then, [each.closed for each in opened]) == ([True, False], [True, True])
    assert not first.closed
    assert not other.closed


def test_a_business_database_is_left_when_the_endpoint_is_closed(queue, database, business_url, sql):
    if database.engine != "postgresql":
        pytest.skip("sessions are counted on PostgreSQL")
    endpoint = Endpoint("Sales", transaction_mode="receive_only", outbox=Outbox("business", url=business_url))
    endpoint.handles_everything(lambda message, context: None)
    name = psycopg.conninfo.conninfo_to_dict(business_url)["dbname"]
    sessions = f"SELECT COUNT(*) FROM pg_stat_activity WHERE datname = '{name}' AND backend_type = 'client backend'"
    queue.send(b"", {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.Foreign"})

    outcome, before = endpoint.process_one(database), sql.value(sessions)
    endpoint.close()

    assert (outcome.kind, before) == (Kind.HANDLED, 1)
    eventually(lambda: sql.value(sessions) == 0, "the session ends")
