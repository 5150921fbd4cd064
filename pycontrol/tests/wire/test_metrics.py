"""The messages of the metrics plugin, byte by byte and header by header beside those that a real NServiceBus sent."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.wire.metrics import (
    CRITICAL_TIME,
    PROCESSING_TIME,
    RETRIES,
    VALUES_PER_MESSAGE,
    Source,
    encode_values,
    metadata_report,
    portions,
    ticks_at,
    values_report,
)
from tests.support.recorded_metrics import read_metrics
from tests.support.recorded_rows import differences, recorded, recorded_headers

ROWS = {CRITICAL_TIME: "critical-time", PROCESSING_TIME: "processing-time", RETRIES: "retries"}
SOURCE = Source("Net.Sales", "vm", "90d3e8b41b09b7ed77ac1842371c2509", "web1")
SECOND = 10_000_000


def body_of(kind: str) -> bytes:
    return bytes.fromhex(recorded(f"service-control-metrics-{ROWS[kind]}")["body_hex"])


@pytest.mark.parametrize("kind", ROWS)
def test_the_values_of_a_recorded_body_are_encoded_to_the_same_bytes(kind):
    body = body_of(kind)
    found = read_metrics(body)

    values = [(found.base + after, tag, value) for after, tag, value in found.values]

    assert encode_values(values, found.tags) == body


@pytest.mark.parametrize("kind", ROWS)
def test_the_values_of_a_recorded_body_in_any_order_are_sorted_by_their_times(kind):
    found = read_metrics(body_of(kind))

    values = [(found.base + after, tag, value) for after, tag, value in found.values]

    assert encode_values(values[::-1], found.tags) == body_of(kind)


def test_the_reader_of_these_tests_finds_what_the_recording_says():
    found = read_metrics(body_of(RETRIES))
    sent = datetime.fromisoformat(recorded("service-control-metrics-retries")["expires"]) - timedelta(days=7)

    assert found.version == 1
    assert sent - timedelta(seconds=10) < datetime(1, 1, 1) + timedelta(microseconds=found.base // 10) < sent
    assert [(name.partition(",")[0], value) for name, value in found.by_type] == [
        ("Shop.Messages.Fail", 1),
        ("Shop.Messages.TakePayment", 1),
    ]


@pytest.mark.parametrize("kind", ROWS)
def test_the_headers_of_measurements_are_the_recorded_ones(kind):
    found = read_metrics(body_of(kind))

    operation = values_report(
        SOURCE, kind, [(found.base, tag, 1) for tag in found.tags], found.tags, queue='"Particular.Monitoring"'
    )

    theirs = recorded_headers(f"service-control-metrics-{ROWS[kind]}")
    assert operation.headers == theirs
    assert list(operation.headers) == list(theirs)
    assert (operation.destination, operation.time_to_be_received) == ('"Particular.Monitoring"', timedelta(days=7))


def test_the_metadata_are_the_recorded_ones():
    row = recorded("service-control-metrics-metadata")

    operation = metadata_report(SOURCE, '"public"."Net.Sales"', queue='"Particular.Monitoring"')

    assert operation.headers == recorded_headers("service-control-metrics-metadata")
    # .NET escapes the quotes as \u0022: the same text for every reader of JSON
    assert json.loads(operation.body) == json.loads(row["body"])
    assert list(json.loads(operation.body)) == list(json.loads(row["body"]))
    assert (operation.destination, operation.time_to_be_received) == ('"Particular.Monitoring"', timedelta(days=7))


def test_without_a_name_of_the_instance_its_host_identifies_it():
    operation = metadata_report(Source("Net.Sales", "vm", "90d3e8b41b09b7ed77ac1842371c2509"), "x", queue="y")

    assert differences(operation.headers, recorded_headers("service-control-metrics-metadata")) == {
        "NServiceBus.Metric.InstanceId": (False, "text"),
    }


def test_a_type_that_no_value_has_is_not_written():
    found = read_metrics(encode_values([(5, 2, 7)], {1: "Shop.A", 2: "Shop.B"}))

    assert (found.base, found.tags, found.values) == (5, {2: "Shop.B"}, [(0, 2, 7)])


def test_types_are_written_in_utf_8():
    assert read_metrics(encode_values([(1, 1, 1)], {1: "Läden.Bestellung"})).tags == {1: "Läden.Bestellung"}


def test_times_are_counted_in_ticks_of_net():
    assert ticks_at(0.0) == 621_355_968_000_000_000
    moment = datetime(2026, 11, 22, 8, 34, 7, tzinfo=UTC)
    assert datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=ticks_at(moment.timestamp()) // 10) == moment


# ------------------------------------------------------------------------------------------------ how many go into a message
def test_a_message_has_at_most_as_many_values_as_the_plugin_writes():
    values = [(each, 1, each) for each in range(2 * VALUES_PER_MESSAGE + 1)]

    parts = list(portions(values[::-1]))

    assert [len(part) for part in parts] == [2048, 2048, 1]
    assert [value for part in parts for value in part] == values


def test_a_message_spans_no_more_time_than_its_32_bits_hold():
    """Values wait for an unreachable queue longer than that."""
    values = [(minute * 60 * SECOND, 1, minute) for minute in range(10)]

    parts = list(portions(values))

    assert [value for part in parts for value in part] == values
    assert [len(part) for part in parts] == [4, 4, 2]
    assert [read_metrics(encode_values(part, {1: ""})).base for part in parts] == [0, 4 * 60 * SECOND, 8 * 60 * SECOND]
