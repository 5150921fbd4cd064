"""Messages that end without being handled: each is an outcome of its own with a reason, a count and an event."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError, Unrecoverable
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, starts
from rowpost.settings.environment import QueueSettings, WorkerSettings
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.workers import events
from rowpost.workers.protocol import Tally
from tests.support.pipelines import pipeline_with
from tests.support.sagas import Add, LedgerState, Open, deploy, make_ledger
from tests.support.workers import Running, eventually

CONTROL = {"NServiceBus.ControlMessage": "True", "NServiceBus.MessageIntent": "Send"}
MODES = ("none", "receive_only", "sends_atomic_with_receive", "transaction_scope")
TYPE = {"NServiceBus.EnclosedMessageTypes": "Shop.Old; Shop.Base"}
PASS = {"NServiceBus.EnclosedMessageTypes": "Shop.Pass"}


@pytest.fixture
def empty(queue, sql):
    for name in ("error", "audit", "Billing"):
        sql.empty(name)
    return queue


def endpoint_that_discards(mode="sends_atomic_with_receive", **options):
    endpoint = Endpoint("Sales", transaction_mode=mode, recoverability=Recoverability(0, 0), **options)

    @endpoint.handles("Shop.Old", bytes)
    def old(message, context):
        context.send(b"what it sends", to="Billing", headers=PASS)
        context.discard("nobody sells it any more")

    return endpoint


def one_by_one(database, handler, times=1):
    pipeline = pipeline_with(database, "Sales", handler, reconnect=database.open_second)
    return [pipeline.process_one() for _ in range(times)]


# ------------------------------------------------------------------ outcomes
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.promise("nothing-vanishes")
def test_a_message_that_its_handler_discards_has_an_outcome_with_the_reason_and_what_it_sent_is_sent(
    empty, database, mode
):
    message_id = empty.send(b"{}", TYPE)

    (outcome,) = one_by_one(database, endpoint_that_discards(mode))

    assert outcome.kind is Kind.DISCARDED
    assert (outcome.message_id, outcome.message_type) == (str(message_id), "Shop.Old")
    assert (outcome.discard.reason, outcome.discard.expected) == ("nobody sells it any more", False)
    assert (empty.peek(), Queue("Billing", database).peek(), Queue("error", database).peek()) == (0, 1, 0)


def test_a_discarded_message_is_still_audited(empty, database):
    empty.send(b"{}", TYPE)

    one_by_one(database, endpoint_that_discards(audit_queue="audit"))

    assert Queue("audit", database).peek() == 1


def test_a_message_that_another_handler_handles_is_handled_and_the_discard_is_logged(empty, database, caplog):
    endpoint, seen = endpoint_that_discards(), []
    endpoint.handles("Shop.Base", bytes)(lambda message, context: seen.append(message))
    empty.send(b"{}", TYPE)

    with caplog.at_level(logging.WARNING, "rowpost"):
        (outcome,) = one_by_one(database, endpoint)

    assert (outcome.kind, outcome.discard, seen) == (Kind.HANDLED, None, [b"{}"])
    assert "nobody sells it any more" in caplog.text


@pytest.mark.promise("nothing-vanishes")
@pytest.mark.parametrize("kind", ["endpoint", "function"])
def test_a_control_message_that_is_not_understood_is_discarded_and_its_intent_is_named(empty, database, kind):
    empty.send(b"", CONTROL)

    (outcome,) = one_by_one(database, Endpoint("Sales") if kind == "endpoint" else lambda message, connection: None)

    assert outcome.kind is Kind.DISCARDED
    assert "a control message with the intent Send" in outcome.discard.reason


@pytest.mark.promise("nothing-vanishes")
def test_an_expired_message_says_which_it_was(empty, database, sql):
    sql.insert_expired("Sales", 1)

    (outcome,) = one_by_one(database, endpoint_that_discards())

    assert (outcome.kind, outcome.discard.reason) == (Kind.EXPIRED, "its time to be received was over")
    assert outcome.id is not None


def test_a_batch_has_an_outcome_for_each_of_them(empty, database, sql):
    for headers in (TYPE, PASS, CONTROL):
        empty.send(b"{}", headers)
    sql.insert_expired("Sales", 1)
    endpoint = endpoint_that_discards()
    endpoint.handles("Shop.Pass", bytes)(lambda message, context: None)

    outcomes = Batches(pipeline_with(database, "Sales", endpoint), BatchSize(10, None, now=10)).process()

    assert [each.kind for each in outcomes] == [Kind.DISCARDED, Kind.HANDLED, Kind.DISCARDED, Kind.EXPIRED]
    assert all(each.discard for each in outcomes if each.kind is not Kind.HANDLED)
    assert empty.peek() == 0


def test_an_unrecoverable_error_moves_the_message_at_once_whatever_the_policy_lists(empty, database):
    endpoint = Endpoint("Sales", recoverability=Recoverability(5, 3, unrecoverable=()))

    @endpoint.handles("Shop.Old", bytes)
    def old(message, context):
        raise Unrecoverable("no retry helps")

    empty.send(b"{}", TYPE)

    assert [each.kind for each in one_by_one(database, endpoint)] == [Kind.MOVED_TO_ERROR]


# ------------------------------------------------------------------ sagas without an instance
@pytest.fixture
def ledger(target, empty, database):
    """Sends an Add without an instance to an endpoint with a saga, and handles it so many times."""

    def run(times=1, saga=None, **options):
        endpoint = Endpoint("Sales", recoverability=Recoverability(1, 0))
        endpoint.saga(saga or make_ledger("pessimistic", "Ledger_without", **options))
        deploy(target, endpoint)
        with endpoint.open(database) as bus:
            bus.send(Add("nobody"), to="Sales")
        return one_by_one(database, endpoint, times)

    return run


@pytest.mark.promise("nothing-vanishes")
def test_a_message_without_an_instance_is_discarded_with_the_saga_as_the_reason(ledger):
    (outcome,) = ledger()

    assert (outcome.kind, outcome.message_type, outcome.discard.expected) == (Kind.DISCARDED, "Ledger.Add", False)
    assert "there is no instance of the saga" in outcome.discard.reason


def test_a_saga_may_ask_for_retries_and_then_the_error_queue(ledger, database):
    outcomes = ledger(2, without_instance="retry")

    assert [each.kind for each in outcomes] == [Kind.FAILED, Kind.MOVED_TO_ERROR]
    assert "SagaInstanceMissing" in outcomes[0].error
    assert Queue("error", database).peek() == 1


def test_the_instance_that_starts_late_gets_the_message_that_is_retried(target, empty, database):
    endpoint = Endpoint("Sales", recoverability=Recoverability(0, 1, timedelta(milliseconds=1)))
    endpoint.saga(make_ledger("pessimistic", "Ledger_without", without_instance="retry"))
    deploy(target, endpoint)
    kinds = []
    for message in (Add("late", 7), Open("late")):
        with endpoint.open(database) as bus:
            bus.send(message, to="Sales")
        kinds += [each.kind for each in one_by_one(database, endpoint)]

    eventually(lambda: move_due(database, "Sales").moved, "the delayed message is due")
    kinds += [each.kind for each in one_by_one(database, endpoint)]

    assert kinds == [Kind.DELAYED, Kind.HANDLED, Kind.HANDLED]
    assert Queue("error", database).peek() == 0


def test_a_saga_may_ask_for_the_error_queue_at_once(ledger, database):
    (outcome,) = ledger(without_instance="error")

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "SagaInstanceRequired" in outcome.error
    assert Queue("error", database).peek() == 1


def test_another_way_is_refused_when_the_class_is_declared():
    with pytest.raises(SettingsError, match=r"unknown without_instance 'ignore'\. Use discard, retry, error"):

        class Wrong(Saga[LedgerState], correlate={Open: "account"}, without_instance="ignore"):
            @starts(Open)
            def open(self, message, context): ...


# ------------------------------------------------------------------ counts and events
@pytest.mark.promise("nothing-vanishes")
def test_a_supervisor_counts_them_and_emits_an_event_for_each(shop):
    shop.queue.send(b"", CONTROL)
    shop.sql.insert_expired(shop.name, 2)
    shop.send(1)

    with shop.run() as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "the last is handled")
        supervisor.until(lambda: len(supervisor.seen(events.Discarded)) == 3, "three events")
        figures = supervisor.supervisor.snapshot().queue(shop.name)

    assert (figures.handled, figures.discarded, figures.expired) == (1, 1, 2)
    control, *expired = sorted(supervisor.seen(events.Discarded), key=lambda event: event.reason)
    assert "control message" in control.reason
    assert {event.reason for event in expired} == {"its time to be received was over"}
    assert {event.severity for event in (control, *expired)} == {logging.WARNING}
    assert replace(control, expected=True).severity == logging.INFO


def test_a_supervisor_tells_which_message_a_handler_discarded(shop):
    queue = QueueSettings(shop.name, worker=WorkerSettings("tests.support.failing:discarding", peek_delay=0.1))
    message_id = shop.queue.send(b"{}", TYPE)

    with Running(replace(shop.settings(), queues=(queue,))) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Discarded), "the event")

    (event,) = supervisor.seen(events.Discarded)
    assert (event.message_id, event.message_type, event.reason) == (
        str(message_id),
        "Shop.Old",
        "nobody sells it any more",
    )


def test_a_report_is_full_with_fifty_of_them_and_the_next_one_describes_the_others(empty, database, sql):
    sql.insert_expired("Sales", 60)
    batches, tally, reports = (
        Batches(pipeline_with(database, "Sales", endpoint_that_discards()), BatchSize(60, None, now=60)),
        Tally(),
        [],
    )

    for outcome in batches.process():
        tally.add(outcome)
        if tally.is_full:
            reports.append(tally.take(busy=True, round_=1))
    reports.append(tally.take(busy=False, round_=1))

    assert [(each.expired, len(each.dropped), each.failures) for each in reports] == [(50, 50, ()), (10, 10, ())]
