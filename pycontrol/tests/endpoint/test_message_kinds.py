"""Commands and events: what cannot be done with them is refused where it is written, with the type and what to do."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidMessage, SettingsError
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, starts
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type

TYPES = "NServiceBus.EnclosedMessageTypes"


@message_type("Kinds.Ship", kind="command")
@dataclass(frozen=True)
class Ship:
    number: int


@message_type("Kinds.Shipped", kind="event")
@dataclass(frozen=True)
class Shipped:
    number: int


@message_type("Kinds.ShippedAbroad")
@dataclass(frozen=True)
class ShippedAbroad(Shipped):
    """An event, because its base class is one."""


@message_type("Kinds.Noted", kind="message")
@dataclass(frozen=True)
class Noted(Shipped):
    """A message, though its base class is an event."""


@message_type("Kinds.Plain")
@dataclass(frozen=True)
class Plain:
    number: int


@dataclass
class State:
    number: int


@pytest.fixture
def sales(sql):
    for name in ("Billing", "error"):
        sql.empty(name)
    return Endpoint("Sales", recoverability=Recoverability(0, 0))


REFUSED = {
    "publish a command": (lambda context: context.publish(Ship(1)), "Kinds.Ship", "send("),
    "send an event": (lambda context: context.send(Shipped(1), to="Billing"), "Kinds.Shipped", "publish("),
    "send an event without a route": (lambda context: context.send(Shipped(1)), "Kinds.Shipped", "publish("),
    "send a derived event": (lambda context: context.send_local(ShippedAbroad(1)), "Kinds.ShippedAbroad", "publish("),
    "delay an event": (
        lambda context: context.send(Shipped(1), to="Billing", delay=timedelta(1)), "Kinds.Shipped", "publish("
    ),
    "reply with a command": (lambda context: context.reply(Ship(1)), "Kinds.Ship", "send("),
    "reply with an event": (lambda context: context.reply(Shipped(1)), "Kinds.Shipped", "publish("),
}  # fmt: skip


@pytest.mark.parametrize("act", REFUSED)
def test_what_makes_no_sense_is_refused_at_the_call_with_the_type_and_what_to_do(sales, queue, database, act):
    call, named, advice = REFUSED[act]
    heard = []

    @sales.handles("Kinds.Plain", Plain)
    def handle(message, context):
        with pytest.raises(InvalidMessage) as refused:
            call(context)
        heard.append(str(refused.value))

    queue.send(b'{"Number":1}', {TYPES: "Kinds.Plain", "NServiceBus.ReplyToAddress": "Billing"})
    outcome = sales.process_one(database)

    assert (outcome.kind, Queue("Billing", database).peek()) == (Kind.HANDLED, 0)
    assert f"The message type {named} cannot be" in heard[0]
    assert advice in heard[0]


def test_what_makes_sense_is_done_and_a_type_without_a_kind_can_do_everything(sales, queue, database):
    @sales.handles("Kinds.Plain", Plain)
    def handle(message, context):
        context.send(Ship(1), to="Billing")
        context.publish(Shipped(2))
        context.publish(ShippedAbroad(2))
        for each in (Plain(3), Noted(3)):
            context.send(each, to="Billing")
            context.publish(each)
            context.reply(each)

    queue.send(b'{"Number":1}', {TYPES: "Kinds.Plain", "NServiceBus.ReplyToAddress": "Billing"})
    outcome = sales.process_one(database)

    assert (outcome.kind, outcome.error) == (Kind.HANDLED, None)
    assert Queue("Billing", database).peek() == 5


@pytest.mark.parametrize("cls", [Ship, bytes], ids=["its class", "its name"])
def test_a_command_cannot_be_subscribed_to(cls):
    sales = Endpoint("Sales")

    with pytest.raises(SettingsError, match=r"Kinds\.Ship cannot be subscribed to: it is a command.*subscribe=True"):
        sales.handles("Kinds.Ship", cls, subscribe=True)(lambda message, context: None)

    assert sales.subscriptions == ()


def test_a_saga_cannot_subscribe_to_a_command():
    class Policy(Saga[State], correlate={Ship: "number"}):
        @starts(Ship, subscribe=True)
        def ship(self, message, context): ...

    with pytest.raises(SettingsError, match=r"Kinds\.Ship cannot be subscribed to"):
        Endpoint("Sales").saga(Policy)


def test_events_and_messages_are_subscribed_to():
    sales = Endpoint("Sales")
    for name, cls in (("Kinds.Shipped", Shipped), ("Kinds.Plain", Plain), ("Kinds.Unknown", bytes)):
        sales.handles(name, cls, subscribe=True)(lambda message, context: None)

    assert sales.subscriptions == ("Kinds.Plain", "Kinds.Shipped", "Kinds.Unknown")


def test_there_is_no_other_kind():
    with pytest.raises(SettingsError, match=r"'Kinds\.Wrong' cannot have the kind 'query'.*message, command, event"):
        message_type("Kinds.Wrong", kind="query")
