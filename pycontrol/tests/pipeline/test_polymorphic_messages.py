"""Handlers of a base class, of derived classes and of several versions of a message: which of them run, and what they get."""

from dataclasses import dataclass
from typing import NamedTuple

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, starts
from rowpost.transport.queue import Queue
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message_types import message_type
from rowpost.wire.xml_serializer import XmlSerializer
from tests.support.sagas import deploy
from tests.support.schema import named

TYPES = "NServiceBus.EnclosedMessageTypes"


@message_type("Poly.Placed")
@dataclass(frozen=True)
class Placed:
    order_id: int


@message_type("Poly.PlacedByVip")
@dataclass(frozen=True)
class PlacedByVip(Placed):
    discount: int = 0


@message_type("Poly.PlacedAbroad")
@dataclass(frozen=True)
class PlacedAbroad(Placed):
    country: str = ""


@message_type("Poly.Audited")
@dataclass(frozen=True)
class Audited:
    order_id: int


@message_type("Poly.PlacedAndAudited")
@dataclass(frozen=True)
class PlacedAndAudited(Placed, Audited):
    """Is of two types that do not derive from one another."""


class Parsed(JsonSerializer):
    """Counts what it decodes."""

    def __init__(self):
        super().__init__()
        self.bodies = []

    def decode(self, body, cls):
        self.bodies.append(body)
        return super().decode(body, cls)


@pytest.fixture
def seen():
    return []


@pytest.fixture
def run(database, queue, sql):
    """Process the messages of Sales, and return what became of them."""
    sql.empty("error")

    def process(endpoint, times=1):
        return [endpoint.process_one(database).kind for _ in range(times)]

    return process


@pytest.fixture
def subscribed(database):
    """Subscribe Sales to types for one test."""
    topics = []

    def subscribe(*classes):
        for cls in classes:
            topics.append(cls.__dict__["__rowpost_type__"])
            database.call("subscribe", endpoint="Sales", topic=topics[-1], queue_address=named("Sales"))

    yield subscribe
    for topic in topics:
        database.call("unsubscribe", endpoint="Sales", topic=topic)


def endpoint_with(*handlers, **options):
    """Return the endpoint Sales with handlers: pairs of a class and the list that its messages are added to."""
    endpoint = Endpoint("Sales", recoverability=Recoverability(0, 0), **options)
    for cls, handled in handlers:
        endpoint.handles(cls.__dict__["__rowpost_type__"], cls)(lambda message, context, to=handled: to.append(message))
    return endpoint


def test_handlers_of_one_class_share_the_object_whatever_runs_between_them(run, database, seen):
    serializer = Parsed()
    sales = endpoint_with((Placed, seen), serializers=[serializer])
    for cls in (dict, Placed, dict):
        sales.handles("Poly.Placed", cls)(lambda message, context: seen.append(message))
    with sales.open(database) as bus:
        bus.send_local(Placed(1))

    assert run(sales) == [Kind.HANDLED]
    placed, plain, placed_again, plain_again = seen
    assert (placed, type(plain)) == (Placed(1), dict)
    assert (placed is placed_again, plain is plain_again) == (True, True)
    assert len(serializer.bodies) == 2


@pytest.mark.parametrize("serializer", [JsonSerializer, XmlSerializer])
def test_the_handler_of_a_base_class_gets_the_derived_message_with_all_its_fields(run, database, seen, serializer):
    sales = endpoint_with((Placed, seen), serializers=[serializer()])
    with sales.open(database) as bus:
        bus.send_local(PlacedByVip(1, discount=2))
        bus.send_local(Placed(3))

    assert run(sales, 2) == [Kind.HANDLED, Kind.HANDLED]
    assert seen == [PlacedByVip(1, discount=2), Placed(3)]


def test_one_subscriber_of_a_base_event_gets_the_derived_events_of_two_publishers(run, database, subscribed, seen):
    subscribed(PlacedByVip, PlacedAbroad)
    for name, event in (("Shop.Web", PlacedByVip(1, discount=2)), ("Shop.Export", PlacedAbroad(3, country="is"))):
        with Endpoint(name, send_only=True).open(database) as bus:
            bus.publish(event)

    assert run(endpoint_with((Placed, seen)), 2) == [Kind.HANDLED, Kind.HANDLED]
    assert seen == [PlacedByVip(1, discount=2), PlacedAbroad(3, country="is")]


def test_a_subscriber_of_a_base_event_and_of_a_derived_one_gets_each_event_once(run, database, subscribed, seen):
    subscribed(Placed, PlacedAbroad)
    abroad = []
    with Endpoint("Shop.Web", send_only=True).open(database) as bus:
        bus.publish(PlacedByVip(1, discount=2))
        bus.publish(PlacedAbroad(3, country="is"))

    kinds = run(endpoint_with((Placed, seen), (PlacedAbroad, abroad)), 3)

    assert kinds == [Kind.HANDLED, Kind.HANDLED, Kind.EMPTY]
    assert seen == [PlacedByVip(1, discount=2), PlacedAbroad(3, country="is")]
    assert abroad == [PlacedAbroad(3, country="is")]


def test_a_subscriber_of_a_derived_event_gets_no_event_of_the_base(run, database, subscribed, seen):
    subscribed(PlacedByVip)
    with Endpoint("Shop.Web", send_only=True).open(database) as bus:
        bus.publish(Placed(1))
        bus.publish(PlacedByVip(2))

    assert run(endpoint_with((PlacedByVip, seen)), 2) == [Kind.HANDLED, Kind.EMPTY]
    assert seen == [PlacedByVip(2)]


@pytest.mark.parametrize("handled_too", [True, False], ids=["named_by_a_handler", "named_by_message_type"])
def test_a_header_that_names_only_the_derived_type_finds_the_handler_of_the_base(run, queue, seen, handled_too):
    derived = []
    sales = endpoint_with((Placed, seen), *([(PlacedByVip, derived)] if handled_too else []))
    queue.send(b'{"OrderId":1,"Discount":2}', {TYPES: "Poly.PlacedByVip, Shop, Version=1.0.0.0"})

    assert run(sales) == [Kind.HANDLED]
    assert seen == [PlacedByVip(1, discount=2)]
    assert derived == (seen if handled_too else [])


def test_a_class_that_only_a_handler_names_is_known_to_the_handlers_of_its_base(run, queue, seen):
    class Foreign(Placed):
        pass

    sales = endpoint_with((Placed, seen))
    sales.handles("Foreign.Placed", Foreign)(lambda message, context: seen.append("own"))
    queue.send(b'{"OrderId":1}', {TYPES: "Foreign.Placed"})

    assert run(sales) == [Kind.HANDLED]
    assert (type(seen[0]), seen[1]) == (Foreign, "own")


def test_a_derived_type_that_this_program_does_not_know_arrives_as_the_base(run, queue, seen):
    queue.send(b'{"OrderId":1,"Points":2}', {TYPES: "Unknown.Placed;Poly.Placed"})

    assert run(endpoint_with((Placed, seen))) == [Kind.HANDLED]
    assert seen == [Placed(1)]


def test_two_types_of_one_class_stay_apart_and_pythons_own_classes_are_no_bases(run, queue, seen):
    class Pair(NamedTuple):
        order_id: int

    sales = endpoint_with()
    for name, cls in (("Poly.A", Placed), ("Poly.B", Placed), ("Poly.Pair", Pair), ("Poly.Any", tuple)):
        sales.handles(name, cls)(lambda message, context, name=name: seen.append(name))
    queue.send(b'{"OrderId":1}', {TYPES: "Poly.A"})
    queue.send(b"[1]", {TYPES: "Poly.Pair"})

    assert run(sales, 2) == [Kind.HANDLED, Kind.HANDLED]
    assert seen == ["Poly.A", "Poly.Pair"]


def test_an_event_of_two_unrelated_types_reaches_the_handlers_of_both_as_one_message(run, database, subscribed, seen):
    subscribed(Placed, Audited)
    audited = []
    with Endpoint("Shop.Web", send_only=True).open(database) as bus:
        bus.publish(PlacedAndAudited(1))

    assert run(endpoint_with((Placed, seen), (Audited, audited)), 2) == [Kind.HANDLED, Kind.EMPTY]
    assert seen == audited == [PlacedAndAudited(1)]


def test_both_versions_of_a_message_reach_their_handlers_when_the_new_one_is_published(run, database, subscribed, seen):
    """The subscriber of version 1 is a program that does not have the class of version 2."""
    new = Endpoint("Shop.Web", send_only=True)
    subscribed(Placed)
    with new.open(database) as bus:
        bus.publish(PlacedByVip(1, discount=2), headers={TYPES: "Poly.PlacedOfVersion2;Poly.Placed"})
        bus.publish(PlacedByVip(3, discount=4))

    assert run(endpoint_with((Placed, seen)), 2) == [Kind.HANDLED, Kind.HANDLED]
    assert seen == [Placed(1), PlacedByVip(3, discount=4)]


def test_the_body_is_parsed_once_for_all_handlers_of_a_message(run, database, seen):
    parsed = Parsed()
    sales = endpoint_with((Placed, seen), (PlacedByVip, seen), (Placed, seen), serializers=[parsed])
    with sales.open(database) as bus:
        bus.send_local(PlacedByVip(1, discount=2))

    assert run(sales) == [Kind.HANDLED]
    assert seen == [PlacedByVip(1, discount=2)] * 3
    assert parsed.bodies == [b'{"OrderId":1,"Discount":2}']


def test_handlers_run_in_the_order_of_their_declaration_those_of_a_base_class_and_sagas_too(
    run, database, target, seen
):
    @dataclass
    class State:
        order_id: int

    class Policy(Saga[State], correlate={PlacedByVip: "order_id"}, table="Sales_PolyOrder"):
        @starts(PlacedByVip)
        def placed(self, message, context):
            seen.append("saga")

    sales = endpoint_with()
    sales.handles("Poly.Placed", Placed)(lambda message, context: seen.append("base"))
    sales.saga(Policy)
    sales.handles("Poly.PlacedByVip", PlacedByVip)(lambda message, context: seen.append("derived"))
    deploy(target, sales)
    with sales.open(database) as bus:
        bus.send_local(PlacedByVip(1))

    assert run(sales) == [Kind.HANDLED]
    assert seen == ["base", "saga", "derived"]


def test_a_message_that_its_headers_give_a_blank_type_goes_to_the_error_queue(run, database, queue, seen):
    """The type that another blank message names in its body is not taken for its own."""
    for body in (b'{"$type":"Poly.Placed, Shop","OrderId":1}', b'{"OrderId":2}'):
        queue.send(body, {TYPES: "   "})

    assert run(endpoint_with((Placed, seen)), 2) == [Kind.HANDLED, Kind.MOVED_TO_ERROR]
    assert seen == [Placed(1)]
    assert [each.body for each in Queue("error", database).browse()] == [b'{"OrderId":2}']
