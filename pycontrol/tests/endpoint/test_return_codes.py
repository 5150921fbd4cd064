"""Replies that are numbers or enums: the rows that they become, what cannot be one, and where nobody waits for one."""

from enum import Enum, IntEnum

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.queue import Queue

ASK = {
    "NServiceBus.EnclosedMessageTypes": "Shop.Ask",
    "NServiceBus.ReplyToAddress": "Billing",
    "NServiceBus.CorrelationId": "c-1",
}


class Status(Enum):
    ACCEPTED = 1
    UNKNOWN = "unknown"


class Level(IntEnum):
    HIGH = 9


@pytest.fixture
def replying(database, queue, sql):
    """Handles a request whose handler replies with a value; returns the outcome and the replies."""
    sql.empty("Billing")
    sql.empty("error")

    def run(value, **options):
        endpoint = Endpoint("Sales", recoverability=Recoverability(0, 0))
        endpoint.handles("Shop.Ask", bytes)(lambda message, context: context.reply(value, **options) and None)
        queue.send(b"", ASK)
        outcome = Pipeline(database, "Sales", endpoint, reconnect=database.open_second).process_one()
        return outcome, Queue("Billing", database).browse(10)

    return run


@pytest.mark.parametrize(
    ("value", "code"),
    [(0, "0"), (42, "42"), (-(2**63), "-9223372036854775808"), (Status.ACCEPTED, "1"), (Level.HIGH, "9")],
)
def test_a_number_or_an_enum_is_a_control_message_without_a_body_and_a_type(replying, value, code):
    outcome, (reply,) = replying(value)

    assert (outcome.kind, reply.body) == (Kind.HANDLED, b"")
    assert reply.headers["NServiceBus.ReturnMessage.ErrorCode"] == code
    assert (reply.headers["NServiceBus.ControlMessage"], reply.headers["NServiceBus.MessageIntent"]) == (
        "True",
        "Reply",
    )
    assert reply.headers["NServiceBus.CorrelationId"] == "c-1"
    assert not {"NServiceBus.EnclosedMessageTypes", "NServiceBus.ContentType"} & reply.headers.keys()


def test_headers_of_the_reply_are_kept(replying):
    _, (reply,) = replying(7, headers={"Shop.Kept": "yes"})

    assert (reply.headers["Shop.Kept"], reply.headers["NServiceBus.ReturnMessage.ErrorCode"]) == ("yes", "7")


@pytest.mark.parametrize("value", [True, 2**63, -(2**63) - 1, Status.UNKNOWN])
def test_what_a_net_endpoint_cannot_read_as_a_number_is_refused(replying, value):
    outcome, replies = replying(value)

    assert (outcome.kind, replies) == (Kind.MOVED_TO_ERROR, [])
    assert "InvalidMessage" in outcome.error
    assert "whole number" in outcome.error


@pytest.mark.promise("nothing-vanishes")
def test_a_number_for_which_nobody_waits_is_discarded_and_the_reason_says_what_it_was(database, queue):
    headers = {
        "NServiceBus.ControlMessage": "True",
        "NServiceBus.MessageIntent": "Reply",
        "NServiceBus.ReturnMessage.ErrorCode": "7",
    }
    queue.send(b"", headers)

    outcome = Pipeline(database, "Sales", Endpoint("Sales"), reconnect=database.open_second).process_one()

    assert outcome.kind is Kind.DISCARDED
    assert "the reply '7' to a request" in outcome.discard.reason
