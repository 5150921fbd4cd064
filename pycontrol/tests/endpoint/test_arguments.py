"""What send, publish, reply and the like refuse when they are called, with an error that names the argument."""

from datetime import UTC, datetime
from enum import Enum, StrEnum

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidDelay, InvalidMessage, InvalidQueueName
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.queue import Queue
from rowpost.wire.outgoing import AddressedMessage
from tests.support.crashing import TYPE, Order
from tests.support.schema import named

HEADERS = {"NServiceBus.EnclosedMessageTypes": TYPE}


class Queues(Enum):
    BILLING = "Billing"


class Names(StrEnum):
    BILLING = "Billing"


class Nameless:
    def __repr__(self):
        raise RuntimeError


@pytest.fixture
def sales(sql):
    for name in ("Billing", "error"):
        sql.empty(name)
    sales = Endpoint("Sales", recoverability=Recoverability(1, 0))
    sales.route(Order, to="Billing")
    return sales


NOT_TEXT = [Queues.BILLING, b"Billing", ["Billing"], ("Billing",), 5, 0, True, Order(1), Order, "", Nameless()]
NOT_HEADERS = [
    [("a", "b")], "a", 5, {"a": 1}, {1: "a"}, {"a": b"b"}, {"a": ["b"]}, {b"a": "b"}, {"a": True}, {"a": "\0"}, {"a": "\ud800"},
    {"NServiceBus.MessageId": ""}, {"NServiceBus.MessageId": None}, {"a": datetime(2026, 1, 1, tzinfo=UTC)},
]  # fmt: skip
NOT_TIMES = [5, 5.0, "5", datetime(2030, 1, 1, tzinfo=UTC), b"5"]
WRONG = [
    *(("to", each) for each in NOT_TEXT),
    *(("instance", each) for each in NOT_TEXT),
    *(("reply_to", each) for each in NOT_TEXT),
    *(("message_id", each) for each in NOT_TEXT),
    *(("headers", each) for each in NOT_HEADERS),
    *(("delay", each) for each in (5, 0, "5", b"", False)),
    *(("time_to_be_received", each) for each in NOT_TIMES),
    *(("immediate", each) for each in ("no", 1, None)),
]


@pytest.mark.parametrize(
    ("name", "value"),
    WRONG,
    ids=lambda value: value if isinstance(value, str) and value.isidentifier() else type(value).__name__,
)
def test_a_wrong_argument_of_send_is_refused_where_it_is_passed(sales, database, name, value):
    with sales.open(database) as bus:
        with pytest.raises((InvalidMessage, InvalidDelay)) as refused:
            bus.send(Order(1), **{name: value})

        assert bus.outgoing == []

    assert name in str(refused.value) or "header" in str(refused.value) or "id" in str(refused.value)


@pytest.mark.parametrize("name", ["headers", "time_to_be_received", "message_id", "immediate"])
def test_a_wrong_argument_of_publish_is_refused_too(sales, database, name):
    with sales.open(database) as bus, pytest.raises(InvalidMessage, match=name):
        bus.publish(Order(1), **{name: [5]})


@pytest.mark.parametrize(
    ("act", "advice"),
    [
        (lambda bus: bus.send(b"{}", headers=HEADERS), r"send\(bytes\(…\), to=…"),
        (lambda bus: bus.publish(b"{}", headers=HEADERS), "publish an instance"),
        (lambda bus: bus.send(bytearray(b"{}"), "Billing", headers=HEADERS), r"bytes\(…\)"),
        (lambda bus: bus.send(memoryview(b"{}"), "Billing", headers=HEADERS), r"bytes\(…\)"),
    ],
    ids=["no destination", "event", "bytearray", "memoryview"],
)
def test_bytes_have_no_class_and_other_buffers_are_not_sent_as_json(sales, database, act, advice):
    with sales.open(database) as bus, pytest.raises(InvalidMessage, match=advice):
        act(bus)


@pytest.mark.parametrize(
    "act",
    [
        lambda context: context.reply(Order(1), headers={"a": 5}),
        lambda context: context.reply(Order(1), immediate="yes"),
        lambda context: context.forward_current_message_to(Queues.BILLING),
        lambda context: context.forward_current_message_to(""),
        lambda context: context.discard(5),
        lambda context: context.send_local(Order(1), headers=[]),
    ],
    ids=["reply headers", "reply immediate", "forward enum", "forward empty", "discard", "send_local"],
)
def test_the_other_calls_of_a_context_refuse_too_and_the_handler_hears_it(sales, queue, database, act):
    heard = []

    @sales.handles(TYPE, Order)
    def handle(order, context):
        try:
            act(context)
        except InvalidMessage as error:
            heard.append(error)

    queue.send(b'{"Number":1}', {**HEADERS, "NServiceBus.ReplyToAddress": "Billing"})
    outcome = Pipeline(database, "Sales", sales).process_one()

    assert (outcome.kind, len(heard)) == (Kind.HANDLED, 1)


def test_a_request_refuses_a_time_that_is_none(sales, database):
    with sales.open(database) as bus, pytest.raises(InvalidMessage, match="timeout"):
        bus.request(Order(1), timeout=5)


def test_an_address_that_cannot_be_read_is_refused_at_the_call(sales, database):
    with sales.open(database) as bus, pytest.raises(InvalidQueueName):
        bus.send(Order(1), to="@dbo")


def test_texts_of_a_class_of_their_own_are_texts(sales, database):
    class Text(str):
        __slots__ = ()

    with sales.open(database) as bus:
        bus.send(Order(1), to=Names.BILLING, message_id=Text("m1"), headers={Text("Shop.Note"): Names.BILLING})

    (sent,) = Queue("Billing", database).receive()
    assert (sent.headers["NServiceBus.MessageId"], sent.headers["Shop.Note"]) == ("m1", "Billing")


# ------------------------------------------------------------------ whatever is raised after the handler
class Unsendable:
    """No text, no address, nothing that can be sent."""


@pytest.mark.parametrize("size", [1, 5], ids=["one message", "a batch"])
def test_what_cannot_be_sent_for_whatever_reason_is_the_failure_of_its_message(sales, queue, open_database, sql, size):
    database = open_database()

    @sales.handles(TYPE, Order)
    def handle(order, context):
        context.outgoing.append(
            AddressedMessage(dict(HEADERS), b"", Unsendable() if order.number == 2 else named("Billing"))
        )

    for number in range(1, 6):
        queue.send(b'{"Number":%d}' % number, HEADERS)
    pipeline = Pipeline(database, "Sales", sales, reconnect=database.open_second)
    batches = Batches(pipeline, BatchSize(size, None, now=size))
    for _ in range(20):
        if batches.process()[0].kind is Kind.EMPTY:
            break
    pipeline.close()

    assert queue.peek() == 0
    assert Queue("Billing", queue.database).peek() == 4
    (failed,) = Queue("error", queue.database).browse(10)
    assert failed.body == b'{"Number":2}'
