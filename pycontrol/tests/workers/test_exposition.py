"""Metrics and health over HTTP: what a running supervisor exports, and that nothing is done for it when it is off."""

import doctest
import socket
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

import rowpost
from rowpost.database.connection import connect
from rowpost.errors import SettingsError
from rowpost.pipeline.batch_size import BatchSize
from rowpost.pipeline.batches import Batches
from rowpost.pipeline.histograms import MOST_TYPES, OTHER_TYPES, Histogram, TypedStopwatch, merge
from rowpost.pipeline.timings import measure
from rowpost.recoverability.outcome import Kind
from rowpost.settings import metrics
from rowpost.settings.metrics import MetricsAddress, read_metrics_address
from rowpost.transport.controls import pause, resume
from rowpost.wire.message import OutgoingMessage
from rowpost.workers import events
from rowpost.workers.answers import Answer
from rowpost.workers.exposition.families import Families
from rowpost.workers.exposition.health import LONGEST_SILENCE_S, hindrances, live_problem
from rowpost.workers.exposition.observations import Observations, Status
from rowpost.workers.snapshot import QueueSnapshot, Snapshot
from rowpost.workers.supervision.monitor import QueueMonitor
from rowpost.workers.supervision.supervisor import Supervisor
from tests.support.handlers import note
from tests.support.pipelines import pipeline_with
from tests.support.scraped import Scrape, health, scrape
from tests.support.workers import Refusing, Running, shop

__all__ = ["shop"]

TYPE = {"NServiceBus.EnclosedMessageTypes": "Shop.Vip, Shop, Version=1.0.0.0;Shop.Placed, Shop"}


def served(shop, handler="note", **options):
    settings = shop.settings(handler, **options)
    return replace(settings, supervisor=replace(settings.supervisor, metrics=0))


def url_of(supervisor) -> str:
    supervisor.until(lambda: supervisor.seen(events.MetricsServed), "metrics are served")
    return supervisor.seen(events.MetricsServed)[0].url


# ------------------------------------------------------------------ a running supervisor
def test_a_scrape_has_the_counts_and_times_of_what_was_handled(shop):
    shop.queue.send_many(OutgoingMessage(b"", TYPE) for _ in range(5))
    shop.send(2)

    with Running(served(shop)) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: shop.handled() == 7, "all are handled")
        supervisor.idle()
        supervisor.until(
            lambda: scrape(url).value("rowpost_messages_handled_total", queue=shop.name) == 7, "they are counted"
        )
        found, other = scrape(url), scrape(url, openmetrics=True)

    queue = {"queue": shop.name}
    assert found.value("rowpost_processing_time_seconds_count", **queue, message_type="Shop.Vip") == 5
    assert found.value("rowpost_processing_time_seconds_count", **queue, message_type="") == 2
    assert found.value("rowpost_processing_time_seconds_bucket", **queue, message_type="Shop.Vip", le="+Inf") == 5
    assert found.value("rowpost_processing_time_seconds_sum", **queue, message_type="Shop.Vip") > 0
    assert [
        found.value(f"rowpost_{name}", **queue)
        for name in ("queue_depth", "workers_busy", "queue_paused", "attempts_failed_total")
    ] == [
        0,
        0,
        0,
        0,
    ]
    assert (found.value("rowpost_workers_limit", **queue), found.value("rowpost_queue_info", **queue)) == (4, 1)
    assert found.value("rowpost_queue_last_peek_timestamp_seconds", **queue) == pytest.approx(time.time(), abs=120)
    assert found.value("rowpost_build_info", version=rowpost.__version__) == 1
    assert other.value("rowpost_messages_handled_total", **queue) == 7


def test_failed_attempts_retries_and_moves_are_counted_apart(shop):
    shop.send(1)

    with Running(served(shop, "fail", attempts=3)) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: len(shop.errors()) == 1, "it is in the error queue")
        moved = {"queue": shop.name, "reason": "failed"}
        supervisor.until(
            lambda: scrape(url).value("rowpost_messages_moved_to_error_total", **moved) == 1, "it is counted"
        )
        found = scrape(url)

    assert found.value("rowpost_attempts_failed_total", queue=shop.name) == 3
    assert found.value("rowpost_retries_total", queue=shop.name, kind="immediate") == 2
    assert found.value("rowpost_retries_total", queue=shop.name, kind="delayed") == 0
    assert found.value("rowpost_messages_handled_total", queue=shop.name) == 0


def test_names_and_units_follow_prometheus(shop):
    with Running(served(shop)) as supervisor:
        supervisor.idle()
        found = scrape(url_of(supervisor))

    ours = {name: family for name, family in found.families.items() if name.startswith("rowpost_")}
    assert len(ours) > 20
    for name, family in ours.items():
        assert family.documentation.endswith("."), name
        assert {sample.name.removeprefix(name) for sample in family.samples} <= {
            "counter": {"_total"},
            "gauge": {""},
        }.get(family.type, {"_bucket", "_count", "_sum"}), name
        assert not {"ms", "milliseconds", "minutes"} & set(name.split("_")), name
        assert name.endswith("_seconds") or not {"time", "timestamp"} & set(name.split("_")), name


def test_the_supervisor_is_ready_once_the_database_answers_and_a_worker_has_started(shop):
    with Running(served(shop)) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: health(url, "ready") == (200, []), "it is ready")

        assert health(url, "live") == (200, [])
        assert scrape(url).value("rowpost_supervisor_ready") == 1


def test_quiet_queues_are_ready_when_the_warm_process_has_their_handlers(shop):
    with Running(served(shop, idle_workers=0)) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: health(url, "ready") == (200, []), "it is ready")

        assert supervisor.workers(shop.name) == 0


def test_a_handler_that_cannot_be_imported_is_not_ready(shop):
    good = shop.worked(shop.make_queue().name)
    with Running(served(shop, "no_such_handler", others=(good,))) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: supervisor.seen(events.Critical), "it is refused")
        status, problems = health(url, "ready")

    assert status == 503
    assert any(f"{shop.name}: no worker can run: " in problem for problem in problems)


def test_a_database_that_is_away_is_not_ready_and_comes_back(shop, target):
    if target.settings.engine == "sqlserver":
        pytest.skip("connections are refused with PostgreSQL's own statements")
    with Running(served(shop, breaker_seconds=0.2)) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: health(url, "ready")[0] == 200, "it is ready")
        with Refusing(target.url):
            supervisor.until(
                lambda: scrape(url).value("rowpost_queue_circuit_breaker_open", queue=shop.name) == 1,
                "the breaker opens",
            )
            supervisor.until(
                lambda: any("the last peek failed" in problem for problem in health(url, "ready")[1]),
                "a peek has failed too",
            )
            status, _ = health(url, "ready")
            alive = health(url, "live")
        supervisor.until(lambda: health(url, "ready")[0] == 200, "it is ready again")
        found = scrape(url)

    assert (status, alive) == (503, (200, []))
    assert found.value("rowpost_critical_events_total", queue=shop.name) >= 1
    assert found.value("rowpost_queue_circuit_breaker_open", queue=shop.name) == 0


def test_a_paused_queue_is_shown_and_stays_ready(shop, database):
    pause(database, shop.name, "closed")
    try:
        with Running(served(shop)) as supervisor:
            url = url_of(supervisor)
            supervisor.until(lambda: scrape(url).value("rowpost_queue_paused", queue=shop.name) == 1, "it is paused")
            supervisor.until(lambda: health(url, "ready") == (200, []), "it is ready")
    finally:
        resume(database, shop.name)


def test_a_crash_is_counted_with_the_handlers_message(shop):
    shop.send(1, b"bad")
    with Running(served(shop, "die", attempts=2)) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: len(shop.errors()) == 1, "it is in the error queue")
        supervisor.until(
            lambda: (scrape(url).value("rowpost_worker_crashes_total", queue=shop.name) or 0) >= 2, "it is counted"
        )


def test_a_port_that_is_taken_is_named_before_a_worker_starts(shop):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = shop.settings()
        port = taken.getsockname()[1]
        supervisor = Supervisor(
            replace(settings, supervisor=replace(settings.supervisor, metrics=port)), lambda event: None
        )

        with pytest.raises(SettingsError, match=rf"http://127.0.0.1:{port}/metrics: .*--metrics"):
            supervisor.run(lambda snapshot: True)


@pytest.mark.parametrize(
    ("written", "host", "port"),
    [
        (9464, "127.0.0.1", 9464),
        ("9464", "127.0.0.1", 9464),
        ("0.0.0.0:0", "0.0.0.0", 0),
        ("app01.example:9464", "app01.example", 9464),
        ("[::1]:1", "::1", 1),
    ],
)
def test_an_address_is_a_port_or_host_and_port(written, host, port):
    assert read_metrics_address(written) == MetricsAddress(host, port)
    assert doctest.testmod(metrics).failed == 0


@pytest.mark.parametrize("written", [True, -1, 65536, "", ":9464", "a b:1", "1:2:3", "http://x:1", "localhost"])
def test_what_is_no_address_is_refused(written):
    with pytest.raises(SettingsError, match="is no address for metrics"):
        read_metrics_address(written)


def test_metrics_are_served_on_the_loopback_of_ipv6_too(shop):
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    settings = shop.settings()
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with Running(replace(settings, supervisor=replace(settings.supervisor, metrics="[::1]:0"))) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: health(url, "live") == (200, []), "it is alive")

        assert url.startswith("http://[::1]:")


def test_an_unknown_path_says_what_there_is(shop):
    with Running(served(shop)) as supervisor:
        url = url_of(supervisor)
        with socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])), timeout=30) as raw:
            raw.sendall(b"GET /other HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: raw.recv(4096), b""))

    assert b" 404 " in answer.splitlines()[0]
    assert b"/health/ready" in answer


def test_a_missing_library_is_named_with_the_command_that_installs_it(shop, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "rowpost.workers.exposition.server", raising=False)

    with pytest.raises(SettingsError, match=r"prometheus-client, which is not installed.* pip install "):
        Supervisor(served(shop), lambda event: None).run(lambda snapshot: True)


# ------------------------------------------------------------------ off, and at rest
def test_when_metrics_are_off_no_call_is_made_for_them(shop):
    shop.send(4)
    batches = Batches(pipeline_with(shop.queue.database, shop.name, note), BatchSize(2, None, now=2))
    calls: Counter[tuple[str, str]] = Counter()

    def count(frame, event, _):
        if event == "call":
            calls[
                frame.f_code.co_filename.replace("\\", "/"),
                frame.f_code.co_qualname if hasattr(frame.f_code, "co_qualname") else frame.f_code.co_name,
            ] += 1

    sys.setprofile(count)
    try:
        for _ in range(2):
            batches.process()
    finally:
        sys.setprofile(None)

    assert [file for file, _ in calls if file.endswith("pipeline/batches.py")]
    assert not [
        file
        for file, _ in calls
        if "timings" in file or "histograms" in file or "exposition" in file or "prometheus" in file
    ]


def test_a_worker_has_no_histograms_and_a_supervisor_no_observations_when_metrics_are_off(shop):
    shop.send(3)
    with Running(shop.settings()) as supervisor:
        supervisor.until(lambda: shop.handled() == 3, "all are handled")
        supervisor.idle()

        assert supervisor.supervisor.status().histograms == {shop.name: {}}
        assert supervisor.seen(events.MetricsServed) == []


class Asked(QueueMonitor):
    """A queue monitor that knows the names of the threads that asked it."""

    threads: set[str] = set()

    def _put(self, request):
        self.threads.add(threading.current_thread().name)
        super()._put(request)


def test_a_scrape_asks_the_database_nothing_and_opens_no_connection(shop):
    connections: Counter[str] = Counter()

    def counted(*arguments, **options):
        connections[options["application_name"]] += 1
        return connect(*arguments, **options)

    with Running(served(shop), monitor=partial(Asked, connect=counted)) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: health(url, "ready")[0] == 200, "it is ready")
        Asked.threads.clear()
        for _ in range(20):
            scrape(url)
            health(url, "ready")
        supervisor.until(lambda: Asked.threads, "the loop has peeked")

    assert not [name for name in Asked.threads if "process_request" in name]
    assert connections == {"rowpost supervisor": 1}


# ------------------------------------------------------------------ decisions, without processes
def a_queue(**figures):
    counted = dict.fromkeys(("handled", "failed", "delayed", "moved_to_error", "expired", "poison", "died"), 0)
    return QueueSnapshot(
        **{
            "queue": "Sales",
            "depth": 0,
            "workers": 1,
            "busy": 0,
            "limit": 4,
            "target": 1,
            "rate": 0.0,
            "critical": False,
            **counted,
            **figures,
        }
    )


def a_status(settings, *queues, silent_s=0.0, stopping=False, refused=None):
    return Status(settings, Snapshot(queues, stopping=stopping), {}, refused or {}, silent_s)


def seen_by(*answers):
    seen = Observations()
    seen.watching(lambda event: None)(events.WorkerStarted(queue="Sales", at=0.0, pid=1))
    for answer in answers:
        seen.answered(answer)
    return seen


def test_a_loop_that_hangs_is_not_alive_and_not_ready(target):
    status = a_status(target.settings, a_queue(), silent_s=LONGEST_SILENCE_S + 1)

    assert live_problem(status)
    assert len(hindrances(status, seen_by(Answer("Sales")))) == 1
    assert not live_problem(replace(status, silent_s=LONGEST_SILENCE_S))


@pytest.mark.parametrize(
    ("queue", "answers", "hindered"),
    [
        ({}, [Answer("Sales")], 0),
        ({}, [], 1),
        ({}, [Answer("Sales"), Answer("Sales", error=ValueError("x"))], 1),
        ({"critical": True}, [Answer("Sales")], 1),
        ({"paused": True, "workers": 0}, [Answer("Sales")], 0),
        ({"quiet": True, "workers": 0}, [Answer("Sales")], 0),
    ],
)
def test_each_hindrance_is_named(target, queue, answers, hindered):
    assert len(hindrances(a_status(target.settings, a_queue(**queue)), seen_by(*answers))) == hindered


def test_a_worker_that_died_hinders_only_while_there_is_no_other_one(target):
    seen, status = seen_by(Answer("Sales")), a_status(target.settings, a_queue())
    watch = seen.watching(lambda event: None)

    watch(events.WorkerDied(queue="Sales", at=0.0, pid=1, exitcode=1, respawn_in=1.0))
    died = hindrances(status, seen)
    for pid in (2, 3):
        watch(events.WorkerStarted(queue="Sales", at=0.0, pid=pid))
    started = hindrances(status, seen)
    watch(events.WorkerDied(queue="Sales", at=0.0, pid=2, exitcode=1, respawn_in=1.0))

    assert (len(died), started, hindrances(status, seen)) == (1, [], [])


def test_a_supervisor_that_stops_is_not_ready(target):
    assert hindrances(a_status(target.settings, a_queue(), stopping=True), seen_by(Answer("Sales"))) == [
        "the supervisor is stopping"
    ]


def test_what_is_not_known_has_no_sample(target):
    registry = CollectorRegistry()
    registry.register(Families(lambda: a_status(target.settings, a_queue(depth=None)), Observations()))

    found = Scrape(registry.collect())

    assert found.value("rowpost_queue_depth", queue="Sales") is None
    assert found.value("rowpost_queue_delayed_next_due_timestamp_seconds", queue="Sales") is None
    assert found.value("rowpost_workers", queue="Sales") == 1


def test_histograms_count_handled_messages_by_their_type():
    typed = TypedStopwatch()
    begun = [({"NServiceBus.TimeSent": "1970-01-01 00:00:55:000000 Z", **TYPE}, 59.0), ({}, 59.996)]
    for kind in (Kind.HANDLED, Kind.DISCARDED, Kind.FAILED):
        typed.measured(measure(kind, begun, 60.0))

    found = typed.take()

    assert sorted(found) == ["", "Shop.Vip"]
    assert (found["Shop.Vip"].critical.total, found["Shop.Vip"].processing.total) == (5.0, 1.0)
    assert dict(found["Shop.Vip"].critical.buckets)["5.0"] == 1
    assert dict(found["Shop.Vip"].critical.buckets)["2.5"] == 0
    assert sum(found[""].critical.counts) == 0
    assert dict(found[""].processing.buckets)["0.005"] == 1
    assert typed.take() is None


def test_types_that_senders_make_up_are_bounded_and_none_is_lost():
    typed, kept = TypedStopwatch(), {}
    for number in range(3 * MOST_TYPES):
        typed.measured(measure(Kind.HANDLED, [({"NServiceBus.EnclosedMessageTypes": f"Made.Up{number}"}, 1.0)], 1.0))
        if number % 50 == 0:
            merge(kept, typed.take() or {})
    merge(kept, typed.take() or {})
    odd = [({"NServiceBus.EnclosedMessageTypes": name}, 1.0) for name in ("x" * 5000, 7)]
    typed.measured(measure(Kind.HANDLED, odd, 1.0))

    assert len(kept) == MOST_TYPES + 1
    assert sum(sum(times.processing.counts) for times in kept.values()) == 3 * MOST_TYPES
    assert sorted(typed.take()) == ["", OTHER_TYPES]


def test_the_last_bucket_has_no_limit():
    histogram = Histogram()
    histogram.counts[-1] = 2

    assert histogram.buckets[-1] == ("+Inf", 2)
    assert histogram.buckets[-2] == ("3600.0", 0)


def test_a_queue_whose_pool_a_reload_replaces_keeps_its_counts(shop):
    shop.send(2)
    settings = served(shop)
    changed = replace(
        settings,
        queues=tuple(
            replace(each, worker=each.worker and replace(each.worker, peek_delay=0.2)) for each in settings.queues
        ),
    )
    with Running(settings, load=lambda: changed) as supervisor:
        url = url_of(supervisor)
        supervisor.until(lambda: shop.handled() == 2, "all are handled")
        supervisor.idle()
        supervisor.supervisor.reload()
        supervisor.until(lambda: supervisor.seen(events.Reloaded), "it has read its settings again")
        shop.send(1)
        supervisor.until(
            lambda: scrape(url).value("rowpost_messages_handled_total", queue=shop.name) == 3, "all are counted"
        )

        assert scrape(url).value("rowpost_supervisor_reloads_total") == 1


def test_another_address_needs_another_start(shop):
    settings = served(shop)
    changed = replace(settings, supervisor=replace(settings.supervisor, metrics="127.0.0.1:0"))
    with Running(settings, load=lambda: changed) as supervisor:
        url_of(supervisor)
        supervisor.supervisor.reload()
        supervisor.until(
            lambda: [each for each in supervisor.seen(events.Trouble) if "metrics" in each.error], "it is told"
        )
