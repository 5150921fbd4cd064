"""The conversation that a message belongs to, a new one that it starts, and headers that all messages of an endpoint have."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage, SettingsError
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, starts, timeout
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.sagas import deploy
from tests.support.schema import named

TYPES = "NServiceBus.EnclosedMessageTypes"
CONVERSATION, PREVIOUS = "NServiceBus.ConversationId", "NServiceBus.PreviousConversationId"


@message_type("Talk.Ask")
@dataclass(frozen=True)
class Ask:
    number: int


@message_type("Talk.Told")
@dataclass(frozen=True)
class Told:
    number: int


@pytest.fixture
def sales(sql):
    for name in ("Billing", "Sales", "Sales.Delayed", "error", "audit"):
        sql.empty(name)
    return Endpoint("Sales", recoverability=Recoverability(0, 0))


@pytest.fixture
def handled(queue, database):
    """Handle one message of the conversation "first" with a function; return the outcome and what Billing got."""

    def handle(endpoint, act, **headers):
        endpoint.handles("Talk.Ask", Ask)(lambda message, context: act(context))
        queue.send(
            b'{"Number":1}',
            {TYPES: "Talk.Ask", CONVERSATION: "first", "NServiceBus.ReplyToAddress": named("Billing"), **headers},
        )
        outcome = endpoint.process_one(database)
        return outcome, [each.headers for each in Queue("Billing", database).browse(10)]

    return handle


# ------------------------------------------------------------------ a conversation of its own
@pytest.mark.parametrize("given", [True, "second"])
def test_what_a_handler_sends_may_start_a_conversation_and_names_the_previous_one(sales, handled, given):
    _, (headers, other) = handled(
        sales,
        lambda context: (
            context.send(Told(1), to="Billing", new_conversation=given),
            context.send(Told(2), to="Billing"),
        ),
    )

    assert headers[PREVIOUS] == "first"
    assert headers[CONVERSATION] not in ("first", "True", None)
    assert given is True or headers[CONVERSATION] == given
    assert headers["NServiceBus.RelatedTo"] == other["NServiceBus.RelatedTo"]
    assert (other[CONVERSATION], PREVIOUS in other) == ("first", False)


def test_an_event_may_start_a_conversation_too(sales, handled, database):
    database.call("subscribe", endpoint="Billing", topic="Talk.Told", queue_address=named("Billing"))
    try:
        _, (headers,) = handled(sales, lambda context: context.publish(Told(1), new_conversation="second"))
    finally:
        database.call("unsubscribe", endpoint="Billing", topic="Talk.Told")

    assert (headers[CONVERSATION], headers[PREVIOUS]) == ("second", "first")


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ({"new_conversation": True}, None),
        ({"new_conversation": "mine"}, "mine"),
        ({"headers": {CONVERSATION: "mine"}}, "mine"),
        ({}, None),
    ],
    ids=["new", "new with an id", "header", "none"],
)
def test_outside_of_a_handler_there_is_no_previous_conversation(sales, database, options, starts):
    with sales.open(database) as bus:
        message_id = bus.send(Told(1), to="Billing", **options)

    (sent,) = Queue("Billing", database).browse()
    assert PREVIOUS not in sent.headers
    assert sent.headers[CONVERSATION] not in ("", None, "True", message_id)
    assert starts is None or sent.headers[CONVERSATION] == starts


OVERWRITES = {
    "send": lambda context: context.send(Told(1), to="Billing", headers={CONVERSATION: "mine"}),
    "send null": lambda context: context.send(Told(1), to="Billing", headers={CONVERSATION: None}),
    "publish": lambda context: context.publish(Told(1), headers={CONVERSATION: "mine"}),
    "reply": lambda context: context.reply(Told(1), headers={CONVERSATION: "mine"}),
    "both": lambda context: context.send(Told(1), to="Billing", new_conversation=True, headers={CONVERSATION: "mine"}),
    "neither": lambda context: context.send(Told(1), to="Billing", new_conversation=5),
    "empty": lambda context: context.send(Told(1), to="Billing", new_conversation=""),
}


@pytest.mark.parametrize("act", OVERWRITES)
def test_a_handler_cannot_overwrite_the_conversation_of_its_message(sales, handled, act):
    heard = []

    def try_it(context):
        with pytest.raises(InvalidMessage) as refused:
            OVERWRITES[act](context)
        heard.append(str(refused.value))

    outcome, sent = handled(sales, try_it)

    assert (outcome.kind, sent) == (Kind.HANDLED, [])
    assert "new_conversation" in heard[0]


def test_outside_of_a_handler_a_new_conversation_excludes_the_header(sales, database):
    with sales.open(database) as bus, pytest.raises(InvalidMessage, match="ConversationId cannot be 'mine'"):
        bus.send(Told(1), to="Billing", new_conversation=True, headers={CONVERSATION: "mine"})


def test_a_message_without_a_conversation_lets_its_handler_name_one(sales, handled):
    _, (headers,) = handled(
        sales,
        lambda context: context.send(Told(1), to="Billing", headers={CONVERSATION: "mine"}),
        **{CONVERSATION: None},
    )

    assert headers[CONVERSATION] == "mine"


def test_a_reply_to_a_message_without_a_correlation_id_has_the_messages_id(sales, handled):
    _, (headers,) = handled(sales, lambda context: context.reply(Told(1)), **{"NServiceBus.MessageId": "ask-1"})

    assert headers["NServiceBus.CorrelationId"] == "ask-1"


def test_options_that_are_used_again_give_each_message_an_id_of_its_own(sales, database):
    options = {"to": "Billing", "headers": {"Shop.Tenant": "acme"}}
    with sales.open(database) as bus:
        made = [bus.send(Told(1), **options) for _ in range(3)]

    assert [each.message_id for each in Queue("Billing", database).browse()] == made
    assert (len(set(made)), options["headers"]) == (3, {"Shop.Tenant": "acme"})


# ------------------------------------------------------------------ a message without an id
@pytest.mark.parametrize("message_id", ["", None], ids=["empty", "null"])
def test_a_message_without_an_id_shows_its_handler_the_id_that_it_got(sales, handled, message_id):
    seen = []

    def act(context):
        seen.extend((context.message_id, context.headers["NServiceBus.MessageId"]))
        context.forward_current_message_to("Billing")

    _, (forwarded,) = handled(sales, act, **{"NServiceBus.MessageId": message_id})

    assert seen[0]
    assert seen == [seen[0], seen[0]]
    assert forwarded["NServiceBus.MessageId"] == seen[0]


# ------------------------------------------------------------------ headers of all messages
@dataclass
class Waiting:
    number: int


class Waits(Saga[Waiting], correlate={Ask: "number"}, table="Sales_Waits"):
    @starts(Ask)
    def ask(self, message, context):
        context.request_timeout(timedelta(0), Told(2))
        context.reply(Told(1))

    @timeout(Told)
    def told(self, message, context): ...


def headed(**options):
    return Endpoint(
        "Sales", headers={"Shop.Tenant": "acme", "Shop.Stage": "test"}, recoverability=Recoverability(0, 0), **options
    )


SENDS = {
    "send": lambda context: context.send(Told(1), to="Billing"),
    "immediate": lambda context: context.send(Told(1), to="Billing", immediate=True),
    "publish": lambda context: context.publish(Told(1)),
    "reply": lambda context: context.reply(Told(1)),
    "bytes": lambda context: context.send(b"{}", to="Billing", headers={TYPES: "Talk.Told"}),
}


@pytest.mark.parametrize("act", SENDS)
def test_what_an_endpoint_sends_has_its_headers(sales, handled, database, act):
    database.call("subscribe", endpoint="Billing", topic="Talk.Told", queue_address=named("Billing"))
    try:
        _, (headers,) = handled(headed(), SENDS[act])
    finally:
        database.call("unsubscribe", endpoint="Billing", topic="Talk.Told")

    assert (headers["Shop.Tenant"], headers["Shop.Stage"]) == ("acme", "test")


def test_delayed_messages_timeouts_and_replies_of_sagas_have_them_too(sales, queue, database, target):
    endpoint = headed()
    endpoint.saga(Waits)
    deploy(target, endpoint)
    with Endpoint("Billing").open(database) as bus:
        bus.send(Ask(1), to="Sales")
    endpoint.process_one(database)
    with endpoint.open(database) as bus:
        bus.send_local(Told(3), delay=timedelta(0))
    move_due(database, "Sales")

    sent = queue.browse() + Queue("Billing", database).browse()

    assert [each.headers["Shop.Tenant"] for each in sent] == ["acme", "acme", "acme"]
    assert sent[0].headers["NServiceBus.IsSagaTimeoutMessage"] == "True"


def test_headers_of_a_call_come_first_and_standard_headers_stay(sales, database):
    with headed().open(database) as bus:
        bus.send(Told(1), to="Billing", headers={"Shop.Tenant": "other"})

    (sent,) = Queue("Billing", database).browse()
    assert (sent.headers["Shop.Tenant"], sent.headers["Shop.Stage"]) == ("other", "test")
    assert sent.headers["NServiceBus.OriginatingEndpoint"] == "Sales"


def test_what_an_endpoint_did_not_write_itself_does_not_get_them(sales, handled, database):
    def act(context):
        context.forward_current_message_to("Billing")
        if context.headers.get("Shop.Fails"):
            raise ValueError("no")

    endpoint = headed(audit_queue="audit")
    _, (forwarded,) = handled(endpoint, act)
    handled(endpoint, act, **{"Shop.Fails": "yes"})

    copies = [Queue(name, database).browse()[0].headers for name in ("audit", "error")]
    assert ["Shop.Tenant" in each for each in (forwarded, *copies)] == [False, False, False]


@pytest.mark.parametrize(
    "headers",
    [
        {"NServiceBus.ConversationId": "mine"},
        {"ServiceControl.Retry.UniqueMessageId": "1"},
        {"$.diagnostics.hostid": "1"},
        {"traceparent": "00-1"},
        {"Shop.Number": 5},
        ["Shop.Tenant"],
    ],
    ids=["NServiceBus", "ServiceControl", "diagnostics", "trace", "number", "list"],
)
def test_headers_that_rowpost_writes_or_that_are_none_are_refused_for_all_messages(headers):
    with pytest.raises((SettingsError, InvalidMessage), match=r"The endpoint 'Sales' cannot add|header"):
        Endpoint("Sales", headers=headers)
