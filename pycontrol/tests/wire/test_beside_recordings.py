"""What rowpost writes, header by header beside what a real NServiceBus wrote in the same situation: names, and forms of values.

Each difference stands in the test, or in `DIFFERENT` of `tests/support/recorded_rows.py`, with its reason.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message import encode_headers
from rowpost.wire.message_types import message_type
from rowpost.wire.xml_serializer import XmlSerializer
from tests.support.recorded_rows import NAME, differences, recorded, recorded_headers
from tests.support.recorded_values import Values

BILL, FAIL = "Shop.Messages.BillOrder", "Shop.Messages.Fail"


@message_type(BILL)
@dataclass
class BillOrder:
    order_id: int


@message_type("Shop.Messages.IOrderEvent")
@dataclass
class IOrderEvent:
    order_id: int


@message_type("Shop.Messages.OrderPlaced")
@dataclass
class OrderPlaced(IOrderEvent):
    pass


@message_type("Shop.Messages.OrderAccepted")
@dataclass
class OrderAccepted:
    order_id: int


@pytest.fixture
def place(target, database, sql):
    """The endpoint Billing; Sales is the other one."""
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    for queue in ("Sales", "Billing", "error", "audit"):
        sql.empty(queue)
    sql.run(f"DELETE FROM {sql.table('Billing.Delayed')}")
    return Place(database, sql)


class Place:
    def __init__(self, database, sql):
        self.database, self.sql = database, sql

    def only(self, queue):
        (message,) = Queue(queue, self.database).browse(5)
        return message

    def send(self, send, *, instance=None):
        """What a program sends from the endpoint Billing, outside of a handler."""
        with Endpoint("Billing", instance=instance).open(self.database) as bus:
            send(bus)

    def handle(self, headers, handler, body=b'{"OrderId":42}', **options):
        """A message arrives at Billing and is handled there."""
        endpoint = Endpoint("Billing", **options)
        for name in (BILL, FAIL):
            endpoint.handles(name, bytes)(handler)
        self.sql.insert_minimal("Billing", headers if isinstance(headers, str) else encode_headers(headers), body)
        return endpoint.process_one(self.database)

    def delayed(self):
        ((headers,),) = self.sql.run(f"SELECT headers FROM {self.sql.table('Billing.Delayed')}")
        return json.loads(headers)


# ------------------------------------------------------------------------------------------------ theirs, handled
#: each recorded row that an endpoint receives, and whether somebody waits for a reply to it
ROWS = {
    "send": True, "send-header": True, "send-instance-reply": True, "send-traced": True, "send-ttbr": True, "send-values": True,
    "send-xml": True, "send-xml-values": True, "publish": True, "publish-traced": True, "reply": True, "saga-request": True,
    "delayed-traced": True,
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_recorded_row_is_handled_as_it_stands_and_answered(place, database, make_queue, name):
    row, came, seen = recorded(name), recorded_headers(name), []
    asked = make_queue(re.fullmatch(f'{NAME}."(.+)"', came["NServiceBus.ReplyToAddress"])[1])
    endpoint = Endpoint("Billing", serializers=[JsonSerializer(), XmlSerializer()], audit_queue="audit")

    def handle(message, context):
        seen.append(message)
        context.reply(OrderAccepted(message.order_id))

    types = [each.partition(",")[0] for each in came["NServiceBus.EnclosedMessageTypes"].split(";")]
    endpoint.handles(types[-1], Values if "values" in name else BillOrder)(handle)
    place.sql.insert_minimal("Billing", row["headers"], row["body"].encode())

    outcome = endpoint.process_one(database)

    assert outcome.kind is Kind.HANDLED, outcome.error
    assert [type(each) for each in seen] == [Values if "values" in name else BillOrder]
    (reply,) = asked.browse(5)
    assert reply.body == b'{"OrderId":%d}' % seen[0].order_id
    assert differences(reply.headers, recorded_headers("reply")).keys() <= {
        "traceparent", "NServiceBus.SagaId", "NServiceBus.SagaType",  # what came with the request goes back with its reply
    }  # fmt: skip
    for ours, theirs in (
        ("SagaId", "OriginatingSagaId"),
        ("SagaType", "OriginatingSagaType"),
        ("RelatedTo", "MessageId"),
    ):
        assert reply.headers.get(f"NServiceBus.{ours}") == came.get(f"NServiceBus.{theirs}")
    assert place.only("audit").headers.items() >= came.items()


# ------------------------------------------------------------------------------------------------ sent by a program
def test_a_command(place):
    place.send(lambda bus: bus.send(BillOrder(42), to="Sales"))

    message = place.only("Sales")
    assert differences(message.headers, recorded_headers("send")) == {}
    assert message.body == recorded("send")["body"].encode()
    assert message.headers["NServiceBus.CorrelationId"] == message.headers["NServiceBus.MessageId"]


def test_a_command_with_a_header_of_its_own(place):
    model = recorded_headers("send-header")
    own = {name: model[name] for name in ("Tenant", "traceparent")}

    place.send(lambda bus: bus.send(BillOrder(42), to="Sales", headers=own))

    headers = place.only("Sales").headers
    assert differences(headers, model) == {}
    assert own.items() <= headers.items()


def test_a_command_that_expires(place):
    place.send(lambda bus: bus.send(BillOrder(42), to="Sales", time_to_be_received=timedelta(seconds=2)))

    found = differences(place.only("Sales").headers, recorded_headers("send-ttbr"))
    assert found.pop("NServiceBus.EnclosedMessageTypes") == (
        [BILL],
        ["Shop.Messages.Ephemeral"],
    )  # .NET's class has the time
    assert found == {}


def test_an_event_names_its_base_types_too(place):
    place.database.call("subscribe", endpoint="Sales", topic="Shop.Messages.IOrderEvent", queue_address="Sales")

    place.send(lambda bus: bus.publish(OrderPlaced(42)))

    place.database.call("unsubscribe", endpoint="Sales", topic="Shop.Messages.IOrderEvent")
    message = place.only("Sales")
    assert differences(message.headers, recorded_headers("publish")) == {}
    assert message.body == recorded("publish")["body"].encode()


def test_a_delayed_command_in_its_table(place):
    place.send(lambda bus: bus.send(BillOrder(42), to="Billing", delay=timedelta(hours=1)))

    # rowpost keeps a delayed message in its destination's table, so that no other queue need be named
    assert differences(place.delayed(), recorded_headers("delayed")) == {
        "NServiceBus.SqlServer.ForwardDestination": (False, "address"),
    }


# ------------------------------------------------------------------------------------------------ sent by a handler
def test_a_reply(place, make_queue):
    asked = make_queue("Net.Sales")

    outcome = place.handle(recorded("send")["headers"], lambda message, context: context.reply(OrderAccepted(42)))

    assert outcome.kind is Kind.HANDLED, outcome.error
    (reply,) = asked.browse(5)
    came = recorded_headers("send")
    assert differences(reply.headers, recorded_headers("reply")) == {}
    assert reply.headers["NServiceBus.RelatedTo"] == came["NServiceBus.MessageId"]
    assert reply.headers["NServiceBus.ConversationId"] == came["NServiceBus.ConversationId"]


def test_a_reply_reaches_the_instance_that_asked(place, make_queue):
    asked = make_queue("Net.Sales.web1")

    outcome = place.handle(
        recorded("send-instance-reply")["headers"], lambda message, context: context.reply(OrderAccepted(42))
    )

    assert outcome.kind is Kind.HANDLED, outcome.error
    assert len(asked.browse(5)) == 1


# ------------------------------------------------------------------------------------------------ copies of a message
def test_a_handled_message_in_the_audit_queue(place):
    came = recorded_headers("audit")
    added = {"NServiceBus.ProcessingStarted", "NServiceBus.ProcessingEnded", "$.diagnostics.hostid", "$.diagnostics.hostdisplayname",
             "NServiceBus.ProcessingMachine", "NServiceBus.ProcessingEndpoint"}  # fmt: skip
    arrived = {name: value for name, value in came.items() if name not in added} | {
        "NServiceBus.EnclosedMessageTypes": BILL
    }

    place.handle(arrived, lambda message, context: None, audit_queue="audit")

    ours = place.only("audit").headers
    assert (
        differences(ours | {"NServiceBus.EnclosedMessageTypes": came["NServiceBus.EnclosedMessageTypes"]}, came) == {}
    )
    assert arrived.items() <= ours.items()
    assert ours["NServiceBus.ProcessingEndpoint"] == "Billing"


def test_a_copy_in_the_audit_queue_expires_where_the_endpoint_says_so(place):
    place.handle(
        recorded_headers("send"),
        lambda message, context: None,
        audit_queue="audit",
        audit_time_to_be_received=timedelta(days=7),
    )

    left = place.only("audit").expires.replace(tzinfo=UTC) - datetime.now(UTC)
    assert timedelta(days=7) - timedelta(minutes=1) < left <= timedelta(days=7)


def failing(message, context):
    raise ValueError("no such order: 42") from KeyError(42)


def test_a_failed_message_in_the_error_queue_after_a_delayed_retry(place):
    error, waiting = recorded_headers("error"), recorded_headers("delayed-retry")
    gone = {
        "NServiceBus.Retries",
        "NServiceBus.Retries.Timestamp",
        "NServiceBus.DeliverAt",
        "NServiceBus.SqlServer.ForwardDestination",
    }
    arrived = {name: value for name, value in waiting.items() if name not in gone}
    policy = Recoverability(immediate_retries=0, delayed_retries=1, delay_increase=timedelta(0))

    first = place.handle(arrived, failing, recoverability=policy)
    delayed = place.delayed()
    move_due(place.database, "Billing")
    endpoint = Endpoint("Billing", recoverability=policy)
    endpoint.handles(FAIL, bytes)(failing)
    endpoint.process_one(place.database)

    ours = place.only("error").headers
    assert first.kind is Kind.DELAYED
    # the message waits in the table of its own queue
    assert differences(delayed, waiting) == {"NServiceBus.SqlServer.ForwardDestination": (False, "address")}
    assert differences(ours, error) == {
        "NServiceBus.ExceptionInfo.InnerExceptionType": (
            "text",
            False,
        ),  # the recorded exception has no inner one, this one has
    }
    assert arrived.items() <= ours.items()
    said = {name: value for name, value in ours.items() if "ExceptionInfo" in name or name.endswith("FailedQ")}
    stack = said.pop("NServiceBus.ExceptionInfo.StackTrace")
    assert "in failing" in stack
    data = "NServiceBus.ExceptionInfo.Data."
    assert (
        said.pop(f"{data}Handler start time")
        <= said.pop(f"{data}Handler failure time")
        <= ours["NServiceBus.TimeOfFailure"]
    )
    assert said == {
        "NServiceBus.FailedQ": '"public"."Billing"',
        "NServiceBus.ExceptionInfo.ExceptionType": "builtins.ValueError",
        "NServiceBus.ExceptionInfo.InnerExceptionType": "builtins.KeyError",
        "NServiceBus.ExceptionInfo.Message": "no such order: 42",
        "NServiceBus.ExceptionInfo.Source": __name__,
        f"{data}Message type": FAIL,
        f"{data}Handler type": f"{__name__}.failing",
        f"{data}Handler canceled": "False",
        f"{data}Message ID": arrived["NServiceBus.MessageId"],
        f"{data}Transport message ID": said[f"{data}Transport message ID"],
        f"{data}Pipeline canceled": "False",
    }


def test_a_message_that_servicecontrol_retried_is_acknowledged_and_audited(place, make_queue):
    audited, told = (
        recorded_headers("service-control-retry-audit"),
        recorded_headers("service-control-retry-acknowledged"),
    )
    control = make_queue("Particular.ServiceControl")
    arrived = {
        name: value
        for name, value in audited.items()
        if not re.search("Processing|diagnostics|AcknowledgementSent|Version|TimeSent", name)
    }

    outcome = place.handle(arrived, lambda message, context: None, audit_queue="audit")

    assert outcome.kind is Kind.HANDLED, outcome.error
    (acknowledgement,) = control.browse(5)
    assert differences(acknowledgement.headers, told) == {}
    assert acknowledgement.body == b""
    assert (
        acknowledgement.headers["ServiceControl.Retry.UniqueMessageId"] == told["ServiceControl.Retry.UniqueMessageId"]
    )
    # the copy of a message that came without its time of sending gets none here; NServiceBus stamps the copy with its own
    assert differences(place.only("audit").headers, audited) == {"NServiceBus.TimeSent": (False, "time")}
