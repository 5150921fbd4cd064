"""A name without a schema means the environment's default schema, wherever it stands; a queue of that name in the engine's own is left alone."""

from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from rowpost.database.connection import Connection, connect_url
from rowpost.deploy.apply import apply
from rowpost.deploy.plan import business_settings, plan
from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.hosting import needed_queues, with_endpoints, with_sagas
from rowpost.endpoint.provisioning import subscribe
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Recoverability
from rowpost.sagas import Saga, handles, starts
from rowpost.settings.bridge import load_bridge
from rowpost.settings.environment import Settings, load_settings
from rowpost.spark.source.options import in_environment, read_options, write_options
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.probe import Probe, probe_for
from tests.support.program import Program
from tests.support.workers import Running

pytestmark = pytest.mark.engine_schema("has a schema nsb of its own")

SCHEMA = "nsb"
NAMES = ("Sales", "Billing", "error", "audit", "Monitor")
AT_ONCE = Recoverability(immediate_retries=0, delayed_retries=0)
FILE = """
engine: {engine}
url: "{url}"
default_schema: nsb
features: [outbox, sagas]
queues: {{Sales: {{}}, Billing: {{}}, error: {{}}, audit: {{}}, Monitor: {{}}}}
outbox: {{business: {{url: "{business}"}}}}
service_control: {{queue: Monitor}}
"""


@message_type("Shop.Messages.Ordered")
@dataclass(frozen=True)
class Ordered:
    number: int = 0


@message_type("Shop.Messages.Ask")
@dataclass(frozen=True)
class Ask:
    number: int = 0


@message_type("Nsb.Messages.Answer")
@dataclass(frozen=True)
class Answer:
    number: int = 0


@dataclass
class Tally:
    number: int = 0
    seen: int = 0


class Counting(Saga[Tally], correlate={Ordered: "number"}):
    @starts(Ordered)
    def ordered(self, message: Ordered, context) -> None:
        self.state.seen += 1
        context.request_timeout(timedelta(0), Answer(message.number))

    @handles(Answer)
    def due(self, message: Answer, context) -> None:
        self.complete()


def answering() -> Endpoint:
    endpoint = Endpoint("Billing", recoverability=AT_ONCE)

    @endpoint.handles("Shop.Messages.Ask", Ask)
    def ask(message, context):
        context.reply(Answer(message.number))

    return endpoint


billing = answering()


@dataclass
class Site:
    """An environment in the schema nsb, and beside it queues of the same names in the engine's own schema."""

    settings: Settings
    file: object
    database: Connection
    sql: Probe
    business_url: str

    def configured(self, endpoint: Endpoint) -> Endpoint:
        endpoint.configure(self.settings)
        return endpoint

    def waiting(self) -> dict[str, int]:
        """How many messages each queue of the schema has; those that have none are left out. The others must be empty."""
        assert {name: depth for name in NAMES if (depth := Queue(name, self.database).peek())} == {}
        return {name: depth for name in NAMES if (depth := self.queue(name).peek())}

    def queue(self, name: str) -> Queue:
        return Queue(self.settings.naming.canonical(name), self.database)


@pytest.fixture(scope="module")
def deployed(target, lasting_database, tmp_path_factory):
    label = "sqlserver" if target.settings.engine == "sqlserver" else target.label
    engine, url, business = target.settings.engine, lasting_database(label), lasting_database(label)
    file = tmp_path_factory.mktemp("shop") / "shop.yml"
    file.write_text(FILE.format(engine=engine, url=url, business=business), encoding="utf-8")
    settings = load_settings(file)
    with connect_url(engine, url) as database:
        database.driver_connection.execute(f"CREATE SCHEMA {SCHEMA}")
        own = replace(
            settings,
            environment="own",
            default_schema=target.settings.default_schema,
            queues=target.settings.queues,
            outboxes=(),
        )
        monitor = replace(target.settings.queues[0], name="Monitor")
        apply(database, plan(replace(own, queues=(*target.settings.queues, monitor))))
        apply(database, plan(settings))
    with connect_url(engine, business) as database:
        apply(database, plan(business_settings(settings, settings.outboxes[0])))
    return settings, file, business


@pytest.fixture
def site(deployed, target):
    settings, file, business = deployed
    with connect_url(settings.engine, settings.url) as database:
        sql = probe_for(database, babelfish=target.babelfish)
        for name in NAMES:
            for each in (name, settings.naming.canonical(name)):
                sql.empty(each)
        yield Site(settings, file, database, sql, business)


def sales(handler=lambda message, context: None, **options) -> Endpoint:
    endpoint = Endpoint("Sales", recoverability=AT_ONCE, **options)
    endpoint.handles("Shop.Messages.Ordered", Ordered)(handler)
    return endpoint


def sent_to_itself(site: Site, endpoint: Endpoint, **options: object) -> Endpoint:
    with site.configured(endpoint).open(site.database) as bus:
        bus.send(Ordered(1), to="Sales", **options)
    return endpoint


def test_a_destination_a_route_and_the_own_queue(site):
    endpoint = site.configured(sales())
    endpoint.route(Ask, "Billing")

    with endpoint.open(site.database) as bus:
        bus.send(Ordered(1), to="Sales")
        bus.send(Ask(1))
        bus.send_local(Ordered(2))

    assert site.waiting() == {"Sales": 2, "Billing": 1}


def test_the_audit_queue_and_the_error_queue(site):
    def handler(message, context):
        if context.headers.get("fails"):
            raise ValueError("no such order")

    endpoint = sent_to_itself(site, sales(handler, audit_queue="audit"))
    assert endpoint.process_one(site.database).kind is Kind.HANDLED
    sent_to_itself(site, endpoint, headers={"fails": "yes"})
    assert endpoint.process_one(site.database).kind is Kind.MOVED_TO_ERROR

    assert site.waiting() == {"audit": 1, "error": 1}
    (failed,) = site.queue("error").browse(2)
    assert SCHEMA in failed.headers["NServiceBus.FailedQ"]


def test_the_reply_address_and_a_reply_to_an_address_without_a_schema(site):
    endpoint = site.configured(sales())
    with endpoint.open(site.database) as bus:
        bus.send(Ask(1), to="Billing")
        bus.send(Ask(2), to="Billing", reply_to="Monitor")
        bus.send(Ask(3), to="Billing", headers={"NServiceBus.ReplyToAddress": "audit"})
    answers = site.configured(answering())

    kinds = {answers.process_one(site.database).kind for _ in range(3)}

    assert kinds == {Kind.HANDLED}
    assert site.waiting() == {"Sales": 1, "Monitor": 1, "audit": 1}


def test_the_queues_that_headers_of_others_name(site):
    acknowledged = {
        "ServiceControl.Retry.UniqueMessageId": "u1",
        "ServiceControl.Retry.AcknowledgementQueue": "Monitor",
    }
    endpoint = sent_to_itself(site, sales(), headers=acknowledged)
    sent_to_itself(site, endpoint, headers={"NServiceBus.SqlServer.ForwardDestination": "Billing"})
    sent_to_itself(site, endpoint, headers={"NServiceBus.SqlServer.ForwardDestination": "Sales"})

    kinds = [endpoint.process_one(site.database).kind for _ in range(3)]

    assert kinds == [Kind.HANDLED] * 3
    assert site.waiting() == {"Monitor": 1, "Billing": 1}


def test_the_delayed_table(site):
    with site.configured(sales()).open(site.database) as bus:
        bus.send(Ordered(1), to="Billing", delay=timedelta(0))

    assert site.waiting() == {}
    move_due(site.database, site.settings.naming.canonical("Billing"))
    assert site.waiting() == {"Billing": 1}


def test_the_queue_of_a_saga_gets_its_timeouts(site):
    endpoint = Endpoint("Sales", recoverability=AT_ONCE)
    endpoint.saga(Counting)
    settings = with_sagas(
        replace(
            site.settings,
            sagas=tuple(replace(each, name=site.settings.naming.canonical(each.name)) for each in endpoint.sagas),
        )
    )
    apply(site.database, plan(settings))
    sent_to_itself(site, endpoint)

    assert endpoint.process_one(site.database).kind is Kind.HANDLED
    move_due(site.database, site.settings.naming.canonical("Sales"))

    assert site.waiting() == {"Sales": 1}


def test_a_subscription_has_the_address_of_the_own_queue(site):
    endpoint = site.configured(Endpoint("Billing"))
    endpoint.handles("Shop.Messages.Ordered", Ordered, subscribe=True)(lambda message, context: None)

    subscribe(endpoint, site.database, site.settings.subscription_table)
    with site.configured(sales()).open(site.database) as bus:
        bus.publish(Ordered(1))

    assert site.waiting() == {"Billing": 1}


def test_callbacks(site):
    web = Endpoint("Web", send_only=True, instance="one")
    settings = with_endpoints(site.settings, [f"{__name__}:billing"])
    with Running(settings):
        try:
            web.callbacks(site.settings)
            with web.open(site.database) as bus:
                reply = bus.request(Ask(7), to="Billing", timeout=timedelta(seconds=30))
        finally:
            web.close()

    assert reply == Answer(7)
    assert site.waiting().keys() <= {"Monitor"}  # heartbeats


def test_an_outbox_sends_from_a_session_and_what_a_session_left_behind(site):
    endpoint = sales(outbox="business", transaction_mode="receive_only")
    with (
        connect_url(site.settings.engine, site.business_url) as business,
        endpoint.open(business, queues=site.settings) as bus,
    ):
        bus.send(Ask(1), to="Billing")
    endpoint.close()

    assert site.waiting() == {"Billing": 1}


def test_a_supervisor_needs_the_queues_of_the_schema_and_needs_no_section_of_its_own(site):
    settings = with_endpoints(site.settings, [f"{__name__}:billing"])

    assert set(needed_queues(settings)) == {"Billing@[nsb]", "error@[nsb]"}
    assert site.settings.supervisor.error_queue == "error@[nsb]"
    assert site.settings.service_control.queue == "Monitor@[nsb]"


@pytest.fixture
def rowpost(site, target, tmp_path):
    return Program(site.file, tmp_path, babelfish=target.babelfish)


def test_the_commands_send_and_errors(site, rowpost):
    sent = rowpost("send", "Sales", "--body", "{}", "--type", "Shop.Messages.Unknown")
    endpoint = site.configured(sales())
    moved = endpoint.process_one(site.database)
    listed, retried = rowpost("errors", "list", "--json"), rowpost("errors", "retry-all", "--yes")

    assert (sent.code, moved.kind, listed.code, len(listed.lines), retried.code) == (0, Kind.MOVED_TO_ERROR, 0, 1, 0), (
        sent,
        listed,
        retried,
    )
    assert site.waiting() == {"Sales": 1}


def test_sparks_source_and_sink(site):
    named = {"environment": str(site.file)}

    assert in_environment(read_options({**named, "queue": "audit"})).queue == "audit@[nsb]"
    assert in_environment(read_options({**named, "subscribe": "audit,error"}, stream=True)).queues == (
        "audit@[nsb]",
        "error@[nsb]",
    )
    assert in_environment(write_options({**named, "queue": "Sales"})).queue == "Sales@[nsb]"
    assert in_environment(write_options({**named, "queue": "Sales@[public]"})).queue == "Sales@[public]"


def test_a_bridge(site, tmp_path, monkeypatch):
    other = tmp_path / "other.yml"
    other.write_text('engine: postgresql\nurl: "postgresql://db01/other"\ndefault_schema: nsb\n', encoding="utf-8")
    file = tmp_path / "bridge.yml"
    file.write_text(
        f"sides:\n  shop: {{environment: {site.file}, endpoints: {{Sales: {{}}}}}}\n"
        "  other: {environment: other.yml, error_queue: failed, endpoints: {Stock: {queue: Goods}}}\n",
        encoding="utf-8",
    )

    shop, warehouse = load_bridge(file).sides

    assert [shop.error_queue, *((each.queue, each.proxy) for each in shop.endpoints)] == [
        "error@[nsb]",
        ("Sales@[nsb]", "Sales@[nsb]"),
    ]
    assert [warehouse.error_queue, *((each.queue, each.proxy) for each in warehouse.endpoints)] == [
        "failed@[nsb]",
        ("Goods@[nsb]", "Stock@[nsb]"),
    ]


def test_doctor_looks_for_each_queue_that_an_endpoint_uses_where_the_endpoint_does(site, rowpost, tmp_path):
    (tmp_path / "shop_app.py").write_text(
        "from rowpost import Endpoint\nsales = Endpoint('Sales', audit_queue='copies')\n"
    )
    file = tmp_path / "other.yml"
    file.write_text(
        site.file.read_text().replace("Sales: {}", "Sales: {worker: {handler: 'shop_app:sales'}}"), encoding="utf-8"
    )

    found = rowpost.with_environment(file)("doctor", "--json")

    states = {each["name"]: each["state"] for each in found.json["checks"]}
    assert (states["queue Sales@[nsb]"], states["queue error@[nsb]"], states["queue copies@[nsb]"]) == (
        "ok",
        "ok",
        "bad",
    )


def test_a_program_without_an_environment_uses_the_engines_own_schema(site):
    with Endpoint("Web", send_only=True).open(site.database) as bus:
        bus.send(Ordered(1), to="Sales")

    assert Queue("Sales", site.database).peek() == 1
    Queue("Sales", site.database).purge()
