"""Queues in another schema, or in another database of a SQL Server: routes, replies, error queues and events lead there in every spelling."""

from dataclasses import dataclass, replace

import pytest

from rowpost.database.connection import connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.provisioning import subscribe
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.settings.environment import QueueSettings
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.headers import (
    CONTROL_MESSAGE,
    MESSAGE_INTENT,
    SUBSCRIBER_ADDRESS,
    SUBSCRIBER_ENDPOINT,
    SUBSCRIPTION_MESSAGE_TYPE,
)
from rowpost.wire.message_types import message_type

AT_ONCE = Recoverability(immediate_retries=0, delayed_retries=0)


@message_type("Shop.Messages.Ask")
@dataclass(frozen=True)
class Ask:
    number: int


@message_type("Shop.Messages.Answer")
@dataclass(frozen=True)
class Answer:
    number: int


@message_type("Shop.Messages.Answered")
@dataclass(frozen=True)
class Answered:
    number: int


@pytest.fixture
def receiver(database, make_queue, sql):
    """The queue Orders in the schema receiver."""
    schema = "receiver" + (" AUTHORIZATION dbo" if database.engine == "sqlserver" else "")
    if not sql.run("SELECT 1 FROM information_schema.schemata WHERE schema_name = 'receiver'"):
        sql.run(f"CREATE SCHEMA {schema}")
    return make_queue("Orders@[receiver]")


def answering(queue):
    """An endpoint of that queue, which answers."""
    orders = Endpoint(queue, recoverability=AT_ONCE)
    orders.handles("Shop.Messages.Ask", Ask)(lambda ask, context: context.reply(Answer(ask.number)))
    return orders


@pytest.mark.parametrize("spelling", ["Orders@receiver", "Orders@[receiver]", '"receiver"."Orders"'])
@pytest.mark.promise("address-forms")
def test_a_route_to_another_schema_leads_there_and_the_reply_comes_back(database, queue, receiver, spelling):
    sales, answers = Endpoint("Sales"), []
    sales.route(Ask, to=spelling)
    sales.handles("Shop.Messages.Answer", Answer)(lambda answer, context: answers.append(answer))

    with sales.open(database) as bus:
        bus.send(Ask(42))
    asked = answering("Orders@[receiver]").process_one(database)
    answered = sales.process_one(database)

    assert (asked.kind, answered.kind) == (Kind.HANDLED, Kind.HANDLED), (asked.error, answered.error)
    assert answers == [Answer(42)]


@pytest.mark.parametrize("spelling", ["Orders@receiver", "Orders@[receiver]", '"receiver"."Orders"'])
@pytest.mark.promise("error-copy-keeps-message")
def test_a_failed_message_moves_to_an_error_queue_in_another_schema(database, queue, receiver, spelling):
    sales = Endpoint("Sales", error_queue=spelling, recoverability=AT_ONCE)
    sales.handles("Shop.Messages.Ask", Ask)(lambda ask, context: 1 / 0)
    with sales.open(database) as bus:
        bus.send_local(Ask(42))

    outcome = sales.process_one(database)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    (error,) = receiver.browse(10)
    assert error.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "builtins.ZeroDivisionError"
    assert Queue("error", database).peek() == 0


def test_an_event_reaches_a_subscriber_in_another_schema(database, queue, receiver):
    subscriber, seen = Endpoint("Orders@[receiver]"), []
    subscriber.handles("Shop.Messages.Answered", Answered, subscribe=True)(lambda event, context: seen.append(event))
    subscribe(subscriber, database)

    with Endpoint("Sales").open(database) as bus:
        bus.publish(Answered(42))
    outcome = subscriber.process_one(database)

    database.call("unsubscribe", endpoint=subscriber.name, topic="Shop.Messages.Answered")
    assert (outcome.kind, seen) == (Kind.HANDLED, [Answered(42)])


# ------------------------------------------------------------------ another database of a SQL Server
@pytest.fixture
def other(target, business_url):
    """A connection to another database of the server, with the queues Orders and errors."""
    if target.settings.engine != "sqlserver":
        pytest.skip("PostgreSQL cannot reach into another database: test_address.py")
    queues = (QueueSettings("Orders"), QueueSettings("errors"))
    with connect_url("sqlserver", business_url, "rowpost tests") as database:
        apply(database, plan(replace(target.settings, url=business_url, queues=queues)))
        for each in queues:
            Queue(each.name, database).purge()
        yield database


def in_other(other, name):
    return f"{name}@[dbo]@[{other.driver_connection.execute('SELECT DB_NAME()').fetchone()[0]}]"


@pytest.mark.promise("address-forms")
def test_a_route_to_another_database_leads_there_and_the_reply_comes_back(database, queue, other):
    sales, answers = Endpoint("Sales"), []
    sales.route(Ask, to=in_other(other, "Orders"))
    sales.handles("Shop.Messages.Answer", Answer)(lambda answer, context: answers.append(answer))

    with sales.open(database) as bus:
        bus.send(Ask(42))
    asked = answering("Orders").process_one(other)
    answered = sales.process_one(database)

    assert (asked.kind, answered.kind) == (Kind.HANDLED, Kind.HANDLED), (asked.error, answered.error)
    assert answers == [Answer(42)]


@pytest.mark.promise("error-copy-keeps-message")
def test_a_failed_message_moves_to_an_error_queue_in_another_database(database, queue, other, target):
    errors = in_other(other, "errors")
    target.deploy(QueueSettings(errors, kind="external"))
    sales = Endpoint("Sales", error_queue=errors, recoverability=AT_ONCE)
    sales.handles("Shop.Messages.Ask", Ask)(lambda ask, context: 1 / 0)
    with sales.open(database) as bus:
        bus.send_local(Ask(42))

    outcome = sales.process_one(database)

    database.call("unregister_queue", queue_name=errors)
    assert outcome.kind is Kind.MOVED_TO_ERROR, outcome.error
    assert len(Queue("errors", other).browse(10)) == 1


def test_an_event_reaches_a_subscriber_in_another_database(database, queue, other):
    subscriber, seen = Endpoint("Orders"), []
    subscriber.handles("Shop.Messages.Answered", Answered)(lambda event, context: seen.append(event))
    address = in_other(other, "Orders")
    database.call("subscribe", endpoint="Orders", topic="Shop.Messages.Answered", queue_address=address)

    with Endpoint("Sales").open(database) as bus:
        bus.publish(Answered(42))
    outcome = subscriber.process_one(other)

    database.call("unsubscribe", endpoint="Orders", topic="Shop.Messages.Answered")
    assert (outcome.kind, seen) == (Kind.HANDLED, [Answered(42)])


def test_a_subscriber_asks_a_publisher_in_another_database_for_its_events(database, queue, other):
    sales, seen = Endpoint("Sales"), []
    sales.handles("Shop.Messages.Answered", Answered)(lambda event, context: seen.append(event))
    asks = {
        CONTROL_MESSAGE: "True",
        MESSAGE_INTENT: "Subscribe",
        SUBSCRIPTION_MESSAGE_TYPE: "Shop.Messages.Answered",
        SUBSCRIBER_ENDPOINT: "Sales",
        SUBSCRIBER_ADDRESS: database.canonical(parse_address("Sales")),
    }

    with sales.open(database) as bus:
        bus.send(b"", to=in_other(other, "Orders"), headers=asks)
    (asked,) = Queue("Orders", other).receive(10)
    with Endpoint("Orders").open(other) as publisher:  # keeps a list of its own
        publisher.send(Answered(42), to=asked.headers["NServiceBus.SubscriberAddress"])
    outcome = sales.process_one(database)

    assert (asked.headers["SubscriptionMessageType"], outcome.kind, seen) == (
        "Shop.Messages.Answered", Kind.HANDLED, [Answered(42)]
    )  # fmt: skip
