"""A subscriber whose table is gone stops neither the publisher nor the other subscribers: its copy ends in the publisher's error queue."""

import logging
from dataclasses import dataclass

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import InvalidQueueName, QueueNotFound
from rowpost.recoverability.outcome import Kind
from rowpost.transport.error_queue import ErrorQueue
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.message_types import message_type
from tests.support.schema import named

EVENT = "Shop.Messages.OrderLost"


@message_type(EVENT)
@dataclass(frozen=True)
class OrderLost:
    number: int


class Market:
    """A publisher, a subscriber that is there, and subscribers that are not."""

    def __init__(self, database, sql, publisher, there):
        self.database, self.sql, self.publisher, self.there = database, sql, publisher, there

    def subscribe(self, address):
        self.database.call("subscribe", endpoint=f"reader of {address}", topic=EVENT, queue_address=address)

    def endpoint(self, **options):
        endpoint = Endpoint(self.publisher.name, **options)

        @endpoint.handles("Shop.Lose", dict)
        def lose(message, context):
            context.publish(OrderLost(message["Number"]))

        return endpoint

    def copies(self):
        return Queue("error", self.database).browse(10)

    def create(self, name):
        self.sql.make_table_like(self.there.name, name)


@pytest.fixture
def market(database, make_queue, sql):
    sql.empty("error")
    made = Market(database, sql, make_queue(), make_queue())
    made.subscribe(made.there.name)
    yield made
    sql.run(
        f"DELETE FROM {sql.table('SubscriptionRouting')} WHERE {'topic' if database.engine == 'postgresql' else 'Topic'} = ?",
        EVENT,
    )


def test_the_server_tells_whose_table_is_gone_and_serves_the_others(market, make_queue):
    gone = make_queue().name
    market.sql.run(f"DROP TABLE {market.sql.table(gone)}")
    market.subscribe(gone)

    rows = market.database.call("publish_message", topics=[EVENT], headers='{"a":"b"}', body=b"x")

    assert {address: bool(stored) for address, stored in rows} == {gone: False, market.there.name: True}
    assert [message.body for message in market.there.receive(10)] == [b"x"]


@pytest.mark.parametrize("registered", [True, False])
@pytest.mark.promise("lost-subscriber")
def test_the_copy_of_a_subscriber_whose_table_is_gone_ends_in_the_publishers_error_queue(
    market, make_queue, caplog, registered
):
    gone = make_queue().name if registered else named("NobodysQueue")
    if registered:
        market.sql.run(f"DROP TABLE {market.sql.table(gone)}")
    market.subscribe(gone)
    endpoint = market.endpoint()
    market.publisher.send(b'{"Number":1}', {"NServiceBus.EnclosedMessageTypes": "Shop.Lose"})

    with caplog.at_level(logging.WARNING, "rowpost"):
        outcome = endpoint.process_one(market.database)

    assert outcome.kind is Kind.HANDLED
    assert [message.body for message in market.there.receive(10)] == [b'{"Number":1}']
    (copy,) = market.copies()
    assert (copy.body, copy.headers["NServiceBus.FailedQ"], copy.headers["NServiceBus.EnclosedMessageTypes"]) == (
        b'{"Number":1}', market.database.canonical(parse_address(gone)), EVENT,
    )  # fmt: skip
    assert copy.headers["NServiceBus.ExceptionInfo.ExceptionType"] == "rowpost.errors.QueueNotFound"
    (told,) = [record.getMessage() for record in caplog.records if record.name == "rowpost"]
    assert all(each in told for each in (gone, EVENT, repr(named("error")), "rowpost errors retry"))


def test_a_copy_is_retried_to_its_subscriber_alone_when_the_table_is_back(market):
    market.subscribe(named("BackQueue"))
    with market.endpoint().open(market.database) as bus:
        bus.publish(OrderLost(1))
    (copy,) = market.copies()
    market.create("BackQueue")

    retried_to = ErrorQueue(market.database, named("error")).retry(copy.row_version)

    assert [bytes(row[0]) for row in market.sql.run(f"SELECT body FROM {market.sql.table('BackQueue')}")] == [
        b'{"Number":1}'
    ]
    assert (retried_to, market.copies(), len(market.there.receive(10))) == (named("BackQueue"), [], 1)
    market.sql.run(f"DROP TABLE {market.sql.table('BackQueue')}")


def test_an_address_that_nobody_can_read_is_a_subscriber_without_a_table(market):
    market.subscribe("x@[")

    with market.endpoint().open(market.database) as bus:
        bus.publish(OrderLost(1))

    assert [copy.headers["NServiceBus.FailedQ"] for copy in market.copies()] == ["x@["]
    assert len(market.there.receive(10)) == 1


@pytest.mark.parametrize(("address", "error"), [("NobodysQueue", QueueNotFound), ("x@[", InvalidQueueName)])
def test_without_an_error_queue_the_publisher_is_told(market, address, error):
    market.subscribe(address)

    with pytest.raises(error), market.endpoint(error_queue="NobodysErrors").open(market.database) as bus:
        bus.publish(OrderLost(1))

    assert (market.there.receive(10), market.copies()) == ([], [])


def test_the_copy_is_undone_with_the_publishers_transaction(market):
    market.subscribe("NobodysQueue")

    with pytest.raises(KeyError, match="undone"), market.database.transaction():
        with market.endpoint().open(market.database) as bus:
            bus.publish(OrderLost(1))
        published = len(market.copies())
        raise KeyError("undone")

    assert (published, market.copies(), market.there.receive(10)) == (1, [], [])
