"""Routes in an environment's file: a type or a namespace to a destination, for each endpoint."""

from dataclasses import dataclass, replace

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.endpoint.hosting import with_endpoints
from rowpost.errors import InvalidMessage, SettingsError
from rowpost.settings.environment import EndpointSettings, QueueSettings, WorkerSettings, load_settings
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from rowpost.workers import events
from tests.support.schema import named
from tests.support.workers import Running


@message_type("Shop.Routed.Base")
@dataclass(frozen=True)
class Base:
    number: int


@message_type("Shop.Routed.Bill")
@dataclass(frozen=True)
class Bill(Base):
    pass


@message_type("Shop.Routed.Deep.Ship")
@dataclass(frozen=True)
class Ship:
    number: int


@pytest.fixture
def load(tmp_path):
    def read(routes, name="Sales"):
        path = tmp_path / "shop.yml"
        path.write_text(f"engine: embedded\nqueues: {{Sales: {{}}}}\nendpoints:\n  {name}: {{routes: {routes}}}\n")
        return load_settings(path)

    return read


def routed(settings, name="Sales"):
    endpoint = Endpoint(name)
    endpoint.configure(settings)
    return endpoint


# ------------------------------------------------------------------ which one counts
def test_a_type_is_routed_by_its_name(load):
    endpoint = routed(load("{Shop.Routed.Bill: Billing}"))

    assert endpoint.route_of(Bill) == "Billing"
    with pytest.raises(InvalidMessage, match=r"endpoints\.Sales\.routes"):
        endpoint.route_of(Ship)


def test_a_namespace_is_routed_without_those_below_it(load):
    endpoint = routed(load('{"Shop.Routed.*": Billing}'))

    assert (endpoint.route_of(Bill), endpoint.route_of(Base)) == ("Billing", "Billing")
    with pytest.raises(InvalidMessage):
        endpoint.route_of(Ship)


def test_a_type_counts_more_than_its_namespace_and_its_own_type_more_than_its_bases(load):
    endpoint = routed(load('{"Shop.Routed.*": Rest, Shop.Routed.Base: Stock, "Shop.Routed.Deep.*": Deep}'))

    assert (endpoint.route_of(Base), endpoint.route_of(Bill), endpoint.route_of(Ship)) == ("Stock", "Stock", "Deep")


def test_a_route_in_code_counts_more_than_a_namespace_in_the_file(load):
    endpoint = Endpoint("Sales")
    endpoint.route(Bill, to="Code")
    endpoint.configure(load('{"Shop.Routed.*": File}'))

    assert (endpoint.route_of(Bill), endpoint.route_of(Base)) == ("Code", "File")


def test_a_type_in_the_file_counts_more_than_its_base_in_code(load):
    endpoint = Endpoint("Sales")
    endpoint.route(Base, to="Code")
    endpoint.configure(load("{Shop.Routed.Bill: File}"))

    assert (endpoint.route_of(Bill), endpoint.route_of(Base)) == ("File", "Code")


def test_rowpost_run_refuses_an_endpoint_that_contradicts_the_file(load):
    with pytest.raises(SettingsError, match="'Elsewhere'"):
        with_endpoints(load("{Shop.Messages.OrderPlaced: Billing}"), ["tests.support.endpoints:routed_elsewhere"])


def test_another_endpoint_has_none_of_them(load):
    with pytest.raises(InvalidMessage):
        routed(load("{Shop.Routed.Bill: Billing}"), "Else").route_of(Bill)


# ------------------------------------------------------------------ contradictions and mistakes
def test_code_and_file_that_contradict_each_other_are_refused_and_both_are_named(load):
    endpoint = Endpoint("Sales")
    endpoint.route(Bill, to="Code")

    with pytest.raises(SettingsError, match=r"Shop\.Routed\.Bill.*'Code'.*'File'"):
        endpoint.configure(load("{Shop.Routed.Bill: File}"))
    endpoint.configure(load("{Shop.Routed.Bill: Code}"))
    with pytest.raises(SettingsError, match=r"Shop\.Routed\.Base.*'Code'.*'File'"):
        late = routed(load("{Shop.Routed.Base: File}"))
        late.route(Base, to="Code")


@pytest.mark.parametrize(
    ("routes", "said"),
    [
        ("{Shop.Bill: 7}", "endpoints.Sales.routes.Shop.Bill: must be a text"),
        ("{Shop.Bill: }", "Shop.Bill: missing"),
        ("{Shop.Bill: 'a@b@c@d@'}", "endpoints.Sales.routes.Shop.Bill"),
        ("{'Shop.Bill, Shop': Billing}", "without its assembly"),
        ("{'Shop.*.Bill': Billing}", "without its assembly"),
        ("{'*': Billing}", "without its assembly"),
        ("[Billing]", "must be a mapping"),
    ],
)
def test_a_mistake_is_named(load, routes, said):
    with pytest.raises(SettingsError, match=said.replace("*", r"\*")):
        load(routes)


# ------------------------------------------------------------------ at work
def test_a_handler_in_a_worker_sends_by_the_route_of_the_environment(shop, sql):
    sql.empty("Billing")
    settings = shop.settings()
    queue = QueueSettings(named("Sales"), worker=WorkerSettings("tests.support.endpoints:routed", peek_delay=0.1))
    routes = EndpointSettings("Sales", routes=(("Shop.Messages.OrderPlaced", "Billing"),))

    with Running(replace(settings, queues=(queue,), endpoints=(routes,))) as supervisor:
        Queue("Sales", shop.queue.database).send(b"{}", {"NServiceBus.EnclosedMessageTypes": "Shop.Routed.Go"})
        supervisor.until(lambda: shop.depth("Billing"), "the message in Billing")


def test_a_worker_whose_endpoint_contradicts_the_environment_is_refused(shop):
    queue = QueueSettings("Sales", worker=WorkerSettings("tests.support.endpoints:routed_elsewhere", peek_delay=0.1))
    routes = EndpointSettings("Sales", routes=(("Shop.Messages.OrderPlaced", "Billing"),))

    with Running(replace(shop.settings(), queues=(queue,), endpoints=(routes,))) as supervisor:
        supervisor.until(lambda: supervisor.seen(events.Critical), "the refusal")

    assert "'Elsewhere'" in str(supervisor.seen(events.Critical)[0])
