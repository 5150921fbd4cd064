"""Endpoints as their author runs them: in a test, in a supervisor, by the command line."""

import logging
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rowpost.database.connection import connect
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.hosting import needed_queues, with_endpoints, with_instances
from rowpost.endpoint.provisioning import subscribe
from rowpost.endpoint.resolve import resolve_endpoint
from rowpost.errors import HandlerNotFound, LoginRefused, SettingsError
from rowpost.pipeline.pipeline import Pipeline
from rowpost.pipeline.timings import Stopwatch
from rowpost.recoverability.outcome import Kind
from rowpost.sagas import Saga, handles, starts
from rowpost.settings.environment import QueueSettings, Settings, WorkerSettings
from rowpost.testing import temporary_database
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message import parse_timestamp
from rowpost.workers import events
from tests.support.endpoints import (
    AT_ONCE,
    OrderPlaced,
    PlaceOrder,
    VipOrderPlaced,
    fail,
    handled_table,  # noqa: F401 -- a fixture
    make_sales,
)
from tests.support.program import Program, environment_file, program, rowpost  # noqa: F401 -- fixtures
from tests.support.schema import named
from tests.support.workers import Running

HERE = "tests.support.endpoints"
ASYNC = "tests.support.async_handlers"
TYPE = "NServiceBus.EnclosedMessageTypes"


@dataclass
class Placed:
    """The state of a saga."""

    order_id: int


class Desk:
    """An endpoint Sales in this process, empty queues, and the business table."""

    def __init__(self, database, sql, sales):
        self.database, self.sql, self.sales = database, sql, sales
        self.queues = {name: Queue(name, database) for name in ("Sales", "Billing", "error", "audit")}

    def order(self, wish="", number=42, **headers):
        with self.sales.open(self.database) as bus:
            bus.send(PlaceOrder(number, wish), to="Sales", headers=headers)
        return self.sales.process_one(self.database)

    def handled(self):
        return [row[0] for row in self.sql.run("SELECT id FROM handled ORDER BY id")]

    def only(self, queue):
        (message,) = self.queues[queue].browse(5)
        return message


@pytest.fixture
def desk(handled_table, database, sql):  # noqa: F811
    return Desk(database, sql, make_sales())


# ------------------------------------------------------------------ audit, forwarding, monitoring
@pytest.mark.promise("audit-copy")
def test_an_audit_copy_says_from_when_to_when_a_message_was_processed(desk):
    before = datetime.now(UTC)

    outcome = desk.order(**{"Shop.Unknown": "é/\U0001f680"})

    copy = desk.only("audit")
    started, ended = (parse_timestamp(copy.headers[f"NServiceBus.Processing{name}"]) for name in ("Started", "Ended"))
    assert outcome.kind is Kind.HANDLED
    assert before <= started <= ended <= datetime.now(UTC)
    assert copy.headers["NServiceBus.ProcessingEndpoint"] == "Sales"
    assert copy.headers["Shop.Unknown"] == "é/\U0001f680"
    assert copy.body == b'{"OrderId":42,"Wish":""}'


def test_an_endpoint_without_an_audit_queue_leaves_no_copy(desk):
    desk.sales.audit_queue = None

    outcome = desk.order()

    assert outcome.kind is Kind.HANDLED
    assert desk.queues["audit"].peek() == 0


@pytest.mark.promise("audit-copy")
def test_a_failed_handler_leaves_no_audit_copy_and_nothing_else(desk):
    outcome = desk.order("fail")

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert (desk.queues["audit"].peek(), desk.queues["Billing"].peek(), desk.handled()) == (0, 0, [])
    assert desk.only("error").headers["NServiceBus.ExceptionInfo.Message"] == "no such order"


def test_a_failed_message_goes_to_the_error_queue_that_the_endpoint_names(desk):
    named_in_code = Endpoint("Sales", error_queue="Billing", recoverability=AT_ONCE)
    named_in_code.handles("Shop.Messages.PlaceOrder", PlaceOrder)(fail)
    with desk.sales.open(desk.database) as bus:
        bus.send(PlaceOrder(42), to="Sales")

    outcome = named_in_code.process_one(desk.database)

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert desk.only("Billing").headers["NServiceBus.ExceptionInfo.Message"] == "no such order"
    assert desk.queues["error"].peek() == 0


@pytest.mark.promise("audit-copy")
def test_the_audit_copy_is_stored_by_the_transaction_that_handles_the_message(desk):
    desk.sales.audit_queue = "no such queue"

    outcome = desk.order()

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "no such queue" in outcome.error
    assert desk.handled() == []


def test_a_message_retried_by_servicecontrol_is_acknowledged_and_its_audit_copy_says_so(desk):
    retried = {"ServiceControl.Retry.UniqueMessageId": "u1", "ServiceControl.Retry.AcknowledgementQueue": "Billing"}

    desk.order(**retried)

    told = desk.only("Billing")
    assert told.headers.keys() == {
        "ServiceControl.Retry.Successful", "ServiceControl.Retry.UniqueMessageId", "NServiceBus.ControlMessage", "NServiceBus.TimeSent"
    }  # fmt: skip
    assert desk.only("audit").headers["ServiceControl.Retry.AcknowledgementSent"] == "true"


def test_the_current_message_is_forwarded_as_it_came(desk):
    desk.order("forward", **{"Shop.Unknown": "x"})

    copy, audited = desk.only("Billing"), desk.only("audit")
    assert copy.body == audited.body
    assert copy.headers.items() <= audited.headers.items()
    assert "NServiceBus.ProcessingStarted" not in copy.headers


def test_critical_time_counts_from_the_sending_or_from_when_a_delayed_message_was_due(desk):
    stopwatch = Stopwatch()
    desk.sales._pipeline = Pipeline(
        desk.database, "Sales", desk.sales, reconnect=desk.database.open_second, observers=[stopwatch]
    )
    hour_ago = "2026-01-01 00:00:00:000000 Z"

    desk.order(**{"NServiceBus.TimeSent": hour_ago})
    sent = stopwatch.take()
    desk.order(**{"NServiceBus.TimeSent": hour_ago, "NServiceBus.DeliverAt": "2999-01-01 00:00:00:000000 Z"})
    due = stopwatch.take()
    desk.order(**{"NServiceBus.TimeSent": "yesterday"})
    unknown = stopwatch.take()
    desk.order("fail")
    failed = stopwatch.take()

    assert sent.critical_time > 3600
    assert (due.critical, due.critical_time) == (1, 0.0)
    assert (unknown.critical_time, unknown.processed) == (None, 1)
    assert failed.processed == 0


# ------------------------------------------------------------------ bad input
def test_a_handler_that_returns_something_is_warned_about_once(desk, caplog):
    with caplog.at_level(logging.WARNING, "rowpost"):
        outcomes = [desk.order("return").kind for _ in range(3)]

    assert outcomes == [Kind.HANDLED] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "context.reply" in caplog.text


def test_generators_are_refused_when_they_are_declared():
    sales = Endpoint("Sales")

    with pytest.raises(SettingsError, match="a plain function, or async def without yield"):

        @sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)
        async def place_order(message, context):
            yield


def test_a_coroutine_that_a_handler_returns_is_a_failure_and_not_a_silent_nothing(desk):
    async def later(): ...

    desk.sales.handles("Shop.Later")(lambda message, context: later())
    desk.queues["Sales"].send(b"", {TYPE: "Shop.Later"})

    outcome = desk.sales.process_one(desk.database)

    assert (outcome.kind, "coroutine" in outcome.error) == (Kind.MOVED_TO_ERROR, True)


def test_headers_that_a_handler_changes_reach_neither_the_audit_nor_the_error_copy(desk):
    desk.order("change headers", **{"Shop.Kept": "as it was"})
    desk.order("change headers and fail", **{"Shop.Kept": "as it was"})

    for copy in (desk.only("audit"), desk.only("error")):
        assert copy.headers["Shop.Kept"] == "as it was"
        assert "Shop.Added" not in copy.headers


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        ("send nowhere", "Nowhere"),
        ("reply", "cannot be replied to"),
        ("request", "cannot wait"),
        ("delay for ever", "100 years"),
        ("delay and expire", "cannot have both"),
    ],
)
def test_what_cannot_be_sent_fails_the_message_and_says_why(desk, wish, says):
    outcome = desk.order(wish, **{"NServiceBus.ReplyToAddress": None})

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert says in outcome.error
    assert desk.handled() == []


def test_a_delay_of_100_days_waits_and_one_of_minus_1_s_is_due_at_once(desk):
    desk.order("delay 100 days")
    desk.order("delay -1 s")

    moved = move_due(desk.database, "Billing")

    assert moved.moved == 1
    assert 0 < 100 * 86_400 - moved.next_due < 120
    assert desk.only("Billing").headers["NServiceBus.DeliverAt"]


def test_a_correlation_id_of_10_000_characters_is_kept(desk):
    desk.order("forward", **{"NServiceBus.CorrelationId": "漢" * 10_000})

    assert desk.only("Billing").headers["NServiceBus.CorrelationId"] == "漢" * 10_000


def test_an_unknown_content_type_ends_in_the_error_queue_at_once(desk):
    outcome = desk.order(**{"NServiceBus.ContentType": "text/xml"})

    assert outcome.kind is Kind.MOVED_TO_ERROR
    assert "text/xml" in outcome.error


@pytest.mark.parametrize("options", [{"limit": 0}, {"strategy": "fast"}, {"transaction_mode": "some"}])
def test_an_endpoint_that_makes_no_sense_is_refused(options):
    with pytest.raises(SettingsError, match="Sales"):
        Endpoint("Sales", **options)


# ------------------------------------------------------------------ publish and subscribe
def test_an_endpoint_subscribes_to_what_says_so_and_to_nothing_else(desk):
    class Policy(Saga[Placed], correlate={OrderPlaced: "order_id", VipOrderPlaced: "order_id"}):
        @starts(OrderPlaced)
        def start(self, message, context): ...

        @handles(VipOrderPlaced, subscribe=True)
        def add(self, message, context): ...

    endpoint = Endpoint("Chosen")
    endpoint.saga(Policy)
    for name, options in (("Shop.Chosen", {"subscribe": True}), ("Shop.Other", {})):
        endpoint.handles(name, bytes, **options)(lambda message, context: None)

    subscribe(endpoint, desk.database)

    rows = [row.topic for row in desk.database.call("list_subscriptions") if row.endpoint == "Chosen"]
    for topic in rows:
        desk.database.call("unsubscribe", endpoint="Chosen", topic=topic)
    assert sorted(rows) == ["Shop.Chosen", "Shop.Messages.VipOrderPlaced"]


def test_each_subscriber_gets_an_event_with_the_headers_of_its_publisher(desk):
    for endpoint in ("Sales", "Billing"):
        desk.database.call("subscribe", endpoint=endpoint, topic="Shop.Messages.OrderPlaced", queue_address=endpoint)

    with desk.sales.open(desk.database) as bus:
        bus.publish(OrderPlaced(1), headers={"Shop.Region": "north"})

    for endpoint in ("Sales", "Billing"):
        desk.database.call("unsubscribe", endpoint=endpoint, topic="Shop.Messages.OrderPlaced")
    assert [desk.only(name).headers["Shop.Region"] for name in ("Sales", "Billing")] == ["north", "north"]


@pytest.mark.promise("derived-events")
def test_a_derived_event_reaches_a_subscriber_of_its_base_once(desk):
    subscribe(desk.sales, desk.database)
    desk.database.call("subscribe", endpoint="Sales", topic="Shop.Messages.VipOrderPlaced", queue_address="Sales")

    desk.order("publish")

    assert len(desk.queues["Sales"].browse(5)) == 1
    assert desk.sales.process_one(desk.database).kind is Kind.HANDLED
    assert desk.handled() == ["order 42", "placed 42"]


@pytest.mark.promise("one-copy-per-endpoint")
def test_two_instances_of_an_endpoint_get_one_copy(desk, open_database):
    for instance in ("one", "two"):
        make_sales(instance=instance).subscribe(open_database())

    with desk.sales.open(desk.database) as bus:
        bus.publish(OrderPlaced(1))

    assert desk.queues["Sales"].peek() == 1


@pytest.mark.promise("subscription-changes-at-once")
def test_a_subscription_made_or_ended_by_another_process_is_seen_by_the_next_publish(desk, open_database):
    other, copies = open_database(), []
    for change in ("subscribe", "unsubscribe", "subscribe"):
        address = {"queue_address": named("Billing")} if change == "subscribe" else {}
        other.call(change, endpoint="Billing", topic="Shop.Messages.OrderPlaced", **address)
        with desk.sales.open(desk.database) as bus:
            bus.publish(OrderPlaced(1))
        copies.append(desk.queues["Billing"].peek())

    assert copies == [1, 1, 2]


# ------------------------------------------------------------------ run
@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        (f"{HERE}:web", SettingsError, "send-only"),
        (f"{HERE}:fail", HandlerNotFound, "not an Endpoint"),
        (f"{HERE}:nothing", HandlerNotFound, "nothing"),
    ],
)
def test_what_is_no_endpoint_cannot_be_run(name, error, says):
    with pytest.raises(error, match=says):
        with_endpoints(Settings(), [name])


def test_two_endpoints_of_one_queue_are_refused():
    with pytest.raises(SettingsError, match="both"):
        with_endpoints(Settings(), [f"{HERE}:sales", f"{HERE}:sales_none"])


def test_an_endpoint_takes_from_the_environment_what_it_leaves_open():
    declared = QueueSettings("Billing", worker=WorkerSettings("x:y", limit=7, strategy="fixed", peek_delay=0.2))
    other = QueueSettings("Shipping", worker=WorkerSettings("x:y"))

    settings = with_endpoints(Settings(queues=(declared, other)), [f"{HERE}:sales", f"{HERE}:billing"])

    sales, billing = settings.queue("Sales").worker, settings.queue("Billing").worker
    assert (sales.handler, sales.limit, sales.strategy) == (f"{HERE}:sales", 2, "peek")
    assert (billing.handler, billing.limit, billing.strategy, billing.peek_delay) == (
        f"{HERE}:billing",
        7,
        "fixed",
        0.2,
    )
    assert settings.queue("Shipping").worker is None
    assert needed_queues(settings) == ("Billing", "error", "Sales", "audit")


@pytest.mark.parametrize(
    "name", [f"{HERE}:sales", f"{HERE}:billing", *(f"{ASYNC}:{name}" for name in ("tasks", "two"))]
)
def test_an_endpoint_that_the_environment_names_decides_as_one_of_the_command_line_does(name):
    queue = QueueSettings(resolve_endpoint(name).queue, worker=WorkerSettings(name, strategy="fixed", peek_delay=0.2))
    named = Settings(queues=(queue, QueueSettings("Shipping", worker=WorkerSettings(f"{HERE}:fail"))))

    hosted = with_instances(named)

    assert hosted.queue(queue.name) == with_endpoints(named, [name]).queue(queue.name)
    assert hosted.queue("Shipping") == named.queue("Shipping")


def test_a_supervisor_subscribes_its_endpoints_runs_them_and_tells_their_times(desk, target):
    settings = with_endpoints(target.settings, [f"{HERE}:sales", f"{HERE}:billing"])

    with Running(settings) as supervisor:
        supervisor.until(lambda: len(desk.database.call("list_subscriptions")) == 2, "both are subscribed")
        with desk.sales.open(desk.database) as bus:
            bus.send(PlaceOrder(7, "publish"), to="Sales")
        supervisor.until(lambda: len(desk.handled()) == 3, "the order is handled, and the event twice")
        supervisor.until(lambda: sum(e.count for e in supervisor.seen(events.Handled)) == 3, "all three are reported")
        snapshot = supervisor.supervisor.snapshot().queue(named("Sales"))

    assert desk.handled() == ["billed 7", "order 7", "placed 7"]
    assert 0 < snapshot.processing_time <= snapshot.critical_time < 60
    assert all(event.critical_time > 0 for event in supervisor.seen(events.Handled))


# ------------------------------------------------------------------ without a process, without a database of one's own
def test_process_one_brings_its_own_database(embedded_url, data_folder, monkeypatch):
    monkeypatch.setenv("ROWPOST_DATA", str(data_folder))
    tea, seen = Endpoint(f"Tea{os.getpid()}", audit_queue=f"Tea{os.getpid()}.audit"), []
    tea.handles("Shop.Messages.PlaceOrder", PlaceOrder)(lambda message, context: seen.append(message))
    tea.handles("Shop.Messages.OrderPlaced", OrderPlaced, subscribe=True)(lambda m, context: seen.append(m))

    with tea.open() as bus:
        bus.send(PlaceOrder(1), to=tea.name)
        bus.publish(VipOrderPlaced(2))
        bus.send(PlaceOrder(3), to=tea.name, delay=timedelta(seconds=-1))
    kinds = [tea.process_one().kind for _ in range(4)]
    tea.close()

    assert kinds == [Kind.HANDLED] * 3 + [Kind.EMPTY]
    assert sorted(each.order_id for each in seen) == [1, 2, 3]


@pytest.fixture
def environment(embedded_url, data_folder, monkeypatch):
    """The queue Sales of an environment on the embedded server, with one message, as a developer has it."""
    monkeypatch.setenv("ROWPOST_DATA", str(data_folder))
    with connect(Settings()) as database:
        apply(database, plan(Settings(queues=(QueueSettings("Sales"), QueueSettings("error")))))
        sales = Queue("Sales", database)
        sales.purge()
        with Endpoint("Developer", send_only=True).open(database) as bus:
            bus.send(PlaceOrder(777), to="Sales")
        yield sales
        sales.purge()


def noting() -> tuple[Endpoint, list[int]]:
    sales, seen = Endpoint("Sales"), []
    sales.handles("Shop.Messages.PlaceOrder", PlaceOrder)(lambda message, context: seen.append(message.order_id))
    return sales, seen


@pytest.mark.engine_schema("its environment has the engine's own schema")
def test_a_test_without_a_database_leaves_the_messages_of_environments_alone(environment):
    sales, seen = noting()

    with sales.open() as bus:
        bus.send(PlaceOrder(42), to="Sales")
    kinds = [sales.process_one().kind for _ in range(2)]
    sales.close()

    assert (kinds, seen) == ([Kind.HANDLED, Kind.EMPTY], [42])
    assert environment.peek() == 1


@pytest.mark.engine_schema("its environment has the engine's own schema")
def test_a_temporary_database_has_the_endpoints_queues_and_nothing_else_and_is_dropped(environment):
    sales, seen = noting()

    found = []
    for number in (1, 2):
        with temporary_database(sales) as database:
            found.append(sales.process_one(database).kind)
            with sales.open(database) as bus:
                bus.send(PlaceOrder(number), to="Sales")
            found.append(sales.process_one(database).kind)

    assert (found, seen) == ([Kind.EMPTY, Kind.HANDLED] * 2, [1, 2])
    assert environment.peek() == 1
    with pytest.raises(LoginRefused):
        database.open_second()


@pytest.mark.engine_schema("its environment has the engine's own schema")
def test_temporary_databases_of_ended_and_of_killed_processes_are_dropped(environment, data_folder):
    names = "SELECT datname FROM pg_database WHERE datname LIKE 'rowpost\\_temporary%'"
    code = "import os, sys; from pathlib import Path; from rowpost.database import embedded; embedded.temporary(Path(sys.argv[1])); "
    databases = set()

    for end in ("pass", "os.kill(os.getpid(), 9)"):
        ended = subprocess.run(
            [sys.executable, "-c", code + end, data_folder],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        with connect(Settings()) as admin:
            databases |= {
                (ended.returncode, name)
                for (name,) in admin.driver_connection.execute(names).fetchall()
                if f"_{os.getpid()}_" not in name
            }
    with temporary_database(), connect(Settings()) as admin:
        left = {name for (name,) in admin.driver_connection.execute(names).fetchall() if f"_{os.getpid()}_" not in name}

    assert {code for code, _ in databases} == {-9}
    assert left == set()


# ------------------------------------------------------------------ the command line
APP = """
from dataclasses import dataclass
from rowpost.endpoint.endpoint import Endpoint

@dataclass(frozen=True)
class PlaceOrder:
    order_id: int

sales = Endpoint("Sales", audit_queue="audit", limit=1)
quiet = Endpoint("Quiet")

@sales.handles("Shop.PlaceOrder", PlaceOrder)
def place_order(message, context):
    context.send(b"{}", to="Billing", headers={"NServiceBus.EnclosedMessageTypes": "Shop.Charge"})

@sales.handles("Shop.OrderShipped", dict, subscribe=True)
def order_shipped(message, context): ...
"""


def test_rowpost_run_runs_an_endpoint_by_its_name(rowpost):  # noqa: F811
    Path(rowpost.folder, "shop_app.py").write_text(APP)
    rowpost("send", "Sales", "--type", "Shop.PlaceOrder", "--body", '{"OrderId":1}')

    ended = rowpost("run", "shop_app:sales", "--until-idle")

    assert (ended.code, "Sales: 1 handled" in ended.out) == (0, True), ended
    assert re.search(r"critical time \d", ended.out)
    assert rowpost("queue", "peek", "Billing").out == rowpost("queue", "peek", "audit").out == "1\n"
    listed = rowpost("--json", "subscriptions", "list").json
    assert [(each["topic"], each["endpoint"]) for each in listed] == [("Shop.OrderShipped", "Sales")]


def test_rowpost_run_refuses_what_it_cannot_run(rowpost):  # noqa: F811
    Path(rowpost.folder, "shop_app.py").write_text(APP)

    undeployed = rowpost("run", "shop_app:quiet", "--until-idle")
    unknown = rowpost("run", "shop_app:nothing")
    both = rowpost("run", "shop_app:sales", "--queue", "Sales")

    assert (undeployed.code, "rowpost apply" in undeployed.err) == (6, True)
    assert (unknown.code, "nothing" in unknown.err) == (6, True)
    assert both.code == 2


def test_subscriptions_are_added_listed_and_removed(rowpost):  # noqa: F811
    added = rowpost("subscriptions", "add", "Billing", "Shop.OrderPlaced")
    listed = rowpost("--json", "subscriptions", "list", "--endpoint", "Billing").json
    removed = rowpost("subscriptions", "remove", "Billing", "Shop.OrderPlaced")
    again = rowpost("subscriptions", "remove", "Billing", "Shop.OrderPlaced")

    assert (added.code, removed.code, again.code) == (0, 0, 6)
    assert [(each["topic"], each["endpoint"]) for each in listed] == [("Shop.OrderPlaced", "Billing")]
    assert "Billing" in listed[0]["queue"]
    assert rowpost("subscriptions", "list", "--endpoint", "Billing").out.count("Shop.OrderPlaced") == 0


# ------------------------------------------------------------------ attempts beside an endpoint
def test_attempts_beside_an_endpoint_are_refused_with_what_the_endpoint_says_instead():
    settings = Settings("dev", queues=(QueueSettings("Sales", worker=WorkerSettings(f"{HERE}:sales", attempts=2)),))
    of_function = Settings("dev", queues=(QueueSettings("Sales", worker=WorkerSettings("operator:eq", attempts=2)),))
    words = r"attempts, .*below queues\.Sales\.worker .*Endpoint.*recoverability=Recoverability\(immediate_retries=1, delayed_retries=0\)"

    for refused in (lambda: needed_queues(settings), lambda: with_endpoints(settings, [f"{HERE}:sales"])):
        with pytest.raises(SettingsError, match=words):
            refused()

    assert needed_queues(of_function) == ("Sales", "error")
    assert with_endpoints(of_function, [f"{HERE}:sales"]).queue("Sales").worker.attempts is None
    assert WorkerSettings("operator:eq").retries is None
