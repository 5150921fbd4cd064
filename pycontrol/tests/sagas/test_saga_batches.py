"""Messages of sagas that share a transaction: all workers lock instances in the same order, which avoids deadlocks."""

import pytest

from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.transport.queue import Queue
from rowpost.wire.json_serializer import JsonSerializer
from rowpost.wire.message import OutgoingMessage
from tests.support.sagas import GATES, KINDS, Add, Close, Open, Session, make_desk

__all__ = ["make_desk"]


def batch(desk, queue="Sales", **options):
    """One transaction of up to ten messages; what became of each."""
    pipeline = Pipeline(desk.target.connect(), queue, desk.endpoint, reconnect=desk.target.connect, **options)
    try:
        return Batches(pipeline, BatchSize(10, None, now=10)).process()
    finally:
        pipeline.close()


@pytest.fixture
def visits():
    """Amounts, in the order in which handlers saw them: the gate "visit"."""
    seen = []
    GATES["visit"] = lambda saga, context: seen.append((saga.state.account, saga.state.seen[-1]))
    return seen


@pytest.mark.parametrize("concurrency", KINDS)
def test_two_batches_that_want_the_same_instances_the_other_way_round_end_in_no_deadlock(
    make_desk, visits, concurrency
):
    desk = make_desk(concurrency)
    for account in ("A", "B"):
        desk.handle(Open(account))
    for account in "BA":
        desk.send(Add(account, 1, "lead"), "Sales")
    for account in "AB":
        desk.send(Add(account, 2, "visit"), "Billing")
    pessimistic = concurrency == "pessimistic"
    visit, others = GATES["visit"], []

    def lead(saga, context):
        """The other batch begins when this one has locked one instance, and waits before this one goes on to the next.

        A pessimistic saga is locked before its handler runs, an optimistic one after it.
        """
        visit(saga, context)
        if len(visits) == (1 if pessimistic else 2):
            others.append(Session(lambda: batch(desk, "Billing")))
            desk.wait_until_blocked()

    GATES["lead"] = lead

    first = batch(desk, "Sales")
    second = others[0].outcome()

    assert [each.kind for each in first] == [Kind.HANDLED] * 2
    assert [each.kind for each in second] == ([Kind.HANDLED] * 2 if pessimistic else [Kind.DEADLOCKED])
    assert visits == [("A", 1), ("B", 1), ("A", 2), ("B", 2)][: 4 if pessimistic else 3]
    assert {row[2]["Total"] for row in desk.rows} == {3 if pessimistic else 1}


@pytest.mark.parametrize("concurrency", KINDS)
def test_messages_of_one_instance_keep_their_order_and_outcomes_are_those_of_the_queue(make_desk, visits, concurrency):
    desk = make_desk(concurrency)
    for account, amount in (("b", 1), ("A", 2), ("B ", 3), ("A", 4), ("b", 5)):
        desk.send(Open(account, amount, "visit"))
    versions = [each.row_version for each in Queue("Sales", desk.database).browse(10)]

    outcomes = batch(desk)

    assert [each.row_version for each in outcomes] == versions
    assert [amount for _, amount in visits] == [2, 4, 1, 3, 5]


def test_the_messages_of_an_exclusive_queue_are_handled_as_they_were_sent(make_desk, visits):
    desk = make_desk()
    for account, amount in (("B", 1), ("A", 2), ("B", 3)):
        desk.send(Open(account, amount, "visit"))

    batch(desk, exclusive=True)

    assert [amount for _, amount in visits] == [1, 2, 3]


def test_a_failing_message_takes_no_neighbour_with_it_wherever_it_stands(make_desk):
    def fail(saga, context):
        raise ValueError("no")

    desk = make_desk()
    GATES["fail"] = fail
    for account, gate in (("C", ""), ("B", ""), ("A", "fail"), ("D", "")):
        desk.send(Open(account, 1, gate))
    Queue("Sales", desk.database).send_many(
        [OutgoingMessage(b"{", {"NServiceBus.EnclosedMessageTypes": "Ledger.Open"})]
    )
    pipeline = Pipeline(desk.database, "Sales", desk.endpoint, reconnect=desk.target.connect)
    batches, seen = Batches(pipeline, BatchSize(10, None, now=10)), []
    while (outcomes := batches.process())[0].kind is not Kind.EMPTY:
        seen.append([each.kind for each in outcomes])

    kinds = [kind for each in seen for kind in each]
    assert [row[0] for row in desk.rows] == ["B", "C", "D"]
    assert (kinds.count(Kind.HANDLED), kinds.count(Kind.FAILED), kinds.count(Kind.MOVED_TO_ERROR)) == (3, 5, 2)
    assert [Kind.HANDLED, Kind.HANDLED] in seen  # those before it, together


def test_a_serializer_that_breaks_fails_its_message_and_no_other(make_desk):
    class Moody(JsonSerializer):
        def decode(self, body, cls):
            if b"moody" in body:
                raise KeyError("moody")
            return super().decode(body, cls)

    desk = make_desk(serializers=[Moody()])
    for account in ("B", "moody", "A"):
        desk.send(Open(account))
    pipeline = Pipeline(desk.database, "Sales", desk.endpoint, reconnect=desk.target.connect)
    batches = Batches(pipeline, BatchSize(10, None, now=10))

    while batches.process()[0].kind is not Kind.EMPTY:
        pass

    assert ([row[0] for row in desk.rows], desk.waiting("error")) == (["A", "B"], 1)


@pytest.mark.parametrize("concurrency", KINDS)
def test_messages_of_one_saga_may_share_a_transaction(make_desk, concurrency):
    desk = make_desk(concurrency)
    for message in (Open("A", 1), Add("A", 2), Add("A", 4), Open("B", 8), Close("A"), Add("A", 16)):
        desk.send(message)

    outcomes = batch(desk)

    assert [each.kind for each in outcomes] == [Kind.HANDLED] * 5 + [Kind.DISCARDED]
    assert [(row[0], row[2]["Total"]) for row in desk.rows] == [("B", 8)]
    assert desk.notes() == ["closed", "total 1", "total 3", "total 7", "total 8"]
