"""Scatter-gather: a tree of sub-sagas, or one request after the other; each answer is there once, and nobody waits for too many."""

from dataclasses import dataclass, field

import pytest

from rowpost.recoverability.outcome import Kind
from rowpost.sagas import Saga, handles, starts
from rowpost.sagas.scatter_gather import ScatterGather
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.sagas import Desk, deploy, make_endpoint

ROUNDS = 500


@message_type("Scatter.Count")
@dataclass(frozen=True)
class Count:
    order: str
    numbers: list[int]


@message_type("Scatter.Square")
@dataclass(frozen=True)
class Square:
    number: int


@message_type("Scatter.Squared")
@dataclass(frozen=True)
class Squared:
    number: int
    square: int


@dataclass
class CountState:
    order: str
    squares: list[int] = field(default_factory=list)
    answers: int = 0


class Chunked(ScatterGather[Square, Squared], at_most=3, table="Scatter_Chunked"):
    pass


class Sequential(ScatterGather[Square, Squared], at_most=None, at_once=1, table="Scatter_Sequential"):
    pass


class EvenOnly(ScatterGather[Square, Squared], at_most=3, table="Scatter_EvenOnly"):
    def combine(self, results):
        return [each for each in results if each.square % 2 == 0]


def make_asker(gathering: type[ScatterGather]) -> type[Saga]:
    class Asker(Saga[CountState], correlate={Count: "order"}, table="Scatter_Asker"):
        @starts(Count)
        def count(self, message, context):
            gathering.scatter(context, message.order, map(Square, message.numbers))

        @handles(gathering.Gathered)
        def gathered(self, message, context):
            self.state.answers += 1
            self.state.squares = [each.square for each in message.results]

    return Asker


class Bench:
    """Sales hosts the saga that asks and the one that gathers, Billing answers; worked by hand, a message at a time."""

    def __init__(self, target, sql, gathering):
        self.desk = Desk(target, sql, make_asker(gathering))
        self.sales = self.desk.endpoint
        self.sales.saga(gathering)
        self.sales.route(Square, to="Billing")
        deploy(target, self.sales)
        for saga in self.sales.sagas:
            sql.run(f"DELETE FROM {sql.table(saga.name)}")
        self.billing = make_endpoint(make_asker(gathering), "Billing")
        self.billing.handles("Scatter.Square", Square)(
            lambda message, context: context.reply(Squared(message.number, message.number**2))
        )
        self.tables = {saga.name: 0 for saga in self.sales.sagas}
        self.most_waiting = 0

    def count(self, numbers, order="A1"):
        self.desk.send(Count(order, list(numbers)))

    def run(self):
        """Until nothing is left to do; looks at each instance's state meanwhile."""
        database = self.desk.database
        for _ in range(ROUNDS):
            ends = [self.sales.process_one(database), self.billing.process_one(database)]
            assert all(each.kind in (Kind.HANDLED, Kind.EMPTY) for each in ends), ends
            self.most_waiting = max(self.most_waiting, Queue("Billing", database).peek())
            if all(each.kind is Kind.EMPTY for each in ends):
                return
        raise AssertionError("it goes on and on")

    def squares(self):
        return {row[0]: (row[2]["Squares"], row[2]["Answers"]) for row in self.desk.rows}

    def gathering(self):
        """How many instances gather still."""
        return len(self.desk.database.call("list_sagas", self.sales.sagas[1].name, count=100))


@pytest.fixture
def bench(target, sql):
    made = []

    def make(gathering):
        made.append(Bench(target, sql, gathering))
        return made[-1]

    yield make
    for each in made:
        each.desk.close()


@pytest.mark.parametrize("gathering", [Chunked, Sequential])
@pytest.mark.parametrize("count", [0, 1, 3, 4, 11])
def test_the_saga_that_asked_is_answered_once_with_all_that_was_answered(bench, gathering, count):
    desk = bench(gathering)
    desk.count(range(count))

    desk.run()

    ((squares, answers),) = desk.squares().values()
    assert (sorted(squares), answers) == ([number**2 for number in range(count)], 1)
    assert desk.gathering() == 0


def test_more_requests_than_one_may_wait_for_are_split_among_sub_sagas(bench):
    desk = bench(Chunked)
    desk.count(range(11))
    desk.desk.work()  # the saga asks
    desk.desk.work()  # the root splits 11 into 2 parts of 9 at most

    for _ in range(2):
        desk.desk.work()
    names = sorted(row[1] for row in desk.desk.database.call("list_sagas", desk.sales.sagas[1].name, count=100))

    assert names == ["A1", "A1.1", "A1.2"]
    desk.run()
    assert desk.gathering() == 0


def test_one_after_the_other_means_that_never_two_requests_are_under_way(bench):
    desk = bench(Sequential)
    desk.count(range(5))

    desk.run()

    assert desk.most_waiting <= 1
    assert desk.squares() == {"A1": ([0, 1, 4, 9, 16], 1)}  # in the order in which they were asked


def test_what_an_instance_does_not_hand_on_is_not_there(bench):
    desk = bench(EvenOnly)
    desk.count(range(7))

    desk.run()

    assert sorted(desk.squares()["A1"][0]) == [0, 4, 16, 36]


def test_two_gatherings_side_by_side_do_not_mix(bench):
    desk = bench(Chunked)
    desk.count(range(5), "A1")
    desk.count(range(5, 9), "B2")

    desk.run()

    assert {order: sorted(squares) for order, (squares, _) in desk.squares().items()} == {
        "A1": [0, 1, 4, 9, 16],
        "B2": [25, 36, 49, 64],
    }


def test_a_name_that_is_under_way_is_refused(bench):
    desk = bench(Chunked)
    with desk.sales.open(desk.desk.database) as bus:
        for _ in range(2):
            Chunked.scatter(bus, "A1", [Square(1)])

    assert desk.desk.work().kind is Kind.HANDLED
    refused = desk.desk.work()

    assert refused.kind is not Kind.HANDLED
    assert "already gathers for 'A1'" in refused.error
