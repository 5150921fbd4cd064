"""Where a message goes, when, for how long, and who gets the reply: the options of a send and of a publish."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidDelay, InvalidMessage, InvalidQueueName
from rowpost.sagas import Saga, handles, starts
from rowpost.testing import SagaTest
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.headers import CORRELATION_ID, MESSAGE_ID, REPLY_TO_ADDRESS, TIME_TO_BE_RECEIVED
from rowpost.wire.message_types import message_type
from tests.support.schema import named


@message_type("Shop.Go")
@dataclass
class Go:
    """A command."""

    number: int = 1


@dataclass
class Waiting:
    number: int


@message_type("Shop.Quote", time_to_be_received=timedelta(minutes=1))
@dataclass
class Quote:
    """A command, or an event, that is worth nothing after a minute."""


@message_type("Shop.BetterQuote")
@dataclass
class BetterQuote(Quote):
    """Derives from it, and is worth nothing after the same time."""


@message_type("Shop.FixedQuote", time_to_be_received=timedelta(hours=1))
@dataclass
class FixedQuote(Quote):
    """Derives from it, and is worth something for longer."""


@dataclass
class Unnamed:
    """Is named by its module."""


@pytest.fixture
def bus(database, sql):
    """What the endpoint Sales sends is stored when the block ends."""
    for queue in ("Sales", "Billing"):
        sql.empty(queue)
    return lambda: Endpoint("Sales").open(database)


@pytest.fixture
def only(database):
    def only_one(queue: str = "Billing"):
        (message,) = Queue(queue, database).browse(5)
        return message

    return only_one


def seconds_left(message) -> float | None:
    """Until a message expires, rounded to ten seconds."""
    return (
        None
        if message.expires is None
        else round((message.expires.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds(), -1)
    )


def test_a_moment_delays_until_then(bus, database, only):
    with bus() as sales:
        sales.send(Go(), "Billing", delay=datetime.now(UTC) - timedelta(seconds=1))
        sales.send(Go(), "Billing", delay=datetime.now(UTC) + timedelta(hours=1))

    moved = move_due(database, "Billing")

    assert moved.moved == 1
    assert 3500 < moved.next_due <= 3600
    assert only().headers["NServiceBus.DeliverAt"]


def test_a_moment_without_a_time_zone_is_refused(bus):
    with pytest.raises(InvalidDelay, match="has no time zone"), bus() as sales:
        sales.send(Go(), "Billing", delay=datetime(2030, 1, 1))


@pytest.mark.parametrize("send", [
    lambda sales: sales.send_local(Go()),
    lambda sales: sales.send(Go(), "Sales"),
])  # fmt: skip
def test_send_local_reaches_the_endpoints_own_queue(bus, only, send):
    with bus() as sales:
        send(sales)

    assert only("Sales").headers["NServiceBus.EnclosedMessageTypes"] == "Shop.Go"


def test_a_handler_sends_to_its_own_endpoint_with_the_options_of_a_send(bus, database, only):
    endpoint = Endpoint("Sales")
    endpoint.handles("Shop.Go", Go)(
        lambda message, context: context.send_local(Quote(), headers={"Shop.Step": "2"}) and None
    )
    with bus() as sales:
        sales.send_local(Go())

    endpoint.process_one(database)

    assert only("Sales").headers["Shop.Step"] == "2"


def test_an_endpoint_that_only_sends_has_no_queue_of_its_own(database):
    with (
        pytest.raises(InvalidMessage, match="Web cannot send to itself: it only sends"),
        Endpoint("Web", send_only=True).open(database) as web,
    ):
        web.send_local(Go())


def test_a_message_reaches_an_instance_by_its_name(bus, make_queue):
    queue = make_queue("Billing.web1")

    with bus() as sales:
        sales.send(Go(), "Billing", instance="web1")

    assert len(queue.browse(5)) == 1


def test_a_route_and_an_instance_go_together(database, sql, make_queue):
    queue = make_queue("Billing.web2")
    sales = Endpoint("Sales")
    sales.route(Go, to="Billing")

    with sales.open(database) as bus:
        bus.send(Go(), instance="web2")

    assert len(queue.browse(5)) == 1


def test_the_reply_goes_where_the_sender_says(bus, database, only, make_queue):
    answers = make_queue("Answers")
    billing = Endpoint("Billing")
    billing.handles("Shop.Go", Go)(lambda message, context: context.reply(Go()) and None)
    with bus() as sales:
        sales.send(Go(), "Billing", reply_to="Answers")
    assert only().headers[REPLY_TO_ADDRESS] == database.canonical(parse_address("Answers"))

    billing.process_one(database)

    assert [message.headers["NServiceBus.MessageIntent"] for message in answers.browse(5)] == ["Reply"]
    with pytest.raises(InvalidQueueName), bus() as sales:
        sales.send(Go(), "Billing", reply_to="x@[")


def test_the_queue_of_a_waiting_process_of_the_old_transport_gets_the_reply(bus, database, make_queue):
    waiting = make_queue("Net.Sales.MACHINE")
    billing = Endpoint("Billing")
    billing.handles("Shop.Go", Go)(lambda message, context: context.reply(Go()) and None)
    with bus() as sales:
        sales.send(Go(), "Billing", headers={"NServiceBus.SqlServer.CallbackQueue": "Net.Sales.MACHINE"})

    billing.process_one(database)

    assert len(waiting.browse(5)) == 1


def test_a_message_has_the_id_that_its_sender_gives(bus, database, only):
    with bus() as sales:
        returned = sales.send(Go(), "Billing", message_id="order-42")

    headers = only().headers
    assert returned == headers[MESSAGE_ID] == headers[CORRELATION_ID] == "order-42"
    with pytest.raises(InvalidMessage, match="empty id"), bus() as sales:
        sales.send(Go(), "Billing", message_id="")
    with pytest.raises(InvalidMessage, match="empty id"), bus() as sales:
        sales.send(Go(), "Billing", headers={MESSAGE_ID: None})


def test_in_a_handler_such_a_message_belongs_to_the_correlation_of_the_handled_one(bus, database, only):
    endpoint = Endpoint("Sales")
    endpoint.handles("Shop.Go", Go)(
        lambda message, context: context.send(Go(), "Billing", message_id="second") and None
    )
    with bus() as sales:
        sales.send_local(Go(), message_id="first")

    endpoint.process_one(database)

    headers = only().headers
    assert (headers[MESSAGE_ID], headers[CORRELATION_ID], headers["NServiceBus.RelatedTo"]) == (
        "second",
        "first",
        "first",
    )


# ------------------------------------------------------------------------------------------------ time to be received
@pytest.mark.parametrize(
    ("message", "given", "left"),
    [
        (Go(), None, None), (Quote(), None, 60), (BetterQuote(), None, 60), (FixedQuote(), None, 3600), (Quote(), timedelta(minutes=2), 120),
        (Go(), timedelta(minutes=2), 120),
    ],
)  # fmt: skip
def test_a_command_expires_as_its_class_or_its_sender_says(bus, only, message, given, left):
    with bus() as sales:
        sales.send(message, "Billing", time_to_be_received=given)

    sent = only()
    assert seconds_left(sent) == left
    assert (
        sent.headers.get(TIME_TO_BE_RECEIVED) == {None: None, 60: "00:01:00", 120: "00:02:00", 3600: "01:00:00"}[left]
    )


@pytest.mark.promise("delay-excludes-expiry")
@pytest.mark.parametrize("cls", [Quote, BetterQuote])
@pytest.mark.parametrize("delay", [timedelta(0), timedelta(days=1), datetime.now(UTC)], ids=["zero", "day", "moment"])
def test_a_command_of_such_a_class_cannot_be_delayed_and_the_error_names_the_type_and_both_options(bus, cls, delay):
    refused = r"A Shop\.\w*Quote cannot have both delay and time_to_be_received=.*@message_type"
    with bus() as sales:
        with pytest.raises(InvalidMessage, match=refused):
            sales.send(cls(), "Billing", delay=delay)

        assert sales.outgoing == []


def test_a_timeout_of_such_a_class_cannot_be_requested():
    class Waits(Saga[Waiting], correlate={Go: "number"}):
        @starts(Go)
        def go(self, message, context):
            context.request_timeout(timedelta(hours=1), Quote())

        @handles(Quote)
        def late(self, message, context): ...

    with SagaTest(Waits) as saga, pytest.raises(InvalidMessage, match=r"Shop\.Quote cannot have both delay"):
        saga.handle(Go())


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.parametrize(("given", "left"), [(None, 60), (timedelta(minutes=2), 120)])
def test_an_event_expires_in_the_queue_of_each_subscriber(bus, database, sql, make_queue, registered, given, left):
    name = make_queue().name
    if not registered:
        like, name = name, named(f"{parse_address(name).table}Unregistered")
        sql.make_table_like(like, name)
    topic = {"endpoint": "Quotes", "topic": "Shop.Quote"}
    database.call_atomically("subscribe", **topic, queue_address=name)

    with bus() as sales:
        event_id = sales.publish(Quote(), time_to_be_received=given, message_id="quote-1")

    database.call_atomically("unsubscribe", **topic)
    ((headers, expires),) = sql.run(f"SELECT headers, expires FROM {sql.table(name)}")
    assert round((expires.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds(), -1) == left
    assert json.loads(headers)[MESSAGE_ID] == event_id == "quote-1"
    if not registered:
        sql.run(f"DROP TABLE {sql.table(name)}")


def test_a_message_whose_class_no_receiver_can_know_is_refused_at_the_call(bus, database, only):
    class Plain:
        """Of a function."""

    of_program = type("OfProgram", (), {"__module__": "__main__"})
    words = "message_type.*EnclosedMessageTypes"

    with bus() as open_bus:
        for message in ({"x": 1}, [1], "text", 7, Plain(), of_program()):
            for send in (open_bus.send, open_bus.send_local, open_bus.publish):
                with pytest.raises(InvalidMessage, match=words):
                    send(message, **({"to": "Billing"} if send == open_bus.send else {}))
        with pytest.raises(InvalidMessage, match=words):
            open_bus.send({"x": 1})  # without a destination
        open_bus.send(Go(), to="Billing")

    assert only().headers["NServiceBus.EnclosedMessageTypes"] == "Shop.Go"


def test_a_dict_with_the_name_of_its_type_and_a_class_of_a_module_are_sent(bus, database):
    class BestQuote(BetterQuote):
        """Its base has a name, which its receivers know."""

    with bus() as open_bus:
        open_bus.send({"x": 1}, to="Billing", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Go"})
        open_bus.send(BestQuote(), to="Billing")
        open_bus.send(Unnamed(), to="Billing")

    first, second, third = (
        each.headers["NServiceBus.EnclosedMessageTypes"] for each in Queue("Billing", database).browse(5)
    )
    assert (first, third) == ("Shop.Go", f"{__name__}.Unnamed")
    assert second.endswith("BestQuote;Shop.BetterQuote;Shop.Quote")
