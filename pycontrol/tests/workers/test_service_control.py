"""Endpoints report to ServiceControl as NServiceBus's plugins do, compared with the rows that these sent."""

import json
import re
import socket
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError
from rowpost.handling.checks import CustomCheck
from rowpost.recoverability.policy import Host
from rowpost.settings.environment import HostSettings, load_settings
from rowpost.settings.service_control import ServiceControlSettings
from rowpost.transport.queue import Queue
from rowpost.wire.message import format_timestamp
from rowpost.workers import events
from rowpost.workers.tasks.service_control import OWN
from tests.support import endpoints
from tests.support.recorded_rows import differences, form, recorded, recorded_headers
from tests.support.workers import Running

PREFIX = "ServiceControl.Plugin."
START, HEARTBEAT = (
    f"{PREFIX}Heartbeat.Messages.RegisterEndpointStartup",
    f"{PREFIX}Heartbeat.Messages.EndpointHeartbeat",
)
RESULT = f"{PREFIX}CustomChecks.Messages.ReportCustomCheckResult"


class Control:
    """ServiceControl's queue, and a shop that reports to it."""

    def __init__(self, shop, queue):
        self.shop, self.queue = shop, queue

    def running(self, handler="tests.support.handlers:note", heartbeat=0.2, oldest_message=0, **more):
        settings = self.shop.settings()
        queues = tuple(
            replace(each, worker=each.worker and replace(each.worker, handler=handler)) for each in settings.queues
        )
        return Running(
            replace(
                settings,
                queues=queues,
                service_control=ServiceControlSettings('"Particular.ServiceControl"', heartbeat, oldest_message),
                **more,
            )
        )

    def got(self, kind):
        return [
            message for message in self.queue.browse(200) if message.headers["NServiceBus.EnclosedMessageTypes"] == kind
        ]


@pytest.fixture
def control(shop, make_queue):
    return Control(shop, make_queue("Particular.ServiceControl"))


def assert_as_recorded(message, name):
    """Headers and properties have the recorded names, in their order, and values of the recorded forms."""
    assert differences(message.headers, recorded_headers(name)) == {}
    ours, theirs = json.loads(message.body), json.loads(recorded(name)["body"])
    assert list(ours) == list(theirs)
    for each, value in ours.items():
        assert type(value) is type(theirs[each]) or None in (value, theirs[each]), each
        if isinstance(value, str):
            assert form(each, value) == form(each, theirs[each]), each
    return ours


def left(message) -> float:
    return (message.expires.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()


def test_an_endpoint_says_that_it_started_and_then_that_it_is_alive(control, target):
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    before = datetime.now(UTC)

    with control.running() as supervisor:
        supervisor.until(lambda: len(control.got(HEARTBEAT)) >= 3, "three heartbeats")

    (start,) = control.got(START)
    heartbeat = control.got(HEARTBEAT)[-1]
    started = assert_as_recorded(start, "service-control-register-endpoint-startup")
    alive = assert_as_recorded(heartbeat, "service-control-endpoint-heartbeat")
    host = Host.here(control.shop.name)
    assert (started["Endpoint"], alive["EndpointName"]) == (control.shop.name, control.shop.name)
    assert UUID(started["HostId"]) == UUID(alive["HostId"]) == UUID(host.id)
    assert (
        before - timedelta(seconds=1)
        <= datetime.fromisoformat(started["StartedAt"])
        <= datetime.fromisoformat(alive["ExecutedAt"])
    )
    assert list(started["HostProperties"]) == list(
        json.loads(recorded("service-control-register-endpoint-startup")["body"])["HostProperties"]
    )
    assert left(heartbeat) < 4 * 0.2  # four intervals
    assert supervisor.seen(events.Trouble) == []


def test_the_host_that_the_environment_names_is_in_every_report_and_in_what_workers_send(control):
    named = HostSettings("shop-vm", "0f" * 16)

    with control.running("tests.support.endpoints:checked", host=named) as supervisor:
        supervisor.until(
            lambda: control.got(START) and control.got(HEARTBEAT) and control.got(RESULT), "three kinds of reports"
        )
        control.shop.queue.send(b"", {"NServiceBus.EnclosedMessageTypes": "Shop.Nobody"})
        supervisor.until(lambda: control.shop.depth("error"), "a message that nobody handles")

    (failed,) = Queue("error", control.shop.queue.database).browse(1)
    assert (failed.headers["$.diagnostics.hostid"], failed.headers["$.diagnostics.hostdisplayname"]) == (
        named.id,
        "shop-vm",
    )
    for kind in (START, HEARTBEAT, RESULT):
        told = json.loads(control.got(kind)[0].body)
        assert (UUID(told["HostId"]).hex, told["Host"]) == (named.id, "shop-vm")
    assert json.loads(control.got(START)[0].body)["HostDisplayName"] == "shop-vm"
    assert json.loads(control.got(START)[0].body)["HostProperties"]["Machine"] == socket.gethostname()


def test_what_checks_find_is_reported(control, target):
    if target.settings.engine == "sqlserver":
        pytest.skip("the rows were recorded on PostgreSQL: their addresses have its form")
    endpoints.CHECKS_RUN.clear()

    with control.running("tests.support.endpoints:checked", heartbeat=0) as supervisor:
        supervisor.until(lambda: len(control.got(RESULT)) >= 4, "four results")

    messages = control.got(RESULT)
    disk = [message for message in messages if b'"Disk free"' in message.body]
    failed = assert_as_recorded(disk[0], "service-control-report-custom-check-result-failed")
    passed = assert_as_recorded(disk[1], "service-control-report-custom-check-result-passed")
    assert (failed["CustomCheckId"], failed["Category"], failed["HasFailed"], failed["FailureReason"]) == (
        "Disk free",
        "Storage",
        True,
        "3 GB left",
    )
    assert (passed["HasFailed"], passed["FailureReason"]) == (False, None)
    (licence,) = [json.loads(message.body) for message in messages if b'"Licence"' in message.body]
    assert (licence["HasFailed"], licence["FailureReason"], licence["Category"]) == (
        True,
        "PermissionError: no licence file",
        "Checked",
    )
    assert endpoints.CHECKS_RUN["Licence"] == 1
    assert control.got(HEARTBEAT) == []


def test_without_the_section_nothing_is_reported(control):
    settings = control.shop.settings()
    control.shop.send(1)

    with Running(settings) as supervisor:
        supervisor.until(lambda: control.shop.handled() == 1, "it is handled")

    assert control.queue.browse(5) == []


def test_a_missing_queue_of_servicecontrol_is_told_once_and_work_goes_on(shop):
    shop.send(3)
    settings = replace(shop.settings(), service_control=ServiceControlSettings("Nowhere", 0.1, 0))

    with Running(settings) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Trouble), "the failure is told")
        supervisor.until(lambda: shop.handled() == 3, "work goes on")

    (trouble,) = supervisor.seen(events.Trouble)
    assert "Failed to report to ServiceControl about" in trouble.error
    assert "Nowhere" in trouble.error


# ------------------------------------------------------------------------------------------------ rowpost's own checks
def test_rowposts_own_checks_are_reported_for_each_queue(control):
    with control.running(heartbeat=0, oldest_message=60) as supervisor:
        supervisor.until(lambda: len(control.got(RESULT)) >= 3, "three results")

    results = [json.loads(message.body) for message in control.got(RESULT)]
    assert {each["CustomCheckId"]: each["FailureReason"] for each in results} == {
        "Schema": None,
        "Clock": None,
        "Oldest message": None,
    }
    assert {(each["Category"], each["EndpointName"]) for each in results} == {("rowpost", control.shop.name)}


def test_a_message_that_waits_too_long_fails_the_check_of_its_queue(shop):
    (oldest,) = [check for check in OWN if check.name == "Oldest message"]
    database = shop.queue.database
    assert oldest.failure(database, shop.name, 60) is None
    shop.queue.send(b"", {"NServiceBus.TimeSent": format_timestamp(datetime.now(UTC) - timedelta(minutes=5))})

    assert oldest.failure(database, shop.name, 600) is None
    assert f"The oldest of 1 messages in {shop.name!r} waits for 0:05" in oldest.failure(database, shop.name, 60)


def test_a_schema_and_a_clock_that_do_not_fit_fail_their_checks(shop, monkeypatch):
    schema, clock = [check for check in OWN if check.name in ("Schema", "Clock")]
    database = shop.queue.database
    assert (schema.failure(database, shop.name, 60), clock.failure(database, shop.name, 60)) == (None, None)

    monkeypatch.setattr(type(database), "call", lambda *_, **__: [])
    monkeypatch.setattr(type(database.dialect), "clock", lambda *_: time.time() + 90)

    assert "rowpost is not deployed" in schema.failure(database, shop.name, 60)
    assert re.search("clock is (89|90)", clock.failure(database, shop.name, 60))


# ------------------------------------------------------------------------------------------------ declarations
@pytest.mark.parametrize(
    ("found", "reason"),
    [(None, None), ("", None), ("full", "full"), (True, "The check returned a bool. It must return None")],
)
def test_a_check_passes_or_says_why_not(found, reason):
    failure = CustomCheck("a", "b", None, lambda: found).failure()

    assert failure is None if reason is None else failure.startswith(reason)


def test_checks_that_cannot_be_are_refused():
    endpoint = Endpoint("Sales")
    endpoint.check("Disk")(lambda: None)

    with pytest.raises(SettingsError, match="two checks named 'Disk'"):
        endpoint.check("Disk")
    with pytest.raises(SettingsError, match="'Clock' is the name of a check that rowpost brings"):
        endpoint.check("Clock")
    with pytest.raises(SettingsError, match="cannot run every 0:00:00"):
        endpoint.check("Other", every=timedelta(0))

    async def later():
        return None

    with pytest.raises(SettingsError, match="is async: calling it runs nothing"):
        endpoint.check("Third")(later)


def test_the_section_of_an_environment(tmp_path):
    path = tmp_path / "shop.yml"
    write = lambda section: path.write_text(f"engine: embedded\nqueues: {{Sales: {{}}}}\n{section}\n")  # noqa: E731

    write("")
    assert load_settings(path).service_control is None
    write("service_control: {queue: '\"Particular.ServiceControl\"'}")
    assert load_settings(path).service_control == ServiceControlSettings('"Particular.ServiceControl"', 10.0)
    write("service_control: {queue: x, monitoring: y, metrics_interval: 30, instance: web1, saga_audit: true}")
    assert load_settings(path).service_control == ServiceControlSettings(
        "x", monitoring="y", metrics_interval=30.0, instance="web1", saga_audit=True
    )
    for wrong, said in (
        ("{queue: 'x@['}", "service_control.queue"),
        ("{queue: x, heartbeat: -1}", "heartbeat"),
        ("{heartbeat: 1}", "queue"),
        ("{queue: x, monitoring: 'y@['}", "service_control.monitoring"),
        ("{queue: x, monitoring: y, metrics_interval: 0}", "metrics_interval: 0 s is too short: write 0.1 or more"),
        ("{queue: x, instance: web1}", "service_control.instance: .* add monitoring"),
        ("{queue: x, saga_audit: maybe}", "saga_audit"),
    ):
        write(f"service_control: {wrong}")
        with pytest.raises(SettingsError, match=said):
            load_settings(path)
