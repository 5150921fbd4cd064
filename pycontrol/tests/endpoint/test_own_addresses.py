"""An endpoint whose queue or reply address is not its name: headers, subscriptions, workers, and addresses that are stored."""

import json
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.hosting import needed_queues, with_endpoints
from rowpost.endpoint.provisioning import subscribe
from rowpost.errors import SettingsError
from rowpost.recoverability.outcome import Kind
from rowpost.recoverability.policy import Host
from rowpost.settings.endpoint import HostSettings
from rowpost.settings.environment import EndpointSettings, Settings
from rowpost.testing import temporary_database
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.address import parse_address
from rowpost.wire.headers import FORWARD_DESTINATION, ORIGINATING_ENDPOINT, PROCESSING_ENDPOINT, REPLY_TO_ADDRESS
from rowpost.wire.message_types import message_type
from tests.support.endpoints import AT_ONCE
from tests.support.program import Program, environment_file, program, rowpost  # noqa: F401 -- fixtures
from tests.support.schema import named

HERE = "tests.endpoint.test_own_addresses"


@message_type("Shop.Ship")
@dataclass(frozen=True)
class Ship:
    number: int


@message_type("Shop.Shipped")
@dataclass(frozen=True)
class Shipped:
    number: int


def make_shipping(**options) -> Endpoint:
    shipping = Endpoint("Shipping", audit_queue="audit", recoverability=AT_ONCE, **options)

    @shipping.handles("Shop.Ship", Ship)
    def ship(message: Ship, context) -> None:
        if message.number < 0:
            raise ValueError("no such number")
        context.reply(Shipped(message.number))

    @shipping.handles("Shop.Shipped", Shipped, subscribe=True)
    def shipped(message: Shipped, context) -> None: ...

    return shipping


shipping = make_shipping(queue="q_Shipping")


@pytest.fixture
def queue(make_queue, sql):
    for name in ("Billing", "audit", "error"):
        sql.empty(name)
    yield make_queue("q_Shipping")
    for _, endpoint, _ in sql.database.call("list_subscriptions"):
        sql.database.call("unsubscribe", endpoint=endpoint, topic="Shop.Shipped")


@pytest.fixture
def configured(target):
    def configure(endpoint: Endpoint) -> Endpoint:
        endpoint.configure(target.settings)
        return endpoint

    return configure


@pytest.fixture
def canonical(database):
    return lambda name: database.canonical(parse_address(named(name)))


def one(database, name="Billing"):
    (message,) = Queue(name, database).receive(2)
    return message


# ------------------------------------------------------------------ queue=
def test_an_endpoint_receives_from_the_queue_that_it_names_and_keeps_its_name(
    queue, database, configured, canonical, sql
):
    endpoint = configured(make_shipping(queue="q_Shipping"))
    with Endpoint("Sender").open(database) as bus:
        bus.send(Ship(1), to="q_Shipping", reply_to="Billing")

    outcome = endpoint.process_one(database)

    reply, audited = one(database), one(database, "audit")
    assert outcome.kind is Kind.HANDLED
    assert reply.headers[ORIGINATING_ENDPOINT] == audited.headers[PROCESSING_ENDPOINT] == "Shipping"
    assert reply.reply_to == canonical("q_Shipping")


def test_send_local_sends_to_the_queue_that_the_endpoint_names(queue, database, configured, canonical):
    with configured(make_shipping(queue="q_Shipping")).open(database) as bus:
        bus.send_local(Ship(1))

    assert one(database, "q_Shipping").headers[REPLY_TO_ADDRESS] == canonical("q_Shipping")


def test_an_event_reaches_the_queue_that_its_subscriber_names(queue, database, configured, canonical):
    endpoint = configured(make_shipping(queue="q_Shipping"))

    subscribe(endpoint, database)
    with Endpoint("Publisher").open(database) as bus:
        bus.publish(Shipped(1))

    assert one(database, "q_Shipping")
    found = {tuple(row) for row in database.call("list_subscriptions")}
    assert ("Shop.Shipped", "Shipping", canonical("q_Shipping")) in found


def test_a_message_that_fails_names_the_queue_and_the_endpoint(queue, database, configured, canonical):
    endpoint = configured(make_shipping(queue="q_Shipping"))
    with Endpoint("Sender").open(database) as bus:
        bus.send(Ship(-1), to="q_Shipping")

    endpoint.process_one(database)
    failed = one(database, "error")

    assert failed.headers["NServiceBus.FailedQ"] == canonical("q_Shipping")
    assert failed.headers[PROCESSING_ENDPOINT] == "Shipping"


def test_workers_receive_from_the_queue_that_the_endpoint_names():
    named_here = EndpointSettings("Shipping", HostSettings("ship-1"))

    settings = with_endpoints(Settings(endpoints=(named_here,)), [f"{HERE}:shipping"])

    assert [queue.name for queue in settings.queues if queue.worker] == ["q_Shipping"]
    assert needed_queues(settings) == ("q_Shipping", "error", "audit")
    assert Host.of_queue("q_Shipping", settings) == Host.here("Shipping", HostSettings("ship-1"))


def test_an_endpoint_prepares_the_queue_that_it_names():
    with temporary_database(make_shipping(queue="q_Shipping", instance="one")) as database:
        names = {row.queue_name for row in database.call("list_queues")}

    assert {named("q_Shipping"), named("q_Shipping.one")} <= names
    assert named("Shipping") not in names


@pytest.mark.parametrize(("option", "value"), [("queue", "q_Shipping"), ("takes_subscriptions", True)])
def test_an_endpoint_that_only_sends_has_no_queue(option, value):
    with pytest.raises(SettingsError, match=f"is send-only and cannot have {option}=: it only sends"):
        Endpoint("Shipping", send_only=True, **{option: value})


# ------------------------------------------------------------------ reply_address=
def test_replies_go_to_the_address_that_the_endpoint_names_unless_a_message_names_another(
    queue, database, configured, canonical
):
    endpoint = configured(Endpoint("Sales", reply_address="q_Shipping"))
    with endpoint.open(database) as bus:
        bus.send(Ship(1), to="Billing")
        bus.publish(Shipped(1))
        bus.send(Ship(2), to="Billing", reply_to="audit")

    first, second = Queue("Billing", database).receive(5)

    assert first.reply_to == canonical("q_Shipping")
    assert second.reply_to == canonical("audit")


def test_an_endpoint_that_only_sends_may_name_who_gets_the_replies(queue, database, configured, canonical):
    with configured(Endpoint("Web", send_only=True, reply_address="q_Shipping")).open(database) as bus:
        bus.send(Ship(1), to="Billing")

    assert one(database).reply_to == canonical("q_Shipping")


# ------------------------------------------------------------------ a queue in another schema
def test_the_name_of_an_endpoint_has_no_schema(queue, database, sql, target, canonical):
    endpoint = Endpoint("Billing@[receiver]", recoverability=AT_ONCE)

    assert (endpoint.name, endpoint.queue, endpoint.host.endpoint) == ("Billing", "Billing@[receiver]", "Billing")
    with endpoint.open(database) as bus:
        bus.send(Ship(1), to="Billing")
    message = one(database)
    assert message.headers[ORIGINATING_ENDPOINT] == "Billing"
    assert message.reply_to == database.canonical(parse_address("Billing@[receiver]"))


def test_the_host_of_a_queue_has_the_name_without_a_schema():
    assert Host.of_queue("Billing@[receiver]", Settings()).endpoint == "Billing"


# ------------------------------------------------------------------ addresses that are stored
@pytest.mark.parametrize("spelt", ["Billing", "Billing@[{}]", '"{}"."Billing"', "Billing@{}"])
def test_the_destination_of_a_delayed_message_is_stored_in_canonical_form(
    make_queue, database, sql, spelt, canonical, target
):
    make_queue("Plain", delayed=False)
    sql.empty("Sales.Delayed")
    schema = target.settings.default_schema
    with Endpoint("Sales").open(database) as bus:
        bus.send(Ship(1), to=spelt.format(schema).replace("Billing", "Plain"), delay=timedelta(milliseconds=-1))

    ((headers,),) = sql.run(f"SELECT headers FROM {sql.table('Sales.Delayed')}")
    move_due(database, "Sales")

    assert json.loads(headers)[FORWARD_DESTINATION] == canonical("Plain")
    assert one(database, "Plain")


def test_the_reply_address_of_the_command_send_is_stored_in_canonical_form(rowpost):  # noqa: F811
    rowpost("send", "Sales", "--reply-to", "Billing", "--body", "{}")

    message = rowpost("receive", "Sales", "--json").json

    assert message["headers"][REPLY_TO_ADDRESS].startswith(
        '"public"."Billing"' if rowpost.engine == "postgresql" else "Billing@[dbo]@["
    )


# ------------------------------------------------------------------ send-only
def test_an_endpoint_that_only_sends_cannot_subscribe(database):
    web = Endpoint("Web", send_only=True)
    web.handles("Shop.Shipped", Shipped, subscribe=True)(lambda message, context: None)

    with pytest.raises(SettingsError, match="'Web' cannot subscribe: it is send-only"):
        web.subscribe(database)

    assert "Web" not in {row[1] for row in database.call("list_subscriptions")}
