"""A supervisor reports metrics to the monitoring instance's queue as NServiceBus's plugin does, compared with the rows that it sent."""

import json
import re
import time
from array import array
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import QueueNotFound
from rowpost.pipeline.measurements import Measurements
from rowpost.recoverability.policy import Host
from rowpost.settings.service_control import ServiceControlSettings
from rowpost.transport.queue import Queue
from rowpost.wire.message import OutgoingMessage, format_timestamp
from rowpost.wire.message_types import type_name
from rowpost.wire.metrics import CRITICAL_TIME, METRICS, PROCESSING_TIME, RETRIES, VALUES_PER_MESSAGE, ticks_at
from rowpost.workers import events
from rowpost.workers.protocol import Assignment
from rowpost.workers.tasks.metrics import KEPT, MetricsReports, make_metrics
from rowpost.workers.worker.worker import Worker
from tests.support.recorded_metrics import read_metrics
from tests.support.recorded_rows import differences, recorded, recorded_headers
from tests.support.sagas import Noted, Open, audited, deploy
from tests.support.workers import Running, eventually

METADATA = "NServiceBus.Metrics.EndpointMetadataReport"
TYPE, ROW = "Shop.Messages.Order, shop, Version=1.0.0.0", "service-control-metrics-"


class Monitoring:
    """The queue of a monitoring instance, and a shop that is measured."""

    def __init__(self, shop, queue):
        self.shop, self.queue = shop, queue

    def settings(
        self, handler="note", *, monitoring='"Particular.Monitoring"', interval=0.1, instance="web1", **options
    ):
        where = ServiceControlSettings(
            "Nowhere", 0, 0, monitoring=monitoring, metrics_interval=interval, instance=instance
        )
        return replace(self.shop.settings(handler, **options), service_control=where)

    def send(self, count, body=b"", **headers):
        self.shop.queue.send_many(
            OutgoingMessage(body, {"NServiceBus.EnclosedMessageTypes": TYPE, **headers}) for _ in range(count)
        )

    def got(self, metric):
        return [
            message for message in self.queue.browse(500) if message.headers.get("NServiceBus.Metric.Type") == metric
        ]

    def values(self, metric):
        return [pair for message in self.got(metric) for pair in read_metrics(message.body).by_type]

    def metadata(self):
        return [
            message
            for message in self.queue.browse(500)
            if message.headers.get("NServiceBus.EnclosedMessageTypes") == METADATA
        ]


@pytest.fixture
def monitoring(shop, make_queue):
    return Monitoring(shop, make_queue("Particular.Monitoring"))


def left(message) -> timedelta:
    return message.expires.replace(tzinfo=UTC) - datetime.now(UTC)


# ------------------------------------------------------------------------------------------------ a supervisor, its workers, a queue
def test_handled_messages_are_measured_and_reported(monitoring):
    monitoring.send(20, **{"NServiceBus.TimeSent": format_timestamp(datetime.now(UTC) - timedelta(seconds=60))})
    before = ticks_at(time.time())

    with Running(monitoring.settings()) as supervisor:
        supervisor.until(lambda: len(monitoring.values(PROCESSING_TIME)) >= 20, "all are reported")

    assert [name for name, _ in monitoring.values(PROCESSING_TIME)] == [TYPE] * 20
    assert [name for name, _ in monitoring.values(CRITICAL_TIME)] == [TYPE] * 20
    assert all(60_000 <= value < 120_000 for _, value in monitoring.values(CRITICAL_TIME))
    assert monitoring.got(RETRIES) == []
    bodies = [read_metrics(message.body) for message in monitoring.got(PROCESSING_TIME)]
    assert all(before <= body.base + after <= ticks_at(time.time()) for body in bodies for after, _, _ in body.values)
    assert supervisor.seen(events.Trouble) == []


def test_headers_and_metadata_are_the_recorded_ones(monitoring, target, tmp_path):
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    body = str(tmp_path / "failed").encode()
    monitoring.send(1, body, **{"NServiceBus.TimeSent": format_timestamp(datetime.now(UTC))})

    with Running(monitoring.settings("fail_once", limit=1)) as supervisor:
        supervisor.until(lambda: monitoring.values(PROCESSING_TIME) and monitoring.values(RETRIES), "both are reported")
        supervisor.until(lambda: len(monitoring.metadata()) >= 2, "metadata come in each interval")

    found = {"metadata": monitoring.metadata()[0]}
    found |= {re.sub("(?<!^)(?=[A-Z])", "-", metric).lower(): monitoring.got(metric)[0] for metric in METRICS}
    for name, message in found.items():
        assert differences(message.headers, recorded_headers(f"{ROW}{name}")) == {}, name
        assert list(message.headers) == list(recorded_headers(f"{ROW}{name}")), name
        assert timedelta(days=7) - timedelta(minutes=1) < left(message) <= timedelta(days=7)
        assert message.headers["NServiceBus.OriginatingEndpoint"] == monitoring.shop.name
        assert message.headers["$.diagnostics.originating.hostid"] == Host.here(monitoring.shop.name).id
        assert message.headers["NServiceBus.Metric.InstanceId"] == "web1"
    theirs, ours = (json.loads(body) for body in (recorded(f"{ROW}metadata")["body"], found["metadata"].body))
    assert ours == {**theirs, "LocalAddress": f'"public"."{monitoring.shop.name}"'}
    assert monitoring.values(RETRIES) == [(TYPE, 1)]


def test_what_was_measured_last_is_reported_when_the_supervisor_stops(monitoring):
    monitoring.send(3)

    with Running(monitoring.settings(interval=3600)) as supervisor:
        supervisor.until(lambda: monitoring.metadata(), "the first report")
        supervisor.until(lambda: monitoring.shop.handled() == 3, "all are handled")

    assert [name for name, _ in monitoring.values(PROCESSING_TIME)] == [TYPE] * 3
    assert len(monitoring.metadata()) == 1


def test_what_cannot_be_reported_when_the_supervisor_stops_is_told(monitoring, sql):
    monitoring.send(3)

    with Running(monitoring.settings(interval=3600)) as supervisor:
        supervisor.until(lambda: monitoring.metadata(), "the first report")
        supervisor.until(lambda: monitoring.shop.handled() == 3, "all are handled")
        sql.drop_queue("Particular.Monitoring")

    (trouble,) = supervisor.seen(events.Trouble)
    assert "Failed to report metrics to ServiceControl about" in trouble.error


def test_a_full_message_is_sent_before_the_interval_is_over(monitoring):
    monitoring.send(VALUES_PER_MESSAGE + 1)

    with Running(monitoring.settings(interval=3600)) as supervisor:
        supervisor.until(lambda: len(monitoring.values(PROCESSING_TIME)) >= VALUES_PER_MESSAGE, "a full message")

    assert len(monitoring.values(PROCESSING_TIME)) == VALUES_PER_MESSAGE + 1


def test_a_missing_queue_of_the_monitoring_instance_is_told_once_and_work_goes_on(shop):
    monitoring = Monitoring(shop, None)
    shop.send(3)

    with Running(monitoring.settings(monitoring="Nowhere")) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Trouble), "the failure is told")
        supervisor.until(lambda: shop.handled() == 3, "work goes on")

    (trouble,) = supervisor.seen(events.Trouble)
    assert "Failed to report metrics to ServiceControl about" in trouble.error
    assert "Nowhere" in trouble.error


def test_what_was_measured_while_the_queue_was_missing_is_reported_when_it_is_there(shop, make_queue):
    monitoring = Monitoring(shop, None)
    monitoring.send(5)
    name = f"{shop.name}.Monitoring"

    with Running(monitoring.settings(monitoring=f'"{name}"')) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Trouble), "the failure is told")
        supervisor.until(lambda: shop.handled() == 5, "all are handled")
        monitoring.queue = make_queue(name)
        supervisor.until(lambda: len(monitoring.values(PROCESSING_TIME)) >= 5, "they are reported")

    assert len(monitoring.values(PROCESSING_TIME)) == 5


# ------------------------------------------------------------------------------------------------ the instance on other messages
@pytest.mark.parametrize(("monitored", "instance"), [(True, "web1"), (True, None), (False, None)])
def test_what_an_endpoint_with_metrics_sends_names_its_instance(monitoring, target, sql, monitored, instance):
    """NServiceBus's plugin puts the name on messages that a program sends, and not on copies for the audit queue."""
    deploy(target, audited)
    sql.empty("audit")
    settings = monitoring.settings(instance=instance, monitoring='"Particular.Monitoring"' if monitored else None)
    queues = tuple(
        replace(each, worker=each.worker and replace(each.worker, handler="tests.support.sagas:audited"))
        for each in settings.queues
    )
    with audited.open(monitoring.queue.database) as bus:
        bus.send(Open(f"{monitoring.shop.name} {monitored} {instance}"), to=monitoring.shop.name)

    with Running(replace(settings, queues=queues)) as supervisor:
        supervisor.idle()

    (sent,) = Queue("audit", monitoring.queue.database).browse(5)
    assert sent.headers.get("NServiceBus.Metric.InstanceId") == instance
    assert ("NServiceBus.Metric.InstanceId" in sent.headers) == (instance is not None)


@pytest.mark.parametrize("name", ["send", "publish"])
def test_an_endpoint_that_names_its_instance_sends_it_beside_the_recorded_headers(database, sql, target, name):
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    sql.empty("audit")
    database.call("subscribe", endpoint="audit", topic=type_name(Noted), queue_address="audit")
    endpoint = Endpoint("Billing")
    endpoint.report_to(ServiceControlSettings("x", monitoring="y", instance="web1"), database)

    with endpoint.open(database) as bus:
        bus.publish(Noted("A", "b")) if name == "publish" else bus.send(Noted("A", "b"), to="audit")

    database.call("unsubscribe", endpoint="audit", topic=type_name(Noted))
    (message,) = Queue("audit", database).browse(5)
    types = "NServiceBus.EnclosedMessageTypes"
    theirs = {**recorded_headers(name), types: message.headers[types]}
    assert differences(message.headers, theirs) == {"NServiceBus.Metric.InstanceId": ("text", False)}


# ------------------------------------------------------------------------------------------------ bounds
def measured(count, *, kind=PROCESSING_TIME, name=TYPE, start=0):
    values = {metric: array("q") for metric in METRICS}
    for number in range(count):
        values[kind].extend((ticks_at(start + number / 1000), 0, start + number))
    return Measurements((name,), values)


def reports(shop, **options):
    return MetricsReports.of(Monitoring(shop, None).settings(**options))


def test_measurements_that_cannot_be_sent_are_bounded_and_the_oldest_go(shop, make_queue):
    monitoring, seen = Monitoring(shop, make_queue("Particular.Monitoring")), []
    waiting = MetricsReports.of(monitoring.settings())
    for start in range(0, KEPT + VALUES_PER_MESSAGE, VALUES_PER_MESSAGE):
        waiting.add(shop.name, measured(VALUES_PER_MESSAGE, start=start))

    task = make_metrics(monitoring.settings(), seen.append, reports=waiting)
    task.start()
    eventually(lambda: seen, "what was dropped is told")
    task.stop()

    (warned,) = seen
    assert warned.text.startswith(f"{VALUES_PER_MESSAGE} measurements of {shop.name} were dropped")
    numbers = [value for _, value in monitoring.values(PROCESSING_TIME)]
    assert (len(numbers), min(numbers)) == (KEPT, VALUES_PER_MESSAGE)
    assert {len(read_metrics(message.body).values) for message in monitoring.got(PROCESSING_TIME)} == {
        VALUES_PER_MESSAGE
    }


def test_what_could_not_be_sent_stays_before_what_was_measured_meanwhile(shop, database):
    waiting = reports(shop, monitoring="Nowhere")
    waiting.add(shop.name, measured(KEPT))

    with pytest.raises(QueueNotFound):
        waiting.send(database, shop.name)
    waiting.add(shop.name, measured(10, start=KEPT))

    assert waiting.dropped(shop.name) == 10
    assert waiting.dropped(shop.name) == 0


def test_an_endpoint_has_a_bounded_number_of_types(shop, make_queue, database):
    monitoring = Monitoring(shop, make_queue("Particular.Monitoring"))
    waiting = MetricsReports.of(monitoring.settings())
    for number in range(1100):
        waiting.add(shop.name, measured(1, name=f"Shop.Messages.Type{number}"))

    waiting.send(database, shop.name)

    names = {name for name, _ in monitoring.values(PROCESSING_TIME)}
    assert (len(names), "" in names) == (1001, True)


# ------------------------------------------------------------------------------------------------ off
def test_without_a_monitoring_queue_nothing_measures_or_waits(shop):
    settings = shop.settings()
    heartbeats = replace(settings, service_control=ServiceControlSettings("Particular.ServiceControl"))

    for each in (settings, heartbeats):
        worker = Worker(Assignment(each, shop.name, "tests.support.handlers:note"), None)
        assert MetricsReports.of(each) is None
        assert worker.recorder is None
