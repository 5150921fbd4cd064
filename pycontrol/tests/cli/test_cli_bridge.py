"""rowpost bridge as a program, between two databases."""

import pytest

from rowpost.database.connection import connect_url
from rowpost.transport.queue import Queue
from tests.support.bridges import wait_for
from tests.support.program import Program

ENVIRONMENT = (
    'environment: {name}\nengine: postgresql\nurl: "${{{variable}}}"\nqueues: {{{queue}: {{}}, error: {{}}}}\n'
)
BRIDGE = """
poll_interval: 0.02
sides:
  shop:
    environment: shop.yml
    endpoints:
      Sales: {}
  warehouse:
    environment: warehouse.yml
    endpoints:
      Stock: {subscribe: [Shop.Messages.OrderPlaced]}
"""


@pytest.fixture(scope="module")
def bridged(lasting_database, tmp_path_factory):
    """The program in a folder with both environments, deployed, and the bridge's file; installed."""
    folder = tmp_path_factory.mktemp("bridge")
    urls = {"SHOP_URL": lasting_database("embedded"), "WAREHOUSE_URL": lasting_database("embedded")}
    program = Program(None, folder, **urls)
    for name, queue in (("shop", "Sales"), ("warehouse", "Stock")):
        path = folder / f"{name}.yml"
        path.write_text(ENVIRONMENT.format(name=name, variable=f"{name.upper()}_URL", queue=queue))
        assert program("--env", path, "apply").code == 0
    (folder / "bridge.yml").write_text(BRIDGE)
    installed = program("bridge", "install", "--yes")
    assert (installed.code, installed.out) == (0, ""), installed.err
    assert "shop: Stock for warehouse" in installed.err
    return program


def database(program, side):
    return connect_url("postgresql", program.variables[f"{side.upper()}_URL"])


def send(program, side, queue, body):
    with database(program, side) as connection:
        Queue(queue, connection).send(body, {"NServiceBus.ReplyToAddress": "Sales"} if side == "shop" else {})


def bodies(program, side, queue):
    with database(program, side) as connection:
        return [message.body for message in Queue(queue, connection).browse(100)]


def test_a_second_installation_changes_nothing(bridged):
    again = bridged("bridge", "install", "--yes", "--json")

    assert again.lines == [
        {"side": "shop", "proxies": ["Stock"], "installed": []},
        {"side": "warehouse", "proxies": ["Sales"], "installed": []},
    ]


def test_the_proxy_is_subscribed_for_the_endpoint_of_the_other_side(bridged):
    listed = bridged("--env", bridged.folder / "shop.yml", "subscriptions", "list", "--json")

    assert listed.json == [{"topic": "Shop.Messages.OrderPlaced", "endpoint": "Stock", "queue": '"public"."Stock"'}]


def test_an_apply_of_an_environment_leaves_the_bridge_as_it_is(bridged):
    assert bridged("--env", bridged.folder / "shop.yml", "apply", "--yes").code == 0

    assert bridged("bridge", "run", "--until-idle").code == 0


def test_it_moves_what_waits_and_prints_events_as_json(bridged):
    send(bridged, "shop", "Stock", b"to the warehouse")
    send(bridged, "warehouse", "Sales", b"to the shop")

    done = bridged("bridge", "run", "--until-idle", "--json")

    assert done.code == 0, done.err
    moved = {(line["source"], line["queue"]): line["sent"] for line in done.lines if line["event"] == "Totals"}
    assert moved == {("shop", "Stock"): 1, ("warehouse", "Sales"): 1}
    assert {line["state"] for line in done.lines if line["event"] == "BridgeChanged"} == {"moves messages", "stopped"}
    assert bodies(bridged, "warehouse", "Stock") == [b"to the warehouse"]
    assert bodies(bridged, "shop", "Sales") == [b"to the shop"]


def test_ctrl_c_ends_it(bridged):
    with bridged.started("bridge", "run") as running:
        before = len(bodies(bridged, "warehouse", "Stock"))
        send(bridged, "shop", "Stock", b"again")
        wait_for(lambda: len(bodies(bridged, "warehouse", "Stock")) > before)
        running.interrupt()
        ended = running.ended()

    assert ended.code == 130
    assert "Stock, from shop to warehouse: 1 moved" in ended.out
    assert "bridge from shop to warehouse: stopped" in ended.out


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("bridge", "run", "absent.yml"), 3, "absent.yml: no such file"),
        (("--env", "shop.yml", "bridge", "run"), 2, "leave --env out"),
        (("bridge", "install"), 2, "pass --yes"),
    ],
)
def test_a_mistake_is_answered_in_words(bridged, arguments, code, problem):
    ended = bridged(*arguments)

    assert (ended.code, "Traceback" in ended.err) == (code, False)
    assert problem in ended.err


def test_a_queue_that_is_not_installed_is_named(bridged):
    (bridged.folder / "other.yml").write_text(BRIDGE.replace("Sales: {}", "Sales: {}\n      Mail: {}"))

    ended = bridged("bridge", "run", "other.yml")

    assert ended.code == 6
    assert "'Mail' is not deployed" in ended.err
    assert "rowpost bridge install" in ended.err


def test_install_with_run_makes_what_is_missing(bridged):
    (bridged.folder / "another.yml").write_text(BRIDGE.replace("Sales: {}", "Sales: {}\n      Post: {}"))

    ended = bridged("bridge", "run", "another.yml", "--install", "--until-idle")

    assert ended.code == 0, ended.err
    assert "the queue Post is not registered" in ended.err
