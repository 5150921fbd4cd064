"""The host that an environment names: in the headers of every message that an endpoint sends, audits or fails."""

import socket
from dataclasses import dataclass, replace

import pytest

from rowpost.endpoint.endpoint import Endpoint
from rowpost.errors import SettingsError
from rowpost.pipeline.pipeline import Pipeline
from rowpost.recoverability.policy import Host, Recoverability
from rowpost.settings.environment import EndpointSettings, HostSettings, load_settings
from rowpost.transport.delayed import move_due
from rowpost.transport.queue import Queue
from rowpost.wire.message_types import message_type
from tests.support.schema import named
from tests.support.workers import eventually

ID, OTHER = "0f" * 16, "a1" * 16


@message_type("Shop.Hosted")
@dataclass(frozen=True)
class Hosted:
    number: int = 1


HOSTED = HostSettings("shop-vm", ID)
TYPE = {"NServiceBus.EnclosedMessageTypes": "Shop.Do"}
HOST_ID, NAME, ORIGIN = "$.diagnostics.hostid", "$.diagnostics.hostdisplayname", "$.diagnostics.originating.hostid"


@pytest.fixture
def load(tmp_path):
    def read(text):
        path = tmp_path / "shop.yml"
        path.write_text(f"engine: embedded\nqueues: {{Sales: {{}}, error: {{}}}}\n{text}")
        return load_settings(path)

    return read


def endpoint_of(settings, fails=False):
    endpoint = Endpoint("Sales", audit_queue="audit", recoverability=Recoverability(0, 0))

    @endpoint.handles("Shop.Do", bytes)
    def do(message, context):
        context.send(b"", to="Billing", headers=TYPE)
        if fails:
            raise ValueError("no")

    endpoint.configure(settings)
    return endpoint


def one(database, queue):
    (message,) = Queue(queue, database).browse(10)
    return message.headers


# ------------------------------------------------------------------ the settings
def test_an_environment_names_its_host_and_an_endpoint_may_have_another(load):
    settings = load(
        f"host: {{name: shop-vm, id: '{ID}'}}\nendpoints: {{Billing: {{host: {{name: billing-vm}}}}, Sales: {{}}}}\n"
    )

    assert settings.host_of("Sales") == settings.host_of("Else") == HOSTED
    assert settings.host_of("Billing") == HostSettings("billing-vm")
    assert settings.host_of("Billing@[nsb]") == HostSettings("billing-vm")
    assert load("").host_of("Sales") == HostSettings()


def test_a_guid_may_be_written_with_dashes(load):
    assert load("host: {id: '0F0F0F0F-0f0f-0f0f-0f0f-0f0f0f0f0f0f'}\n").host == HostSettings(id=ID)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("host: {id: 'vm-1'}", "host.id: 'vm-1' is not a GUID"),
        ("host: {nmae: vm}", "host.nmae: unknown key: did you mean name"),
        ("host: {name: ''}", "host.name"),
        ("endpoints: {Sales: {hots: {}}}", "endpoints.Sales.hots: unknown key: did you mean host"),
    ],
)
def test_a_mistake_is_named(load, text, said):
    with pytest.raises(SettingsError, match=said):
        load(text)


def test_a_name_alone_makes_the_id_the_same_on_each_machine():
    one, other = Host("Sales", "vm1", HostSettings("shop")), Host("Sales", "vm2", HostSettings("shop"))

    assert one.id == other.id != Host("Billing", "vm1", HostSettings("shop")).id
    assert (one.display_name, Host("Sales", "vm1").display_name) == ("shop", "vm1")


# ------------------------------------------------------------------ the headers
@pytest.fixture
def settings(target, sql):
    for name in ("Sales", "Billing", "error", "audit"):
        sql.empty(name)
    return replace(
        target.settings, host=HostSettings("elsewhere", OTHER), endpoints=(EndpointSettings("Sales", HOSTED),)
    )


def test_what_an_endpoint_sends_and_audits_names_the_host_and_the_machine(settings, database, queue):
    queue.send(b"", TYPE)

    Pipeline(database, "Sales", endpoint_of(settings)).process_one()

    sent, audited = one(database, "Billing"), one(database, "audit")
    assert (sent[ORIGIN], sent["NServiceBus.OriginatingMachine"]) == (ID, socket.gethostname())
    assert (audited[HOST_ID], audited[NAME], audited["NServiceBus.ProcessingMachine"]) == (
        ID,
        "shop-vm",
        socket.gethostname(),
    )


def test_what_fails_in_a_test_of_one_message_names_the_host(settings, database, queue):
    queue.send(b"", TYPE)

    endpoint_of(settings, fails=True).process_one(database)

    failed = one(database, "error")
    assert (failed[HOST_ID], failed[NAME], failed["NServiceBus.ProcessingMachine"]) == (
        ID,
        "shop-vm",
        socket.gethostname(),
    )


def test_a_subscribers_copy_that_cannot_be_stored_names_the_host(settings, database, queue, sql):
    topic = {"endpoint": "gone", "topic": "Shop.Hosted"}
    database.call_atomically("subscribe", **topic, queue_address="Nowhere")
    endpoint = endpoint_of(settings)
    try:
        with endpoint.open(database) as bus:
            bus.publish(Hosted())
    finally:
        database.call_atomically("unsubscribe", **topic)

    assert (one(database, "error")[HOST_ID], one(database, "error")[NAME]) == (ID, "shop-vm")


def test_a_delayed_message_that_cannot_be_forwarded_names_the_host(settings, database, queue):
    headers = '{"NServiceBus.SqlServer.ForwardDestination":"Nowhere","NServiceBus.MessageId":"1"}'
    database.call("delay_message", "Sales", headers=headers, body=b"", delay_ms=0)

    eventually(
        lambda: (
            move_due(
                database, "Sales", error_queue=named("error"), host=Host.here("Sales", settings.host_of("Sales"))
            ).failed
        ),
        "the message is in the error queue",
    )

    assert (one(database, "error")[HOST_ID], one(database, "error")[NAME]) == (ID, "shop-vm")


def test_callbacks_with_settings_name_the_host_of_requests(settings, database):
    web = Endpoint("Shop.Web", send_only=True, instance="web1")
    hosted = replace(settings, endpoints=(EndpointSettings("Shop.Web", HOSTED),))
    web.callbacks(hosted)
    try:
        with web.open(database) as bus:
            bus.send(b"", to="Billing", headers=TYPE)
    finally:
        web.close()

    assert one(database, "Billing")[ORIGIN] == ID
