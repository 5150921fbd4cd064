"""Meters of OpenTelemetry have the names, tags and rules of NServiceBus."""

from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import MODES, Endpoint
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.transport.delayed import move_due
from rowpost.wire.message import OutgoingMessage, format_timestamp
from tests.support.observed import Observed
from tests.support.pipelines import pipeline_with

TYPE = "Shop.Messages.Order"
HEADERS = {"NServiceBus.EnclosedMessageTypes": f"{TYPE}, shop, Version=1.0.0.0"}
MESSAGING, RECOVERABILITY = "nservicebus.messaging.", "nservicebus.recoverability."
HANDLER = f"{__name__}.Desk.make.<locals>.handle"
SHARED = {"nservicebus.queue": "Sales", "nservicebus.discriminator": "", "nservicebus.message_type": TYPE}
ERROR = {"error.type": "builtins.ValueError"}


class Desk:
    """The queue Sales; the body of a message says what its handler does."""

    def __init__(self, queue, database):
        self.queue, self.database, self.observed = queue, database, Observed()

    def make(self, mode="sends_atomic_with_receive", *, instance=None, **recoverability):
        endpoint = Endpoint(
            "Sales", transaction_mode=mode, instance=instance, recoverability=Recoverability(**recoverability)
        )

        @endpoint.handles(TYPE, bytes)
        def handle(body, context):
            if body == b"fail":
                raise ValueError("no such order")
            if body == b"discard":
                context.discard("nobody sells it")

        endpoint.observe(self.observed.telemetry)
        return endpoint

    def send(self, *bodies, **headers):
        self.queue.send_many(OutgoingMessage(body, {**HEADERS, **headers}) for body in bodies)

    def run(self, *arguments, **options):
        return self.make(*arguments, **options).process_one(self.database).kind


@pytest.fixture
def desk(queue, database, sql):
    sql.empty("error")
    sql.run(f"DELETE FROM {sql.table('Sales.Delayed')}")
    return Desk(queue, database)


def due(seconds_ago):
    return format_timestamp(datetime.now(UTC) - timedelta(seconds=seconds_ago))


@pytest.mark.parametrize("mode", MODES)
def test_a_handled_message_is_counted_and_timed(desk, mode):
    desk.send(b"", **{"NServiceBus.TimeSent": due(60)})

    assert desk.run(mode) is Kind.HANDLED

    assert desk.observed.counts() == dict.fromkeys(
        (f"{MESSAGING}{each}" for each in ("fetches", "successes", "handler_time", "critical_time", "processing_time")),
        1,
    )
    handled = {**SHARED, "nservicebus.message_handler_types": HANDLER, "execution.result": "success"}
    for name in ("successes", "critical_time", "processing_time"):
        assert desk.observed.attributes(f"{MESSAGING}{name}") == handled
    assert desk.observed.attributes(f"{MESSAGING}fetches") == SHARED
    assert desk.observed.attributes(f"{MESSAGING}handler_time") == {
        **SHARED,
        "nservicebus.message_handler_type": HANDLER,
        "execution.result": "success",
    }
    points = desk.observed.points()
    seconds = {name: points[f"{MESSAGING}{name}_time"][0].sum for name in ("handler", "processing", "critical")}
    assert 0 < seconds["handler"] < seconds["processing"] < 60 < seconds["critical"] < 120


def test_a_message_of_several_types_is_counted_by_its_own_type(desk):
    desk.send(b"", **{"NServiceBus.EnclosedMessageTypes": f"{TYPE}, shop;Shop.Messages.Base, shop;Shop.Messages.IAny"})

    assert desk.run() is Kind.HANDLED

    for name in ("fetches", "successes"):
        assert desk.observed.attributes(f"{MESSAGING}{name}")["nservicebus.message_type"] == TYPE


def test_critical_time_counts_from_when_a_message_was_due_and_needs_a_time(desk):
    desk.send(b"", **{"NServiceBus.TimeSent": due(3600), "NServiceBus.DeliverAt": due(-60)})
    desk.run()
    (point,) = desk.observed.points()[f"{MESSAGING}critical_time"]
    desk.send(b"")
    desk.run()

    assert point.sum == 0
    assert desk.observed.counts()[f"{MESSAGING}critical_time"] == 1


def test_a_failure_is_counted_with_its_error_and_has_no_times(desk):
    desk.send(b"fail", **{"NServiceBus.TimeSent": due(60)})

    assert desk.run(immediate_retries=0, delayed_retries=0) is Kind.MOVED_TO_ERROR

    assert desk.observed.counts() == {
        f"{MESSAGING}fetches": 1,
        f"{MESSAGING}failures": 1,
        f"{MESSAGING}handler_time": 1,
        f"{RECOVERABILITY}error": 1,
    }
    failed = {**SHARED, **ERROR, "execution.result": "failure"}
    assert desk.observed.attributes(f"{MESSAGING}failures") == {**failed, "nservicebus.message_handler_types": HANDLER}
    assert desk.observed.attributes(f"{MESSAGING}handler_time") == {
        **failed,
        "nservicebus.message_handler_type": HANDLER,
    }
    assert desk.observed.attributes(f"{RECOVERABILITY}error") == {**SHARED, **ERROR}


def test_retries_count_at_once_and_after_a_delay(desk):
    desk.send(b"fail")
    endpoint = desk.make(immediate_retries=1, delayed_retries=1, delay_increase=timedelta(0))
    while endpoint.process_one(desk.database).kind is not Kind.EMPTY:
        move_due(desk.database, "Sales")

    counts = desk.observed.counts()
    assert {name: counts[f"{RECOVERABILITY}{name}"] for name in ("immediate", "delayed", "error")} == {
        "immediate": 2,
        "delayed": 1,
        "error": 1,
    }
    assert (counts[f"{MESSAGING}failures"], counts[f"{MESSAGING}fetches"]) == (4, 4)


def test_a_discarded_message_is_a_success_and_an_expired_one_is_not_counted(desk, sql):
    desk.send(b"discard")
    desk.queue.send(b"", HEADERS, time_to_be_received=timedelta(milliseconds=1))
    sql.insert_minimal("Sales", "not JSON", b"")
    endpoint = desk.make()
    kinds = {endpoint.process_one(desk.database).kind for _ in range(4)}

    assert kinds >= {Kind.DISCARDED, Kind.CORRUPT}
    assert (
        desk.observed.counts()[f"{MESSAGING}successes"]
        == desk.observed.counts()[f"{MESSAGING}fetches"]
        == (2 if Kind.HANDLED in kinds else 1)
    )


def test_an_instance_is_the_discriminator(desk):
    desk.send(b"")

    desk.run(instance="web1")

    assert desk.observed.attributes(f"{MESSAGING}successes")["nservicebus.discriminator"] == "web1"


def test_a_batch_counts_what_was_committed(desk):
    desk.send(b"", b"discard", b"")
    observer = desk.observed.telemetry.pipeline("Sales")
    batches = Batches(
        pipeline_with(desk.database, "Sales", desk.make(), observers=[observer]), BatchSize(5, None, now=5)
    )

    assert [outcome.kind for outcome in batches.process()] == [Kind.HANDLED, Kind.DISCARDED, Kind.HANDLED]

    assert desk.observed.counts()[f"{MESSAGING}successes"] == desk.observed.counts()[f"{MESSAGING}processing_time"] == 3


def test_a_batch_that_is_rolled_back_counts_the_failure_only(desk):
    desk.send(b"", b"fail")
    observer = desk.observed.telemetry.pipeline("Sales")
    batches = Batches(
        pipeline_with(desk.database, "Sales", desk.make(immediate_retries=1), observers=[observer]),
        BatchSize(5, None, now=5),
    )

    (outcome,) = batches.process()

    assert outcome.kind is Kind.FAILED
    counts = desk.observed.counts()
    assert (counts[f"{MESSAGING}failures"], counts.get(f"{MESSAGING}successes"), counts[f"{MESSAGING}fetches"]) == (
        1,
        None,
        2,
    )


def test_types_that_senders_make_up_are_bounded(desk):
    pipeline = pipeline_with(
        desk.database, "Sales", lambda message, connection: None, observers=[desk.observed.telemetry.pipeline("Sales")]
    )
    desk.queue.send_many(
        OutgoingMessage(b"", {"NServiceBus.EnclosedMessageTypes": f"Made.Up{number}"}) for number in range(1010)
    )
    desk.queue.send(b"", {"NServiceBus.EnclosedMessageTypes": "x" * 5000})
    batches = Batches(pipeline, BatchSize(500, None, now=500))
    while batches.process()[0].kind is not Kind.EMPTY:
        pass

    types = {
        point.attributes.get("nservicebus.message_type") for point in desk.observed.points()[f"{MESSAGING}successes"]
    }
    assert len(types) == 1001
    assert None in types
    assert desk.observed.counts()[f"{MESSAGING}successes"] == 1011


def test_traces_alone_measure_nothing(desk):
    desk.observed = Observed(meters=False)
    desk.send(b"")

    assert desk.run() is Kind.HANDLED

    assert desk.observed.points() == {}
