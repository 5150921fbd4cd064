"""Handlers without a database: `HandlerTest`."""

from datetime import timedelta
from unittest.mock import AsyncMock, Mock

import pytest

from rowpost import Endpoint, HandlerTest, SettingsError
from shop.charging import CardStolen, Terminal, charging
from shop.journal import noted
from shop.mailing import NoSuchAddress, mailing
from shop.messages import CardCharged, ChargeCard, PlaceOrder, SendMail
from shop.ordering import ordering
from shop.tables import Mailed, Placed


class Recorded(Terminal):
    def __init__(self) -> None:
        self.charged: list[int] = []

    def charge(self, order_id: int, card: str) -> None:
        super().charge(order_id, card)
        self.charged.append(order_id)


def test_a_plain_handler_gets_what_the_test_gives_it():
    terminal, connection = Recorded(), Mock()

    with HandlerTest(charging, terminal=terminal, connection=connection) as test:
        test.handle(ChargeCard(42))

        assert terminal.charged == [42]
        assert test.published == [CardCharged(42)]
        assert test.sent == []
    statements = [call.args[0] for call in connection.execute.call_args_list]
    assert ["surrounded" in statements[0], "charged" in statements[1]] == [True, True]


def test_what_is_not_given_is_made_by_its_provider():
    with HandlerTest(charging, connection=Mock()) as test:
        test.handle(ChargeCard(42))

    assert noted() == ["terminal opened"]
    charging.close()


def test_an_error_is_raised_and_nothing_is_kept():
    with HandlerTest(charging, connection=Mock()) as test:
        with pytest.raises(CardStolen):
            test.handle(ChargeCard(42, card="stolen"))

        assert test.all_sent == []
    charging.close()


def test_a_session_is_what_the_test_gives():
    session = Mock()
    session.get.side_effect = [None, Placed(order_id=42)]

    with HandlerTest(ordering, session=session) as test:
        test.handle(PlaceOrder(42))
        assert test.sent == [ChargeCard(42), SendMail(42)]
        assert [each.to for each in test.all_sent] == ["Charging", "Mailing"]
        test.handle(PlaceOrder(42))
        assert test.discarded == "the order is there already"

    session.add.assert_called_once()


def test_a_handler_that_uses_a_database_says_so():
    with HandlerTest(ordering) as test, pytest.raises(SettingsError, match="temporary_database"):
        test.handle(PlaceOrder(42))


def test_async_handlers_run_on_the_event_loop_of_their_resources():
    session, connection = Mock(), AsyncMock()

    with HandlerTest(mailing, session=session, connection=connection) as test:
        test.handle(SendMail(42))
        with pytest.raises(NoSuchAddress):
            test.handle(SendMail(43, address="nobody"))

    assert isinstance(session.add.call_args_list[0].args[0], Mailed)
    assert connection.execute.await_count == 2
    mailing.close()


def test_a_class_names_its_type():
    seen = []
    endpoint = Endpoint("Reminding")

    @endpoint.handles(ChargeCard)
    def remind(message: ChargeCard, context) -> None:
        seen.append(message)
        context.send_local(ChargeCard(message.order_id), delay=timedelta(days=1))

    with HandlerTest(endpoint) as test:
        test.handle(b'{"OrderId": 7, "Card": "good"}', {"NServiceBus.EnclosedMessageTypes": "Shop.ChargeCard"})

        assert seen == [ChargeCard(7)]
        assert [(each.to, each.delay) for each in test.all_sent] == [("Reminding", timedelta(days=1))]
