"""The wire format: rows of NServiceBus's serializer are read, and rowpost writes rows that NServiceBus can read.

The six messages in `rowpost/cli/demo/wire` have the headers that NServiceBus writes: a send, a publish, a reply, an error
copy, a delayed retry and an audit copy.
"""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from rowpost.database.connection import connect
from rowpost.endpoint.endpoint import Endpoint
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.headers import CORRELATION_ID, MESSAGE_ID, REPLY_TO_ADDRESS
from rowpost.wire.message import encode_headers, parse_timestamp
from rowpost.wire.message_types import split_enclosed_types
from tests.support.endpoints import OrderAccepted, OrderPlaced, PlaceOrder, VipOrderPlaced

FORWARD = "NServiceBus.SqlServer.ForwardDestination"
TIMES = ("TimeSent", "DeliverAt", "TimeOfFailure", "Retries.Timestamp", "ProcessingStarted", "ProcessingEnded")
# what only .NET has to say, and what depends on the case
DOTNET = {"NServiceBus.Version"}
NAMES = ("audit", "delayed-retry", "error", "publish", "reply", "send")


def as_nservicebus_writes(headers):
    """Its JSON: `/` as `\\/`, characters beyond the basic plane as pairs of escapes, all others raw, null values kept."""
    text = json.dumps(headers, ensure_ascii=False, separators=(",", ":")).replace("/", "\\/")
    pairs = lambda c: "".join(f"\\u{unit:04X}" for unit in _units(c.group()))  # noqa: E731
    return re.sub("[\U00010000-\U0010ffff]", pairs, text)


def _units(character):
    code = ord(character) - 0x10000
    return 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)


class Party:
    """The endpoint that a row was sent to, in this process, with everything it was given."""

    def __init__(self, database, sql, **options):
        self.database, self.sql, self.seen, self.contexts = database, sql, [], []
        self.endpoint = Endpoint("Billing", audit_queue="audit", **options)
        for name in ("PlaceOrder", "OrderPlaced", "OrderAccepted"):
            self.endpoint.handles(f"Shop.Messages.{name}", dict)(self.handle)
        for queue in ("Sales", "Billing", "error", "audit"):
            sql.empty(queue)

    def handle(self, message, context):
        self.seen.append(message)
        self.contexts.append(context)

    def gets(self, headers, body=b'{"OrderId":42}'):
        """A row in its queue, inserted as NServiceBus inserts it, handled."""
        self.sql.insert_minimal(
            "Billing", headers if isinstance(headers, str) else as_nservicebus_writes(headers), body
        )
        return self.endpoint.process_one(self.database)

    def only(self, queue):
        (message,) = Queue(queue, self.database).browse(5)
        return message


@pytest.fixture
def party(database, sql):
    return Party(database, sql)


@pytest.fixture
def wire(wire_messages):
    return dict(zip(NAMES, (entry["headers"] for entry in wire_messages), strict=True))


# ------------------------------------------------------------------ theirs, read
@pytest.mark.parametrize("name", NAMES)
def test_each_row_of_nservicebus_is_received_with_its_headers_unchanged(party, wire, database, sql, name):
    headers = wire[name] | {"Shop.Odd": 'é漢🚀/"\\\n', "Shop.Null": None, "Shop.Empty": ""}
    raw = as_nservicebus_writes(headers)
    sql.insert_minimal("Billing", raw, b'{"OrderId":42}')

    (received,) = Queue("Billing", database).receive(5)

    assert received.raw_headers == raw
    assert "\\/" in raw
    assert "\\uD83D\\uDE80" in raw
    assert received.headers == headers
    assert encode_headers(received.headers) == encode_headers(headers)


@pytest.mark.parametrize("name", ["send", "publish", "reply", "error", "audit"])
def test_each_row_of_nservicebus_is_handled(party, wire, name):
    outcome = party.gets(wire[name])

    copy = party.only("audit")
    assert (outcome.kind, party.seen) == (Kind.HANDLED, [{"OrderId": 42}])
    ours = ("NServiceBus.Processing", "$.diagnostics.host")
    assert {n: v for n, v in wire[name].items() if not n.startswith(ours)}.items() <= copy.headers.items()


def test_a_delayed_retry_of_nservicebus_that_names_this_queue_is_handled_here(party, wire, database):
    here = wire["delayed-retry"] | {FORWARD: database.canonical(parse_address("Billing"))}

    outcome = party.gets(here)

    assert (outcome.kind, party.seen) == (Kind.HANDLED, [{"OrderId": 42}])


def test_a_delayed_message_of_nservicebus_for_another_queue_goes_there_without_the_header_that_says_so(
    party, wire, database
):
    there = wire["delayed-retry"] | {FORWARD: database.canonical(parse_address("Sales"))}

    party.gets(there)

    moved = party.only("Sales")
    assert party.seen == []
    assert moved.headers == {name: value for name, value in there.items() if name != FORWARD}


def test_a_row_without_a_message_id_bears_its_own_id_from_then_on(party):
    party.gets({"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder", MESSAGE_ID: None})

    (context,) = party.contexts
    assert context.message_id == str(context.incoming.id) == party.only("audit").headers[MESSAGE_ID]


@pytest.mark.parametrize(
    "types",
    [
        "Shop.Messages.PlaceOrder",
        "Shop.Messages.PlaceOrder, Shop.Messages",
        "Shop.Messages.PlaceOrder, Shop.Messages, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",
        "Shop.Unknown, Shop;Shop.Messages.PlaceOrder, Shop",
    ],
)
def test_every_form_of_a_type_name_finds_its_handler(party, types):
    assert party.gets({"NServiceBus.EnclosedMessageTypes": types}).kind is Kind.HANDLED


def test_a_row_without_headers_names_its_type_in_the_body(party):
    assert party.gets("", b'{"$type":"Shop.Messages.PlaceOrder, Shop","OrderId":1}').kind is Kind.HANDLED


@pytest.mark.parametrize("raw", ["null", "{", "[]", '{"a":1}', '{"a":{}}', '"x"'])
def test_headers_that_are_no_object_of_texts_move_unchanged_to_the_error_queue(party, raw):
    outcome = party.gets(raw)

    assert outcome.kind is Kind.CORRUPT
    assert party.only("error").raw_headers.startswith(raw[:1])


def test_a_control_message_without_a_body_is_discarded_and_needs_no_handler(party, sql):
    outcome = party.gets({"NServiceBus.ControlMessage": "True"}, None)

    assert (outcome.kind, party.seen) == (Kind.DISCARDED, [])


def test_headers_are_told_apart_by_case(party):
    party.gets({"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder", "x": "1", "X": "2"})

    assert {name: party.only("audit").headers[name] for name in "xX"} == {"x": "1", "X": "2"}


def test_what_servicecontrol_adds_passes_untouched(party):
    added = {
        "ServiceControl.TargetEndpointAddress": "Billing",
        "ServiceControl.Retry.StagingId": "s",
        "ServiceControl.RetryTo": "r",
    }

    party.gets({"NServiceBus.EnclosedMessageTypes": "Shop.Messages.PlaceOrder", **added})

    assert added.items() <= party.only("audit").headers.items()


# ------------------------------------------------------------------ ours, written
def outgoing(party, send, headers=None):
    """What a handler sends: the message that Billing stored for Sales."""
    party.endpoint.handles("Shop.Go", bytes)(lambda message, context: send(context) and None)
    party.gets({"NServiceBus.EnclosedMessageTypes": "Shop.Go", **(headers or {})}, b"")
    return party.only("Sales").headers


def assert_wire(headers, model, *, without=()):
    """The same headers as the reference's row has, each of the form that it has there."""
    assert model.keys() - DOTNET - set(without) <= headers.keys()
    for name in TIMES:
        if f"NServiceBus.{name}" in headers:
            assert abs(parse_timestamp(headers[f"NServiceBus.{name}"]) - datetime.now(UTC)) < timedelta(minutes=1)
    for name in ("$.diagnostics.originating.hostid", "$.diagnostics.hostid"):
        if name in headers:
            assert UUID(headers[name]).hex == headers[name]
    first = list(split_enclosed_types(model["NServiceBus.EnclosedMessageTypes"]))
    assert list(split_enclosed_types(headers["NServiceBus.EnclosedMessageTypes"])) == first
    for name in ("NServiceBus.MessageIntent", "NServiceBus.ContentType"):
        assert headers[name] == model[name]


def test_a_send_outside_a_handler_is_the_references(party, wire, database):
    sales = Endpoint("Sales")
    with sales.open(database) as bus:
        message_id = bus.send(PlaceOrder(42), to="Billing")

    headers = party.only("Billing").headers
    assert_wire(headers, wire["send"])
    assert headers[MESSAGE_ID] == headers[CORRELATION_ID] == message_id
    assert headers[REPLY_TO_ADDRESS] == database.canonical(parse_address("Sales"))
    assert "NServiceBus.RelatedTo" not in headers


def test_a_publish_in_a_handler_is_the_references(party, wire, database):
    database.call("subscribe", endpoint="WireTest", topic="Shop.Messages.OrderPlaced", queue_address="Sales")
    came = wire["send"] | {"NServiceBus.EnclosedMessageTypes": "Shop.Go"}

    headers = outgoing(party, lambda context: context.publish(VipOrderPlaced(42)), came)
    database.call("unsubscribe", endpoint="WireTest", topic="Shop.Messages.OrderPlaced")

    assert_wire(headers, wire["publish"])
    for name in ("NServiceBus.RelatedTo", CORRELATION_ID):
        assert headers[name] == wire["publish"][name]
    assert headers["NServiceBus.ConversationId"] == came["NServiceBus.ConversationId"]


def test_a_reply_is_the_references_and_names_the_saga_that_asked(party, wire, database):
    saga = {"NServiceBus.OriginatingSagaId": "14cfe524", "NServiceBus.OriginatingSagaType": "Shop.OrderSaga, Shop"}
    came = wire["send"] | saga | {"NServiceBus.EnclosedMessageTypes": "Shop.Go", REPLY_TO_ADDRESS: "Sales"}

    headers = outgoing(party, lambda context: context.reply(OrderAccepted(42)), came)

    assert_wire(headers, wire["reply"])
    assert headers["NServiceBus.SagaId"] == "14cfe524"
    assert headers["NServiceBus.SagaType"] == "Shop.OrderSaga, Shop"
    assert headers[CORRELATION_ID] == came[CORRELATION_ID]
    assert headers["NServiceBus.RelatedTo"] == came[MESSAGE_ID]


def test_an_error_copy_and_a_delayed_retry_are_the_references(database, sql, wire):
    party = Party(database, sql, recoverability=Recoverability(0, 1, timedelta(seconds=-1)))
    party.endpoint._handlers.clear()

    @party.endpoint.handles("Shop.Messages.PlaceOrder", dict)
    def fail(message, context):
        raise ValueError("no such order")

    first = party.gets(wire["send"])
    move_due(database, "Billing")
    delayed = party.only("Billing").headers
    party.endpoint.process_one(database)
    error = party.only("error").headers

    assert first.kind is Kind.DELAYED
    assert (wire["delayed-retry"].keys() - {FORWARD, *DOTNET}) <= delayed.keys()
    assert delayed["NServiceBus.Retries"] == "1"
    assert (wire["error"].keys() - DOTNET) <= error.keys()
    assert "NServiceBus.Retries" not in error
    assert wire["send"].items() <= error.items()
    assert error["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.ValueError"


def test_an_audit_copy_is_the_references(party, wire):
    party.gets(wire["send"])

    headers = party.only("audit").headers
    assert (wire["audit"].keys() - DOTNET) <= headers.keys()
    assert wire["send"].items() <= headers.items()
    assert headers["NServiceBus.ProcessingEndpoint"] == "Billing"


def test_every_time_on_the_wire_has_28_characters_and_the_references_form(party, wire):
    party.gets(wire["send"])

    ended = party.only("audit").headers["NServiceBus.ProcessingEnded"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{6} Z", ended)
    assert len(ended) == len(wire["send"]["NServiceBus.TimeSent"]) == 28


def test_a_message_of_a_send_only_endpoint_names_no_reply_address(party, database):
    with Endpoint("Web", send_only=True).open(database) as bus:
        bus.send(OrderPlaced(1), to="Billing")

    assert REPLY_TO_ADDRESS not in party.only("Billing").headers


# ------------------------------------------------------------------ compat
@pytest.mark.parametrize(("version", "filled"), [(f"v{n}", n < 7) for n in range(1, 10)])
@pytest.mark.promise("legacy-columns")
def test_the_columns_of_old_transports_are_filled_as_compat_says(party, target, sql, version, filled):
    if target.settings.engine != "sqlserver":
        pytest.skip("only SQL Server's tables have CorrelationId and ReplyToAddress")
    long = "c" * 10_000
    with connect(replace(target.settings, compat=version)) as database:
        with Endpoint("Sales").open(database) as bus:
            bus.send(PlaceOrder(1), to="Billing", headers={CORRELATION_ID: long, REPLY_TO_ADDRESS: "Sales@[dbo]"})
        Queue("Billing", database).send(b"", {CORRELATION_ID: "short", REPLY_TO_ADDRESS: "Büro"})

    columns = list(
        zip(sql.column_values("Billing", "CorrelationId"), sql.column_values("Billing", "ReplyToAddress"), strict=True)
    )
    assert columns == ([(long[:255], "Sales@[dbo]"), ("short", None)] if filled else [(None, None)] * 2)
