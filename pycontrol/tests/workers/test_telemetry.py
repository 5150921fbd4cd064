"""Workers export spans and meters as the environment says, and a collector that is absent stops none of them."""

import json
from dataclasses import replace

import pytest

from rowpost.endpoint.hosting import with_endpoints
from rowpost.endpoint.telemetry import start_telemetry
from rowpost.settings.environment import SupervisorSettings
from rowpost.settings.telemetry import TelemetrySettings
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from tests.support.collector import Collector
from tests.support.traced import Order, sales
from tests.support.workers import Running

TYPE = {"NServiceBus.EnclosedMessageTypes": "Shop.Messages.Order"}
UNREACHABLE = "http://127.0.0.1:9"
METERS = {
    f"nservicebus.messaging.{name}"
    for name in ("fetches", "successes", "handler_time", "critical_time", "processing_time")
}


def observed(settings, **section):
    return replace(settings, telemetry=TelemetrySettings(**section))


def endpoints(target):
    """Settings with workers for the endpoints of tests.support.traced."""
    settings = replace(target.settings, supervisor=SupervisorSettings(idle_timeout=0.3, delayed_lateness=0.1))
    return with_endpoints(settings, ["tests.support.traced:sales", "tests.support.traced:billing"])


def test_one_trace_goes_through_the_workers_of_two_endpoints(target, sql, database):
    for queue in ("Sales", "Billing", "error"):
        sql.empty(queue)
    with Collector() as collector:
        settings = observed(endpoints(target), traces="otlp", meters="otlp", endpoint=collector.url)
        with start_telemetry(settings, sales, service="Shop.Web"), sales.open(database) as bus:
            bus.send(Order(42), to="Sales")

        with Running(settings) as supervisor:
            supervisor.until(
                lambda: sum(event.count for event in supervisor.seen(events.Handled)) >= 3, "all are handled"
            )

        spans = {span.span_id: (resource, span) for resource, span in collector.spans()}
        meters = collector.meters()

    assert supervisor.seen(events.Trouble) == []
    by_name: dict[tuple[str, str], list] = {}
    for resource, span in spans.values():
        by_name.setdefault((resource["service.name"], span.name), []).append(span)
    assert {key: len(found) for key, found in by_name.items()} == {
        ("Shop.Web", "send message"): 1, ("Sales", "process message"): 1, ("Sales", "take_order"): 1, ("Sales", "send message"): 2,
        ("Billing", "process message"): 2, ("Billing", "bill"): 1, ("Billing", "remind"): 1,
    }  # fmt: skip
    (first,) = by_name["Shop.Web", "send message"]
    billed, reminded = (
        next(span for span in by_name["Billing", "process message"] if bool(span.links) is linked)
        for linked in (False, True)
    )
    way, span = [], billed
    while span.parent_span_id:
        resource, span = spans[span.parent_span_id]
        way.append((resource["service.name"], span.name))
    assert way == [
        ("Sales", "send message"),
        ("Sales", "take_order"),
        ("Sales", "process message"),
        ("Shop.Web", "send message"),
    ]
    assert first.trace_id == billed.trace_id != reminded.trace_id
    assert reminded.links[0].span_id in {span.span_id for span in by_name["Sales", "send message"]}
    assert meters["Sales"] >= METERS
    assert meters["Billing"] >= METERS


def test_an_absent_collector_stops_no_worker_and_is_told_once_for_each_process(shop):
    shop.queue.send_many(OutgoingMessage(b"", TYPE) for _ in range(20))

    with Running(
        observed(shop.settings(limit=1), traces="otlp", meters="otlp", endpoint=UNREACHABLE, interval=0.1)
    ) as supervisor:
        supervisor.until(lambda: shop.handled() == 20, "all are handled")
        supervisor.until(
            lambda: [each for each in supervisor.seen(events.Logged) if "Meters" in each.text], "it is told"
        )

    told = [each.text for each in supervisor.seen(events.Logged) if "cannot be exported" in each.text]
    workers = len(supervisor.seen(events.WorkerStarted))
    assert shop.errors() == []
    assert {UNREACHABLE in text for text in told} == {True}
    assert [0 < len([text for text in told if text.startswith(what)]) <= workers for what in ("Spans", "Meters")] == [
        True,
        True,
    ]
    assert [each.text for each in supervisor.seen(events.Logged) if each.logger.startswith("opentelemetry")] == []


def test_a_program_s_own_provider_is_used_and_flushed(shop, tmp_path):
    file = tmp_path / "spans"
    shop.queue.send(str(file).encode(), TYPE)
    settings = observed(shop.settings(), traces="api")
    queues = tuple(
        replace(each, worker=each.worker and replace(each.worker, handler="tests.support.own_provider:traced"))
        for each in settings.queues
    )

    with Running(replace(settings, queues=queues)) as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "it is handled")

    spans = [json.loads(line)["name"] for line in file.read_text().splitlines()]
    assert spans == ["own work", "process message"]


def test_without_telemetry_a_worker_imports_nothing_of_it(shop, target):
    if target.settings.engine == "sqlserver":
        pytest.skip("the handler writes with the driver of PostgreSQL")
    shop.send(1)
    settings = shop.settings()
    queues = tuple(
        replace(each, worker=each.worker and replace(each.worker, handler="tests.support.traced:note_imports"))
        for each in settings.queues
    )

    with Running(replace(settings, queues=queues)) as supervisor:
        supervisor.until(lambda: shop.handled() == 1, "it is handled")

    assert bytes(shop.sql.value("SELECT body FROM handled")) == b""
