"""What a policy may decide beside retries: to drop a message with a reason, or to move it to an error queue of its own."""

import traceback
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.pipeline.batch_size import batch_size
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.discard import Discard
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Decision, Failure, MoveTo, Recoverability
from rowpost.transport.delayed_messages import DelayedMessages
from rowpost.transport.queue import Queue
from rowpost.workers.protocol import Tally

TYPE = {"NServiceBus.EnclosedMessageTypes": "Shop.Order"}
MODES = pytest.mark.parametrize("mode", ["sends_atomic_with_receive", "receive_only", "lease"])


@pytest.fixture
def sales(database, queue, sql):
    sql.run("DELETE FROM rowpost.failure")
    for name in ("Billing", "error"):
        sql.empty(name)

    def fails(policy, mode, count=1):
        """Let a handler that fails handle messages; return their outcomes."""
        options = {"receive": "lease"} if mode == "lease" else {"transaction_mode": mode}
        endpoint = Endpoint("Sales", recoverability=Recoverability(policy=policy), **options)

        @endpoint.handles("Shop.Order")
        def handle(message, context):
            context.send(message, to="Billing", headers=TYPE)
            raise ValueError("no")

        for number in range(count):
            queue.send(b"%d" % number, TYPE)
        pipeline = endpoint.pipeline(database, "Sales")
        outcomes = [pipeline.process_one() for _ in range(count)]
        endpoint.close()
        return outcomes

    fails.left = lambda: [Queue(name, database).peek(10) for name in ("Sales", "Billing", "error")]
    fails.counts = lambda: sql.value("SELECT COUNT(*) FROM rowpost.failure")
    return fails


@MODES
def test_a_policy_discards_a_message_with_its_reason(sales, mode):
    first, second = sales(lambda failure: Discard("nobody needs it", expected=True), mode, count=2)

    assert [first.kind, second.kind] == [Kind.DISCARDED] * 2
    assert first.discard == Discard("nobody needs it", expected=True)
    assert (first.message_type, first.message_id is not None) == ("Shop.Order", True)
    assert (sales.left(), sales.counts()) == ([0, 0, 0], 0)


@MODES
def test_an_outcome_holds_what_the_handler_raised_and_a_report_does_not(sales, mode):
    discarded, moved = [
        sales(lambda failure, decided=decided: decided, mode)[0] for decided in (Discard("no"), Decision.ERROR)
    ]
    tally = Tally()
    tally.add(moved)
    tally.add(discarded)
    report = tally.take(busy=False, round_=1)

    assert (moved.kind, discarded.kind) == ("moved_to_error", "discarded")
    for outcome in (moved, discarded):
        assert isinstance(outcome.exception, ValueError)
        assert traceback.extract_tb(outcome.exception.__traceback__)[-1].name == "handle"
    assert [each.exception for each in (*report.failures, *report.dropped)] == [None, None]
    assert report.streak == 2


@MODES
def test_a_policy_chooses_another_error_queue(sales, mode, database):
    (outcome,) = sales(lambda failure: MoveTo("Billing"), mode)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert (sales.left(), sales.counts()) == ([0, 1, 0], 0)
    (copy,) = Queue("Billing", database).browse(10)
    assert copy.headers["NServiceBus.ExceptionInfo.Message"] == "no"
    assert "NServiceBus.FailedQ" in copy.headers


@MODES
def test_an_error_queue_that_is_not_there_is_the_endpoints(sales, mode, database):
    (outcome,) = sales(lambda failure: MoveTo("Nowhere"), mode)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert (sales.left(), sales.counts()) == ([0, 0, 1], 0)


@MODES
def test_a_policy_that_decides_nonsense_keeps_the_message(sales, mode):
    (outcome,) = sales(lambda failure: "discard", mode)

    assert outcome.kind is Kind.UNMOVABLE
    assert "a policy returns a Decision" in outcome.error
    assert sales.left() == [1, 0, 0]


def test_a_message_of_a_batch_is_discarded_alone(sales, database, queue):
    endpoint = Endpoint("Sales", recoverability=Recoverability(policy=lambda failure: Discard("odd")))

    @endpoint.handles("Shop.Order")
    def handle(message, context):
        if int(message) % 2:
            raise ValueError("no")

    for number in range(6):
        queue.send(b"%d" % number, TYPE)
    batches = Batches(endpoint.pipeline(database, "Sales"), batch_size(6, 1.0))
    kinds = []
    while (outcomes := batches.process())[0].kind is not Kind.EMPTY:
        kinds += [outcome.kind for outcome in outcomes if outcome.kind is not Kind.DEADLOCKED]

    assert sorted(kind.value for kind in kinds) == ["discarded"] * 3 + ["handled"] * 3
    assert sales.left() == [0, 0, 0]


def test_a_delay_beyond_the_calendar_is_the_longest_that_can_be_stored(sales, database):
    (first,) = sales(lambda failure: timedelta(days=999_999_999), "sends_atomic_with_receive")
    grown = Recoverability(immediate_retries=0, delayed_retries=1000, backoff="exponential")
    failure = Failure(ValueError("no"), 1, 500, {})

    assert first.kind is Kind.DELAYED
    assert sales.left() == [0, 0, 0]
    (waiting,) = DelayedMessages("Sales", database).browse(10)
    assert waiting.due.year == (datetime.now(UTC) + timedelta(days=36525)).year
    assert grown.decide(failure).delay == timedelta(days=36525)
    DelayedMessages("Sales", database).cancel(waiting.key)
