"""What a pipeline records for the monitoring of ServiceControl: which attempts count, with which type and which times."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.errors import Unrecoverable
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.measurements import LONGEST_TYPE, Recorder
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.delayed import move_due
from rowpost.wire.message import OutgoingMessage, format_timestamp
from rowpost.wire.metrics import CRITICAL_TIME, PROCESSING_TIME, RETRIES, ticks_at

ORDER = "Shop.Messages.Order, shop, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null"
HEADERS = {"NServiceBus.EnclosedMessageTypes": ORDER}
NOTHING = {CRITICAL_TIME: [], PROCESSING_TIME: [], RETRIES: []}


@pytest.fixture
def desk(queue, database, sql):
    sql.empty("error")
    sql.run(f"DELETE FROM {sql.table('Sales.Delayed')}")
    return Desk(queue, database)


class Desk:
    """The queue Sales; the body of a message says what its handler does."""

    def __init__(self, queue, database):
        self.queue, self.database, self.recorder = queue, database, Recorder()
        self.endpoint = self.make()

    def make(self, mode="sends_atomic_with_receive", **recoverability):
        endpoint = Endpoint("Sales", transaction_mode=mode, recoverability=Recoverability(**recoverability))

        @endpoint.handles("Shop.Messages.Order", bytes)
        def handle(body, context):
            if body == b"fail":
                raise ValueError("no such order")
            if body == b"never":
                raise Unrecoverable("no such order")
            if body == b"discard":
                context.discard("nobody sells it")
            if body == b"slow":
                time.sleep(0.005)

        return endpoint

    def send(self, body=b"", **headers):
        self.queue.send(body, {**HEADERS, **headers})

    def pipeline(self, endpoint=None, **options):
        return Pipeline(
            self.database,
            "Sales",
            endpoint or self.endpoint,
            reconnect=self.database.open_second,
            observers=[self.recorder],
            **options,
        )

    def taken(self):
        """(type, value) of what was recorded, by the metric."""
        taken = self.recorder.take()
        if taken is None:
            return NOTHING
        return {
            metric: [(taken.types[place], value) for _, place, value in triples(numbers)]
            for metric, numbers in taken.values.items()
        }


def triples(numbers):
    return list(zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True))


def due(seconds_ago):
    return format_timestamp(datetime.now(UTC) - timedelta(seconds=seconds_ago))


@pytest.mark.parametrize("mode", MODES)
def test_a_handled_message_has_a_critical_and_a_processing_time(desk, mode):
    desk.send(b"slow", **{"NServiceBus.TimeSent": due(60)})
    before = ticks_at(time.time())

    assert desk.pipeline(desk.make(mode)).process_one().kind is Kind.HANDLED

    taken = desk.recorder.take()
    assert taken.types == (ORDER,)
    ((ended, _, processing),) = triples(taken.values[PROCESSING_TIME])
    ((also, _, critical),) = triples(taken.values[CRITICAL_TIME])
    assert before <= ended == also <= ticks_at(time.time())
    assert 5 <= processing < 60_000 <= critical
    assert triples(taken.values[RETRIES]) == []
    assert desk.recorder.take() is None


def test_a_delayed_message_is_late_from_when_it_was_due(desk):
    desk.send(**{"NServiceBus.TimeSent": due(3600), "NServiceBus.DeliverAt": due(-60)})

    desk.pipeline().process_one()

    assert desk.taken()[CRITICAL_TIME] == [(ORDER, 0)]


def test_a_message_without_a_time_has_no_critical_time(desk):
    desk.send()

    desk.pipeline().process_one()

    taken = desk.taken()
    assert (taken[CRITICAL_TIME], [name for name, _ in taken[PROCESSING_TIME]]) == ([], [ORDER])


def test_a_handler_that_writes_no_text_into_the_headers_leaves_no_critical_time(desk):
    @desk.endpoint.handles("Shop.Messages.Odd")
    def odd(body, context):
        context.incoming.headers["NServiceBus.TimeSent"] = 7

    desk.send(**{"NServiceBus.EnclosedMessageTypes": "Shop.Messages.Odd"})

    assert desk.pipeline().process_one().kind is Kind.HANDLED
    assert desk.taken()[CRITICAL_TIME] == []


def test_a_discarded_message_counts_as_it_does_in_nservicebus(desk):
    desk.send(b"discard")

    assert desk.pipeline().process_one().kind is Kind.DISCARDED

    assert [name for name, _ in desk.taken()[PROCESSING_TIME]] == [ORDER]


def test_retries_count_at_once_and_after_a_delay_and_the_last_failure_does_not(desk):
    desk.send(b"fail")
    endpoint = desk.make(immediate_retries=1, delayed_retries=1, delay_increase=timedelta(0))
    pipeline, kinds = desk.pipeline(endpoint), []

    while (outcome := pipeline.process_one()).kind is not Kind.EMPTY:
        kinds.append((outcome.kind, desk.taken()[RETRIES]))
        move_due(desk.database, "Sales")

    assert kinds == [
        (Kind.FAILED, [(ORDER, 1)]),
        (Kind.DELAYED, [(ORDER, 1)]),
        (Kind.FAILED, [(ORDER, 1)]),
        (Kind.MOVED_TO_ERROR, []),
    ]


def test_what_cannot_be_handled_is_no_measurement(desk, sql):
    desk.send(b"never")
    sql.insert_minimal("Sales", "not JSON", b"")
    pipeline = desk.pipeline()

    kinds = [pipeline.process_one().kind for _ in range(3)]

    assert (kinds, desk.recorder.take()) == ([Kind.MOVED_TO_ERROR, Kind.CORRUPT, Kind.EMPTY], None)


def test_a_type_that_is_too_long_counts_as_none(desk):
    desk.send(**{"NServiceBus.EnclosedMessageTypes": f"Shop.Messages.Order;{'x' * LONGEST_TYPE}"})

    desk.pipeline().process_one()

    assert [name for name, _ in desk.taken()[PROCESSING_TIME]] == [""]


# ------------------------------------------------------------------------------------------------ several in one transaction
def test_each_message_of_a_batch_is_measured_once_it_is_committed(desk):
    desk.queue.send_many(OutgoingMessage(body, HEADERS) for body in (b"", b"discard", b""))
    batches = Batches(desk.pipeline(), BatchSize(5, None, now=5))

    kinds = [outcome.kind for outcome in batches.process()]

    assert kinds == [Kind.HANDLED, Kind.DISCARDED, Kind.HANDLED]
    assert [name for name, _ in desk.taken()[PROCESSING_TIME]] == [ORDER] * 3


def test_a_batch_that_is_rolled_back_counts_the_retry_only(desk):
    desk.queue.send_many(OutgoingMessage(body, HEADERS) for body in (b"", b"fail"))
    batches = Batches(desk.pipeline(desk.make(immediate_retries=1, delayed_retries=0)), BatchSize(5, None, now=5))

    (outcome,) = batches.process()

    assert outcome.kind is Kind.FAILED
    assert desk.taken() == {**NOTHING, RETRIES: [(ORDER, 1)]}
