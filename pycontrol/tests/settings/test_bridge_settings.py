"""The file of a bridge: two environments, and what its mistakes are answered with."""

import pytest

from rowpost.errors import SettingsError
from rowpost.settings.bridge import BridgeEndpoint, load_bridge

GOOD = """
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


@pytest.fixture
def bridge_file(tmp_path):
    """Writes the file of a bridge beside two environments, and returns its path."""
    (tmp_path / "shop.yml").write_text(
        'engine: postgresql\nurl: "postgresql://app@db01/shop"\nqueues: {Sales: {}, error: {}}\n'
    )
    (tmp_path / "warehouse.yml").write_text(
        'engine: sqlserver\nurl: "Server=sql01;Database=warehouse"\ndefault_schema: nsb\nqueues: {Stock: {worker: {handler: "a:b"}}, error: {}}\n'
    )

    def write(text):
        path = tmp_path / "crossing.yml"
        path.write_text(text)
        return path

    return write


def test_each_endpoint_has_a_queue_on_its_side_and_a_proxy_on_the_other(bridge_file):
    bridge = load_bridge(bridge_file(GOOD))

    shop, warehouse = bridge.sides
    assert (bridge.name, shop.name, warehouse.name) == ("crossing", "shop", "warehouse")
    assert shop.endpoints == (BridgeEndpoint("Sales", "Sales", "Sales@[nsb]"),)
    assert warehouse.endpoints == (BridgeEndpoint("Stock", "Stock@[nsb]", "Stock", ("Shop.Messages.OrderPlaced",)),)
    assert (shop.error_queue, warehouse.error_queue) == ("error", "error@[nsb]")


def test_a_queue_may_have_another_name_than_its_endpoint(bridge_file):
    bridge = load_bridge(bridge_file(GOOD.replace("Sales: {}", "Sales: {queue: 'Sales@[eu]'}")))

    assert bridge.sides[0].endpoints == (BridgeEndpoint("Sales", "Sales@[eu]", "Sales@[nsb]"),)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "environment: warehouse.yml",
            "environment: shop.yml",
            "both sides are postgresql db01/shop: endpoints of one database need no bridge",
        ),
        ("environment: warehouse.yml", "environment: absent.yml", "no such environment file"),
        (
            "Sales: {}",
            "Stock: {}",
            "sides.warehouse.endpoints.Stock: lives on the side shop too|sides.shop.endpoints.Stock: lives on the side",
        ),
        ("Sales: {}", "Sales: {subscribes: [A]}", "sides.shop.endpoints.Sales.subscribes: .*did you mean subscribe"),
        (
            "Sales: {}",
            "Sales: {}\n      error: {}",
            "sides.warehouse.error_queue: error.* crosses the bridge: name another queue",
        ),
        ("sides:", "batch_size: 501\nsides:", "batch_size: 501 is too large"),
    ],
)
def test_a_mistake_is_named_with_its_place(bridge_file, old, new, problem):
    with pytest.raises(SettingsError, match=problem):
        load_bridge(bridge_file(GOOD.replace(old, new)))


def test_a_bridge_has_two_sides(bridge_file):
    with pytest.raises(SettingsError, match="sides: a bridge has two sides, not 1"):
        load_bridge(bridge_file("sides: {shop: {environment: shop.yml, endpoints: {Sales: {}}}}"))


def test_a_queue_with_a_worker_is_no_proxy(bridge_file):
    text = GOOD.replace("Sales: {}", "Stock: {}").replace(
        "Stock: {subscribe: [Shop.Messages.OrderPlaced]}", "Sales: {}"
    )

    with pytest.raises(
        SettingsError,
        match=r"warehouse has a worker for the queue Stock@\[nsb\], from which the bridge receives for Stock",
    ):
        load_bridge(bridge_file(text))


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"bridge\.yml: no such file"):
        load_bridge(tmp_path / "bridge.yml")
