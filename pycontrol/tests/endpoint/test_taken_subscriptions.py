"""Subscribe and Unsubscribe messages, by which endpoints without native publish and subscribe ask a publisher for its events."""

from dataclasses import dataclass

import pytest

from rowpost.deploy.grants import grant
from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.endpoint.provisioning import subscribe
from rowpost.errors import InvalidSubscription, QueueNotGranted, SettingsError, SubscriptionRefused
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
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
from tests.support.logins import logins
from tests.support.pipelines import pipeline_with
from tests.support.schema import named

TOPIC = "Shop.Messages.OrderTaken"


@message_type(TOPIC)
@dataclass(frozen=True)
class OrderTaken:
    order_id: int


@pytest.fixture
def subscriptions(database, sql):
    """Returns the subscriptions of this file's topic: endpoint and canonical address."""

    def there():
        return sorted(
            (row.endpoint, row.queue_address) for row in database.call("list_subscriptions") if row.topic == TOPIC
        )

    def clear():
        sql.run(
            f"DELETE FROM {sql.table('SubscriptionRouting')} WHERE {'topic' if database.engine == 'postgresql' else 'Topic'} = ?",
            TOPIC,
        )
        sql.run("DELETE FROM rowpost.taken_subscription")

    clear()
    for name in ("Sales", "Billing", "error", "audit"):
        sql.empty(name)
    yield there
    clear()


def canonical(database, name):
    return database.canonical(parse_address(name))


def asks(database, intent="Subscribe", **changed):
    """The headers of NServiceBus's MessageDrivenSubscribeTerminator."""
    address = canonical(database, "Billing")
    headers = {
        "NServiceBus.ControlMessage": "True",
        "NServiceBus.MessageIntent": intent,
        "SubscriptionMessageType": f"{TOPIC}, Shop.Messages, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null",
        "NServiceBus.ReplyToAddress": address,
        "NServiceBus.SubscriberAddress": address,
        "NServiceBus.SubscriberEndpoint": "Billing",
        "NServiceBus.TimeSent": "2026-11-22 10:00:00:000000 Z",
        "NServiceBus.Version": "7.8.0",
    }
    named = {"endpoint": "NServiceBus.SubscriberEndpoint", "address": "NServiceBus.SubscriberAddress", "type": "SubscriptionMessageType",
             "reply_to": "NServiceBus.ReplyToAddress"}  # fmt: skip
    for key, value in changed.items():
        headers[named[key]] = value
    return {name: value for name, value in headers.items() if value is not None}


def process(database, handler):
    return pipeline_with(
        database, "Sales", handler, error_queue=named("error"), reconnect=database.open_second
    ).process_one()


def take(database, *, publisher="Sales", endpoint="Billing", address="Billing", ends=False):
    return database.call_atomically(
        "take_subscription", publisher=publisher, endpoint=endpoint, topic=TOPIC, queue_address=address, ends=ends
    )


# ------------------------------------------------------------------ an endpoint that takes them
@pytest.mark.parametrize("mode", MODES)
def test_an_endpoint_that_takes_subscriptions_subscribes_whoever_asks_and_ends_it_when_asked(
    database, queue, subscriptions, mode
):
    sales = Endpoint("Sales", transaction_mode=mode, takes_subscriptions=True)

    queue.send(b"", asks(database))
    outcome = process(database, sales)
    between = subscriptions()
    queue.send(b"", asks(database, "Unsubscribe"))
    ended = process(database, sales)

    assert (outcome.kind, between) == (Kind.HANDLED, [("Billing", canonical(database, "Billing"))])
    assert (ended.kind, subscriptions()) == (Kind.HANDLED, [])


def test_the_subscriber_gets_the_events(database, queue, subscriptions):
    sales = Endpoint("Sales", takes_subscriptions=True)
    queue.send(b"", asks(database))
    process(database, sales)

    with sales.open(database) as bus:
        bus.publish(OrderTaken(42))

    (copy,) = Queue("Billing", database).browse(10)
    assert copy.headers["NServiceBus.EnclosedMessageTypes"] == TOPIC


def test_a_subscriber_asks_a_publisher_that_keeps_its_own_subscriptions(database, queue, subscriptions):
    publisher, subscriber, seen = Endpoint("Sales", takes_subscriptions=True), Endpoint("Billing"), []
    subscriber.handles(TOPIC, OrderTaken)(lambda message, context: seen.append(message))
    for intent in ("Subscribe", "Unsubscribe"):
        with subscriber.open(database) as bus:
            bus.send(b"", to="Sales", headers=asks(database, intent, reply_to=None))
        process(database, publisher)
        with publisher.open(database) as bus:
            bus.publish(OrderTaken(42))

    kinds = [subscriber.process_one(database).kind for _ in range(2)]

    assert (kinds, seen) == ([Kind.HANDLED, Kind.EMPTY], [OrderTaken(42)])


def test_several_in_one_batch_are_all_taken(database, queue, subscriptions):
    sales = Endpoint("Sales", takes_subscriptions=True)
    for endpoint in ("Billing", "Shipping", "Stock"):
        queue.send(
            b"",
            asks(
                database,
                endpoint=endpoint,
                address=canonical(database, "Sales") if endpoint == "Stock" else canonical(database, "Billing"),
            ),
        )
    pipeline = pipeline_with(database, "Sales", sales, reconnect=database.open_second)

    outcomes = Batches(pipeline, BatchSize(10, None, now=10)).process()

    assert {each.kind for each in outcomes} == {Kind.HANDLED}
    assert [endpoint for endpoint, _ in subscriptions()] == ["Billing", "Shipping", "Stock"]


def test_an_older_endpoint_names_only_where_it_wants_replies_and_its_queue_names_it(database, queue, subscriptions):
    queue.send(b"", asks(database, endpoint=None, address=None))

    outcome = process(database, Endpoint("Sales", takes_subscriptions=True))

    assert (outcome.kind, subscriptions()) == (Kind.HANDLED, [("Billing", canonical(database, "Billing"))])


def test_a_subscription_that_servicecontrol_sent_again_is_acknowledged(database, queue, subscriptions):
    retried = {"ServiceControl.Retry.UniqueMessageId": "failed-1", "ServiceControl.Retry.AcknowledgementQueue": "audit"}
    queue.send(b"", {**asks(database), **retried})

    process(database, Endpoint("Sales", takes_subscriptions=True))

    (acknowledgement,) = Queue("audit", database).browse(10)
    assert acknowledgement.headers["ServiceControl.Retry.UniqueMessageId"] == "failed-1"


# ------------------------------------------------------------------ refusals
@pytest.mark.promise("nothing-vanishes")
@pytest.mark.parametrize("intent", ["Subscribe", "Unsubscribe"])
@pytest.mark.parametrize("mode", MODES)
def test_an_endpoint_that_does_not_take_them_moves_them_to_the_error_queue_at_once(
    database, queue, subscriptions, mode, intent
):
    queue.send(b"", asks(database, intent))

    outcome = process(database, Endpoint("Sales", transaction_mode=mode))

    (failed,) = Queue("error", database).browse(10)
    assert (outcome.kind, outcome.attempts, subscriptions()) == (Kind.MOVED_TO_ERROR, 1, [])
    assert "takes_subscriptions=True" in failed.headers["NServiceBus.ExceptionInfo.Message"]
    assert failed.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "rowpost.errors.SubscriptionRefused"


@pytest.mark.promise("nothing-vanishes")
def test_a_function_takes_none(database, queue, subscriptions):
    seen = []
    queue.send(b"", asks(database))

    outcome = process(database, lambda message, connection: seen.append(message))

    assert (outcome.kind, outcome.attempts, seen) == (Kind.MOVED_TO_ERROR, 1, [])
    assert "a function" in outcome.error


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"type": None}, "SubscriptionMessageType"),
        ({"address": None, "reply_to": None}, "NServiceBus.SubscriberAddress"),
        ({"address": "a@b@c@d@"}, "a@b@c@d@"),
        ({"type": "x" * 201}, "at most 200 characters"),
    ],
)
def test_a_message_that_says_too_little_moves_to_the_error_queue_at_once(database, queue, subscriptions, changed, said):
    queue.send(b"", asks(database, **changed))

    outcome = process(database, Endpoint("Sales", takes_subscriptions=True))

    assert (outcome.kind, outcome.attempts, subscriptions()) == (Kind.MOVED_TO_ERROR, 1, [])
    assert said in outcome.error


@pytest.mark.parametrize("mode", MODES)
def test_what_the_endpoint_may_not_change_moves_to_the_error_queue_at_once_and_stays(
    database, queue, subscriptions, mode
):
    database.call_atomically("subscribe", endpoint="Billing", topic=TOPIC, queue_address=canonical(database, "Billing"))
    queue.send(b"", asks(database, "Unsubscribe"))

    outcome = process(database, Endpoint("Sales", transaction_mode=mode, takes_subscriptions=True))

    assert (outcome.kind, outcome.attempts) == (Kind.MOVED_TO_ERROR, 1)
    assert "stays as it is" in outcome.error
    assert subscriptions() == [("Billing", canonical(database, "Billing"))]


# ------------------------------------------------------------------ the procedure
def test_a_publisher_moves_what_it_recorded(database, subscriptions):
    take(database, endpoint="Far", address="Billing")
    take(database, endpoint="Far", address="Sales")

    assert subscriptions() == [("Far", "Sales")]


def test_a_subscription_that_is_there_is_left_as_it_is_and_its_end_is_the_subscribers(database, subscriptions):
    database.call_atomically("subscribe", endpoint="Billing", topic=TOPIC, queue_address="Billing")

    take(database)
    with pytest.raises(SubscriptionRefused, match="own login or an operator"):
        take(database, ends=True)

    assert subscriptions() == [("Billing", "Billing")]


def test_what_the_subscriber_moved_itself_is_not_the_publishers_any_more(database, subscriptions):
    take(database, endpoint="Far", address="Billing")
    database.call_atomically("subscribe", endpoint="Far", topic=TOPIC, queue_address="Sales")

    for ends, address in ((True, "Sales"), (False, "Billing")):
        with pytest.raises(SubscriptionRefused):
            take(database, endpoint="Far", address=address, ends=ends)

    assert subscriptions() == [("Far", "Sales")]


def test_what_two_publishers_recorded_ends_when_both_end_it(database, subscriptions):
    for publisher in ("Sales", "error"):
        take(database, publisher=publisher)
    with pytest.raises(SubscriptionRefused):
        take(database, endpoint="Billing", address="Sales")

    take(database, ends=True)
    between = subscriptions()
    take(database, publisher="error", ends=True)

    assert (between, subscriptions()) == ([("Billing", "Billing")], [])


def test_the_end_of_a_subscription_that_is_not_there_is_no_error(database, subscriptions):
    take(database, ends=True)

    assert subscriptions() == []


@pytest.mark.parametrize("wrong", [{"endpoint": ""}, {"address": None}, {"endpoint": "x" * 201}])
def test_a_subscription_without_its_facts_is_refused(database, subscriptions, wrong):
    with pytest.raises(InvalidSubscription):
        take(database, **wrong)


@pytest.mark.promise("execute-rights-suffice")
def test_a_publishers_login_subscribes_others_only_to_what_it_may_reach_and_redirects_nobody(
    target, database, sql, subscriptions, make_queue
):
    """The publisher may send to `reached` and to nothing else; what others subscribed stays."""
    publisher, reached, foreign = make_queue().name, make_queue().name, make_queue().name
    database.call_atomically("subscribe", endpoint="Native", topic=TOPIC, queue_address=foreign)
    take(database, publisher="Sales", endpoint="Taken", address=foreign)
    before = subscriptions()

    with logins(sql, target.url) as made:
        name = made.make("publisher")
        grant(sql.database, name, receive_from=[publisher], send_to=[reached], tables=target.babelfish)
        with made.open(name) as own:
            for wrong in (
                {"endpoint": "New", "address": foreign},  # it would publish where it may not send
                {"endpoint": "New", "address": "Nowhere"},
                {"endpoint": "New", "address": foreign, "ends": None},
                {"endpoint": "Native", "address": reached},  # it would get the events of another
                {"endpoint": "Taken", "address": reached},
                {"endpoint": "Native", "address": foreign, "ends": True},
                {"endpoint": "Taken", "address": foreign, "ends": True},
            ):
                with pytest.raises(SubscriptionRefused):
                    take(own, publisher=publisher, **wrong)
            with pytest.raises(QueueNotGranted):  # in the name of a publisher whose queue is not its own
                take(own, publisher="Sales", endpoint="Taken", address=foreign, ends=True)
            with pytest.raises(QueueNotGranted):  # in the name of an endpoint that has a queue of its own
                take(own, publisher=publisher, endpoint=foreign, address=reached)
            take(own, publisher=publisher, endpoint=reached, address=reached)
            during = subscriptions()
            take(own, publisher=publisher, endpoint=reached, address=reached, ends=True)

    assert during == sorted([*before, (reached, reached)])
    assert subscriptions() == before


def test_an_endpoint_without_a_queue_takes_none():
    with pytest.raises(SettingsError, match="it only sends"):
        Endpoint("Shop.Web", send_only=True, takes_subscriptions=True)


# ------------------------------------------------------------------ a subscriber that asks a publisher
class OwnList:
    """A publisher that keeps its subscribers for itself and reads no table, as those before native publish and subscribe."""

    def __init__(self, queue):
        self.queue, self.subscribers = queue, set()

    def start(self):
        for message in self.queue.receive(10):
            headers = message.headers  # by the names that NServiceBus reads
            assert message.body == b""
            assert (headers["NServiceBus.ControlMessage"], headers["NServiceBus.MessageIntent"]) == (
                "True",
                "Subscribe",
            )
            assert headers["SubscriptionMessageType"].partition(",")[0] == TOPIC
            assert headers["NServiceBus.SubscriberEndpoint"] == "Billing"
            self.subscribers.add(headers["NServiceBus.SubscriberAddress"])

    def publish(self, bus):
        for address in self.subscribers:
            bus.send(OrderTaken(42), to=address)


class Migrated:
    """A publisher of rowpost, which reads the table, and may take Subscribe messages as well."""

    def __init__(self, queue, *, takes):
        self.queue, self.sales = queue, Endpoint("Sales", takes_subscriptions=takes)

    def start(self):
        while self.sales.process_one(self.queue.database).kind is not Kind.EMPTY:
            pass

    def publish(self, bus):
        bus.publish(OrderTaken(42))


class Subscriber:
    """The endpoint Billing, which asks the publisher by a message, or subscribes by the table, or both."""

    def __init__(self, database, queue="Billing"):
        self.database, self.billing, self.seen = database, Endpoint(queue), []
        self.billing.handles(TOPIC, OrderTaken, subscribe=True)(lambda event, context: self.seen.append(event))

    def asks(self):
        headers = {
            CONTROL_MESSAGE: "True",
            MESSAGE_INTENT: "Subscribe",
            SUBSCRIPTION_MESSAGE_TYPE: f"{TOPIC}, Shop.Messages",
            SUBSCRIBER_ENDPOINT: "Billing",
            SUBSCRIBER_ADDRESS: canonical(self.database, self.billing.queue),
        }
        with self.billing.open(self.database) as bus:
            bus.send(b"", to="Sales", headers=headers)

    def subscribes(self):
        subscribe(self.billing, self.database)

    def handled(self):
        """Handle what is in the queue, and return how many events came since the last call."""
        while self.billing.process_one(self.database).kind is not Kind.EMPTY:
            pass
        seen, self.seen = self.seen, []
        return len(seen)


OWN_LIST, TAKES, READS = "own list", "takes", "reads"
ASKS, BOTH, SUBSCRIBES = ("asks",), ("asks", "subscribes"), ("subscribes",)


@pytest.mark.parametrize(
    "phases",
    [
        [(OWN_LIST, ASKS), (TAKES, ASKS), (TAKES, BOTH), (READS, SUBSCRIBES)],
        [(OWN_LIST, ASKS), (OWN_LIST, BOTH), (TAKES, BOTH), (READS, SUBSCRIBES)],
    ],
    ids=["the publisher first", "the subscriber first"],
)
def test_no_event_is_lost_or_doubled_while_a_publisher_and_its_subscriber_migrate(
    database, queue, subscriptions, phases
):
    publishers = {OWN_LIST: OwnList(queue), TAKES: Migrated(queue, takes=True), READS: Migrated(queue, takes=False)}
    subscriber = Subscriber(database)
    counts = []

    for publisher, ways in phases:
        for way in ways:
            getattr(subscriber, way)()
        publishers[publisher].start()
        with Endpoint("Sales").open(database) as bus:
            publishers[publisher].publish(bus)
        counts.append(subscriber.handled())

    assert counts == [1, 1, 1, 1]
    assert Queue("error", database).peek() == 0


def test_a_subscriber_in_another_schema_asks_a_publisher_that_keeps_its_own_list(database, queue, make_queue, sql):
    sql.run("CREATE SCHEMA receiver" + (" AUTHORIZATION dbo" if database.engine == "sqlserver" else ""))
    make_queue("Billing@[receiver]")
    publisher, subscriber = OwnList(queue), Subscriber(database, "Billing@[receiver]")

    subscriber.asks()
    publisher.start()
    with Endpoint("Sales").open(database) as bus:
        publisher.publish(bus)

    assert subscriber.handled() == 1
