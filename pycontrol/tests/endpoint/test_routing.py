"""Where sends, events and replies go: routes of related classes, publishers without a queue, an endpoint's own events."""

from dataclasses import dataclass

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.schema import named


@message_type("Routing.Pay")
@dataclass(frozen=True)
class Pay:
    number: int


@message_type("Routing.PayByCard")
@dataclass(frozen=True)
class PayByCard(Pay):
    pass


@message_type("Routing.PayInCash")
@dataclass(frozen=True)
class PayInCash(Pay):
    pass


@message_type("Routing.Paid", kind="event")
@dataclass(frozen=True)
class Paid:
    number: int


@pytest.fixture
def seen(sql, queue):
    for name in ("Billing", "error"):
        sql.empty(name)
    return []


def kinds_of(endpoint, database, times=1):
    return [endpoint.process_one(database).kind for _ in range(times)]


@pytest.mark.parametrize("first", [PayByCard, PayInCash])
def test_a_message_whose_base_class_other_messages_share_goes_to_its_own_route(seen, database, queue, first):
    sales = Endpoint("Sales")
    routes = {PayByCard: "Billing", PayInCash: "Sales"}
    for cls in (first, *(routes.keys() - {first})):
        sales.route(cls, routes[cls])

    with sales.open(database) as bus:
        bus.send(PayByCard(1))

    assert [each.body for each in Queue("Billing", database).browse()] == [b'{"Number":1}']
    assert queue.peek() == 0


def test_what_a_send_only_endpoint_publishes_reaches_each_subscriber(seen, database, queue):
    for name in ("Billing", "Sales"):
        database.call("subscribe", endpoint=name, topic="Routing.Paid", queue_address=named(name))
    try:
        with Endpoint("Web", send_only=True).open(database) as bus:
            bus.publish(Paid(1))
    finally:
        for name in ("Billing", "Sales"):
            database.call("unsubscribe", endpoint=name, topic="Routing.Paid")

    for name in ("Billing", "Sales"):
        endpoint = Endpoint(name)
        endpoint.handles("Routing.Paid", Paid)(lambda message, context: seen.append((context.endpoint.name, message)))
        assert kinds_of(endpoint, database) == [Kind.HANDLED]
    assert seen == [("Billing", Paid(1)), ("Sales", Paid(1))]


def test_an_endpoint_subscribes_to_an_event_of_its_own_and_handles_it(seen, database):
    sales = Endpoint("Sales")
    sales.handles("Routing.Paid", Paid, subscribe=True)(lambda message, context: seen.append(message))
    sales.subscribe(database)
    try:
        with sales.open(database) as bus:
            bus.publish(Paid(1))
    finally:
        database.call("unsubscribe", endpoint="Sales", topic="Routing.Paid")

    assert kinds_of(sales, database) == [Kind.HANDLED]
    assert seen == [Paid(1)]


def test_a_reply_to_an_instance_that_sends_goes_to_the_queue_that_all_instances_share(seen, database):
    sales = Endpoint("Sales", instance="instance-42")
    sales.handles("Routing.Paid", Paid)(lambda message, context: None)
    sales.handles("Routing.Pay", Pay)(lambda message, context: seen.append(message))
    billing = Endpoint("Billing")

    @billing.handles("Routing.PayByCard", PayByCard)
    def answer(message, context):
        seen.append(context.headers["NServiceBus.ReplyToAddress"])
        context.reply(Pay(2))

    with sales.open(database) as bus:
        bus.send(PayByCard(1), to="Billing")

    kinds = kinds_of(billing, database) + kinds_of(sales, database)

    assert (kinds, seen[1:]) == ([Kind.HANDLED, Kind.HANDLED], [Pay(2)])
    assert "instance-42" not in seen[0]
