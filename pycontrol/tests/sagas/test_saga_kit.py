"""rowpost.testing: a saga message by message, as a user tests it."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost.errors import InvalidCorrelation, InvalidMessage
from rowpost.sagas import Saga, handles, starts
from rowpost.testing import SagaTest
from rowpost.transport.queue import Queue
from tests.support.schema import named


@dataclass(frozen=True)
class Placed:
    order_id: str
    total: int


@dataclass(frozen=True)
class Paid:
    order_id: str


@dataclass(frozen=True)
class Overdue:
    pass


@dataclass(frozen=True)
class Accepted:
    order_id: str


@dataclass(frozen=True)
class Remind:
    order_id: str


@dataclass
class OrderState:
    order_id: str
    total: int = 0
    reminded: bool = False


class OrderPolicy(Saga[OrderState], correlate={Placed: "order_id", Paid: "order_id"}):
    @starts(Placed)
    def placed(self, message, context):
        self.state.total = message.total
        context.request_timeout(timedelta(days=1), Overdue())
        if message.total < 0:
            context.publish(Accepted(message.order_id))
            raise ValueError("no such amount")

    @handles(Paid)
    def paid(self, message, context):
        context.publish(Accepted(self.state.order_id))
        context.reply_to_originator(Accepted(self.state.order_id))
        self.complete()

    @handles(Overdue)
    def overdue(self, message, context):
        self.state.reminded = True
        context.send(Remind(self.state.order_id), to="Mail")


@pytest.fixture
def saga(database):
    with SagaTest(OrderPolicy, database) as running:
        yield running


def test_a_message_starts_the_saga_and_its_timeout_waits(saga):
    sent = saga.handle(Placed("A1", 500))

    assert sent == []
    assert saga.state("A1") == OrderState("A1", 500)
    assert [(each.message, each.delay) for each in saga.timeouts] == [(Overdue(), timedelta(days=1))]


def test_a_timeout_is_fired_by_hand(saga):
    saga.handle(Placed("A1", 500))

    (sent,) = saga.fire(Overdue)

    assert (sent.message, sent.to, saga.timeouts) == (Remind("A1"), named("Mail"), [])
    assert saga.state("A1").reminded


def test_what_it_publishes_and_replies_is_kept_and_its_end_is_seen(saga):
    saga.handle(Placed("A1", 500))
    saga.handle(Placed("B2", 7))

    event, reply = saga.handle(Paid("A1"))

    assert (event.message, event.to) == (Accepted("A1"), None)
    assert (reply.headers["NServiceBus.MessageIntent"], reply.to) == ("Reply", named("SagaTest.Sender"))
    assert (saga.state("A1"), saga.states) == (None, [OrderState("B2", 7)])
    assert saga.fire(Overdue) == []  # the one of A1 comes too late
    assert saga.sent == [Accepted("A1"), Accepted("A1")]


def test_what_the_saga_raises_is_raised_and_nothing_is_kept(saga):
    with pytest.raises(ValueError, match="no such amount"):
        saga.handle(Placed("A1", -1))

    assert (saga.state("A1"), saga.sent, saga.timeouts) == (None, [], [])


def test_a_timeout_that_nobody_asked_for_is_refused_with_what_was_asked_for(saga):
    saga.handle(Placed("A1", 500))

    with pytest.raises(InvalidMessage, match="requested no timeout Paid"):
        saga.fire(Paid)
    with pytest.raises(InvalidCorrelation):
        saga.handle(Placed("", 1))


def test_a_run_begins_with_nothing_of_an_earlier_one(database):
    with SagaTest(OrderPolicy, database) as saga:
        saga.handle(Placed("A1", 500))
        Queue(named("SagaTest.OrderPolicy"), database).send(b"left")

    with SagaTest(OrderPolicy, database) as saga:
        assert saga.states == []
        assert Queue(named("SagaTest.OrderPolicy"), database).peek() == 0


@dataclass(frozen=True)
class Counted:
    number: int


@dataclass
class Tally:
    number: int


def test_a_class_of_the_same_name_that_is_correlated_otherwise_gets_a_table_of_its_own(database, saga):
    saga.handle(Placed("A1", 500))

    class OrderPolicy(Saga[Tally], correlate={Counted: "number"}):
        @starts(Counted)
        def counted(self, message, context):
            pass

    with SagaTest(OrderPolicy, database) as another:
        another.handle(Counted(7))

        assert another.states == [Tally(7)]
