"""A trace that comes in with a message goes on with everything that its handler sends, without OpenTelemetry in this process."""

import json
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.recorded_rows import recorded

TRACE = "NServiceBus.OpenTelemetry.StartNewTrace"
BILL = "Shop.Messages.BillOrder"


@message_type("Shop.Messages.Billed")
@dataclass
class Billed:
    """An event of this test."""


@pytest.fixture
def handled(target, database, sql):
    """Handles a row as an endpoint of the queue Billing."""
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    for queue in ("Sales", "Billing", "error"):
        sql.empty(queue)
    subscription = {"endpoint": "Sales", "topic": "Shop.Messages.Billed"}
    database.call_atomically("subscribe", **subscription, queue_address="Sales")

    def handle(headers: str, body: str, handler, **options):
        endpoint = Endpoint("Billing", **options)
        endpoint.handles(BILL, bytes)(handler)
        sql.insert_minimal("Billing", headers, body.encode())
        return endpoint.process_one(database)

    yield handle
    database.call_atomically("unsubscribe", **subscription)


@message_type("Shop.Go")
@dataclass
class Go:
    """A command of this test."""


@pytest.mark.parametrize("name", ["send-traced", "delayed-traced"])
def test_a_recorded_trace_leaves_in_all_that_is_sent(handled, database, make_queue, name):
    row = recorded(name)
    came = json.loads(row["headers"])["traceparent"]
    asked = make_queue("Net.Traced")

    def handler(message, context):
        named = {"NServiceBus.EnclosedMessageTypes": "Shop.Go"}
        context.send(b"now", "Sales", headers=named)
        context.send(b"later", "Sales", delay=timedelta(0), headers=named)
        context.publish(Billed())
        context.reply(b"reply", headers=named)

    outcome = handled(row["headers"], row["body"], handler)
    move_due(database, "Sales")

    assert outcome.kind is Kind.HANDLED, outcome.error
    sent = {message.body: message.headers for queue in (Queue("Sales", database), asked) for message in queue.browse(9)}
    assert {body: headers["traceparent"] for body, headers in sent.items()} == dict.fromkeys(sent, came)
    assert {body: headers.get(TRACE) for body, headers in sent.items()} == {
        b"now": "False",
        b"later": "True",
        b"{}": "True",
        b"reply": None,
    }


def test_state_and_baggage_travel_too_and_nothing_is_made_up(handled, database):
    # no recording has these two; W3C's Trace Context and Baggage: who takes no part passes them on unchanged
    headers = json.loads(recorded("send-traced")["headers"]) | {"tracestate": "a=1,b=2", "baggage": "user=%C3%A4,k=v"}
    send = lambda message, context: context.send(b"", "Sales", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Go"})  # noqa: E731

    handled(json.dumps(headers), "{}", send)
    handled(recorded("send")["headers"], "{}", send)

    traced, plain = [message.headers for message in Queue("Sales", database).browse(9)]
    assert {name: traced[name] for name in ("traceparent", "tracestate", "baggage")} == {
        "traceparent": headers["traceparent"], "tracestate": "a=1,b=2", "baggage": "user=%C3%A4,k=v",
    }  # fmt: skip
    assert not {"traceparent", "tracestate", "baggage"} & plain.keys()


def test_a_delayed_retry_and_the_error_queue_keep_the_trace(handled, database):
    row = recorded("send-traced")
    came = json.loads(row["headers"])["traceparent"]

    def fails(message, context):
        raise ValueError("no such order")

    policy = Recoverability(immediate_retries=0, delayed_retries=1, delay_increase=timedelta(0))
    first = handled(row["headers"], row["body"], fails, recoverability=policy)
    move_due(database, "Billing")
    (again,) = Queue("Billing", database).browse(5)
    endpoint = Endpoint("Billing", recoverability=policy)
    endpoint.handles(BILL, bytes)(fails)
    second = endpoint.process_one(database)

    (failed,) = Queue("error", database).browse(5)
    assert (first.kind, second.kind) == (Kind.DELAYED, Kind.MOVED_TO_ERROR)
    assert again.headers["traceparent"] == failed.headers["traceparent"] == came
    assert (again.headers[TRACE], failed.headers[TRACE]) == (
        "True",
        "True",
    )  # NServiceBus's PopulateRecoverabilityTraceMetadataBehavior


@pytest.mark.parametrize(
    ("name", "intent"), [("send", "Send"), ("delayed", "Send"), ("publish", "Publish"), ("reply", "Reply")]
)
def test_without_a_trace_the_header_is_the_recorded_one(handled, database, make_queue, name, intent):
    theirs = json.loads(recorded(name)["headers"])
    asked = make_queue("Net.Sales")
    how = {
        "send": lambda context: context.send(Go(), "Sales"),
        "delayed": lambda context: context.send(Go(), "Sales", delay=timedelta(0)),
        "publish": lambda context: context.publish(Billed()),
        "reply": lambda context: context.reply(b"", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Go"}),
    }[name]

    outcome = handled(recorded("send")["headers"], "{}", lambda message, context: how(context) and None)
    move_due(database, "Sales")

    (ours,) = [message.headers for queue in (Queue("Sales", database), asked) for message in queue.browse(9)]
    assert outcome.kind is Kind.HANDLED, outcome.error
    assert ours["NServiceBus.MessageIntent"] == theirs["NServiceBus.MessageIntent"] == intent
    assert ours.get(TRACE) == theirs.get(TRACE)
