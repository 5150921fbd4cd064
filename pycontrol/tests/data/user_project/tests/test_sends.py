"""Functions around sends: each message of the endpoint has the header, and no other endpoint's."""

from unittest.mock import Mock

from rowpost import HandlerTest, Queue
from shop.charging import charging
from shop.messages import ChargeCard, PlaceOrder
from shop.ordering import ordering


def test_what_an_endpoint_sends_goes_through_its_function():
    session = Mock()
    session.get.return_value = None

    with HandlerTest(ordering, session=session) as test:
        test.handle(PlaceOrder(1))

        assert [each.headers["Shop.Tenant"] for each in test.all_sent] == ["north", "north"]


def test_so_does_what_a_program_sends(shop):
    with ordering.open(shop) as bus:
        bus.send(ChargeCard(1), to="Charging")
    with charging.open(shop) as bus:
        bus.send(ChargeCard(2), to="Charging")

    assert [each.headers.get("Shop.Tenant") for each in Queue("Charging", shop).browse(10)] == ["north", None]
